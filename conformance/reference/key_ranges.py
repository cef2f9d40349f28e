"""Chapter 6, key ranges of a prompt: F-KSTEP, F-CAPLAN, F-KS and F-CAOFF; of a decode: F-CAOFF."""

from __future__ import annotations

import numpy as np

from .arrays import Array, Runs, ceiling
from .batch import Batch


def key_rows(batch: Batch, ratio: int) -> Runs:
    """F-KSTEP: the key rows that each sequence takes; one without a compressed token takes one."""
    return Runs(batch.arrays, np.maximum(batch.seqlen_k // ratio, 1))


def visible(batch: Batch, ratio: int) -> Array:
    """F-KLEN: compressed tokens that each row may see, [total_q]."""
    return (batch.positions + 1) // ratio


def bases(batch: Batch, ratio: int) -> Array:
    """F-KSTEP base_i on each row, [total_q]."""
    return batch.rows(key_rows(batch, ratio).starts)


def load_segments(batch: Batch, ratio: int) -> Array:
    """F-CAPLAN, [num_segments, 4]: one segment a block, or the one empty stand-in of a sequence without tokens."""
    arrays, where = batch.arrays, batch.arrays.xp.where
    per_block = batch.config.block_size // ratio
    num = batch.seqlen_k // ratio
    runs = Runs(arrays, np.maximum(ceiling(num, per_block), 1))
    block = runs.ranges(0)
    done = block * per_block
    left = runs.spread(num) - done
    physical = arrays.take(batch.tables, block + runs.spread(batch.blocks.starts))
    stands_in = left == 0
    return arrays.columns(
        where(stands_in, -1, physical),
        block * 0,
        where(stands_in, 1, arrays.at_most(left, per_block)),
        runs.spread(key_rows(batch, ratio).starts) + done,
    )


def decode_offsets(batch: Batch, ratio: int, columns: int) -> Array:
    """F-CAOFF of a decode, [total_q, 2]: the row's own table among the flattened ones, and the length."""
    offset = batch.arrays.arange(batch.total_q) * (columns * (batch.config.block_size // ratio))
    return batch.arrays.columns(offset, visible(batch, ratio))
