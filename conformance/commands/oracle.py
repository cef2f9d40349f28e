"""The command ``oracle``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from inputmeta import oracle
from inputmeta.conformance import exits
from inputmeta.conformance.cases.files import CaseError, load_case
from inputmeta.conformance.cases.request import Request, affordable_expansions, field_array, step_request
from inputmeta.conformance.commands.options import command_app, one_line_errors
from inputmeta.conformance.console import notice, say

PRINTED_CELLS = 2**22
"""Largest expansion, in cells, that the command `oracle` prints."""

app = command_app()


@app.command("oracle")
def oracle_command(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="case file")],
    output: Annotated[Path, typer.Option("--output", "-o", help="file to write, - for stdout")] = Path("-"),
    step: Annotated[int | None, typer.Option(min=0, help="needed if the case has several steps")] = None,
) -> None:
    """Print every expected field of a case as JSON: `{name: {dtype, shape, data}}`.

    Buckets are named by ratio (`klen.4`); `data` is nested by shape, and null where a cell is not defined.

    Example: `inputmeta oracle case.json --step 1 -o expected.json`
    """
    with one_line_errors():
        code = print_oracle(case, output, step)
    raise typer.Exit(code)


def chosen_step(path: Path, step: int | None) -> Request:
    """A step of a case file: the one that is said, or the only one.

    Raises:
        CaseError: the file cannot be used, or the step is not there or not said.
    """
    case = load_case(path)
    if step is None and len(case.steps) > 1:
        raise CaseError(f"{path}: has {len(case.steps)} steps; say which with --step")
    if step is not None and step >= len(case.steps):
        raise CaseError(f"{path}: step {step}, but there are {len(case.steps)}")
    return step_request(case, step or 0)


def print_oracle(path: Path, output: Path, step: int | None) -> int:
    """Write what the oracle expects of one step of a case; returns the exit code.

    Raises:
        CaseError: the file cannot be used, or the step is not there or not said.
    """
    request = chosen_step(path, step)
    broken = request.violations()
    if broken:
        for error in broken:
            notice(f"{path}: {error}")
        return exits.REFUSED
    expand = affordable_expansions(request.config, request.sequences, PRINTED_CELLS)
    request = dataclasses.replace(request, expand=expand)
    for name in sorted(set(oracle.EXPANSIONS) - expand):
        notice(f"{name}: left out, it has more than {PRINTED_CELLS} cells")
    fields = {key: msgspec.to_builtins(field_array(field)) for key, field in request.expected().items()}
    lines = (f" {json.dumps(key)}: {json.dumps(array)}" for key, array in fields.items())
    text = "{\n" + ",\n".join(lines) + "\n}"
    if output == Path("-"):
        say(text)
    else:
        try:
            output.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise CaseError(f"{output}: {error.strerror}") from error
    return exits.CONFORMS
