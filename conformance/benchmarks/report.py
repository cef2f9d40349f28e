"""The report of a benchmark run: what was measured on what, as JSON and as a table."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path

import msgspec
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from .measure import Spread

NOTES = (
    "Median processor time of interleaved rounds; ratios are taken round by round, in brackets their quartiles.",
    "Wide quartiles, or much less than 100% of a CPU, mean a busy machine: run again.",
    "engine: out reused, every precondition checked. numpy: fresh arrays, no precondition checked.",
    "engine fresh: no out; the allocator mostly hands back memory just freed, warm; the largest come as new pages.",
    "memset: one call a tensor, as many bytes as the tensor has defined cells; buffers rotate as those of engine do.",
    "Sequence objects are built outside these times, for engine and numpy alike; construct is that cost.",
)


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


class Report(msgspec.Struct, frozen=True):
    """A whole run; `repeat` counts rounds, `cpu_share` is processor time over wall-clock time: 1 on an idle machine."""

    command: str
    scale: str
    repeat: int
    versions: dict[str, str]
    cpu: str
    cpu_share: float
    notes: tuple[str, ...]
    measured: list[Measured]
    constructed: list[Constructed]


def versions() -> dict[str, str]:
    """Versions of what takes part; the project's own is unknown where it runs from a build tree."""
    try:
        ours = metadata.version("inputmeta-conformance")
    except metadata.PackageNotFoundError:
        ours = "not installed"
    torch_version = str(torch.__version__)
    return {"inputmeta": ours, "python": platform.python_version(), "numpy": np.__version__, "torch": torch_version}


def cpu_model() -> str:
    """The processor's name, or what the platform calls it."""
    table = Path("/proc/cpuinfo")
    lines = table.read_text().splitlines() if table.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} CPUs" if names else platform.processor() or platform.machine()


def write_json(report: msgspec.Struct, path: Path) -> None:
    """The report as indented JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def microseconds(spread: Spread) -> str:
    """A time, its median."""
    return f"{spread.median:,.0f}" if spread.median >= 100 else f"{spread.median:.1f}"


def ratio(spread: Spread) -> str:
    """A ratio, its median and its quartiles."""
    return f"{spread.median:.2f} [{spread.lower_quartile:.2f}-{spread.upper_quartile:.2f}]"


def mebibytes(size: int) -> str:
    """A size in MiB."""
    return f"{size / 2**20:.2f}"


def measured_cells(measured: list[Measured]) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of the main table."""
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
            *(ratio(one.ratios[name]) for name in quotients),
        ]
        for above, one in zip([None, *measured], measured, strict=False)
    ]
    return heading, rows


def constructed_cells(constructed: list[Constructed]) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of the table of constructions."""
    heading = ["construct engine.SequenceMetadata", "sequences", "MiB copied", "us"]
    rows = [
        [one.workload, str(one.sequences), mebibytes(one.copied), microseconds(one.microseconds)] for one in constructed
    ]
    return heading, rows


def plain_table(heading: list[str], rows: list[list[str]]) -> str:
    """The cells in columns, numbers to the right.

    >>> print(plain_table(["a", "b"], [["x", "10"], ["long", "5"]]))
    a      b
    x     10
    long   5

    """
    widths = [max(len(row[column]) for row in [heading, *rows]) for column in range(len(heading))]
    lines = []
    for row in [heading, *rows]:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]))
    return "\n".join(lines)


def print_report(report: Report) -> None:
    """A rich table on a terminal, plain columns otherwise."""
    tables = [measured_cells(report.measured), constructed_cells(report.constructed)]
    software = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    machine = f"{report.cpu}, {report.cpu_share:.0%} of one; {software}; {report.repeat} rounds"
    heads = [report.command, machine, *report.notes]
    if not sys.stdout.isatty():
        print("\n".join(heads))
        for heading, rows in tables:
            print("\n" + plain_table(heading, rows))
        return
    console = Console()
    for line in heads:
        console.print(line, highlight=False)
    for heading, rows in tables:
        table = Table(*heading[:2])
        for name in heading[2:]:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
