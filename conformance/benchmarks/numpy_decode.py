"""Numpy reference of `prepare_decode_v4` (SPEC.md sections 2 to 6), eager decode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inputmeta import oracle

from .numpy_base import Batch, Fields, Int32s, block_tables_flat, common_fields, joined, modulo, read_batch, starts_of


def prepare_decode(
    config: oracle.MetadataConfig, sequences: Sequence[oracle.SequenceMetadata], *, max_num_blocks: int | None = None
) -> Fields:
    """Every field that `prepare_decode_v4` writes, freshly allocated.

    `max_num_blocks`: columns of the caller's `block_tables` (I-4); None: as many as the batch needs. Cells right of a
    sequence's blocks hold whatever the memory held.

    """
    batch = read_batch(config, sequences)
    columns = max_num_blocks or max(1, int(batch.num_blocks.max()))
    fields = common_fields(batch, decode_input_ids(batch))
    fields["is_prompt"] = False
    fields["max_num_blocks"] = columns
    fields["state_block_idx"] = batch.rows(batch.state_id)
    fields["block_tables"] = block_tables(batch, columns)
    fields["context_lens"] = context_lens = batch.positions + 1
    fields.update(ring_fields(batch, context_lens))
    row_valid = np.repeat(~batch.placeholder, batch.seqlen_q)
    tables = block_tables_flat(batch)
    table_starts = batch.rows(starts_of(batch.num_blocks))
    for ratio in batch.ratios:
        per_block = config.block_size // ratio
        visible = context_lens // ratio
        stored = np.flatnonzero((visible * ratio == context_lens) & row_valid)
        token = visible[stored] - 1
        block = token // per_block
        position = np.zeros(batch.total_q, dtype=np.int32)
        position[stored] = token * ratio
        slot = np.full(batch.total_q, -1, dtype=np.int32)
        slot[stored] = tables[table_starts[stored] + block] * per_block + (token - block * per_block)
        fields[f"positions_c.{ratio}"] = position
        fields[f"slot_mapping_store_ca.{ratio}"] = slot
        if ratio in config.dense_ratios:
            offset = np.arange(batch.total_q, dtype=np.int32) * np.int32(columns * per_block)
            fields[f"kv_ca_index_offset_len.{ratio}"] = np.stack((offset, visible), axis=1)
        if ratio in config.sparse_ratios:
            fields[f"klen.{ratio}"] = visible
    return fields


def decode_input_ids(batch: Batch) -> Int32s:
    """F-IDS, [total_q]: the last known token on a sequence's row 0, its drafts on the others."""
    sequences = batch.sequences
    first_rows = starts_of(batch.seqlen_q)
    ids = np.empty(batch.total_q, dtype=np.int32)
    ids[first_rows] = [s.token_ids[at] for s, at in zip(sequences, batch.q_start.tolist(), strict=True)]
    drafts = np.ones(batch.total_q, dtype=np.bool_)
    drafts[first_rows] = False
    ids[drafts] = joined([sequence.draft_tokens for sequence in sequences])
    return ids


def block_tables(batch: Batch, columns: int) -> Int32s:
    """F-BLOCKS, [total_q, columns]: a broadcast copy a sequence, which writes the defined cells once and no others.

    A boolean scatter into a rectangle whose rows are then repeated has no loop and takes twice as long.
    """
    tables = np.empty((batch.total_q, columns), dtype=np.int32)
    ends = np.cumsum(batch.seqlen_q).tolist()
    begin = 0
    for sequence, end, count in zip(batch.sequences, ends, batch.num_blocks.tolist(), strict=True):
        tables[begin:end, :count] = sequence.block_table[:count]
        begin = end
    return tables


def ring_fields(batch: Batch, context_lens: Int32s) -> Fields:
    """F-RING and F-SWADEC's offsets: the row itself is in the ring already."""
    window, ring = batch.config.window_size, batch.config.swa_block_size
    state_base = batch.rows(batch.state_id * ring)
    slots = modulo(batch.positions, ring) + state_base
    left = batch.rows(batch.seqlen_q + batch.q_start) - batch.positions
    dropped = (left > ring) | np.repeat(batch.placeholder, batch.seqlen_q)
    slots[dropped] = -1
    length = np.minimum(context_lens, window)
    offset = modulo(context_lens - length, ring) + state_base
    return {"slot_mapping_store_swa": slots, "kv_swa_index_offset_len": np.stack((offset, length), axis=1)}
