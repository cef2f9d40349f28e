"""The command ``replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.judging import Run, run_cases
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.commands.options import (
    SAVE_DIR,
    KnownOption,
    WriteKnownOption,
    command_app,
    known_in,
    with_target,
)
from inputmeta.conformance.console import say
from inputmeta.conformance.workers.target import Target

app = command_app()


@app.command()
@with_target()
def replay(
    target: Target,
    cases: Annotated[list[Path], typer.Argument(metavar="CASE…", help="case files")],
    known_failures: KnownOption = None,
    write_known_failures: WriteKnownOption = None,
) -> None:
    """Run case files, in order and in one worker, and describe every difference. Fits `git bisect run`.

    Example: `git bisect run inputmeta replay case.json --subject my_engine.adapter:build`
    """
    # Read before the first is run, so that a bad file costs nothing.
    loaded = [(path, load_case(path)) for path in cases]
    known = known_in(known_failures)
    with target.open() as tested:
        run = Run(Session(tested), target, SAVE_DIR, known)
        code = run_files(run, loaded)
    run.finish(write_known_failures)
    raise typer.Exit(code)


def run_files(run: Run, loaded: list[tuple[Path, Case]]) -> int:
    """Run case files in order, a line or a description for each; returns the exit code."""

    def tell(path: Path | None, _case: Case, outcome: Outcome) -> None:
        if not outcome.ran:
            say(f"UNSUPPORTED {path}: {run.subject.name} does not claim {', '.join(sorted(outcome.unsupported))}")
        elif not outcome.findings:
            left = f"; not claimed: {', '.join(sorted(outcome.unsupported))}" if outcome.unsupported else ""
            say(f"PASS {path}: {outcome.steps} steps, {len(outcome.keys)} fields, {outcome.cells} cells{left}")

    counts = run_cases(run, loaded, examine=False, on_case=tell)
    passing = run.known.passing()
    for entry in passing:
        say(run.known.complaint(entry))
    if counts.failed or passing:
        return exits.DIFFERS
    return exits.CONFORMS if counts.ran else exits.NOTHING_RAN
