"""Which rows of a step to compare: the oracle is plain Python and cannot check every row of an 8192-token chunk."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from inputmeta import oracle

BESIDE = (-1, 0, 1)


def choose_rows(
    config: oracle.MetadataConfig,
    sequences: Sequence[oracle.SequenceMetadata],
    limit: int | None,
    seed: int = 0,
    step: int = 0,
) -> list[int] | None:
    """Sorted global query rows to compare, at most ``limit`` of each sequence; None: all of them.

    A sequence of at most ``limit`` rows gives all. Of a longer one: the first and the last row; those on and beside the
    edges that occur once (window, ring, trusted range); those on and beside multiples of block, window, ring and
    ratios, half of ``limit`` shared out evenly; the rest by a choice that depends on seed, step and sequence alone.
    Work is proportional to the rows chosen. Raises ValueError if ``limit`` is less than 1.

    >>> config = oracle.MetadataConfig(
    ...     block_size=4, dense_ratios=(4,), window_size=4, swa_block_size=6, max_model_len=99
    ... )
    >>> long, short = oracle.SequenceMetadata(seqlen_q=90, seqlen_k=90), oracle.SequenceMetadata(seqlen_q=2, seqlen_k=2)
    >>> rows = choose_rows(config, [long, short], 8)
    >>> len(rows), rows[0], rows[-3:]
    (10, 0, [89, 90, 91])
    >>> choose_rows(config, [short], 8) is None
    True

    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit: {limit}: must be at least 1")
    if limit is None or all(sequence.seqlen_q <= limit for sequence in sequences):
        return None
    rows: list[int] = []
    first = 0
    for index, sequence in enumerate(sequences):
        if sequence.seqlen_q <= limit:
            rows.extend(range(first, first + sequence.seqlen_q))
        else:
            chance = random.Random(f"{seed}/{step}/{index}")
            rows.extend(first + row for row in sorted(_choose(config, sequence, limit, chance)))
        first += sequence.seqlen_q
    return rows


def _choose(
    config: oracle.MetadataConfig, sequence: oracle.SequenceMetadata, limit: int, chance: random.Random
) -> set[int]:
    """``limit`` rows of one sequence that has more, counted from its first."""
    count = sequence.seqlen_q
    chosen: set[int] = set()
    for row in _candidates(config, sequence, limit, chance):
        if 0 <= row < count:
            chosen.add(row)
        if len(chosen) == limit:
            return chosen
    for row in chance.sample(range(count), limit):
        if len(chosen) == limit:
            break
        chosen.add(row)
    return chosen


def _candidates(
    config: oracle.MetadataConfig, sequence: oracle.SequenceMetadata, limit: int, chance: random.Random
) -> Iterator[int]:
    """Rows worth a look, the most important first; some may lie outside the sequence."""
    yield 0
    yield sequence.seqlen_q - 1
    for edge in _single_edges(config, sequence):
        yield from (edge + beside for beside in BESIDE)
    q_start = sequence.seqlen_k - sequence.seqlen_q
    periods = _periods(config)
    share = max(1, limit // 2 // len(periods) // len(BESIDE)) if periods else 0
    for period in periods:
        multiples = range(-(-q_start // period), sequence.seqlen_k // period + 1)
        picked = multiples if len(multiples) <= share else chance.sample(multiples, share)
        for multiple in picked:
            yield from (multiple * period - q_start + beside for beside in BESIDE)


def _single_edges(config: oracle.MetadataConfig, sequence: oracle.SequenceMetadata) -> tuple[int, ...]:
    """Rows where something happens once in a chunk, counted from its first row."""
    window, ring = config.window_size, config.swa_block_size
    q_start = sequence.seqlen_k - sequence.seqlen_q
    trusted = sequence.swa_valid_start - q_start
    return (
        sequence.seqlen_q - ring,  # the first row that the ring keeps (F-RING)
        window - 1,  # the first row that reads no history (F-PIVOT)
        window - 1 - q_start,  # the first row with a full window
        trusted,  # the first row that is trusted, and the first with a trusted window
        trusted + window - 1,
    )


def _periods(config: oracle.MetadataConfig) -> list[int]:
    """Distances in tokens at which boundaries repeat, the widest first. A boundary at every token is none."""
    ratios = (*config.dense_ratios, *config.sparse_ratios)
    lengths = {config.block_size, config.window_size, config.swa_block_size, *ratios}
    return sorted((length for length in lengths if length > 1), reverse=True)
