"""The layout of a batch: sequences end to end, their query rows, and the rows chosen to be built.

A field that is aligned with queries is one formula applied to each query of a ``Selection``; ``None`` in a selection is
a row without a query (I-3 the one neutral row of an empty batch, I-8 padding of a mirrored layout).
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .common import position
from .inputs import SequenceMetadata, query_start
from .units import Row, SequenceIndex, Token


@dataclass(frozen=True, slots=True)
class Chunk:
    """One sequence within the batch: where its queries start in the sequence, and in the batch's rows.

    ``extracted_start``, ``extracted_row``: the same in the layout that the host extracted (I-34), which is another only
    in a step of variable length.
    """

    index: SequenceIndex
    sequence: SequenceMetadata
    seqlen_q: Token
    seqlen_k: Token
    q_start: Token
    valid_start: Token
    data_len: Token
    first_row: Row
    extracted_start: Token
    extracted_row: Row


class Query(NamedTuple):
    """One query row: row ``j = offset`` of its chunk, at absolute ``position``, global row ``row``."""

    chunk: Chunk
    offset: Token
    position: Token
    row: Row


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen rows of a layout: ``total`` rows in all, ``rows`` their numbers (None = all), a query for each."""

    total: int
    rows: tuple[int, ...] | None
    queries: Sequence[Query | None]


def chunks_of(sequences: Sequence[SequenceMetadata]) -> list[Chunk]:
    """Lay the sequences of a step end to end, in batch order.

    >>> batch = [SequenceMetadata(seqlen_q=3, seqlen_k=8), SequenceMetadata(seqlen_q=2, seqlen_k=2)]
    >>> [(chunk.q_start, chunk.first_row) for chunk in chunks_of(batch)]
    [(5, 0), (0, 3)]
    """
    chunks = []
    first_row = Row(0)
    for index, sequence in enumerate(sequences):
        seqlen_q = Token(sequence.seqlen_q)
        seqlen_k = Token(sequence.seqlen_k)
        chunk = Chunk(
            index=SequenceIndex(index),
            sequence=sequence,
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            q_start=query_start(seqlen_q, seqlen_k),
            valid_start=Token(sequence.swa_valid_start),
            data_len=Token(sequence.data_len),
            first_row=first_row,
            extracted_start=query_start(seqlen_q, seqlen_k),
            extracted_row=first_row,
        )
        chunks.append(chunk)
        first_row = Row(first_row + seqlen_q)
    return chunks


def chunks_within(shorter: Sequence[SequenceMetadata], extracted: Sequence[Chunk]) -> list[Chunk]:
    """F-VARLEN: the sequences with their own lengths, end to end, each with its place in the extracted layout.

    >>> extracted = chunks_of([SequenceMetadata(seqlen_q=3, seqlen_k=8), SequenceMetadata(seqlen_q=2, seqlen_k=2)])
    >>> shorter = [SequenceMetadata(seqlen_q=1, seqlen_k=5), SequenceMetadata(seqlen_q=1, seqlen_k=1)]
    >>> [(c.q_start, c.first_row, c.extracted_start, c.extracted_row) for c in chunks_within(shorter, extracted)]
    [(4, 0, 5, 0), (0, 1, 0, 3)]
    """
    return [
        dataclasses.replace(chunk, extracted_start=whole.q_start, extracted_row=whole.first_row)
        for chunk, whole in zip(chunks_of(shorter), extracted, strict=True)
    ]


def total_queries(chunks: Sequence[Chunk]) -> int:
    """``total_q``, the sum of ``seqlen_q``."""
    return sum(chunk.seqlen_q for chunk in chunks)


def query_at(chunk: Chunk, offset: int) -> Query:
    """Row ``offset`` of a chunk.

    >>> query_at(chunks_of([SequenceMetadata(seqlen_q=3, seqlen_k=8)])[0], 2)[1:]
    (2, 7, 2)
    """
    pos = position(chunk.q_start, Token(offset))
    return Query(chunk, Token(offset), pos, Row(chunk.first_row + offset))


def chosen_offsets(chunk: Chunk, rows: Sequence[int] | None, first: int, end: int) -> Sequence[int]:
    """The chosen rows among rows [first, end) of a chunk, as offsets in it; ``rows`` is sorted, None chooses all.

    >>> chunk = chunks_of([SequenceMetadata(seqlen_q=4, seqlen_k=4), SequenceMetadata(seqlen_q=5, seqlen_k=5)])[1]
    >>> list(chosen_offsets(chunk, [0, 4, 6, 8], 1, 5)), list(chosen_offsets(chunk, None, 1, 5))
    ([2, 4], [1, 2, 3, 4])
    """
    if rows is None:
        return range(first, end)
    begin_index = bisect_left(rows, chunk.first_row + first)
    end_index = bisect_left(rows, chunk.first_row + end)
    return [row - chunk.first_row for row in rows[begin_index:end_index]]


def query_selection(chunks: Sequence[Chunk], rows: Sequence[int] | None, total: int | None = None) -> Selection:
    """The chosen rows of the full layout; I-3: an empty batch has one row without a query.

    ``total``: rows of the tensors where these are more than the queries (F-TAIL); the rows behind have no query.
    """
    filled = total_queries(chunks)
    total = filled if total is None else total
    if total == 0:
        return Selection(1, None, [None])
    queries: list[Query | None] = [
        query_at(chunk, offset) for chunk in chunks for offset in chosen_offsets(chunk, rows, 0, chunk.seqlen_q)
    ]
    tail = range(filled, total) if rows is None else rows[bisect_left(rows, filled) :]
    queries += [None] * len(tail)
    return Selection(total, None if rows is None else tuple(rows), queries)
