"""The record of planted faults, ``PLANTS.md``: after how many cases and seconds each was seen, and by what."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from inputmeta.conformance.engines.jobs import Told
from inputmeta.conformance.engines.plants import Plant

FILE = Path(__file__).parent / "PLANTS.md"
HEAD = """# Faults planted in the engines' sources

Written by `ci/engines --record`. Each fault is a changed line of a release; its subject is run on generated cases, the
same for all, until one shows something that is not known. Seconds are those of the search, the subject's loading
included, on a machine that does other work too; nothing is shrunk. A fault that shows on batches of production size
alone is fuzzed.

| subject | fault | file | cases | seconds | shown by |
|---|---|---|---|---|---|
"""
COUNTED = re.compile(r"(\S+) cases in (\S+) s")


def row(plant: Plant, told: Told) -> str:
    """A line of the table."""
    counted = COUNTED.search(told.says) if not told.problem else None
    cases, seconds = counted.groups() if counted else ("not seen", "")
    shown = told.says.rpartition("; ")[2].replace(" - ", " ") if counted else ""
    return f"| {plant.subject} | {plant.name} | `{plant.file}` | {cases} | {seconds} | {shown} |"


def key(line: str) -> tuple[str, ...]:
    """Subject and fault of a line."""
    return tuple(line.split(" | ")[:2])


def record(found: Iterable[tuple[Plant, Told]], before: str = "") -> str:
    """The whole file; what was not looked for stays as it was ``before``."""
    new = {key(line): line for line in (row(plant, told) for plant, told in found)}
    rows = before.splitlines()[HEAD.count("\n") :]
    old = {key(line): line for line in rows if line.startswith("| ")}
    lines = sorted((old | new).values())
    seen = sum("| not seen |" not in line for line in lines)
    return HEAD + "\n".join(lines) + f"\n\n{seen} of {len(lines)} seen.\n"
