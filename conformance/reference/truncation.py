"""Chapter 8, YoCo prefill truncation: F-RECT, F-CLIP, F-VIS, F-COMPACT, F-CONTRIB."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import window
from .arrays import Array, Int64s, Runs
from .batch import Batch
from .layouts import gathered
from .mirror import Zigzag, zigzag


def rect_lo(batch: Batch) -> Int64s:
    """F-RECT: the first position that takes part, [n_seq] int64."""
    return np.maximum(batch.scalars("data_len") - batch.config.yoco_prefill_keep_tokens, 0)


def mask_pivots(batch: Batch) -> Array:
    """F-VIS in mask mode, [total_q, 4]."""
    return window.pivots(batch, window.all_rows(batch), rect_lo(batch))


@dataclass(frozen=True)
class Kept:
    """Compact mode: ``clip`` rows [n_seq] are cut from the front of each chunk, and ``runs`` of rows stay.

    ``row``: j of each kept row, ``rows``: its global row, [consumer_total_q] int32.
    """

    clip: Int64s
    runs: Runs
    row: Array
    rows: Array


def kept_rows(batch: Batch) -> Kept:
    """F-CLIP and the rows that stay."""
    first = batch.scalars("data_len") - batch.config.yoco_prefill_keep_tokens - batch.q_start
    clip = np.maximum(np.minimum(first, batch.seqlen_q - 1), 0)
    runs = Runs(batch.arrays, batch.seqlen_q - clip)
    return Kept(clip, runs, runs.ranges(clip), runs.ranges(batch.first_row + clip))


def compact_fields(batch: Batch, fields: dict[str, Array], kept: Kept) -> dict[str, Array]:
    """F-COMPACT, by flat key without the prefix ``yoco_consumer_``; ``fields`` are those of the full layout."""
    arrays = batch.arrays
    positions = batch.positions[kept.rows]
    begin = kept.runs.spread(np.minimum(rect_lo(batch), batch.seqlen_k))
    end = kept.runs.spread(np.minimum(batch.scalars("data_len"), batch.seqlen_k))
    in_rect = (positions >= begin) & (positions < end)
    chunk_begin = kept.runs.starts - kept.clip + batch.n_seq * batch.config.window_size
    rows = window.Rows(kept.runs, kept.row, chunk_begin)
    compact = {
        "cu_seqlens_q": kept.runs.prefix_sums(),
        "query_indices": kept.rows,
        "positions": positions,
        "slot_mapping_store_swa": arrays.xp.where(in_rect, fields["slot_mapping_store_swa"][kept.rows], -1),
        "swa_index_pivots": window.pivots(batch, rows, rect_lo(batch)),
    }
    gathered_names = {"ks": batch.sparse, "ke": batch.sparse, "kv_ca_index_offset_len": batch.dense}
    for name, ratios in gathered_names.items():
        for ratio in ratios:
            compact[f"{name}.{ratio}"] = fields[f"{name}.{ratio}"][kept.rows]
    return compact


@dataclass(frozen=True)
class Contribution:
    """F-CONTRIB: ``pad_len`` rows are sent by every rank; ``index`` [pad_len], ``boundary`` [consumer mirror len]."""

    pad_len: int
    index: Array
    boundary: Array


def contribution(batch: Batch, kept: Kept, full: Zigzag, consumer: Zigzag) -> Contribution:
    """What this rank sends of its mirrored rows, and where each mirrored compact row lies among what all ranks send.

    A rank's kept rows lie in the order of their mirrored rows (I-28), that is, in the order of `full.reverse`: sorted
    by it, the kept rows of all ranks lie end to end, and the place of one is its distance from its owner's first.
    """
    arrays, xp = batch.arrays, batch.arrays.xp
    count = kept.runs.total
    if count == 0:
        return Contribution(0, kept.rows, consumer.index)
    lies = full.reverse[kept.rows]
    order = xp.argsort(lies)
    owner = lies[order] // full.length
    place_in_order = arrays.arange(count) - arrays.int32(xp.searchsorted(owner, owner))
    pad_len = int(xp.max(place_in_order)) + 1
    place = arrays.full((count,), 0)
    place[order] = owner * pad_len + place_in_order
    boundary = gathered(arrays, batch.config, "yoco_cp_boundary_index", place, consumer.index)

    mirrored_clip = full.runs.spread(kept.clip)
    mine = arrays.where_true((full.index >= 0) & (full.row_in_chunk >= mirrored_clip))
    index = arrays.full((pad_len,), -1)
    index[: mine.shape[0]] = arrays.int32(mine)
    return Contribution(pad_len, index, boundary)


def consumer_mirror(batch: Batch, kept: Kept) -> Zigzag:
    """F-ZIGZAG of the compact layout."""
    return zigzag(batch.config, kept.runs)
