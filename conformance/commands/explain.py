"""The command ``explain``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from inputmeta.conformance.cases.files import CaseError
from inputmeta.conformance.commands.options import command_app, one_line_errors
from inputmeta.conformance.commands.oracle import chosen_step
from inputmeta.conformance.console import fail, say
from inputmeta.conformance.explain.cell import NoCellError, explained
from inputmeta.conformance.explain.telling import tell

app = command_app()


@app.command()
def explain(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="a case file")],
    field: Annotated[str, typer.Argument(metavar="FIELD", help="a flat key, with its ratio where it has one: klen.4")],
    place: Annotated[
        str, typer.Argument(metavar="[ROW[,COLUMN]]", help="of the cell; nothing for a scalar", show_default=False)
    ] = "",
    step: Annotated[int | None, typer.Option(min=0, help="needed if the case has several steps")] = None,
) -> None:
    """Say how one cell comes about: formulas in symbols, then numbers, down to the inputs.

    Every intermediate is a line below what it is for, with the conditions that led to it and the input it came from.
    The value is the specification's, not a subject's.

    Example: `inputmeta explain case.json kv_swa_full_index_pivots 5,2`
    """
    with one_line_errors():
        for line in told(case, field, indices(place), step):
            say(line)


def told(path: Path, field: str, place: tuple[int, ...], step: int | None) -> Iterator[str]:
    """What is said of a cell of a case.

    Raises:
        CaseError: the file cannot be used, or has no such step or cell; the step is refused.
    """
    request = chosen_step(path, step)
    for broken in request.violations():
        raise CaseError(f"{path}: the step breaks a precondition, so no field has a value: {broken}")
    try:
        yield from tell(explained(request, field, place))
    except NoCellError as error:
        raise CaseError(f"{path}: {error}") from error


def indices(text: str) -> tuple[int, ...]:
    """``5,2`` as (5, 2)."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise fail(f"{text}: a cell is ROW or ROW,COLUMN, counted from 0")
    return tuple(map(int, parts))
