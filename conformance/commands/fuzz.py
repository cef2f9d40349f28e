"""The command ``fuzz``."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated

import typer

from inputmeta import oracle
from inputmeta.conformance import exits
from inputmeta.conformance.campaign.fuzz import LATE_SECONDS, LATE_SHARE
from inputmeta.conformance.campaign.fuzz import fuzz as run_campaign
from inputmeta.conformance.campaign.generated import claimed_paths, profile_for
from inputmeta.conformance.campaign.judging import Run, opened
from inputmeta.conformance.campaign.wide import LEAST_SECONDS, SHARE, tier_of
from inputmeta.conformance.commands import options
from inputmeta.conformance.commands.campaign_text import (
    Detail,
    conclude,
    coverage_text,
    part_of,
    seen_in,
    show_on,
    summary,
)
from inputmeta.conformance.commands.reports import reported
from inputmeta.conformance.console import conclusion, fail, notice, plain_text, progress, remark, say
from inputmeta.conformance.interrupts import noted
from inputmeta.conformance.workers.target import Target

app = options.command_app()


@app.command()
@options.with_target()
def fuzz(
    target: Target,
    seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="the time of the whole run, shrinking and labelling of failures included; what fails in its last "
            "fifth may add a fifth, 9 s at most",
        ),
    ] = 60.0,
    seed: Annotated[int | None, typer.Option(min=0, help="printed; drawn if left out")] = None,
    path: options.PathOption = None,
    save_dir: options.SaveDirOption = options.SAVE_DIR,
    wide: Annotated[
        str | None, typer.Option(metavar="SEED:INDEX", help="run one batch of the wide tier, as a report names it")
    ] = None,
    coverage: Annotated[bool, typer.Option("--coverage", help="print every feature, not a line a formula")] = False,
    known_failures: options.KnownOption = None,
    write_known_failures: options.WriteKnownOption = None,
    html: options.HtmlOption = None,
) -> None:
    """Generate batches until the time is up or the subject differs from the oracle.

    A failure is shrunk, replayed in fresh workers and in a warm one, saved as a case file, described, and printed with
    the command that replays it. Every run prints its seed and a table of the domain features it visited; a reachable
    feature that was not is named. Known failures do not end the run.

    If nothing differs, a fifth of the time goes to the wide tier: batches of production size (1,024 sequences, contexts
    of 131,072 tokens, tables of 100,000 columns), compared with a vectorised reference and confirmed by the oracle.

    Example: `inputmeta fuzz --subject my_engine.adapter:build --seconds 20 --seed 1`
    """
    chosen = secrets.randbelow(2**31) if seed is None else seed
    if wide is not None:
        batch_named(wide)  # said before anything is started
    with opened(target, save_dir, options.known_in(known_failures)) as run, reported(run.summary, "fuzz", html=html):
        if wide is not None:
            code = run_wide_batch(run, *batch_named(wide), path)
        else:
            code = run_fuzz(run, seconds, chosen, path, full_coverage=coverage)
        run.summary.code = code
        run.finish(write_known_failures)
    raise typer.Exit(code)


def run_fuzz(run: Run, seconds: float, seed: int, paths: Sequence[str] | None, *, full_coverage: bool) -> int:
    """Fuzz one subject; prints the result and returns the exit code."""
    subject = run.subject
    claimed = claimed_paths(subject, paths)
    if not claimed:
        say(f"nothing to fuzz: {subject.name} claims none of the paths {', '.join(paths or oracle.PATHS)}")
        return exits.NOTHING_RAN
    profile = profile_for(subject, claimed)
    share = SHARE * seconds if SHARE * seconds >= LEAST_SECONDS else 0.0
    split = f"{share:g} s of them wide" if share else "too few for the wide tier"
    what = f"fuzz {subject.name}{subject.capabilities.under}: seed {seed}"
    remark(f"{what}, {seconds:g} s, {split}, paths {', '.join(profile.paths)}")
    with progress(seconds - share) as bar:
        campaign = run_campaign(
            run.session, profile, seed_value=seed, seconds=seconds - share, known=run.known, on_case=show_on(bar)
        )
    run.known.seen.append(seen_in(campaign))
    run.summary.parts.append(part_of(campaign))
    remark(summary(campaign))
    remark(coverage_text(campaign, Detail.FEATURES if full_coverage else Detail.FORMULAS))
    code = conclude(campaign, run)
    told = f"{what}, {summary(campaign).splitlines()[0]}"
    if share and code == exits.CONFORMS and noted() is None:
        late = min(LATE_SHARE * seconds, LATE_SECONDS)
        wide = tier_of(run, claimed, seed).test(seconds=share, late=late)
        told += f"; {wide.text}"
        code = wide.code
    conclusion(told)
    if noted() is None:
        run.summary.complaints += [*map(run.known.complaint, run.known.unused()), *run.known.grown()]
        for complaint in run.summary.complaints:
            notice(complaint)
    return code


def batch_named(text: str) -> tuple[int, int]:
    """Seed and index that ``SEED:INDEX`` names; typer.Exit if it names none.

    >>> batch_named("7:12")
    (7, 12)
    """
    parts = text.split(":")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise fail(f"--wide {plain_text(text)}: want SEED:INDEX, two whole numbers")
    seed, index = map(int, parts)
    if seed >= 2**63 or index >= 2**62:
        raise fail(f"--wide {text}: SEED is below 2**63, INDEX below 2**62")
    return seed, index


def run_wide_batch(run: Run, seed: int, index: int, paths: Sequence[str] | None) -> int:
    """Run one batch of the wide tier; prints the result and returns the exit code."""
    wide = tier_of(run, claimed_paths(run.subject, paths), seed).test(first=index, count=1)
    conclusion(f"fuzz {run.subject.name}: {wide.text}")
    return exits.NOTHING_RAN if wide.code == exits.CONFORMS and not wide.ran else wide.code
