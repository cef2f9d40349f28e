"""Chapter 5, the sliding window: F-RING, F-SWAPLAN, F-PIVOT, F-SWADEC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Array, Int64s, Runs, modulo
from .batch import Batch


def prompt_ring_slots(batch: Batch) -> Array:
    """F-RING, [total_q]: only the last B rows of a sequence are stored, so only these are computed."""
    arrays, ring = batch.arrays, batch.config.swa_block_size
    stored = Runs(arrays, np.where(batch.placeholder, 0, np.minimum(batch.seqlen_q, ring)))
    rows = stored.ranges(batch.queries.ends - stored.counts)
    slots = arrays.full((batch.total_q,), -1)
    slots[rows] = modulo(arrays.take(batch.positions, rows), ring) + stored.spread(batch.state_id * ring)
    return slots


def decode_ring(batch: Batch) -> dict[str, Array]:
    """F-RING and F-SWADEC's offset and length: the row itself is in the ring already."""
    arrays, config = batch.arrays, batch.config
    ring, context = config.swa_block_size, batch.positions + 1
    ring_begin = batch.rows(batch.state_id * ring)
    stored = (batch.rows(batch.seqlen_q) - batch.row <= ring) & batch.stores
    length = arrays.at_most(context, config.window_size)
    return {
        "slot_mapping_store_swa": arrays.xp.where(stored, modulo(batch.positions, ring) + ring_begin, -1),
        "kv_swa_index_offset_len": arrays.columns(modulo(context - length, ring) + ring_begin, length),
    }


def load_segments(batch: Batch) -> Array:
    """F-SWAPLAN, [num_segments, 4]: zero fill, ring up to its end, ring from its start; the empty ones dropped."""
    window, ring = batch.config.window_size, batch.config.swa_block_size
    history = batch.q_start - window
    padding = np.clip(batch.scalars("swa_valid_start") - history, 0, window)
    begin = (history + padding) % ring
    length = window - padding
    before_wrap = np.minimum(length, ring - begin)
    destination = np.arange(batch.n_seq) * window
    none = np.zeros_like(begin)
    zero_fill = (none - 1, none, padding, destination)
    to_the_end = (batch.state_id, begin, begin + before_wrap, destination + padding)
    from_the_start = (batch.state_id, none, length - before_wrap, destination + padding + before_wrap)
    segments = np.stack((*zero_fill, *to_the_end, *from_the_start), axis=1).reshape(-1, 4)
    return batch.arrays.int32s(segments[segments[:, 2] > segments[:, 1]])


@dataclass(frozen=True)
class Rows:
    """Query rows for which pivots are made: the ``runs`` of the sequences; ``row`` is j of each of them.

    ``chunk_begin``: [n_seq], the key row of the buffer where row 0 of the sequence's chunk lies, or would lie.
    """

    runs: Runs
    row: Array
    chunk_begin: Int64s


def all_rows(batch: Batch) -> Rows:
    """Every query row, in the buffer [n_seq · W history rows][total_q new rows]."""
    return Rows(batch.queries, batch.row, batch.first_row + batch.n_seq * batch.config.window_size)


def pivots(batch: Batch, rows: Rows, rect_lo: Int64s | None = None) -> Array:
    """F-PIVOT, [rows, 4]. Counted from q_start here: `lo` < 0 is in the history, `lo` >= 0 in the chunk.

    `rect_lo`: first position that takes part, [n_seq]; None without truncation.
    """
    arrays, xp, window = batch.arrays, batch.arrays.xp, batch.config.window_size
    lowest = batch.scalars("swa_valid_start")
    if rect_lo is not None:
        lowest = np.maximum(lowest, rect_lo)
    # No row sees further than seqlen_k - 1, so that what lies above is as good as that: it fits in int32.
    lowest = np.minimum(lowest, batch.seqlen_k) - batch.q_start
    lo = xp.maximum(rows.row - (window - 1), rows.runs.spread(lowest))
    lo = xp.minimum(lo, rows.row + 1)
    in_history, in_chunk = arrays.at_most(lo, 0), arrays.at_least(lo, 0)
    history_end = (np.arange(batch.n_seq) + 1) * window
    return arrays.columns(
        rows.runs.spread(history_end) + in_history,
        -in_history,
        rows.runs.spread(rows.chunk_begin) + in_chunk,
        rows.row + 1 - in_chunk,
    )
