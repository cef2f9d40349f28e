"""Cells of the ring in another order: pages of a cyclic table, rings numbered by place in the batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.base import field_by_field, like, nowhere, require_shape, wide
from inputmeta.conformance.dialects.rows import rows_of

CELL_FIELDS = (
    "slot_mapping_store_swa",
    "yoco_consumer_slot_mapping_store_swa",
    "kv_swa_index",
    "kv_swa_index_offset_len",
)
"""Fields of ring cells, the last one in its first column."""
CYCLIC = "cyclic-table"
PLACES = "rings-by-place"


def to_pages(cells: np.ndarray, states: np.ndarray, tables: np.ndarray, page: int) -> np.ndarray:
    """Ring cells -> cells of the pages that a cyclic table names.

    ``cells`` [rows, …]; ``states``, ``tables`` [rows], [rows, n]: the state and the n pages of ``page`` cells of the
    row's sequence, B = n·page. Position pos lies in ``table[(pos // page) % n] * page + pos % page``. -1 stays; what is
    not of the row's own ring is right nowhere.

    >>> to_pages(np.array([[8, 11, -1, 3]]), np.array([2]), np.array([[7, 5]]), page=2).tolist()
    [[14, 11, -1, -5]]
    """
    given, cells = cells, wide(cells).reshape(len(states), -1)
    place = cells - states[:, None] * tables.shape[1] * page
    own = (cells >= 0) & (place >= 0) & (place < tables.shape[1] * page)
    pages = np.take_along_axis(tables, np.where(own, place // page, 0), axis=1)
    return like(given, np.where(own, pages * page + place % page, nowhere(cells)).reshape(given.shape))


def from_pages(cells: np.ndarray, states: np.ndarray, tables: np.ndarray, page: int) -> np.ndarray:
    """The inverse of :func:`to_pages`; a page that the row's table has not is right nowhere.

    >>> from_pages(np.array([[14, 11, -1, 3]]), np.array([2]), np.array([[7, 5]]), page=2).tolist()
    [[8, 11, -1, -5]]
    """
    given, cells = cells, wide(cells).reshape(len(states), -1)
    found = (cells // page)[:, :, None] == tables[:, None, :]
    own = (cells >= 0) & found.any(axis=2)
    place = found.argmax(axis=2) * page + cells % page
    cell = states[:, None] * tables.shape[1] * page + place
    return like(given, np.where(own, cell, nowhere(cells)).reshape(given.shape))


MOST_PAGES = 64


def pages_of(ring: int) -> int:
    """In how many pages the dialect cuts a ring: its smallest divisor from 2 to MOST_PAGES, or 1.

    >>> pages_of(12), pages_of(7), pages_of(67)
    (2, 7, 1)
    """
    return next((count for count in range(2, MOST_PAGES + 1) if ring % count == 0), 1)


def change_cells(request: Request, key: str, values: np.ndarray, *, pages: bool) -> np.ndarray:
    """Cells of a field in pages, or back. The pages of a state are its own cells, the last page first."""
    rows, ring = rows_of(request, key), request.config.swa_block_size
    require_rows(CYCLIC, key, values, len(rows))
    states = rows.of([sequence.state_id for sequence in request.sequences])
    count = pages_of(ring)
    tables = states[:, None] * count + np.arange(count)[::-1]
    change = to_pages if pages else from_pages
    return at_cells(key, values, rows.queries, lambda cells: change(cells, states, tables, ring // count))


def require_rows(dialect: str, key: str, values: np.ndarray, rows: int) -> None:
    """Raise DialectError unless a field of cells has a row a query row, and as many dimensions as it should."""
    columns: tuple[int | None, ...] = ()
    if key == "kv_swa_index":
        columns = (None,)
    elif key == "kv_swa_index_offset_len":
        columns = (2,)
    require_shape(dialect, key, values, (rows, *columns), "a row a query row (I-3: at least one)")


def at_cells(
    key: str, values: np.ndarray, queries: np.ndarray, change: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """A field with its cells changed, in the rows that have a query: in others nothing is a cell."""
    run = key == "kv_swa_index_offset_len"
    cells = values[:, 0] if run else values
    mask = queries.reshape(-1, *[1] * (cells.ndim - 1))
    changed = np.where(mask, change(cells), cells)
    return np.stack([changed, values[:, 1]], axis=1) if run else changed


def change_rings(request: Request, key: str, values: np.ndarray, *, places: bool) -> np.ndarray:
    """Cells, or ids, of rings numbered by place in the batch, or back."""
    ids = [sequence.state_id for sequence in request.sequences]
    if key == "state_block_idx" and request.path == "prompt":
        require_shape(PLACES, key, values, (len(ids),), "one a sequence")
        return renumbered(values, np.array(ids), np.arange(len(ids)), 1, places=places)
    rows = rows_of(request, key)
    states, at = rows.of(ids), rows.of(range(len(ids)))
    size = 1 if key == "state_block_idx" else request.config.swa_block_size
    require_rows(PLACES, key, values, len(rows))
    return at_cells(key, values, rows.queries, lambda cells: renumbered(cells, states, at, size, places=places))


def renumbered(cells: np.ndarray, states: np.ndarray, at: np.ndarray, size: int, *, places: bool) -> np.ndarray:
    """Cells of the row's own block of ``size`` cells, moved to where that block is in the other numbering.

    ``cells`` [rows, …]; ``states``, ``at`` [rows]: the block of the row's sequence, and its place in the batch. -1
    stays; what is not of the row's own block is right nowhere.

    >>> renumbered(np.array([[9, 8, -1, 3]]), np.array([2]), np.array([0]), 4, places=True).tolist()
    [[1, 0, -1, -5]]
    """
    here, there = (states, at) if places else (at, states)
    given, cells = cells, wide(cells)
    rows = (-1, *[1] * (cells.ndim - 1))
    place = cells - here.reshape(rows) * size
    own = (cells >= 0) & (place >= 0) & (place < size)
    return like(given, np.where(own, there.reshape(rows) * size + place, nowhere(cells)))


OVERWRITTEN = "overwritten-rows-stored"
STORE_FIELDS = ("slot_mapping_store_swa", "yoco_consumer_slot_mapping_store_swa")


def swap_overwritten(request: Request, key: str, slots: np.ndarray) -> np.ndarray:
    """-1 and the row's own ring cell swapped, where a later row of the step lies in the same cell; others stay."""
    rows, ring = rows_of(request, key), request.config.swa_block_size
    require_rows(OVERWRITTEN, key, slots, len(rows))
    states = rows.of([sequence.state_id for sequence in request.sequences])
    live = rows.of([not sequence.is_placeholder for sequence in request.sequences]) == 1
    overwritten = rows.queries & live & (rows.position + ring < rows.of(rows.seqlen_k))
    own = states * ring + rows.position % ring
    swapped = np.select([slots == -1, slots == own], [own, -1], wide(slots))
    return like(slots, np.where(overwritten, swapped, slots))


OVERWRITTEN_ROWS = field_by_field(
    name=OVERWRITTEN,
    says="a row whose ring cell a later row of the same step overwrites has its slot, not -1",
    fields=STORE_FIELDS,
    forward=swap_overwritten,
    translate=swap_overwritten,
)
CYCLIC_TABLE = field_by_field(
    name=CYCLIC,
    says="a ring is pages of a cyclic table: position pos lies in table[(pos // page) % n] * page + pos % page",
    fields=CELL_FIELDS,
    forward=partial(change_cells, pages=True),
    translate=partial(change_cells, pages=False),
)
RING_FIELDS = (*CELL_FIELDS, "state_block_idx")
BY_PLACE = field_by_field(
    name=PLACES,
    says="rings are numbered by the place of their sequence in the batch, not by state id",
    fields=RING_FIELDS,
    forward=partial(change_rings, places=True),
    translate=partial(change_rings, places=False),
)
