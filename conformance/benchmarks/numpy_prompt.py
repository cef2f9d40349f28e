"""Numpy reference of `prepare_prompt_v4` (SPEC.md sections 2, 3, 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inputmeta import oracle

from . import numpy_base as ragged
from .numpy_base import Batch, Fields, Int32s, Int64s


def prepare_prompt(config: oracle.MetadataConfig, sequences: Sequence[oracle.SequenceMetadata]) -> Fields:
    """Every field that `prepare_prompt_v4` writes without context parallel and YoCo, freshly allocated."""
    batch = ragged.read_batch(config, sequences)
    bounds = zip(batch.sequences, batch.q_start.tolist(), batch.seqlen_k.tolist(), strict=True)
    fields = ragged.common_fields(batch, ragged.joined([s.token_ids[begin:end] for s, begin, end in bounds]))
    fields["is_prompt"] = True
    fields["cp_mirror_len"] = int((-(-batch.seqlen_q // 2) * 2).sum())
    fields["slot_mapping_store_swa"] = ring_slots(batch)
    fields["state_block_idx"] = batch.state_id.astype(np.int32)
    trusted = np.array([sequence.swa_valid_start for sequence in sequences], dtype=np.int64)
    fields["load_segments_swa"] = ring_load_segments(batch, trusted)
    fields["total_k_swa"] = len(sequences) * config.window_size
    fields["kv_swa_full_index_pivots"] = window_pivots(batch, trusted)
    fields.update(compressed_fields(batch))
    if batch.total_q == 0:
        fields.update(neutral_rows(batch))
    return fields


def neutral_rows(batch: Batch) -> Fields:
    """I-3: one neutral row in every query-aligned field of a batch without query rows."""
    zero, no = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.bool_)
    fields: Fields = {
        "positions": zero,
        "input_ids": zero,
        "gate_force_random": no,
        "valid_token_mask": no,
        "query_indices": np.array([ragged.PLACEHOLDER_QUERY_INDEX], dtype=np.int32),
        "slot_mapping_store_swa": np.array([-1], dtype=np.int32),
        "kv_swa_full_index_pivots": np.zeros((1, 4), dtype=np.int32),
    }
    if batch.config.max_ngram_size > 0:
        fields["ngram_token_ids"] = np.full((1, batch.config.max_ngram_size), batch.config.pad_token, dtype=np.int32)
    for ratio in batch.config.sparse_ratios:
        fields[f"ks.{ratio}"] = fields[f"ke.{ratio}"] = zero
    for ratio in batch.config.dense_ratios:
        fields[f"kv_ca_index_offset_len.{ratio}"] = np.zeros((1, 2), dtype=np.int32)
    return fields


def ring_slots(batch: Batch) -> Int32s:
    """F-RING, [total_q]: only the last B rows of a sequence are stored, so only these are computed."""
    ring = batch.config.swa_block_size
    stored = np.where(batch.placeholder, 0, np.minimum(batch.seqlen_q, ring))
    ends = np.cumsum(batch.seqlen_q)
    rows = ragged.ragged_ranges(ends - stored, stored)
    slots = np.full(batch.total_q, -1, dtype=np.int32)
    slots[rows] = ragged.modulo(batch.positions[rows], ring) + ragged.spread(batch.state_id * ring, stored)
    return slots


def ring_load_segments(batch: Batch, trusted: Int64s) -> Int32s:
    """F-SWAPLAN, [num_segments, 4]: zero fill, ring up to its end, ring from its start; the empty ones dropped."""
    window, ring = batch.config.window_size, batch.config.swa_block_size
    history = batch.q_start - window
    padding = np.clip(trusted - history, 0, window)
    begin = (history + padding) % ring
    length = window - padding
    before_wrap = np.minimum(length, ring - begin)
    base = np.arange(len(batch.sequences), dtype=np.int64) * window
    segments = np.zeros((len(batch.sequences), 3, 4), dtype=np.int32)
    segments[:, 0, 0] = -1
    segments[:, 0, 2] = padding
    segments[:, 0, 3] = base
    segments[:, 1:, 0] = batch.state_id[:, None]
    segments[:, 1, 1] = begin
    segments[:, 1, 2] = begin + before_wrap
    segments[:, 1, 3] = base + padding
    segments[:, 2, 2] = length - before_wrap
    segments[:, 2, 3] = base + padding + before_wrap
    chosen: Int32s = segments[segments[:, :, 2] > segments[:, :, 1]]
    return chosen


def window_pivots(batch: Batch, trusted: Int64s) -> Int32s:
    """F-PIVOT, [total_q, 4], counted from q_start: `lo` < 0 is in the history, `lo` ≥ 0 in the chunk."""
    window = batch.config.window_size
    row = ragged.ragged_ranges(np.zeros_like(batch.seqlen_q), batch.seqlen_q)
    trusted_row = batch.rows(np.minimum(trusted, batch.seqlen_k) - batch.q_start)
    lo = np.minimum(np.maximum(row - (window - 1), trusted_row), row + 1)
    in_history = np.minimum(lo, 0)
    in_chunk = np.maximum(lo, 0)
    history_end = np.arange(1, len(batch.sequences) + 1, dtype=np.int64) * window
    chunk_begin = len(batch.sequences) * window + ragged.starts_of(batch.seqlen_q)
    pivots = np.empty((batch.total_q, 4), dtype=np.int32)
    pivots[:, 0] = batch.rows(history_end) + in_history
    pivots[:, 1] = -in_history
    pivots[:, 2] = batch.rows(chunk_begin) + in_chunk
    pivots[:, 3] = row + 1 - in_chunk
    return pivots


def compressed_fields(batch: Batch) -> Fields:
    """Sections 3 and 6 for every ratio: F-NCQ, F-CPOS, F-CSLOT, F-CAPLAN, F-KS, F-CAOFF."""
    fields: Fields = {}
    tables = ragged.block_tables_flat(batch)
    for ratio in batch.ratios:
        fields.update(compressed_rows(batch, ratio, tables))
        fields[f"load_segments_ca.{ratio}"] = compressed_load_segments(batch, ratio, tables)
        fields[f"total_k_compressed.{ratio}"] = int(np.maximum(batch.seqlen_k // ratio, 1).sum())
        base = batch.rows(ragged.compressed_bases(batch, ratio))
        visible = (batch.positions + 1) // ratio
        if ratio in batch.config.sparse_ratios:
            fields[f"ks.{ratio}"] = base
            fields[f"ke.{ratio}"] = base + visible
        if ratio in batch.config.dense_ratios:
            fields[f"kv_ca_index_offset_len.{ratio}"] = np.stack((base, visible), axis=1)
    return fields


def compressed_rows(batch: Batch, ratio: int, tables: Int32s) -> Fields:
    """F-NCQ, F-CPOS and F-CSLOT of one ratio: the compressed tokens that the chunk completes."""
    per_block = batch.config.block_size // ratio
    first = batch.q_start // ratio
    completed = batch.seqlen_k // ratio - first
    counts = np.maximum(completed, 1)
    token = ragged.ragged_ranges(np.where(completed > 0, first, 0), counts)
    block = token // per_block
    slot = tables[block + ragged.spread(ragged.starts_of(batch.num_blocks), counts)] * per_block + (
        token - block * per_block
    )
    position = token * ratio
    live = (completed > 0) & ~batch.placeholder
    if not live.all():
        dead_rows = np.repeat(~live, counts)
        slot[dead_rows] = -1
        position[dead_rows] = 0
    return {
        f"cu_compressed_seqlens_q.{ratio}": ragged.with_leading_zero(counts),
        f"positions_c.{ratio}": position,
        f"slot_mapping_store_ca.{ratio}": slot,
    }


def compressed_load_segments(batch: Batch, ratio: int, tables: Int32s) -> Int32s:
    """F-CAPLAN, [num_segments, 4]: one segment a block, or the one empty stand-in of a sequence without tokens."""
    per_block = batch.config.block_size // ratio
    num = batch.seqlen_k // ratio
    counts = np.maximum(-(-num // per_block), 1)
    block = ragged.ragged_ranges(np.zeros_like(counts), counts)
    done = block * per_block
    segments = np.zeros((len(block), 4), dtype=np.int32)
    segments[:, 0] = tables[block + ragged.spread(ragged.starts_of(batch.num_blocks), counts)]
    segments[:, 2] = np.minimum(ragged.spread(num, counts) - done, per_block)
    segments[:, 3] = ragged.spread(ragged.compressed_bases(batch, ratio), counts) + done
    if not num.all():
        stand_in = np.repeat(num == 0, counts)
        segments[stand_in, 0] = -1
        segments[stand_in, 2] = 1
    return segments
