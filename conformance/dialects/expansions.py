"""Expanded keys of dense ratios: how wide they are, and the buffer that a prompt's point into; and starts of rows."""

from __future__ import annotations

from functools import partial

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.base import (
    Invisible,
    field_by_field,
    like,
    nowhere,
    per_block,
    ratio_of,
    require_shape,
    wide,
)
from inputmeta.conformance.dialects.bases import LISTS
from inputmeta.conformance.dialects.rows import Rows, rows_of
from inputmeta.conformance.dialects.windows import TILE, cut_to, padded_to, tile_of

WIDTH = "width-by-table"
BEHIND = "keys-behind-windows"
STARTS = "starts-without-end"


def to_table_width(request: Request, key: str, index: np.ndarray) -> np.ndarray:
    """Expanded keys [rows, width] cut to the compressed tokens that fit the batch's longest table."""
    require_shape(WIDTH, key, index, (None, None), "a row of keys a query row")
    columns = max((len(sequence.block_table) for sequence in request.sequences), default=0)
    return cut_to(max(1, columns * per_block(request, key)), index)


def from_table_width(request: Request, key: str, index: np.ndarray) -> np.ndarray:
    """The inverse of :func:`to_table_width`, of any width: columns of -1 are added, or taken away."""
    require_shape(WIDTH, key, index, (None, None), "a row of keys a query row")
    width = max(TILE, tile_of(request.config.max_model_len // ratio_of(key)))  # F-CAOFF
    return padded_to(width, cut_to(width, index))


def listed(rows: Rows, ratio: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Masks [rows, columns] of the keys that a row sees, and of all that its sequence has."""
    places = np.arange(columns)
    seen = np.where(rows.queries, (rows.position + 1) // ratio, 0)
    kept = np.where(rows.queries, rows.of(rows.seqlen_k) // ratio, 0)
    return places < seen[:, None], places < kept[:, None]


def bases(request: Request, rows: Rows, ratio: int) -> np.ndarray:
    """Where the compressed keys of a row's sequence begin in the engine's buffer: int64 [rows]."""
    q, k = rows.seqlen_q, rows.seqlen_k
    history = np.minimum(k - q, request.config.window_size)
    lengths = history + q + k // ratio
    return rows.of(np.cumsum(lengths) - lengths + history + q)


def change_behind(request: Request, key: str, index: np.ndarray, *, behind: bool) -> np.ndarray:
    """Numbers of the sequence's own compressed keys -> rows of one buffer a request, these laid end to end; or back.

    A buffer has the window's history, the new rows, and the compressed tokens. All of the sequence's are listed, also
    those that a row does not see: a length says how many it reads. What is no key of the row's own sequence, or stands
    where another one is listed that is not seen, is right nowhere.
    """
    if request.path != "prompt":
        return index
    rows, ratio = rows_of(request, key), ratio_of(key)
    require_shape(BEHIND, key, index, (len(rows), None), "a row of keys a query row (I-3: at least one)")
    seen, kept = listed(rows, ratio, index.shape[1])
    begins = bases(request, rows, ratio)[:, None]
    place = wide(index) - (0 if behind else begins)
    own = rows.queries[:, None] & (index >= 0) & (place >= 0) & (place < (rows.of(rows.seqlen_k) // ratio)[:, None])
    moved = np.where(own, place + (begins if behind else 0), nowhere(wide(index)))
    unseen, columns = ~seen & kept, np.arange(index.shape[1])
    if behind:
        return like(index, np.where(unseen & (index == -1), begins + columns, moved))
    wrong = np.where(index == -1, -2, nowhere(wide(index)))
    return like(index, np.where(unseen, np.where(place == columns, -1, wrong), moved))


def without_end(request: Request, key: str, sums: np.ndarray) -> np.ndarray:
    """Prefix sums [n + 1] without the last one; other paths as they are."""
    if request.path == "decode_zos":
        return sums
    require_shape(STARTS, key, sums, (len(request.sequences) + 1,), "a start a sequence, and the end")
    return sums[:-1]


def with_end(request: Request, key: str, starts: np.ndarray) -> np.ndarray:
    """The inverse of :func:`without_end`: the end is the batch's total."""
    if request.path == "decode_zos":
        return starts
    require_shape(STARTS, key, starts, (len(request.sequences),), "a start a sequence")
    total = sum(sequence.seqlen_q for sequence in request.sequences)
    return np.append(starts, np.array([total], dtype=starts.dtype))


WIDTH_BY_TABLE = field_by_field(
    name=WIDTH,
    says="expanded keys have a column for each compressed token that fits the longest table",
    fields=("kv_ca_index",),
    forward=to_table_width,
    translate=from_table_width,
    invisible=(Invisible("returns-extra-cells", "", "a column of -1 more or less is what the dialect adds"),),
)
BEHIND_WINDOWS = field_by_field(
    name=BEHIND,
    says="a prompt's compressed keys lie in a buffer a request, behind its window and new rows; each row lists all of "
    "its sequence, a length says how many it reads",
    fields=("kv_ca_index",),
    forward=partial(change_behind, behind=True),
    translate=partial(change_behind, behind=False),
    requires=(LISTS,),
)
STARTS_WITHOUT_END = field_by_field(
    name=STARTS,
    says="prefix sums have no last entry: a start a sequence",
    fields=("cu_seqlens_q",),
    forward=without_end,
    translate=with_end,
    invisible=(Invisible("", "cu_seqlens_q", "the last sum is none of the engine's"),),
)
