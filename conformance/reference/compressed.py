"""Chapter 3, compressed KV: F-NCQ, F-CPOS, F-CSLOT (prompt) and F-CDEC (decode)."""

from __future__ import annotations

import numpy as np

from .arrays import Array, Runs
from .batch import Batch


def slots(batch: Batch, tokens: Array, table_begins: Array, per_block: int) -> Array:
    """F-CSLOT of compressed tokens of the sequences whose blocks begin at `table_begins` of the flat tables."""
    block = tokens // per_block
    return batch.arrays.take(batch.tables, table_begins + block) * per_block + (tokens - block * per_block)


def prompt_rows(batch: Batch, ratio: int) -> dict[str, Array]:
    """F-NCQ, F-CPOS and F-CSLOT of one ratio: the compressed tokens that each chunk completes, or one empty row."""
    arrays = batch.arrays
    first = batch.q_start // ratio
    completed = batch.seqlen_k // ratio - first
    runs = Runs(arrays, np.maximum(completed, 1))
    tokens = runs.ranges(np.where(completed > 0, first, 0))
    begins = runs.spread(batch.blocks.starts)
    slot = slots(batch, tokens, begins, batch.config.block_size // ratio)
    stored = runs.spread_flags((completed > 0) & ~batch.placeholder)
    return {
        "cu_compressed_seqlens_q": runs.prefix_sums(),
        "positions_c": arrays.xp.where(stored, tokens * ratio, 0),
        "slot_mapping_store_ca": arrays.xp.where(stored, slot, -1),
    }


def decode_rows(batch: Batch, ratio: int) -> dict[str, Array]:
    """F-CDEC of one ratio, [total_q]: the compressed token that a row completes."""
    arrays = batch.arrays
    visible = (batch.positions + 1) // ratio
    completes = (visible * ratio == batch.positions + 1) & batch.stores
    stored = arrays.rows_where(completes)
    # Where all rows are taken, one that sees no token yet reads another's table, and what it reads is dropped.
    tokens = arrays.at_least(visible[stored] - 1, 0)
    begins = batch.rows(batch.blocks.starts)[stored]
    slot = slots(batch, tokens, begins, batch.config.block_size // ratio)
    return {
        "positions_c": chosen_rows(batch, stored, completes, tokens * ratio, 0),
        "slot_mapping_store_ca": chosen_rows(batch, stored, completes, slot, -1),
    }


def chosen_rows(batch: Batch, stored: Array | slice, completes: Array, values: Array, other: int) -> Array:
    """The values on the rows that complete a token, [total_q]; ``other`` elsewhere."""
    if isinstance(stored, slice):
        return batch.arrays.xp.where(completes, values, other)
    rows = batch.arrays.full((batch.total_q,), other)
    rows[stored] = values
    return rows
