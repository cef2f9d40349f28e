"""What every benchmark reports: what was measured on what, as JSON and as tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from inputmeta.conformance.benchmarks.measure import Spread
from inputmeta.conformance.gpu.summary import Machine, write_json

PACKAGE = "python -m inputmeta.conformance.benchmarks"
PLAIN_WIDTH = 240
"""Columns where stdout is no terminal: no line is broken."""


class ScaleName(StrEnum):
    """Sizes of a run: tiny ones only show that it runs."""

    FULL = "full"
    TINY = "tiny"


Json = Annotated[Path | None, typer.Option("--json", help="Also write the report as JSON to this file.")]
Repeat = Annotated[int, typer.Option(min=1, help="Rounds; for generated cases, cases of each tier.")]
ScaleOption = Annotated[ScaleName, typer.Option("--scale", help="tiny times mean nothing.")]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The head of every report. `repeat` counts rounds, or cases where each case is a round."""

    command: str
    machine: Machine
    repeat: int
    notes: tuple[str, ...]

    def tables(self) -> Iterator[Table]:
        """What was measured."""
        raise NotImplementedError


class Measured(msgspec.Struct, frozen=True):
    """One operation on one workload. `written`: bytes; times in microseconds a call, by contender; ratios of times."""

    workload: str
    operation: str
    sequences: int
    total_q: int
    tensors: int
    written: int
    microseconds: dict[str, Spread]
    ratios: dict[str, Spread]


class Constructed(msgspec.Struct, frozen=True):
    """Building a workload's engine sequences from numpy arrays. `copied`: bytes; times in microseconds a batch."""

    workload: str
    sequences: int
    copied: int
    microseconds: Spread


def command_line(program: str = "") -> str:
    """The command that runs now: one of the package's programs with its arguments."""
    return " ".join([PACKAGE + program, *sys.argv[1:]])


def microseconds(values: Spread) -> str:
    """A time: its median."""
    return f"{values.median:,.0f}" if values.median >= 100 else f"{values.median:.1f}"


def spread(values: Spread, digits: int = 2) -> str:
    """A quantity: its median and its quartiles, with so many decimals."""
    return f"{values.median:,.{digits}f} [{values.lower_quartile:,.{digits}f}-{values.upper_quartile:,.{digits}f}]"


def mebibytes(size: int) -> str:
    """A size in MiB."""
    return f"{size / 2**20:.2f}"


def measured_table(measured: list[Measured]) -> Table:
    """A line an operation; all have the same contenders."""
    times = list(measured[0].microseconds)
    quotients = list(measured[0].ratios)
    heading = ["workload", "operation", "tensors", "MiB", *(f"{name} us" for name in times), *quotients]
    rows = [
        [
            "" if above and one.workload == above.workload else one.workload,
            one.operation,
            str(one.tensors),
            mebibytes(one.written),
            *(microseconds(one.microseconds[name]) for name in times),
            *(spread(one.ratios[name]) for name in quotients),
        ]
        for above, one in zip([None, *measured], measured, strict=False)
    ]
    return table(heading, rows)


def table(heading: list[str], rows: Iterable[list[str]]) -> Table:
    """The cells in columns, numbers to the right."""
    found = Table(box=None, pad_edge=False)
    for column, name in enumerate(heading):
        found.add_column(name, justify="right" if column else "left", no_wrap=True)
    for row in rows:
        found.add_row(*row)
    return found


def publish(report: Report, json: Path | None) -> None:
    """Print a report, and write it to a file if one is given."""
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    here = report.machine
    software = ", ".join(f"{name} {version}" for name, version in here.versions.items())
    where = "; ".join([*([here.gpu] if here.gpu else []), here.processor, software, f"{report.repeat} rounds"])
    for line in (report.command, where, *report.notes):
        console.print(line, soft_wrap=True)
    for one in report.tables():
        console.print()
        console.print(one)
    if json is not None:
        write_json(report, json)
