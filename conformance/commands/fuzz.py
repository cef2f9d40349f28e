"""The command ``fuzz``."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated

import typer

from inputmeta import oracle
from inputmeta.conformance import exits
from inputmeta.conformance.campaign.fuzz import fuzz as run_campaign
from inputmeta.conformance.campaign.generated import claimed_paths, profile_for
from inputmeta.conformance.campaign.judging import Run, opened
from inputmeta.conformance.commands import options
from inputmeta.conformance.commands.campaign_text import Detail, conclude, coverage_text, show_on, summary
from inputmeta.conformance.console import conclusion, notice, progress, remark, say
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
    coverage: Annotated[bool, typer.Option("--coverage", help="print every feature, not a line a formula")] = False,
    known_failures: options.KnownOption = None,
    write_known_failures: options.WriteKnownOption = None,
) -> None:
    """Generate batches until the time is up or the subject differs from the oracle.

    A failure is shrunk, replayed in fresh workers and in a warm one, saved as a case file, described, and printed with
    the command that replays it. Every run prints its seed and a table of the domain features it visited; a reachable
    feature that was not is named. Known failures do not end the run.

    Example: `inputmeta fuzz --subject my_engine.adapter:build --seconds 20 --seed 1`
    """
    chosen = secrets.randbelow(2**31) if seed is None else seed
    with opened(target, save_dir, options.known_in(known_failures)) as run:
        code = run_fuzz(run, seconds, chosen, path, full_coverage=coverage)
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
    remark(f"fuzz {subject.name}: seed {seed}, {seconds:g} s, paths {', '.join(profile.paths)}")
    with progress(seconds) as bar:
        shown = show_on(bar)
        campaign = run_campaign(run.session, profile, seed_value=seed, seconds=seconds, known=run.known, on_case=shown)
    remark(summary(campaign))
    remark(coverage_text(campaign, Detail.FEATURES if full_coverage else Detail.FORMULAS))
    code = conclude(campaign, run)
    conclusion(f"fuzz {subject.name}: seed {seed}, {summary(campaign).splitlines()[0]}")
    for entry in run.known.unused() if noted() is None else ():
        notice(run.known.complaint(entry))
    return code
