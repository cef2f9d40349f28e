"""Chapter 7, the context parallel mirror: F-ZIGZAG, F-REVERSE and what is reordered by them."""

from __future__ import annotations

from dataclasses import dataclass

from inputmeta import oracle

from .arrays import Array, Arrays, ceiling


@dataclass(frozen=True)
class Zigzag:
    """Chunks cut in 2p blocks each, and one rank's share of them.

    ``length``: mirrored rows of every rank. ``index``: [length] row of the layout that is mirrored, -1 for padding.
    ``row_in_chunk``: [length], also past a chunk's end. ``reverse``: [rows] where each row lies among all ranks'
    mirrored rows.
    """

    length: int
    index: Array
    row_in_chunk: Array
    reverse: Array


def mirror_length(arrays: Arrays, lengths: Array, cp_size: int) -> int:
    """``cp_mirror_len``: rows of every rank for chunks of these lengths [n_seq]."""
    return 2 * arrays.total(ceiling(lengths, 2 * cp_size))


def zigzag(arrays: Arrays, config: oracle.MetadataConfig, lengths: Array) -> Zigzag:
    """F-ZIGZAG and F-REVERSE for chunks of these lengths, [n_seq] int64, that lie end to end."""
    where, cp_size = arrays.xp.where, config.cp_size
    block = ceiling(lengths, 2 * cp_size)
    mirrored = 2 * block
    length = arrays.total(mirrored)

    local, size = arrays.ranges(0, mirrored), arrays.spread(block, mirrored)
    first_block = local < size
    row = where(first_block, config.cp_rank * size + local, (2 * cp_size - 2 - config.cp_rank) * size + local)
    index = where(row < arrays.spread(lengths, mirrored), row + arrays.spread(arrays.starts(lengths), mirrored), -1)

    query, size = arrays.ranges(0, lengths), arrays.spread(block, lengths)
    block_of_row = query // size
    in_first_half = block_of_row < cp_size
    owner = where(in_first_half, block_of_row, 2 * cp_size - 1 - block_of_row)
    within = query - block_of_row * size + where(in_first_half, 0, size)
    reverse = owner * length + arrays.spread(arrays.starts(mirrored), lengths) + within
    return Zigzag(length, index, row, reverse)
