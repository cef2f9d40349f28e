"""Chapter 7, the context parallel mirror: F-ZIGZAG, F-REVERSE and what is reordered by them."""

from __future__ import annotations

from dataclasses import dataclass

from inputmeta import oracle

from .arrays import Array, Int64s, Runs, ceiling


@dataclass(frozen=True)
class Zigzag:
    """Chunks cut in 2p blocks each, and one rank's share of them.

    ``length``: mirrored rows of every rank; ``runs``: those of each sequence. ``index``: [length] row of the layout
    that is mirrored, -1 for padding. ``row_in_chunk``: [length], also past a chunk's end. ``reverse``: [rows] where
    each row lies among all ranks' mirrored rows.
    """

    length: int
    runs: Runs
    index: Array
    row_in_chunk: Array
    reverse: Array


def mirror_length(lengths: Int64s, cp_size: int) -> int:
    """``cp_mirror_len``: rows of every rank for chunks of these lengths [n_seq]."""
    return 2 * int(ceiling(lengths, 2 * cp_size).sum())


def zigzag(config: oracle.MetadataConfig, chunks: Runs) -> Zigzag:
    """F-ZIGZAG and F-REVERSE for chunks that lie end to end."""
    where, cp_size = chunks.arrays.xp.where, config.cp_size
    block = ceiling(chunks.counts, 2 * cp_size)
    mirrored = Runs(chunks.arrays, 2 * block)
    length = mirrored.total

    local, size = mirrored.ranges(0), mirrored.spread(block)
    first_block = local < size
    row = where(first_block, config.cp_rank * size + local, (2 * cp_size - 2 - config.cp_rank) * size + local)
    index = where(row < mirrored.spread(chunks.counts), row + mirrored.spread(chunks.starts), -1)

    query, size = chunks.ranges(0), chunks.spread(block)
    block_of_row = query // size
    in_first_half = block_of_row < cp_size
    owner = where(in_first_half, block_of_row, 2 * cp_size - 1 - block_of_row)
    within = query - block_of_row * size + where(in_first_half, 0, size)
    reverse = owner * length + chunks.spread(mirrored.starts) + within
    return Zigzag(length, mirrored, index, row, reverse)
