"""The command ``show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.cases.files import CaseError, load_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.commands import options
from inputmeta.conformance.console import say
from inputmeta.conformance.console import show as show_drawn
from inputmeta.conformance.interrupts import held
from inputmeta.conformance.report.picture import picture_of
from inputmeta.conformance.report.terminal import drawn
from inputmeta.conformance.workers.target import Target

MOST_STEPS = 4
"""Steps that are drawn where none is asked for."""

app = options.command_app()


@app.command()
@options.with_target(needed=False)
def show(
    target: Target | None,
    case: Annotated[Path, typer.Argument(metavar="CASE", help="case file")],
    step: Annotated[int | None, typer.Option(min=0, help="draw this step alone")] = None,
) -> None:
    """Draw a case: sequences, block tables, rings, key ranges, ranks, and what a subject has wrong of it.

    Sequences are bars (history, chunk, drafts, padding), block tables and rings are cells coloured by sequence. With a
    subject, the case is run: of each finding the first differing cell is marked, with what it should be and what it is,
    and the cells that differ are a heat map. The exit code is then that of `replay`. Of more sequences, rows and
    columns than fit, some are drawn, those at fault among them; each figure says how many there are.

    Example: `inputmeta show case.json --subject my_engine.adapter:build`
    """
    loaded = load_case(case)
    if step is not None and step >= len(loaded.steps):
        raise CaseError(f"{case}: step {step}, but there are {len(loaded.steps)}")
    raise typer.Exit(show_case(loaded, step) if target is None else show_findings(loaded, step, target))


def show_case(case: Case, step: int | None) -> int:
    """Draw the steps of a case; returns the exit code."""
    steps = list(range(len(case.steps))) if step is None else [step]
    for index in steps[:MOST_STEPS]:
        draw(case, index)
    if len(steps) > MOST_STEPS:
        say(f"\n{len(steps) - MOST_STEPS} more steps: --step N draws one")
    return exits.CONFORMS


def show_findings(case: Case, step: int | None, target: Target) -> int:
    """Draw what a subject has wrong of a case, a picture a finding; returns the exit code."""
    with target.open() as subject, held():
        outcome = run_case(case, subject)
    findings = [found for found in outcome.findings if step in (None, found.step)]
    for found in findings:
        say(f"{found.signature}: {found.detail}")
        draw(case, found.step, found)
        say("")
    if outcome.findings:
        return exits.DIFFERS
    say(f"{'PASS' if outcome.ran else 'UNSUPPORTED'}: {subject.name}")
    show_case(case, step)
    return exits.CONFORMS if outcome.ran else exits.NOTHING_RAN


def draw(case: Case, step: int, finding: Finding | None = None) -> None:
    """Draw one step."""
    picture = picture_of(case, step, finding)
    show_drawn(lambda width: drawn(picture, width))
