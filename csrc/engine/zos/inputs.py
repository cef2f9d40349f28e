"""Stage one: `MetadataZOS`, what a decode step says once a sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine import _core
from engine.tensors import allocate, view_of

_DTYPES = {"int32": torch.int32, "int64": torch.int64, "bool": torch.bool}

_Arrays = list[tuple[str, str, tuple[int, ...], int]]
"""Name, dtype, shape, and offset in the pack, bytes."""


@dataclass(frozen=True, eq=False)
class MetadataZOS:
    """A decode step, a cell a sequence; n = num_reqs. Made by `prepare_decode_zos_inputs`, read by the kernels.

    All arrays are views of `pack`, so that one copy brings them to a device. They are the step's own: what happens to
    the sequences later is not seen.
    """

    # What the preconditions were checked against.
    config: _core.MetadataConfig
    # Sequences of the step.
    num_reqs: int
    # Query rows of the step.
    total_q: int
    # Query rows of the longest chunk.
    max_seqlen_q: int
    # Columns that block_tables of the step needs, at least 1 (I-4).
    max_num_blocks: int

    # [n] int32, rows of each sequence: 1 + drafts.
    seqlens_q: torch.Tensor
    # [n] int32, tokens: key length after the step.
    seqlens_k: torch.Tensor
    # [n] int32, rows: inclusive prefix sums of seqlens_q, without the leading 0.
    cu_seqlens_q: torch.Tensor
    # [n] int32: slot in the state cache.
    state_ids: torch.Tensor
    # [n] bool.
    is_placeholder: torch.Tensor
    # [n + 1] int64, cells: where each sequence's blocks begin in block_tables; the last is their number.
    block_tables_offsets: torch.Tensor
    # [sum of num_blocks] int32, physical blocks, sequence by sequence (F-BLOCKS); one cell when there are none.
    block_tables: torch.Tensor
    # [total_q] int32: the token ids that the host knows (F-IDS).
    input_ids: torch.Tensor
    # [total_q, max_ngram_size] int32 (F-NGRAM); None when Engram is off.
    ngram_token_ids: torch.Tensor | None

    # int32 cells, pinned when there is a device to copy them to; the arrays begin at multiples of 16 bytes.
    pack: torch.Tensor
    arrays: _Arrays

    def to(self, device: torch.device | str) -> MetadataZOS:
        """The step on a device, by one copy, asynchronous where the pack is pinned; itself when it is there already."""
        pack = self.pack.to(device, non_blocking=True)
        if pack is self.pack:
            return self
        views: dict[str, Any] = _views(pack, self.arrays)
        return replace(self, pack=pack, **views)


def prepare_decode_zos_inputs(sequences: Sequence[_core.SequenceMetadata], config: _core.MetadataConfig) -> MetadataZOS:
    """Extracts a decode step's sequences in one pass on the host.

    Raises a subclass of PreconditionError, as `prepare_decode_v4` does: P-RATIO, P-LEN, P-TABLE, P-STATE, P-NGRAM,
    P-INT32. The last is decided by bounds that the host knows, for max_num_blocks columns; in one point it is wider:
    there is no cu_seqlens_k here, so the sum of seqlen_k may leave int32.
    """
    step = _core.plan_zos(sequences, config)
    pack = allocate("int32", (step.bytes() // torch.int32.itemsize,))
    step.fill(view_of(pack))
    arrays = step.arrays()
    members: dict[str, Any] = {"ngram_token_ids": None, **step.scalars(), **_views(pack, arrays)}
    return MetadataZOS(config=config, pack=pack, arrays=arrays, **members)


def _views(pack: torch.Tensor, arrays: _Arrays) -> dict[str, torch.Tensor]:
    cells = {name: pack.view(dtype) for name, dtype in _DTYPES.items()}
    views = {}
    for name, dtype, shape, offset in arrays:
        begin = offset // _DTYPES[dtype].itemsize
        view = cells[dtype][begin : begin + math.prod(shape)]
        views[name] = view if len(shape) == 1 else view.view(shape)
    return views
