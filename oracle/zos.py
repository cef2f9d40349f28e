"""Chapter 10: decode without the CPU in the way (F-GATHER, F-EXTRACT). Fields are those of eager decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .blocks import block_count
from .common import decode_input_id, inclusive_cumulative_lengths, ngram_row
from .inputs import MetadataConfig, SequenceMetadata
from .rows import chunks_of, query_selection
from .units import Token, TokenId, prefix_sums


@dataclass(frozen=True, kw_only=True)
class MetadataZOS:
    """What the host extracts for a ZOS step: scalars a sequence, tables end to end, tokens and n-grams a row.

    ``block_tables_offsets`` has the leading 0, ``cu_seqlens_q`` does not. ``ngram_token_ids`` is row-major,
    ``max_ngram_size`` cells a row.
    """

    seqlens_q: tuple[int, ...]
    seqlens_k: tuple[int, ...]
    cu_seqlens_q: tuple[int, ...]
    block_tables: tuple[int, ...]
    block_tables_offsets: tuple[int, ...]
    state_ids: tuple[int, ...]
    is_placeholder: tuple[bool, ...]
    input_ids: tuple[int, ...]
    ngram_token_ids: tuple[int, ...]


def extract(config: MetadataConfig, sequences: Sequence[SequenceMetadata]) -> MetadataZOS:
    """F-EXTRACT: the first stage of a ZOS step, for a batch that keeps every precondition.

    I-22: a table contributes the num_blocks entries that F-BLOCKS counts, not all that the scheduler brought.

    >>> config = MetadataConfig(block_size=4, window_size=2, swa_block_size=3, max_model_len=9, sparse_ratios=(2,))
    >>> batch = [SequenceMetadata(seqlen_q=2, seqlen_k=6, block_table=(7, 3, 9), token_ids=range(10, 15),
    ...                           draft_tokens=(20,)),
    ...          SequenceMetadata(seqlen_q=1, seqlen_k=2, block_table=(5,), token_ids=(30, 31))]
    >>> step = extract(config, batch)
    >>> step.cu_seqlens_q, step.block_tables, step.block_tables_offsets, step.input_ids
    ((2, 3), (7, 3, 5), (0, 2, 3), (14, 20, 31))
    """
    chunks = chunks_of(sequences)
    smallest_ratio = config.ca_ratios[0]
    counts = [block_count(chunk.seqlen_k, config.block, smallest_ratio) for chunk in chunks]
    tables = [chunk.sequence.block_table[:count] for chunk, count in zip(chunks, counts, strict=True)]
    queries = [query for query in query_selection(chunks, None).queries if query is not None]
    tokens = [
        decode_input_id(q.chunk.sequence.token_ids, q.chunk.sequence.draft_tokens, q.chunk.q_start, q.offset)
        for q in queries
    ]
    ngrams = [ngram_row(config, query.chunk.sequence, query.position) for query in queries]
    return MetadataZOS(
        seqlens_q=tuple(chunk.seqlen_q for chunk in chunks),
        seqlens_k=tuple(chunk.seqlen_k for chunk in chunks),
        cu_seqlens_q=tuple(inclusive_cumulative_lengths([chunk.seqlen_q for chunk in chunks])),
        block_tables=tuple(block for table in tables for block in table),
        block_tables_offsets=tuple(prefix_sums(counts)),
        state_ids=tuple(sequence.state_id for sequence in sequences),
        is_placeholder=tuple(sequence.is_placeholder for sequence in sequences),
        input_ids=tuple(tokens),
        ngram_token_ids=tuple(token for row in ngrams for token in row),
    )


def gathered_input_id(
    fresh_input_id: int, prev_sampled: Sequence[int], prev_predict: Sequence[Sequence[int]], remap: int, offset: Token
) -> TokenId:
    """F-GATHER, row j of a sequence: ``remap < 0`` -> the fresh token of the same extracted row; else row 0 is
    ``prev_sampled[remap]``, row j >= 1 is ``prev_predict[remap, j - 1]``.

    >>> [gathered_input_id(9, [50, 60], [[51, 52], [61, 62]], 1, Token(j)) for j in range(3)]
    [60, 61, 62]
    >>> gathered_input_id(9, [50, 60], [[51, 52], [61, 62]], -1, Token(2))
    9
    """
    if remap < 0:
        return TokenId(fresh_input_id)
    if offset == 0:
        return TokenId(prev_sampled[remap])
    return TokenId(prev_predict[remap][offset - 1])
