"""Chapter 4, block tables: F-BLOCKS."""

from __future__ import annotations

from .arrays import Array
from .batch import Batch


def columns(batch: Batch, max_num_blocks: int | None) -> int:
    """I-4: the columns of the caller's table, or as many as the batch needs, at least 1."""
    return max_num_blocks or max(1, int(batch.arrays.xp.max(batch.num_blocks)))


def block_tables(batch: Batch, width: int) -> Array:
    """[total_q, width]: the sequence's table on each of its rows. Cells that are not defined hold other blocks."""
    arrays = batch.arrays
    spare = batch.tables.shape[0] - 1
    cells = arrays.starts(batch.num_blocks)[:, None] + arrays.arange(width)
    return arrays.xp.repeat(batch.tables[arrays.at_most(cells, spare)], batch.seqlen_q, axis=0)


def defined_cells(batch: Batch, width: int) -> Array:
    """Which cells of `block_tables` are defined, [total_q, width] bool."""
    return batch.arrays.arange(width) < batch.rows(batch.num_blocks)[:, None]
