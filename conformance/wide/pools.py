"""What the sequences of wide batches are cut from: arrays that all share, as a scheduler's are. Nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt

from inputmeta import oracle
from inputmeta.conformance.cases.conditions import ANY, Conditions

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

INT32_MAX = 2**31 - 1
VOCABULARY = 4_096
"""Entries of the look-up table; raw recent tokens are below."""
SENTINEL = 7
"""The image sentinel."""
TOKENS = 2**21
"""Tokens of a pool; the longest context is below."""
POOLS_INDEX = 2**64 - 1
"""Batch index that keys the pools of a seed; no batch has it."""


def generator(seed: int, index: int) -> np.random.Generator:
    """The generator of one batch: what it gives depends on seed and index alone, not on the batches before."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, index], dtype=np.uint64)))


def integers(values: Int32s) -> Sequence[int]:
    """The array, made read-only, as the sequence of integers for which it serves: what is cut from it is a view."""
    values.flags.writeable = False
    return cast("Sequence[int]", values)


@dataclass(frozen=True)
class Pools:
    """``tokens``, ``history`` [TOKENS] int32: raw ids, a share of them anywhere in int32; compressed ids, some of them
    the sentinel. ``recent`` [TOKENS] and ``lookup`` [VOCABULARY]: ids that index the table, and the table.
    """

    tokens: Sequence[int]
    history: Sequence[int]
    recent: Sequence[int]
    lookup: Sequence[int]


@lru_cache(maxsize=1)
def pools_of(seed: int) -> Pools:
    """The pools of a seed."""
    rng = generator(seed, POOLS_INDEX)
    whole = rng.integers(-(2**31), 2**31, TOKENS, dtype=np.int32)
    tokens = np.where(rng.random(TOKENS) < 0.1, whole, whole & 0x1FFFF).astype(np.int32)
    history = np.where(rng.random(TOKENS) < 0.02, SENTINEL, tokens[::-1]).astype(np.int32)
    recent = rng.integers(0, VOCABULARY, TOKENS, dtype=np.int32)
    lookup = rng.integers(0, 1_000, VOCABULARY, dtype=np.int32)
    return Pools(integers(tokens), integers(history), integers(recent), integers(lookup))


@dataclass(frozen=True)
class Lengths:
    """Per sequence [n_seq] int64: query rows, keys after the step; bool: stand-ins."""

    seqlen_q: Int64s
    seqlen_k: Int64s
    placeholder: npt.NDArray[np.bool_]


def table_lengths(config: oracle.MetadataConfig, seqlen_k: Int64s) -> Int64s:
    """F-BLOCKS num_blocks of each sequence."""
    smallest = min((*config.dense_ratios, *config.sparse_ratios))
    return -(-(seqlen_k // smallest) // (config.block_size // smallest))


def ids_below(rng: np.random.Generator, limit: int, count: int) -> Int64s:
    """``count`` ids in [0, limit): all small, or anywhere, or beside the limit."""
    kind = int(rng.integers(3))
    if kind == 0:
        return rng.integers(0, min(limit, 2**16), count)
    if kind == 1:
        return rng.integers(0, limit, count)
    return limit - 1 - rng.integers(0, min(limit, 4), count)


def below(limit: int, largest: int | None) -> int:
    """The limit, exclusive, of ids that go up to ``largest`` at most."""
    return limit if largest is None else max(1, min(limit, largest + 1))


def sequences_of(
    rng: np.random.Generator,
    pools: Pools,
    path: oracle.Path,
    config: oracle.MetadataConfig,
    lengths: Lengths,
    *,
    conditions: Conditions = ANY,
) -> list[oracle.SequenceMetadata]:
    """The sequences with these lengths, arrays cut from the pools; ids up to what int32 and the conditions allow."""
    count = len(lengths.seqlen_q)
    smallest = min((*config.dense_ratios, *config.sparse_ratios))
    blocks = table_lengths(config, lengths.seqlen_k)
    spare = rng.integers(0, 3, count)
    longest = int(blocks.max()) + 2
    blocks_end = below(2**31 // (config.block_size // smallest), conditions.highest_block(config.block_size))
    table = integers(ids_below(rng, blocks_end, longest + 1_024).astype(np.int32))
    states = ids_below(rng, below(2**31 // config.swa_block_size, conditions.largest_state), count).tolist()
    q_start = lengths.seqlen_k - lengths.seqlen_q
    trusted = np.choose(rng.integers(0, 5, count), [0, 0, np.maximum(q_start - 50, 0), q_start, q_start + 3])
    if conditions.valid_starts != "any":
        trusted = np.minimum(trusted, q_start if conditions.valid_starts == "visible" else 0)
    data_len = lengths.seqlen_k + rng.choice([0, 0, 100, 400], count) * conditions.other_data_len
    decode = path != "prompt"
    known = q_start + 1 if decode else lengths.seqlen_k
    compressed = np.maximum(q_start - rng.integers(0, 6, count), 0)
    begins = rng.integers(0, TOKENS - int(lengths.seqlen_k.max()) - 1, count)
    tables = rng.integers(0, 1_022, count)
    ngrams = config.max_ngram_size > 0
    made = zip(
        lengths.seqlen_q.tolist(),
        lengths.seqlen_k.tolist(),
        lengths.placeholder.tolist(),
        states,
        trusted.tolist(),
        data_len.tolist(),
        known.tolist(),
        compressed.tolist(),
        begins.tolist(),
        tables.tolist(),
        (tables + blocks + spare).tolist(),
        strict=True,
    )
    return [
        oracle.SequenceMetadata(
            seqlen_q=rows,
            seqlen_k=keys,
            block_table=table[table_begin:table_end],
            state_id=state,
            is_placeholder=stand_in,
            swa_valid_start=valid,
            token_ids=pools.tokens[begin : begin + raw],
            draft_tokens=pools.tokens[begin + raw : begin + keys] if decode else (),
            compressed_tokens=pools.history[begin : begin + old] if ngrams else (),
            recent_tokens=pools.recent[begin + old : begin + keys] if ngrams else (),
            data_len=length,
        )
        for rows, keys, stand_in, state, valid, length, raw, old, begin, table_begin, table_end in made
    ]
