"""Chapter 4, block tables: F-BLOCKS."""

from __future__ import annotations

from .arrays import Array
from .batch import Batch


def columns(batch: Batch, max_num_blocks: int | None) -> int:
    """I-4: the columns of the caller's table, or as many as the batch needs, at least 1."""
    return max_num_blocks or batch.most_blocks


def block_tables(batch: Batch, width: int) -> Array:
    """[total_q, width]: the sequence's table on each of its rows. Cells that are not defined hold other blocks."""
    arrays = batch.arrays
    begins = arrays.int32s(batch.blocks.starts)
    tables = batch.tables[begins[:, None] + arrays.arange(batch.most_blocks)]
    if width > batch.most_blocks:
        wide = arrays.full((batch.n_seq, width), 0)
        wide[:, : batch.most_blocks] = tables
        tables = wide
    return batch.queries.spread_rows(tables)


def defined_cells(batch: Batch, width: int) -> Array:
    """Which cells of `block_tables` are defined, [total_q, width] bool."""
    return batch.arrays.arange(width) < batch.rows(batch.num_blocks)[:, None]
