"""Chapter 1: one step as arrays. Every array that the sequences bring is read once, joined end to end on the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from inputmeta import oracle

from .arrays import Array, Arrays, ceiling


@dataclass(frozen=True)
class Batch:
    """One step. Per sequence [n_seq] int64 or bool, per query row [total_q] int32 or bool.

    ``ends``: (q_start, seqlen_k) of each sequence as Python integers, by which its arrays are cut. ``num_blocks``:
    F-BLOCKS. ``row``: j, the row within its sequence. ``stores``: the row's sequence is no placeholder. ``tables``: the
    used blocks of all tables end to end, and as many spare 0 as the longest has, so that tables can be read and masked
    as if they were equally long. ``most_blocks``: that length, at least 1.
    """

    path: oracle.Path
    config: oracle.MetadataConfig
    arrays: Arrays
    sequences: Sequence[oracle.SequenceMetadata]
    ends: list[tuple[int, int]]
    total_q: int
    dense: tuple[int, ...]
    sparse: tuple[int, ...]
    seqlen_q: Array
    seqlen_k: Array
    q_start: Array
    first_row: Array
    num_blocks: Array
    most_blocks: int
    state_id: Array
    placeholder: Array
    row: Array
    positions: Array
    stores: Array
    tables: Array

    @property
    def ratios(self) -> tuple[int, ...]:
        """All ratios, ascending."""
        return tuple(sorted({*self.dense, *self.sparse}))

    @property
    def n_seq(self) -> int:
        """Sequences of the step."""
        return len(self.sequences)

    def rows(self, per_sequence: Array) -> Array:
        """A per-sequence quantity on every query row, [total_q] int32."""
        return self.arrays.spread(per_sequence, self.seqlen_q)

    def scalars(self, name: str) -> Array:
        """A member of every sequence, [n_seq] int64."""
        return self.arrays.int64s([getattr(sequence, name) for sequence in self.sequences])


def read_batch(
    path: oracle.Path, sequences: Sequence[oracle.SequenceMetadata], config: oracle.MetadataConfig, arrays: Arrays
) -> Batch:
    """Reads the sequences; F-POS and F-BLOCKS' num_blocks."""
    lengths = [(sequence.seqlen_q, sequence.seqlen_k) for sequence in sequences]
    seqlen_q, seqlen_k = (arrays.int64s(values) for values in zip(*lengths, strict=True))
    q_start = seqlen_k - seqlen_q
    placeholder = arrays.from_host(np.array([s.is_placeholder for s in sequences], dtype=np.bool_))
    smallest = min((*config.dense_ratios, *config.sparse_ratios))
    per_block = config.block_size // smallest
    blocks = [-(-(length // smallest) // per_block) for _, length in lengths]
    most_blocks = max(1, *blocks)
    used = (s.block_table[:count] for s, count in zip(sequences, blocks, strict=True))
    row = arrays.ranges(0, seqlen_q)
    return Batch(
        path=path,
        config=config,
        arrays=arrays,
        sequences=sequences,
        ends=[(length_k - length_q, length_k) for length_q, length_k in lengths],
        total_q=row.shape[0],
        dense=tuple(sorted(set(config.dense_ratios))),
        sparse=tuple(sorted(set(config.sparse_ratios))),
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        q_start=q_start,
        first_row=arrays.starts(seqlen_q),
        num_blocks=ceiling(seqlen_k // smallest, per_block),
        most_blocks=most_blocks,
        state_id=arrays.int64s([sequence.state_id for sequence in sequences]),
        placeholder=placeholder,
        row=row,
        positions=row + arrays.spread(q_start, seqlen_q),
        stores=arrays.spread_flags(~placeholder, seqlen_q),
        tables=arrays.from_host(joined((*used, (0,) * most_blocks))),
    )


def joined(parts: Iterable[Sequence[int] | np.ndarray]) -> np.ndarray:
    """The parts end to end, int32; unsafe casting because an empty tuple counts as float64."""
    return np.concatenate(list(parts), dtype=np.int32, casting="unsafe")
