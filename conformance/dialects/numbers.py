"""Numbers written in another way: int64, another sentinel, ids one higher, lengths of at least 1."""

from __future__ import annotations

from functools import partial

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.base import (
    Invisible,
    field_by_field,
    integer_fields,
    like,
    narrowed,
    nowhere,
    per_block,
    ratio_of,
    require_shape,
    wide,
)
from inputmeta.conformance.dialects.rows import query_rows, rows_of

SLOTS = ("slot_mapping_store_ca", "slot_mapping_store_swa", "yoco_consumer_slot_mapping_store_swa")
"""Fields of cells that are stored to, -1 for none."""
NULL_BLOCK = "null-block-0"
NULL_STATE = "null-state-0"
SENTINEL = "sentinel-0"


def defined_tables(request: Request, tables: np.ndarray) -> np.ndarray:
    """F-BLOCKS: the mask of the cells of ``block_tables`` [rows, columns] that are defined."""
    config, rows = request.config, query_rows(request)
    smallest = config.ca_ratios[0]
    counts = rows.of(-(-(rows.seqlen_k // smallest) // (config.block_size // smallest)))
    require_shape("int64", "block_tables", tables, (len(rows), None), "a row a query row (I-3: at least one)")
    mask: np.ndarray = np.arange(tables.shape[1]) < counts[:, None]
    return mask


def to_int32(request: Request, key: str, values: np.ndarray) -> np.ndarray:
    """int64 as int32 where nothing is lost (:func:`narrowed`); what is not int64 stays."""
    if values.dtype != np.int64:
        return values
    return narrowed(values, defined_tables(request, values) if key == "block_tables" else None)


def other_sentinel(values: np.ndarray, here: int, there: int) -> np.ndarray:
    """Values with one sentinel for another; where ``there`` stood already, a value that is right nowhere.

    >>> other_sentinel(np.array([7, -1, 0], dtype=np.int32), -1, 0).tolist()
    [7, 0, -2]
    """
    taken = np.where(values == there, nowhere(values) if there >= 0 else -2, wide(values))
    return like(values, np.where(values == here, there, taken))


def ids_higher(ids: np.ndarray, by: int = 1) -> np.ndarray:
    """Ids, or cells, one block higher (``by`` cells); negative ones are sentinels and stay.

    >>> ids_higher(np.array([0, 3, -1])).tolist()
    [1, 4, -1]
    """
    return like(ids, np.where(ids >= 0, wide(ids) + by, ids))


def ids_lower(ids: np.ndarray, by: int = 1) -> np.ndarray:
    """The inverse of :func:`ids_higher`; what points into the null block is right nowhere.

    >>> ids_lower(np.array([1, 4, -1, 0])).tolist()
    [0, 3, -1, -2]
    """
    return like(ids, np.where(ids >= by, wide(ids) - by, nowhere(ids)))


def shift_block(request: Request, key: str, values: np.ndarray, *, higher: bool) -> np.ndarray:
    """Ids or cells of the pool of compressed blocks, a block up or down."""
    shift = ids_higher if higher else ids_lower
    if key == "block_tables":
        return shift(values)
    if key.startswith("load_segments_ca."):
        require_shape(NULL_BLOCK, key, values, (None, 4), "segments are [src_block_id, src_begin, src_end, dst_offset]")
        return first_column(values, shift(values[:, 0]))
    if key.startswith("kv_ca_index.") and request.path == "prompt":
        return values  # rows of a buffer, not cells of the pool (I-44)
    return shift(values, per_block(request, key))


def shift_state(request: Request, key: str, values: np.ndarray, *, higher: bool) -> np.ndarray:
    """Ids or cells of the state cache, a state block up or down. Rows without a query name no state."""
    shift = ids_higher if higher else ids_lower
    if key == "load_segments_swa":
        require_shape(NULL_STATE, key, values, (None, 4), "segments are [src_block_id, src_begin, src_end, dst_offset]")
        return first_column(values, shift(values[:, 0]))
    if key == "state_block_idx" and request.path == "prompt":
        return shift(values)
    if key in ("state_block_idx", "kv_swa_index_offset_len"):
        rows = rows_of(request, key)
        columns = (2,) if key == "kv_swa_index_offset_len" else ()
        require_shape(NULL_STATE, key, values, (len(rows), *columns), "a row a query row (I-3: at least one)")
        cells = values[:, 0] if columns else values
        shifted = np.where(rows.queries, shift(cells, request.config.swa_block_size if columns else 1), cells)
        return first_column(values, shifted) if columns else shifted
    return shift(values, request.config.swa_block_size)


def first_column(values: np.ndarray, column: np.ndarray) -> np.ndarray:
    """An array with another first column."""
    return np.concatenate([column[:, None], values[:, 1:]], axis=1)


LENGTHS = ("klen", "context_lens", "kv_ca_index_len", "kv_ca_index_offset_len", "kv_swa_index_offset_len")
"""Fields of a decode step that hold a length, alone or in the second column."""


def lengths_known_zero(request: Request, key: str) -> np.ndarray:
    """Mask of the rows whose length is 0: without a query, or before their first compressed token is complete."""
    rows = rows_of(request, key)
    if "." not in key:
        return ~rows.queries
    empty: np.ndarray = ~rows.queries | ((rows.position + 1) // ratio_of(key) == 0)
    return empty


def change_lengths(request: Request, key: str, values: np.ndarray, *, at_least_1: bool) -> np.ndarray:
    """Lengths below 1 as 1; or, where the length is known to be 0, 1 as 0 and 0 as a value that is right nowhere."""
    if request.path == "prompt" and not key.startswith("klen."):
        return values
    pair = key.partition(".")[0].endswith("offset_len")
    empty = lengths_known_zero(request, key)
    shape = (len(empty), 2) if pair else (len(empty),)
    require_shape("lengths-at-least-1", key, values, shape, "a row a query row (I-3: at least one)")
    cells = values[:, 1] if pair else values
    if at_least_1:
        changed = np.maximum(cells, 1)
    else:
        changed = np.where(empty, np.select([cells == 1, cells == 0], [0, -2], cells), cells).astype(cells.dtype)
    return np.stack([values[:, 0], changed], axis=1) if pair else changed


NO_SENTINEL = "no-query-sentinel"
FAULTING = 998244353
"""F-QIDX: what stands for the index of a placeholder."""


def swap_sentinel(request: Request, key: str, indices: np.ndarray) -> np.ndarray:
    """The two values of a placeholder's row, its index in the batch and the faulting one, swapped; others stay."""
    rows = rows_of(request, key)
    require_shape(NO_SENTINEL, key, indices, (len(rows),), "a row a query row (I-3: at least one)")
    idle = rows.of([sequence.is_placeholder for sequence in request.sequences]) == 1
    swapped = np.select([indices == FAULTING, indices == rows.sequence], [rows.sequence, FAULTING], indices)
    return like(indices, np.where(idle, swapped, indices))


BLOCK_FIELDS = ("block_tables", "load_segments_ca", "slot_mapping_store_ca", "kv_ca_index")
STATE_FIELDS = (
    "state_block_idx",
    "slot_mapping_store_swa",
    "yoco_consumer_slot_mapping_store_swa",
    "load_segments_swa",
    "kv_swa_index_offset_len",
    "kv_swa_index",
)

INT64 = field_by_field(
    name="int64",
    says="integer tensors are int64; a value outside int32 keeps the array int64, which is a mismatch of its dtype",
    fields=integer_fields(),
    forward=lambda _, __, values: wide(values) if values.dtype == np.int32 else values,
    translate=to_int32,
    invisible=(Invisible("returns-int64", "", "int64 is what the dialect says"),),
)
NULL_BLOCKS = field_by_field(
    name=NULL_BLOCK,
    says="block 0 of the compressed pool is a null block: block ids are one higher, cells a block further",
    fields=BLOCK_FIELDS,
    forward=partial(shift_block, higher=True),
    translate=partial(shift_block, higher=False),
)
NULL_STATES = field_by_field(
    name=NULL_STATE,
    says="state block 0 is a null block: state ids are one higher, ring cells a state block further",
    fields=STATE_FIELDS,
    forward=partial(shift_state, higher=True),
    translate=partial(shift_state, higher=False),
)
SENTINEL_0 = field_by_field(
    name=SENTINEL,
    says="a row that stores nothing has slot 0, a cell of the null block, where the specification has -1",
    fields=SLOTS,
    forward=lambda _, __, values: other_sentinel(values, -1, 0),
    translate=lambda _, __, values: other_sentinel(values, 0, -1),
    requires=(NULL_BLOCK, NULL_STATE),
)
AT_LEAST_1 = field_by_field(
    name="lengths-at-least-1",
    says="lengths of a decode step, and klen of any, are at least 1, also where no key is visible yet",
    fields=LENGTHS,
    forward=partial(change_lengths, at_least_1=True),
    translate=partial(change_lengths, at_least_1=False),
    invisible=tuple(Invisible("", name, "a length below 1 comes out as 1, as one of 1 does") for name in LENGTHS),
)
NO_QUERY_SENTINEL = field_by_field(
    name=NO_SENTINEL,
    says="a placeholder's row has the index of its sequence, not one that faults",
    fields={"query_indices"},
    forward=swap_sentinel,
    translate=swap_sentinel,
)
