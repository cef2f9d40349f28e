"""Inputs and helpers of the numpy reference, and the fields that both paths share (SPEC.md section 2).

The key idea of the whole reference is *ragged arithmetic*: per-sequence quantities are int64 arrays of n_seq elements,
per-row quantities are int32 arrays made of them with ``np.repeat`` and ``np.arange``. Python loops run over sequences
only where arrays of different owners have to be joined (tokens, block tables, n-gram history), never over rows.

The reference supposes a valid batch: it checks no precondition, and its int32 arithmetic would wrap where the engine
refuses. Context parallel and YoCo truncation are not part of it (`NotImplementedError`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inputmeta import oracle

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
IntArray = Sequence[int] | Int32s
"""What sequences and configurations bring: list, tuple, `array('i')` or numpy int32."""
Value = Int32s | Bools | int | bool
Fields = dict[str, Value]
"""Flat key (``klen.4``) -> int32 or bool array, or a plain scalar."""

PLACEHOLDER_QUERY_INDEX = 998244353


def int32s(values: IntArray) -> Int32s:
    """`values` as an int32 array; no copy for numpy int32 and ``array('i')``."""
    return np.asarray(values, dtype=np.int32)


def joined(parts: list[IntArray]) -> Int32s:
    """The parts end to end, int32; unsafe casting because an empty tuple counts as float64."""
    return np.concatenate(parts, dtype=np.int32, casting="unsafe")


def modulo(values: Int32s, divisor: int) -> Int32s:
    """``values % divisor``. numpy vectorises floor division by a scalar and does not vectorise the remainder."""
    return values - values // divisor * divisor


def starts_of(counts: Int64s) -> Int64s:
    """Exclusive prefix sums [n]: where each run begins when runs of `counts` lie end to end."""
    return np.cumsum(counts) - counts


def with_leading_zero(counts: Int64s) -> Int32s:
    """Prefix sums with the leading 0, [n + 1]."""
    sums = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=sums[1:])
    return sums


def ragged_ranges(first: Int64s, counts: Int64s) -> Int32s:
    """``first[i], first[i] + 1, …`` (`counts[i]` of them) for each i, end to end, [sum(counts)].

    >>> ragged_ranges(np.array([5, 0, 7]), np.array([2, 0, 3]))
    array([5, 6, 7, 8, 9], dtype=int32)
    """
    index = np.arange(int(counts.sum()), dtype=np.int32)
    return index + spread(first - starts_of(counts), counts)


def spread(values: Int64s, counts: Int64s) -> Int32s:
    """`values[i]` repeated `counts[i]` times, as int32."""
    return np.repeat(values.astype(np.int32), counts)


@dataclass(frozen=True)
class Batch:
    """One batch as arrays: per sequence [n_seq] int64 (tokens, blocks), per query row [total_q] int32."""

    config: oracle.MetadataConfig
    sequences: Sequence[oracle.SequenceMetadata]
    ratios: tuple[int, ...]
    seqlen_q: Int64s
    seqlen_k: Int64s
    q_start: Int64s
    state_id: Int64s
    placeholder: Bools
    num_blocks: Int64s
    positions: Int32s

    @property
    def total_q(self) -> int:
        """Query rows of the batch."""
        return len(self.positions)

    def rows(self, per_sequence: Int64s) -> Int32s:
        """A per-sequence quantity on every query row, [total_q] int32."""
        return spread(per_sequence, self.seqlen_q)


def read_batch(config: oracle.MetadataConfig, sequences: Sequence[oracle.SequenceMetadata]) -> Batch:
    """Gathers the scalars of the sequences; F-POS and F-BLOCKS."""
    if config.cp_size != 1 or config.yoco_mode != "off":
        raise NotImplementedError("the numpy reference has neither context parallel nor YoCo truncation")
    seqlen_q = np.array([sequence.seqlen_q for sequence in sequences], dtype=np.int64)
    seqlen_k = np.array([sequence.seqlen_k for sequence in sequences], dtype=np.int64)
    q_start = seqlen_k - seqlen_q
    ratios = tuple(sorted({*config.dense_ratios, *config.sparse_ratios}))
    smallest = ratios[0]
    return Batch(
        config=config,
        sequences=sequences,
        ratios=ratios,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        q_start=q_start,
        state_id=np.array([sequence.state_id for sequence in sequences], dtype=np.int64),
        placeholder=np.array([sequence.is_placeholder for sequence in sequences], dtype=np.bool_),
        num_blocks=-(-(seqlen_k // smallest) // (config.block_size // smallest)),
        positions=ragged_ranges(q_start, seqlen_q),
    )


def common_fields(batch: Batch, input_ids: Int32s) -> Fields:
    """The fields of SPEC.md section 2: F-POS, F-IDS (given), F-NGRAM, F-MASK, F-QIDX, cu_seqlens, and the scalars."""
    indices = np.arange(len(batch.sequences), dtype=np.int64)
    fields: Fields = {
        "num_reqs": len(batch.sequences),
        "total_q": batch.total_q,
        "positions": batch.positions,
        "input_ids": input_ids,
        "gate_force_random": np.full(batch.total_q, batch.config.force_load_balance, dtype=np.bool_),
        "valid_token_mask": np.repeat(~batch.placeholder, batch.seqlen_q),
        "query_indices": batch.rows(np.where(batch.placeholder, PLACEHOLDER_QUERY_INDEX, indices)),
        "cu_seqlens_q": with_leading_zero(batch.seqlen_q),
        "cu_seqlens_k": with_leading_zero(batch.seqlen_k),
    }
    if batch.config.max_ngram_size > 0:
        fields["ngram_token_ids"] = ngram_token_ids(batch)
    return fields


def ngram_history(batch: Batch) -> Int32s:
    """Per sequence the compressed tokens at [q_start - (G - 1), seqlen_k), end to end; `pad_token` before 0."""
    look_back = batch.config.max_ngram_size - 1
    padding = np.full(look_back, batch.config.pad_token, dtype=np.int32)
    parts: list[IntArray] = []
    for sequence, q_start, seqlen_k in zip(
        batch.sequences, batch.q_start.tolist(), batch.seqlen_k.tolist(), strict=True
    ):
        begin = max(q_start - look_back, 0)
        compressed, recent = sequence.compressed_tokens, sequence.recent_tokens
        known = len(compressed)
        parts.append(padding[: begin - (q_start - look_back)])
        parts.append(compressed[begin:seqlen_k])
        parts.append(recent[max(begin - known, 0) : max(seqlen_k - known, 0)])
    history = joined(parts)
    raw = np.repeat(np.tile([False, False, True], len(batch.sequences)), [len(part) for part in parts])
    history[raw] = int32s(batch.config.lookup_table)[history[raw]]
    return history


def ngram_token_ids(batch: Batch) -> Int32s:
    """F-NGRAM, [total_q, max_ngram_size]: column r looks r tokens back; pad from the first image sentinel on."""
    width, pad, sentinel = batch.config.max_ngram_size, batch.config.pad_token, batch.config.image_sentinel
    history = ngram_history(batch)
    indices = np.arange(1, len(batch.sequences) + 1, dtype=np.int64)
    here = np.arange(batch.total_q, dtype=np.int32) + batch.rows(indices * (width - 1))
    rows = np.empty((batch.total_q, width), dtype=np.int32)
    cut = np.zeros(batch.total_q, dtype=np.bool_)
    for back in range(width):
        tokens = history[here - back]
        if sentinel is not None:
            cut |= tokens == sentinel
            tokens[cut] = pad
        rows[:, back] = tokens
    return rows


def block_tables_flat(batch: Batch) -> Int32s:
    """The used blocks of all tables end to end, and one spare 0 so that an empty table can be indexed and masked."""
    blocks = batch.num_blocks.tolist()
    parts: list[IntArray] = [s.block_table[:count] for s, count in zip(batch.sequences, blocks, strict=True)]
    return joined([*parts, [0]])


def compressed_bases(batch: Batch, ratio: int) -> Int64s:
    """Compressed tokens of the sequences before each one; a sequence without any takes one row."""
    return starts_of(np.maximum(batch.seqlen_k // ratio, 1))
