"""Whose row each row of a field is, and where it stands: what a translation needs to know of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.zigzag import CEIL, rank_rows


@dataclass(frozen=True)
class Rows:
    """Rows of a layout, at least one (I-3), and the lengths of the batch."""

    sequence: np.ndarray
    """int64 [rows], as below: index of the row's sequence in the batch; -1: a row without a query."""
    position: np.ndarray
    """Absolute position; 0 for a row without a query."""
    seqlen_q: np.ndarray
    """Of each sequence, int64 [n_seq], as below; of a step of variable length by F-VARLEN."""
    seqlen_k: np.ndarray

    @property
    def queries(self) -> np.ndarray:
        """Mask of the rows that have a query."""
        return self.sequence >= 0

    def __len__(self) -> int:
        return len(self.sequence)

    def of(self, values: Sequence[int] | np.ndarray) -> np.ndarray:
        """A value of each sequence, int64 [n_seq], at its rows; 0 for a row without a query."""
        found = np.append(np.asarray(values, dtype=np.int64), 0)
        chosen: np.ndarray = found[self.sequence]
        return chosen

    def chosen(self, index: np.ndarray) -> Rows:
        """Rows by index; -1 is a row without a query."""
        index = index if len(index) else np.array([-1])
        inside, place = index >= 0, np.maximum(index, 0)
        sequence, position = np.where(inside, self.sequence[place], -1), np.where(inside, self.position[place], 0)
        return replace(self, sequence=sequence, position=position)


def lengths_of(request: Request) -> tuple[np.ndarray, np.ndarray]:
    """``seqlen_q`` and ``seqlen_k`` of each sequence, int64 [n_seq]; of a step of variable length by F-VARLEN."""
    q = np.array([sequence.seqlen_q for sequence in request.sequences], dtype=np.int64)
    k = np.array([sequence.seqlen_k for sequence in request.sequences], dtype=np.int64)
    varlen = None if request.gather is None else request.gather.varlen
    if request.gather is None or varlen is None or request.path != "decode_zos":
        return q, k
    remap = np.array(request.gather.remap)
    before = np.append(np.array(varlen.prev_seqlens_q, dtype=np.int64) - 1 - varlen.prev_num_accepted_tokens, 0)
    rejected = np.where(remap < 0, 0, before[np.maximum(remap, -1)])
    shorter = np.array(varlen.seqlens_q, dtype=np.int64)
    return shorter, k - (q - shorter) - rejected


def query_rows(request: Request) -> Rows:
    """The full layout: sequence by sequence; behind a step of variable length its neutral tail (F-TAIL)."""
    q, k = lengths_of(request)
    total = sum(sequence.seqlen_q for sequence in request.sequences)
    sequence = np.repeat(np.arange(len(q)), q)
    position = np.arange(int(q.sum())) + np.repeat(k - q - (np.cumsum(q) - q), q)
    tail = max(1, total) - len(sequence)
    return Rows(np.pad(sequence, (0, tail), constant_values=-1), np.pad(position, (0, tail)), q, k)


def consumer_index(request: Request) -> np.ndarray:
    """F-CLIP: the query rows that compact truncation keeps, int64 [consumer_total_q]."""
    config, begin = request.config, 0
    index: list[int] = []
    for sequence in request.sequences:
        q_start = sequence.seqlen_k - sequence.seqlen_q
        clip = sequence.data_len - config.yoco_prefill_keep_tokens - q_start
        clip = max(0, min(clip, sequence.seqlen_q - 1))
        index += range(begin + clip, begin + sequence.seqlen_q)
        begin += sequence.seqlen_q
    return np.array(index, dtype=np.int64)


def rows_of(request: Request, key: str) -> Rows:
    """The rows of a field with a row a query, mirrored or kept ones too."""
    config, rows = request.config, query_rows(request)
    kind = oracle.FIELDS[key.partition(".")[0]].layout(request.path, config).rows
    if kind == "mirror":
        lengths = [sequence.seqlen_q for sequence in request.sequences]
        return rows.chosen(rank_rows(lengths, config.cp_size, CEIL)[config.cp_rank])
    if kind == "consumer":
        return rows.chosen(consumer_index(request))
    return rows
