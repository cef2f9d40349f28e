"""Chapter 3, compressed KV: F-NCQ, F-CPOS, F-CSLOT (prompt) and F-CDEC (decode)."""

from __future__ import annotations

from .arrays import Array
from .batch import Batch


def slots(batch: Batch, tokens: Array, table_begins: Array, per_block: int) -> Array:
    """F-CSLOT of compressed tokens of the sequences whose blocks begin at `table_begins` of the flat tables."""
    block = tokens // per_block
    return batch.tables[table_begins + block] * per_block + (tokens - block * per_block)


def prompt_rows(batch: Batch, ratio: int) -> dict[str, Array]:
    """F-NCQ, F-CPOS and F-CSLOT of one ratio: the compressed tokens that each chunk completes, or one empty row."""
    arrays = batch.arrays
    first = batch.q_start // ratio
    completed = batch.seqlen_k // ratio - first
    counts = arrays.at_least(completed, 1)
    tokens = arrays.ranges(arrays.xp.where(completed > 0, first, 0), counts)
    begins = arrays.spread(arrays.starts(batch.num_blocks), counts)
    slot = slots(batch, tokens, begins, batch.config.block_size // ratio)
    stored = arrays.spread_flags((completed > 0) & ~batch.placeholder, counts)
    return {
        "cu_compressed_seqlens_q": arrays.prefix_sums(counts),
        "positions_c": arrays.xp.where(stored, tokens * ratio, 0),
        "slot_mapping_store_ca": arrays.xp.where(stored, slot, -1),
    }


def decode_rows(batch: Batch, ratio: int) -> dict[str, Array]:
    """F-CDEC of one ratio, [total_q]: the compressed token that a row completes."""
    arrays = batch.arrays
    visible = (batch.positions + 1) // ratio
    stored = arrays.where_true((visible * ratio == batch.positions + 1) & batch.stores)
    tokens = visible[stored] - 1
    begins = batch.rows(arrays.starts(batch.num_blocks))[stored]
    position = arrays.full((batch.total_q,), 0)
    slot = arrays.full((batch.total_q,), -1)
    position[stored] = tokens * ratio
    slot[stored] = slots(batch, tokens, begins, batch.config.block_size // ratio)
    return {"positions_c": position, "slot_mapping_store_ca": slot}
