"""The bundled cases, and how a hand-worked value ("pin") is written.

Pins come from the specification by hand, never from the oracle: a mistake of the oracle differs from them. A pin is
``{field key: cells}`` of one case, found by its title. ``"2/klen.4"`` is the field of step 2; without a number, step 0.
Cells are words: ``7``, ``T`` and ``F``, ``_`` for a cell that is not defined, ``-1x125`` for 125 cells, ``4..7`` for
4 5 6 7; ``|`` ends a row. ``absent``: the batch has no such field. ``refused`` lists what a step breaks as
``condition sequence field`` (``-``: the configuration), or the conditions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inputmeta.conformance.cases.corpus import load_corpus
from inputmeta.conformance.cases.model import Array, Case, Cell, StepExpected

Pins = dict[str, str]
CheckPins = Callable[[str, Pins], None]

CASES = Path(__file__).parents[1] / "cases"
FLAGS: dict[str, Cell] = {"T": True, "F": False, "_": None}


def cells_of(word: str) -> Iterator[Cell]:
    """The cells that one word of a pin stands for."""
    begin, span, end = word.partition("..")
    if span:
        yield from range(int(begin), int(end) + 1)
        return
    value, _, count = word.partition("x")
    yield from [FLAGS[value] if value in FLAGS else int(value)] * int(count or 1)


def rows_of(text: str) -> list[list[Cell]]:
    """The rows of cells that a pin stands for."""
    return [[cell for word in row.split() for cell in cells_of(word)] for row in text.split("|")]


def rows_in(array: Array) -> list[list[Cell]]:
    """The rows of an expected field; a scalar and a vector are one row."""
    if not array.shape:
        return [[array.data]]
    return [list(row) for row in array.data] if len(array.shape) == 2 else [list(array.data)]


def typed(rows: list[list[Cell]]) -> list[list[tuple[type, Cell]]]:
    """Cells with their types: in Python True equals 1."""
    return [[(type(cell), cell) for cell in row] for row in rows]


def check_refusal(expected: StepExpected, text: str) -> None:
    """What a step breaks is what the pin says."""
    found = [f"{r.condition} {'-' if r.sequence is None else r.sequence} {r.field}" for r in expected.refused]
    conditions = [word for word in text.split() if word.startswith("P-")]
    if conditions == text.split():
        assert sorted({entry.split()[0] for entry in found}) == conditions
    else:
        assert found == [text]


@pytest.fixture(scope="session")
def cases_by_title() -> dict[str, Case]:
    """The bundled corpus."""
    return {case.title: case for _, case in load_corpus(CASES)}


@pytest.fixture(scope="session")
def check_pins(cases_by_title: dict[str, Case]) -> CheckPins:
    """Compares the expectation in a case file with its pins."""

    def check(title: str, pins: Pins) -> None:
        expected = cases_by_title[title].expected
        for key, text in pins.items():
            step, _, name = key.rpartition("/")
            of_step = expected[int(step or 0)]
            if name == "refused":
                check_refusal(of_step, text)
            elif text == "absent":
                assert not of_step.refused
                assert name not in of_step.fields, key
            else:
                assert typed(rows_in(of_step.fields[name])) == typed(rows_of(text)), key

    return check
