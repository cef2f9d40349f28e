"""What a picture is made of, whoever draws it: bars along an axis, and grids of cells. Plain data, nothing of a page.

``left_out`` of a figure says what of it is not shown; it is empty if all of it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["history", "untrusted", "chunk", "draft", "padding", "placeholder", "keys", "rows"]
KINDS: dict[Kind, str] = {
    "history": "history: keys of earlier steps",
    "untrusted": "history whose ring cells are not to be trusted",
    "chunk": "chunk: rows of this step",
    "draft": "drafts",
    "padding": "padding",
    "placeholder": "placeholder",
    "keys": "keys that a row sees",
    "rows": "query rows",
}
"""What a span of a bar is, and what a legend says of it."""

State = Literal["plain", "stored", "empty", "undefined", "differs", "failing", "want", "got", "heat"]
STATES: dict[State, str] = {
    "plain": "",
    "stored": "written by this step",
    "empty": "nothing of the batch",
    "undefined": "not defined",
    "differs": "differs",
    "failing": "the first cell that differs",
    "want": "where the first differing cell should point",
    "got": "where it points",
    "heat": "cells that differ",
}
"""What a cell is, and what a legend says of it."""


class Span(NamedTuple):
    """A part of a bar: ``length`` units from ``start`` on. ``text``: which, in words."""

    start: int
    length: int
    kind: Kind
    text: str
    sequence: int | None = None
    """Coloured by it; None: by its kind."""


class Mark(NamedTuple):
    """A place on a bar that is pointed at."""

    at: int
    state: State
    text: str


class Lane(NamedTuple):
    """One bar of several."""

    label: str
    text: str
    """What it shows, in words."""
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...] = ()
    is_at_fault: bool = False


@dataclass(frozen=True)
class Bars:
    """Bars along one axis from ``begin`` to ``end``, in ``unit``."""

    title: str
    text: str
    unit: str
    begin: int
    end: int
    lanes: tuple[Lane, ...]
    left_out: str = ""

    @property
    def kinds(self) -> dict[Kind, str]:
        """What the spans are, for a legend."""
        there = {span.kind for lane in self.lanes for span in lane.spans}
        return {kind: text for kind, text in KINDS.items() if kind in there}


class Cell(NamedTuple):
    """One cell of a grid. ``want``: what it should be, if it differs. ``note``: more of it, in words."""

    text: str
    state: State = "plain"
    sequence: int | None = None
    want: str = ""
    note: str = ""
    level: int = 0
    """Of a heat map: 0 for nothing, to 4 for all."""


class Row(NamedTuple):
    """One row of a grid."""

    label: str
    cells: tuple[Cell, ...]
    is_at_fault: bool = False


@dataclass(frozen=True)
class Grid:
    """Cells in rows and columns. Rows may be shorter than the columns are many."""

    title: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    corner: str = ""
    """What the labels of the rows are."""
    left_out: str = ""

    @property
    def is_heat(self) -> bool:
        """Whether it is a heat map: tiles by their levels, without text."""
        return any(cell.level for row in self.rows for cell in row.cells)

    @property
    def states(self) -> dict[State, str]:
        """What the cells are, for a legend."""
        there = {cell.state for row in self.rows for cell in row.cells}
        return {state: text for state, text in STATES.items() if state in there and text}


Figure = Bars | Grid


class Shown(NamedTuple):
    """Which of several things are shown: a run of them, the one at fault among them."""

    first: int
    end: int
    total: int

    def __contains__(self, index: object) -> bool:
        """Whether it is one of them."""
        return isinstance(index, int) and self.first <= index < self.end

    def left_out(self, what: str) -> str:
        """What is not shown.

        >>> Shown(0, 16, 4096).left_out("sequences"), Shown(0, 3, 3).left_out("sequences")
        ('sequences 0 to 15 of 4,096', '')
        """
        return f"{what} {self.first} to {self.end - 1} of {self.total:,}" if self.end - self.first < self.total else ""


def shown(total: int, most: int, at: int | None = None) -> Shown:
    """At most so many of ``total`` things, ``at`` in their middle if not all fit.

    >>> shown(3, 16), shown(4096, 16, 2000)
    (Shown(first=0, end=3, total=3), Shown(first=1992, end=2008, total=4096))
    """
    first = max(0, min((at or 0) - most // 2, total - most))
    return Shown(first, min(total, first + most), total)
