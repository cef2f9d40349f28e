"""Windows of keys: their order, their width, and the buffer that a prompt's windows point into."""

from __future__ import annotations

from functools import partial

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.base import Invisible, field_by_field, like, nowhere, require_shape, wide
from inputmeta.conformance.dialects.rows import Rows, rows_of

INDEX_FIELDS = ("kv_swa_index", "kv_swa_full_index")
TILE = 128
"""Columns to whose multiple ``padded-width`` rounds up."""
PADDED = "padded-width"
BUFFERS = "buffers-by-request"
WORKSPACES = "workspaces-by-request"


def reversed_windows(key: str, index: np.ndarray) -> np.ndarray:
    """Each row's keys in the opposite order, -1 to the right of them as before. Its own inverse.

    Keys are the cells up to the last that is not -1. A row that begins with -1 stays as it is: were it turned, it could
    pass for one that does not.

    >>> reversed_windows("kv_swa_index", np.array([[5, 6, 7, -1], [-1, 5, -1, -1]])).tolist()
    [[7, 6, 5, -1], [-1, 5, -1, -1]]
    """
    require_shape("newest-first", key, index, (None, None), "a row of keys a query row")
    width = index.shape[1]
    if not index.size:
        return index
    lengths = np.where(index[:, 0] != -1, width - np.argmax(index[:, ::-1] != -1, axis=1), 0)
    columns = np.arange(width)
    turned = lengths[:, None] - 1 - columns
    return np.take_along_axis(index, np.where(turned >= 0, turned, columns), axis=1)


def padded_to(width: int, index: np.ndarray) -> np.ndarray:
    """Rows with columns of -1 added up to ``width``; wider ones stay."""
    missing = max(0, width - index.shape[1])
    return np.pad(index, ((0, 0), (0, missing)), constant_values=-1)


def cut_to(width: int, index: np.ndarray) -> np.ndarray:
    """Rows without their columns past ``width``, if these hold -1 alone; else as they are, a wrong shape.

    >>> cut_to(2, np.array([[3, 4, -1]])).shape, cut_to(2, np.array([[3, 4, 5]])).shape
    ((1, 2), (1, 3))
    """
    return index[:, :width] if (index[:, width:] == -1).all() else index


def tile_of(width: int) -> int:
    """A width rounded up to a multiple of TILE."""
    return -(-width // TILE) * TILE


def pad(request: Request, key: str, index: np.ndarray) -> np.ndarray:
    """Windows as wide as their tiles."""
    require_shape(PADDED, key, index, (None, None), "a row of keys a query row")
    return padded_to(tile_of(request.config.window_size), index)


def unpad(request: Request, key: str, index: np.ndarray) -> np.ndarray:
    """Windows of ``window_size`` columns."""
    width = tile_of(request.config.window_size)
    rule = f"window_size {request.config.window_size} rounded up to a multiple of {TILE}"
    require_shape(PADDED, key, index, (None, width), rule)
    return cut_to(request.config.window_size, index)


def to_request_buffers(index: np.ndarray, rows: Rows, window: int, history: np.ndarray) -> np.ndarray:
    """Rows of the specification's window buffer -> rows of one buffer a request, these laid end to end.

    The specification has all histories, W rows a sequence, and then all new rows (F-PIVOT); a buffer of a request has
    its ``history`` [n_seq] rows, the newest last, and then its new ones. What is not of the row's own sequence, or is
    no row of its buffer, is right nowhere.
    """
    given, index, q = index, wide(index), rows.seqlen_q
    begins = np.cumsum(q) - q
    sequence = np.maximum(rows.sequence, 0)[:, None]
    old = index - sequence * window
    new = index - len(q) * window - begins[sequence]
    past, own = (old >= 0) & (old < window), (new >= 0) & (new < q[sequence])
    place = np.where(past, old - window, new) + history[sequence]
    fits = rows.queries[:, None] & (past | own) & (place >= 0)
    bases = np.cumsum(history + q) - (history + q)
    return like(given, np.where(fits, bases[sequence] + place, nowhere(index)))


def from_request_buffers(index: np.ndarray, rows: Rows, window: int, history: np.ndarray) -> np.ndarray:
    """The inverse of :func:`to_request_buffers`."""
    given, index, q = index, wide(index), rows.seqlen_q
    begins, bases = np.cumsum(q) - q, np.cumsum(history + q) - (history + q)
    sequence = np.maximum(rows.sequence, 0)[:, None]
    place = index - bases[sequence]
    fits = rows.queries[:, None] & (place >= 0) & (place < (history + q)[sequence])
    new = place - history[sequence]
    row = np.where(new < 0, sequence * window + window + new, len(q) * window + begins[sequence] + new)
    return like(given, np.where(fits, row, nowhere(index)))


def change_buffers(request: Request, key: str, index: np.ndarray, *, by_request: bool) -> np.ndarray:
    """Windows of a prompt in the other numbering; a history is min(q_start, W) rows."""
    rows = rows_of(request, key)
    require_shape(BUFFERS, key, index, (len(rows), None), "a row of keys a query row (I-3: at least one)")
    window = request.config.window_size
    change = to_request_buffers if by_request else from_request_buffers
    return change(index, rows, window, np.minimum(rows.seqlen_k - rows.seqlen_q, window))


def workspaces(request: Request, rows: Rows) -> tuple[int, np.ndarray]:
    """Rows of each request's workspace, and how many of them are history, int64 [n_seq]: at most W - 1, and none of
    what is not to be trusted.
    """
    starts = np.array([sequence.swa_valid_start for sequence in request.sequences], dtype=np.int64)
    trusted = np.maximum(0, rows.seqlen_k - rows.seqlen_q - starts)
    window = request.config.window_size
    return window - 1 + int(rows.seqlen_q.max()), np.minimum(trusted, window - 1)


def change_workspaces(request: Request, key: str, index: np.ndarray, *, by_request: bool) -> np.ndarray:
    """Windows of a prompt in the other numbering; -1 stays, what is not of the row's own sequence is right nowhere."""
    rows = rows_of(request, key)
    require_shape(WORKSPACES, key, index, (len(rows), None), "a row of keys a query row (I-3: at least one)")
    size, history = workspaces(request, rows)
    window, count, q = request.config.window_size, len(rows.seqlen_q), rows.seqlen_q
    begins, sequence = np.cumsum(q) - q, np.maximum(rows.sequence, 0)[:, None]
    if by_request:
        old, new = wide(index) - (sequence + 1) * window, wide(index) - count * window - begins[sequence]
        place = np.where((old >= -window) & (old < 0), old, new) + history[sequence]
        moved = sequence * size + place
        own = (place < history[sequence]) == ((old >= -window) & (old < 0))
    else:
        place = wide(index) - sequence * size
        new = place - history[sequence]
        moved = np.where(new < 0, (sequence + 1) * window + new, count * window + begins[sequence] + new)
        own = place >= 0
    own &= rows.queries[:, None] & (index >= 0) & (place >= 0) & (place < (history + q)[sequence])
    return like(index, np.where(own, moved, nowhere(wide(index))))


NEWEST_FIRST = field_by_field(
    name="newest-first",
    says="the keys of a window are listed from the newest to the oldest",
    fields=INDEX_FIELDS,
    forward=lambda _, key, index: reversed_windows(key, index),
    translate=lambda _, key, index: reversed_windows(key, index),
)
PADDED_WIDTH = field_by_field(
    name=PADDED,
    says=f"windows have columns of -1 up to a multiple of {TILE}",
    fields=INDEX_FIELDS,
    forward=pad,
    translate=unpad,
    invisible=(Invisible("returns-extra-cells", "", "one more column of -1 is what the dialect pads with"),),
)
BY_REQUEST = field_by_field(
    name=BUFFERS,
    says="windows of a prompt point into a buffer a request, its last min(q_start, W) keys and then its new rows",
    fields={"kv_swa_full_index"},
    forward=partial(change_buffers, by_request=True),
    translate=partial(change_buffers, by_request=False),
)
BY_WORKSPACE = field_by_field(
    name=WORKSPACES,
    says="windows of a prompt point into a workspace of W - 1 + the most new rows a request: its last trusted keys, at "
    "most W - 1, and then its new rows",
    fields={"kv_swa_full_index"},
    forward=partial(change_workspaces, by_request=True),
    translate=partial(change_workspaces, by_request=False),
)
