"""The command ``replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.judging import Run, run_cases
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import broken_by, load_wanted
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.commands import options
from inputmeta.conformance.commands.reports import reported
from inputmeta.conformance.console import conclusion, notice, plain_text, remark, say
from inputmeta.conformance.interrupts import held
from inputmeta.conformance.workers.target import Target

app = options.command_app()


@app.command()
@options.with_target()
def replay(
    target: Target,
    cases: Annotated[list[Path], typer.Argument(metavar="CASE…", help="case files")],
    valid: Annotated[
        bool, typer.Option("--valid", help="a case that breaks a precondition is an error, exit code 3")
    ] = False,
    known_failures: options.KnownOption = None,
    write_known_failures: options.WriteKnownOption = None,
    html: options.HtmlOption = None,
) -> None:
    """Run case files, in order and in one worker, and describe every difference. Fits `git bisect run`.

    A step that breaks a precondition must be refused for it: the line of the case says so. With `--valid` no case may
    break one. A case whose `wants` says `valid` or `refused` and is not so is not run: exit code 3.

    Example: `git bisect run inputmeta replay case.json --subject my_engine.adapter:build`
    """
    # Read before the first is run, so that a bad file costs nothing.
    loaded = [(path, load_wanted(path)) for path in cases]
    known = options.known_in(known_failures)
    if valid and tell_broken(loaded):
        raise typer.Exit(exits.REFUSED)
    with target.open() as tested, held():
        run = Run(Session(tested), target, options.SAVE_DIR, known)
        with reported(run.summary, "replay", html=html):
            code = run.summary.code = run_files(run, loaded)
            run.finish(write_known_failures)
    raise typer.Exit(code)


def tell_broken(loaded: list[tuple[Path, Case]]) -> bool:
    """Name every precondition that the cases break; whether there is one."""
    broken = [f"{path}: step {index}: {error}" for path, case in loaded for index, error in broken_by(case)]
    for line in broken:
        notice(line)
    return bool(broken)


def run_files(run: Run, loaded: list[tuple[Path, Case]]) -> int:
    """Run case files in order, a line or a description for each; returns the exit code."""

    def tell(file: Path | None, _case: Case, outcome: Outcome) -> None:
        path = plain_text(str(file))  # a name may hold what would be a line of its own
        if not outcome.ran:
            remark(f"UNSUPPORTED {path}: {run.subject.name} does not claim {outcome.left_out}")
        elif not outcome.findings:
            left = f"; not claimed: {outcome.left_out}" if outcome.left_out else ""
            compared = f"{outcome.steps} steps, {len(outcome.keys)} fields, {outcome.cells} cells"
            container = "; container checked" if outcome.container else ""
            remark(f"PASS {path}: {refused_text(outcome, compared)}{container}{left}")

    if run.subject.capabilities.dialects:
        remark(f"replay {run.subject.name}{run.subject.capabilities.under}")
    counts = run_cases(run, loaded, examine=False, on_case=tell)
    passing = run.known.passing()
    run.summary.complaints += map(run.known.complaint, passing)
    for complaint in run.summary.complaints:
        say(complaint)
    conclusion(f"{len(loaded)} cases{run.subject.capabilities.under}: {counts}")
    if counts.failed or passing:
        return exits.DIFFERS
    return exits.CONFORMS if counts.ran else exits.NOTHING_RAN


def refused_text(outcome: Outcome, compared: str) -> str:
    """What a passing case showed: the cells compared, the steps refused as they must be."""
    refused = [f"step {index} for {', '.join(sorted(broken))}" for index, broken in outcome.broken.items()]
    if not refused:
        return compared
    if len(refused) == outcome.steps == 1:
        return f"refused as required: {', '.join(sorted(outcome.broken[0]))}"
    return f"{compared}; refused as required: {'; '.join(refused)}"
