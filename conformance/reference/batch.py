"""Chapter 1: one step as arrays. Every array that the sequences bring is read once, joined end to end on the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from inputmeta import oracle

from .arrays import Array, Arrays, Flags, Int64s, Runs, ceiling


@dataclass(frozen=True)
class Batch:
    """One step. Per sequence [n_seq] int64 or bool in host memory, per query row [total_q] int32 or bool.

    ``queries``: the query rows of each sequence. ``ends``: (q_start, seqlen_k) of each sequence as Python integers, by
    which its arrays are cut. ``row``: j, the row within its sequence. ``stores``: the row's sequence is no placeholder.
    ``tables``: the used blocks of all tables end to end, and as many spare 0 as the longest has, so that tables can be
    read and masked as if they were equally long. ``most_blocks``: that length, at least 1.
    """

    path: oracle.Path
    config: oracle.MetadataConfig
    arrays: Arrays
    sequences: Sequence[oracle.SequenceMetadata]
    ends: list[tuple[int, int]]
    total_q: int
    dense: tuple[int, ...]
    sparse: tuple[int, ...]
    queries: Runs
    seqlen_k: Int64s
    q_start: Int64s
    blocks: Runs
    most_blocks: int
    state_id: Int64s
    placeholder: Flags
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

    @property
    def seqlen_q(self) -> Int64s:
        """Query rows of each sequence."""
        return self.queries.counts

    @property
    def first_row(self) -> Int64s:
        """The row of the batch where each sequence begins."""
        return self.queries.starts

    @property
    def num_blocks(self) -> Int64s:
        """F-BLOCKS: used blocks of each sequence's table; ``blocks`` has them end to end."""
        return self.blocks.counts

    def rows(self, per_sequence: Int64s) -> Array:
        """A per-sequence quantity on every query row, [total_q] int32."""
        return self.queries.spread(per_sequence)

    def scalars(self, name: str) -> Int64s:
        """A member of every sequence, [n_seq] int64."""
        return np.array([getattr(sequence, name) for sequence in self.sequences], dtype=np.int64)


def read_batch(
    path: oracle.Path, sequences: Sequence[oracle.SequenceMetadata], config: oracle.MetadataConfig, arrays: Arrays
) -> Batch:
    """Reads the sequences; F-POS and F-BLOCKS' num_blocks."""
    lengths = np.array([(sequence.seqlen_q, sequence.seqlen_k) for sequence in sequences], dtype=np.int64)
    seqlen_q, seqlen_k = lengths[:, 0], lengths[:, 1]
    q_start = seqlen_k - seqlen_q
    placeholder = np.array([s.is_placeholder for s in sequences], dtype=np.bool_)
    smallest = min((*config.dense_ratios, *config.sparse_ratios))
    blocks = ceiling(seqlen_k // smallest, config.block_size // smallest)
    most_blocks = max(1, int(blocks.max()))
    used = (s.block_table[:count] for s, count in zip(sequences, blocks.tolist(), strict=True))
    queries = Runs(arrays, seqlen_q)
    row = queries.ranges(0)
    return Batch(
        path=path,
        config=config,
        arrays=arrays,
        sequences=sequences,
        ends=list(zip(q_start.tolist(), seqlen_k.tolist(), strict=True)),
        total_q=queries.total,
        dense=tuple(sorted(set(config.dense_ratios))),
        sparse=tuple(sorted(set(config.sparse_ratios))),
        queries=queries,
        seqlen_k=seqlen_k,
        q_start=q_start,
        blocks=Runs(arrays, blocks),
        most_blocks=most_blocks,
        state_id=np.array([sequence.state_id for sequence in sequences], dtype=np.int64),
        placeholder=placeholder,
        row=row,
        positions=row + queries.spread(q_start),
        stores=queries.spread_flags(~placeholder),
        tables=arrays.from_host(joined((*used, (0,) * most_blocks))),
    )


def joined(parts: Iterable[Sequence[int] | np.ndarray]) -> np.ndarray:
    """The parts end to end, int32; unsafe casting because an empty tuple counts as float64."""
    return np.concatenate(list(parts), dtype=np.int32, casting="unsafe")
