"""Chapter 2, the common base: F-IDS, F-NGRAM, F-GATE, F-MASK, F-QIDX, F-CU; and F-GATHER (chapter 10)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inputmeta import oracle

from .arrays import Array, Runs
from .batch import Batch, joined

NO_SEQUENCE = 998244353


def query_indices(batch: Batch) -> Array:
    """F-QIDX, [total_q]."""
    return batch.rows(np.where(batch.placeholder, NO_SEQUENCE, np.arange(batch.n_seq)))


def cu_seqlens(batch: Batch) -> dict[str, Array]:
    """F-CU: with the leading 0, n + 1 cells; ZOS: `cu_seqlens_q` alone, inclusive, n cells."""
    cu_seqlens_q = batch.queries.prefix_sums()
    if batch.path == "decode_zos":
        return {"cu_seqlens_q": cu_seqlens_q[1:]}
    return {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": Runs(batch.arrays, batch.seqlen_k).prefix_sums()}


def input_ids(batch: Batch, gather: oracle.GatherInputs | None) -> Array:
    """F-IDS, [total_q]; F-GATHER where inputs of it are given."""
    if gather is not None:
        return gathered_ids(batch, gather)
    pairs = zip(batch.sequences, batch.ends, strict=True)
    if batch.path == "prompt":
        return batch.arrays.from_host(joined(s.token_ids[begin:end] for s, (begin, end) in pairs))
    parts: list[Sequence[int]] = []
    for sequence, (begin, _) in pairs:
        parts.append(sequence.token_ids[begin : begin + 1])
        parts.append(sequence.draft_tokens)
    return batch.arrays.from_host(joined(parts))


def gathered_ids(batch: Batch, gather: oracle.GatherInputs) -> Array:
    """F-GATHER, [total_q]: fresh rows, or row 0 sampled and the others predicted by the last step."""
    arrays = batch.arrays
    place = np.array(gather.remap, dtype=np.int64)
    lengths = np.array([0, *(len(row) + 1 for row in gather.prev_predict)], dtype=np.int64)
    parts: list[Sequence[int]] = [(0,)]
    # The sample before the predictions of each sequence: row j of the step is then cell j.
    for sampled, predicted in zip(gather.prev_sampled, gather.prev_predict, strict=False):
        parts.extend(((sampled,), predicted))
    continued = arrays.from_host(joined(parts))
    source = batch.rows(1 + np.cumsum(lengths)[np.maximum(place, 0)]) + batch.row
    continues = batch.queries.spread_flags(place >= 0)
    # A row that continues nothing reads the one cell in front.
    ids = arrays.take(continued, arrays.xp.where(continues, source, 0))
    return arrays.xp.where(continues, ids, arrays.from_host(joined([gather.fresh_input_ids])))


def ngram_token_ids(batch: Batch) -> Array:
    """F-NGRAM, [total_q, max_ngram_size]: column r looks r tokens back; pad from the first image sentinel on."""
    arrays, config = batch.arrays, batch.config
    look_back = config.max_ngram_size - 1
    history = arrays.from_host(ngram_history(batch))
    # A sequence's part of the history is look_back cells longer than its rows.
    shift = (np.arange(batch.n_seq) + 1) * look_back
    here = arrays.arange(batch.total_q) + batch.rows(shift)
    columns: list[Array] = []
    cut = arrays.flags((batch.total_q,), False)
    for back in range(config.max_ngram_size):
        tokens = arrays.take(history, here - back)
        if config.image_sentinel is not None:
            cut = cut | (tokens == config.image_sentinel)
            tokens = arrays.xp.where(cut, config.pad_token, tokens)
        columns.append(tokens)
    return arrays.columns(*columns)


def ngram_history(batch: Batch) -> np.ndarray:
    """Per sequence the compressed tokens at [q_start - (G - 1), seqlen_k), end to end; `pad_token` before 0."""
    config = batch.config
    look_back = config.max_ngram_size - 1
    padding = np.full(look_back, config.pad_token, dtype=np.int32)
    parts: list[Sequence[int] | np.ndarray] = []
    for sequence, (q_start, seqlen_k) in zip(batch.sequences, batch.ends, strict=True):
        begin = max(q_start - look_back, 0)
        known = len(sequence.compressed_tokens)
        parts.append(padding[: begin - (q_start - look_back)])
        parts.append(sequence.compressed_tokens[begin:seqlen_k])
        parts.append(sequence.recent_tokens[max(begin - known, 0) : max(seqlen_k - known, 0)])
    history = joined(parts)
    raw = np.repeat(np.tile(np.array([False, False, True]), batch.n_seq), [len(part) for part in parts])
    history[raw] = joined([config.lookup_table])[history[raw]]
    return history
