"""Chapter 6, key ranges of a prompt: F-KSTEP, F-CAPLAN, F-KS and F-CAOFF; of a decode: F-CAOFF."""

from __future__ import annotations

from .arrays import Array, ceiling
from .batch import Batch


def key_rows(batch: Batch, ratio: int) -> Array:
    """F-KSTEP: the key rows that each sequence takes, [n_seq]; one without a compressed token takes one."""
    return batch.arrays.at_least(batch.seqlen_k // ratio, 1)


def visible(batch: Batch, ratio: int) -> Array:
    """F-KLEN: compressed tokens that each row may see, [total_q]."""
    return (batch.positions + 1) // ratio


def bases(batch: Batch, ratio: int) -> Array:
    """F-KSTEP base_i on each row, [total_q]."""
    return batch.rows(batch.arrays.starts(key_rows(batch, ratio)))


def load_segments(batch: Batch, ratio: int) -> Array:
    """F-CAPLAN, [num_segments, 4]: one segment a block, or the one empty stand-in of a sequence without tokens."""
    arrays, where = batch.arrays, batch.arrays.xp.where
    per_block = batch.config.block_size // ratio
    num = batch.seqlen_k // ratio
    counts = arrays.at_least(ceiling(num, per_block), 1)
    block = arrays.ranges(0, counts)
    done = block * per_block
    left = arrays.spread(num, counts) - done
    physical = batch.tables[block + arrays.spread(arrays.starts(batch.num_blocks), counts)]
    stands_in = left == 0
    return arrays.columns(
        where(stands_in, -1, physical),
        block * 0,
        where(stands_in, 1, arrays.at_most(left, per_block)),
        arrays.spread(arrays.starts(key_rows(batch, ratio)), counts) + done,
    )


def decode_offsets(batch: Batch, ratio: int, columns: int) -> Array:
    """F-CAOFF of a decode, [total_q, 2]: the row's own table among the flattened ones, and the length."""
    offset = batch.arrays.arange(batch.total_q) * (columns * (batch.config.block_size // ratio))
    return batch.arrays.columns(offset, visible(batch, ratio))
