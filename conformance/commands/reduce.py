"""The command ``reduce``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.examine import Examiner
from inputmeta.conformance.campaign.failures import Failure, roots, seen_on
from inputmeta.conformance.campaign.judging import Run, opened, tell
from inputmeta.conformance.campaign.known import KnownFailures
from inputmeta.conformance.campaign.reducer import Reducer
from inputmeta.conformance.campaign.reducing import OnTry, reduce_failure
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import load_wanted
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.commands import options
from inputmeta.conformance.console import conclusion, fail, progress, remark, say
from inputmeta.conformance.interrupts import Interrupted, noted
from inputmeta.conformance.workers.target import Target

EXAMINE_SHARE = 0.3
"""Of the time: to find out how a failure comes back, and which of the files before it it needs."""

ReduceOne = Callable[[Failure, float], Failure]
"""Reduces a failure within some seconds."""

app = options.command_app()


@app.command()
@options.with_target()
def reduce(
    target: Target,
    cases: Annotated[
        list[Path], typer.Argument(metavar="CASE…", help="case files, run in order; the first that fails is reduced")
    ],
    seconds: Annotated[float, typer.Option(min=0, help="the time of it all; the best so far is saved")] = 60.0,
    any_signature: Annotated[
        bool, typer.Option("--any-signature", help="a smaller case that fails in another way will do")
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, max=64, help="workers that run cases of the search; it finds the same with any number")
    ] = 1,
    save_dir: options.SaveDirOption = options.SAVE_DIR,
) -> None:
    """Make failing cases smaller until no single step further fails, and say from which sizes on they fail.

    Case files are run in order in one worker, as `replay` does; the first that fails is reduced, each of its findings
    that follows from no other apart, together with the files before it if it needs them. Steps and sequences are left
    out, sequences put together, lengths, ids and the configuration lowered; a case that is valid stays so. The same
    case and subject give the same result, if there is time enough. `--jobs` runs cases before they are asked for, in
    workers of their own: it pays where the subject is slow.

    Example: `inputmeta reduce case.json --subject my_engine.adapter:build --seconds 30`
    """
    # Read before the first is run, so that a bad file costs nothing.
    loaded = [load_wanted(path) for path in cases]
    if jobs > 1 and target.in_process:
        raise fail("--jobs: with --in-process there are no workers")
    end = time.monotonic() + seconds
    with opened(target, save_dir, KnownFailures()) as run, progress(seconds) as bar:
        reduce_one = partial(reduce_failure, run.session, any_signature=any_signature, on_try=show_on(bar), jobs=jobs)
        code = run_reduce(run, loaded, end, reduce_one)
    raise typer.Exit(code)


def run_reduce(run: Run, cases: list[Case], end: float, reduce_one: ReduceOne) -> int:
    """Reduce the first case that fails; prints the result and returns the exit code."""
    case, outcome = first_failing(run, cases)
    if not outcome.findings:
        return nothing_to_reduce(run, outcome)
    failures = seen_on(case, outcome.findings, run.session.mark())
    found = {root.failure.finding.signature: root.failure for root in roots(failures)}
    remark(f"reduce {run.subject.name}: {', '.join(found)}")
    for index, (signature, failure) in enumerate(found.items()):
        share = (end - time.monotonic()) / (len(found) - index)
        found[signature] = reduced(run, failure, share, reduce_one)
    tell(
        run,
        [found.get(failure.finding.signature, failure) for failure in failures],
        examine=False,
    )
    conclusion(f"reduce {run.subject.name}: {len(found)} reduced")
    return exits.DIFFERS


def first_failing(run: Run, cases: list[Case]) -> tuple[Case, Outcome]:
    """The first case that fails, run in order, and its outcome; the last one if none does. Raises Interrupted."""
    ran = Outcome()
    for case in cases:
        outcome = run.session.run(case)
        if outcome.findings:
            return case, outcome
        ran = outcome if outcome.ran or not ran.ran else ran
    return cases[-1], ran


def nothing_to_reduce(run: Run, outcome: Outcome) -> int:
    """Say so; the exit code."""
    if outcome.ran:
        say(f"nothing to reduce: {run.subject.name} conforms")
        return exits.CONFORMS
    say(f"nothing to reduce: {run.subject.name} does not claim {outcome.left_out}")
    return exits.NOTHING_RAN


def reduced(run: Run, failure: Failure, seconds: float, reduce_one: ReduceOne) -> Failure:
    """The failure on a smaller case, with what it needs before it; as it was if it does not come back each time."""
    end = time.monotonic() + seconds
    smaller = reduce_one(failure, (1 - EXAMINE_SHARE) * seconds)
    if smaller.reduced:  # it fails by itself
        return labelled(run, smaller, EXAMINE_SHARE * seconds)
    found = labelled(run, failure, EXAMINE_SHARE * seconds)
    if found.finding.verdict is Verdict.FLAKY or noted() is not None:
        return replace(found, reduced=f"{found.reduced}; not reduced")
    left = end - time.monotonic()
    smaller = reduce_one(replace(found, reduced=""), left)
    return replace(smaller, reduced=f"{found.reduced}; {smaller.reduced or 'not reduced'}")


def labelled(run: Run, failure: Failure, seconds: float) -> Failure:
    """The failure with how it comes back in what is said of it, and on the case, after those, that it then needs."""
    try:
        examined = Examiner(run.session, seconds=seconds, total=seconds).examine(failure)
    except Interrupted as error:
        return replace(failure, reduced="; ".join(text for text in (f"not examined: {error}", failure.reduced) if text))
    label = "; ".join(text for text in (f"{examined.label}: {examined.note}", failure.reduced) if text)
    return replace(failure, finding=examined.finding, case=examined.case, before=examined.before, reduced=label)


def show_on(bar: Progress) -> OnTry:
    """Progress of a search: cases run, and what is left of the case."""

    def show(reducer: Reducer) -> None:
        sequences = sum(map(len, reducer.case.steps))
        text = f"reducing {reducer.runs} cases run, {sequences} sequences in {len(reducer.case.steps)} steps"
        bar.update(bar.task_ids[0], completed=bar.tasks[0].elapsed or 0, description=text)

    return show
