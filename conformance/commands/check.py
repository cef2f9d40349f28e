"""The command ``check``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.fuzz import fuzz
from inputmeta.conformance.campaign.generated import claimed_paths, profile_for
from inputmeta.conformance.campaign.judging import Run, opened, run_cases
from inputmeta.conformance.campaign.known_counts import Seen
from inputmeta.conformance.campaign.wide import CHECK_BATCHES, CHECK_SECONDS, LEAST_ROUNDS, tier_of
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.commands import options
from inputmeta.conformance.commands.campaign_text import (
    Detail,
    conclude,
    coverage_text,
    part_of,
    reasons_text,
    seen_in,
    show_on,
    summary,
)
from inputmeta.conformance.commands.reports import reported
from inputmeta.conformance.console import conclusion, progress, remark, say
from inputmeta.conformance.generate.rounds import ROUND_EXAMPLES
from inputmeta.conformance.interrupts import noted
from inputmeta.conformance.workers.target import Target

app = options.command_app()


@app.command()
@options.with_target()
def check(
    target: Target,
    corpus: Annotated[
        list[Path] | None, typer.Option(help="folder of cases, may be repeated; the installed corpus if left out")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="generated cases, rounded up to hundreds")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="of the generated cases")] = 0,
    path: options.PathOption = None,
    coverage: Annotated[bool, typer.Option("--coverage", help="print how often each feature was visited")] = False,
    save_dir: options.SaveDirOption = options.SAVE_DIR,
    known_failures: options.KnownOption = None,
    write_known_failures: options.WriteKnownOption = None,
    html: options.HtmlOption = None,
) -> None:
    """Run the corpus, then generated cases: the same ones for the same seed. For CI.

    If nothing differs, batches of production size follow (the wide tier of `fuzz`): to a hundred cases 6, or a second
    of them if they are slow; none to fewer than 500 cases.

    Known failures are tables `[[known]]` of a TOML file with `signature` (VERDICT:PATH:FORMULA:FIELD:KIND) or `case`,
    `reason` and `issue`. One that no longer fails, or that nothing in this run could be, is an error.

    Example: `inputmeta check --subject my_engine.adapter:build --known-failures known.toml`
    """
    with opened(target, save_dir, options.known_in(known_failures)) as run, reported(run.summary, "check", html=html):
        code = run_check(run, corpus or [bundled_corpus()], examples=examples, seed=seed, paths=path, coverage=coverage)
        run.summary.code = code
        run.finish(write_known_failures)
    raise typer.Exit(code)


def run_check(
    run: Run, corpora: Sequence[Path], *, examples: int, seed: int, paths: Sequence[str] | None, coverage: bool
) -> int:
    """Every corpus, then generated cases; prints the result and returns the exit code."""
    claimed = claimed_paths(run.subject, paths)
    rounds = -(-examples // ROUND_EXAMPLES)
    profile = profile_for(run.subject, claimed) if rounds and claimed else None  # an error before anything is run
    code, ran = exits.CONFORMS, 0
    lines = []
    reasons: Counter[str] = Counter()
    cases = 0
    if run.subject.capabilities.dialects:
        lines.append(f"check {run.subject.name}{run.subject.capabilities.under}")
        remark(lines[0])
    for corpus in corpora:
        counts = run_cases(run, load_corpus(corpus), paths=claimed, part=f"corpus {corpus.name}")
        lines.append(f"corpus {corpus.name}: {counts}")
        remark(lines[-1])
        reasons += counts.reasons
        cases += counts.total
        code = exits.DIFFERS if counts.failed else code
        ran += counts.passed + counts.known
    if noted() is None:
        run.known.seen.append(Seen("corpus", cases, reasons))
        if reasons:
            remark(reasons_text(run.subject, reasons))
    if profile is not None and noted() is None:
        with progress(rounds * ROUND_EXAMPLES) as bar:
            shown = show_on(bar, by_cases=True)
            campaign = fuzz(run.session, profile, seed_value=seed, rounds=rounds, known=run.known, on_case=shown)
        run.summary.parts.append(part_of(campaign))
        told = f"generated, seed {seed}: " + summary(campaign)
        remark(told)
        remark(coverage_text(campaign, Detail.FORMULAS if coverage else Detail.COUNT))
        lines.append(told.splitlines()[0])
        run.known.seen.append(seen_in(campaign))
        code = max(code, conclude(campaign, run))
        ran += campaign.ran
        if rounds < LEAST_ROUNDS:
            remark(f"wide: left out, since {LEAST_ROUNDS * ROUND_EXAMPLES} generated cases and more have a share of it")
        elif code == exits.CONFORMS and noted() is None:
            wide = tier_of(run, claimed, seed).test(count=CHECK_BATCHES * rounds, seconds=CHECK_SECONDS * rounds)
            lines.append(wide.text)
            code = wide.code
    if noted() is None:
        complaints = [*map(run.known.complaint, run.known.unused()), *run.known.grown()]
        run.summary.complaints += complaints
        for complaint in complaints:
            say(complaint)
        code = exits.DIFFERS if complaints else code
    conclusion("; ".join(lines))
    return exits.NOTHING_RAN if code == exits.CONFORMS and not ran else code
