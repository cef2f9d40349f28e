"""What of a field is kept beside its first differing cell, to be shown: bounded, whatever the field's size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_TILES = (24, 48)
"""Tiles of the heat map of a field: down its rows, along its columns."""
WINDOW = (12, 16)
"""Rows and columns that are kept as they are, the first differing cell among them."""

Numbers = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Evidence:
    """How the differing cells of a field are spread, and what stands around the first of them.

    A field of one cell a row has one column, a scalar one row. Where only some rows are compared, those are its rows.
    """

    shape: tuple[int, int]
    """Compared rows and columns."""
    tile: tuple[int, int]
    """Rows and columns of a tile."""
    heat: Numbers
    """Differing cells of each tile."""
    rows: tuple[int, ...]
    """Of the window: numbers of the field's rows."""
    columns: tuple[int, ...]
    got: Numbers
    """The cells of the window as they were built."""
    want: tuple[tuple[int | None, ...], ...]
    """The same as they should be; None where a cell is not defined."""


def evidence_of(
    actual: np.ndarray,
    values: np.ndarray,
    defined: np.ndarray | None,
    wrong: np.ndarray,
    *,
    rows: np.ndarray | None,
    first: tuple[int, ...],
) -> Evidence:
    """The evidence on a field.

    ``actual``, ``values``, ``defined`` and ``wrong`` are of one shape, of the compared rows: what was built, what is
    wanted, whether it is, and whether it differs. ``rows``: numbers of the compared rows; None: all. ``first``: the
    first differing cell among them.

    >>> wrong = np.arange(6).reshape(3, 2) % 5 == 1
    >>> found = evidence_of(np.ones((3, 2), int), np.arange(6).reshape(3, 2), None, wrong, rows=None, first=(0, 1))
    >>> found.heat, found.got[0], found.want[1]
    (((0, 1), (0, 0), (0, 0)), (1, 1), (2, 3))
    """
    height, width = as_table(wrong).shape
    tile = tuple(-(-size // most) for size, most in zip((height, width), MOST_TILES, strict=True))
    spots = [begin_of(at, size, most) for at, size, most in zip(in_table(first), (height, width), WINDOW, strict=True)]
    part = tuple(slice(begin, begin + most) for begin, most in zip(spots, WINDOW, strict=True))
    want = as_table(values)[part].tolist()
    if defined is not None:
        known = as_table(defined)[part].tolist()
        lines = zip(want, known, strict=True)
        want = [[cell if there else None for cell, there in zip(*line, strict=True)] for line in lines]
    numbers = range(height) if rows is None else rows.tolist()
    return Evidence(
        shape=(height, width),
        tile=(tile[0], tile[1]),
        heat=tuples(tiled(as_table(wrong), (tile[0], tile[1]))),
        rows=tuple(numbers[part[0]]),
        columns=tuple(range(width)[part[1]]),
        got=tuples(as_table(actual)[part].astype(np.int64).tolist()),
        want=tuples(want),
    )


def as_table(array: np.ndarray) -> np.ndarray:
    """The array as rows of cells."""
    return array.reshape(array.shape[0] if array.ndim else 1, -1) if array.size else array.reshape(0, 1)


def in_table(index: tuple[int, ...]) -> tuple[int, int]:
    """The row and column of a cell in it."""
    return (*index, 0, 0)[:2]  # type: ignore[return-value]


def begin_of(at: int, size: int, most: int) -> int:
    """Where a window of ``most`` begins that has ``at`` a third from its beginning, if there is more than it shows.

    >>> begin_of(1, 100, 12), begin_of(50, 100, 12), begin_of(99, 100, 12), begin_of(3, 5, 12)
    (0, 46, 88, 0)
    """
    return max(0, min(at - most // 3, size - most))


def tiled(wrong: np.ndarray, tile: tuple[int, int]) -> list[list[int]]:
    """The differing cells of each tile."""
    counts = wrong.astype(np.int64)
    for axis, size in enumerate(tile):
        if size > 1:
            counts = np.add.reduceat(counts, range(0, wrong.shape[axis], size), axis=axis)
    result: list[list[int]] = counts.tolist()
    return result


def tuples(rows: list[list[Any]]) -> tuple[tuple[Any, ...], ...]:
    """Rows that do not change."""
    return tuple(map(tuple, rows))
