"""Stage one: `MetadataZOS`, what a decode step says once a sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from inputmeta.engine import _core
from inputmeta.engine.device import device_of, sent, target_from
from inputmeta.engine.tensors import allocate, view_of

_DTYPES = {"int32": torch.int32, "int64": torch.int64, "bool": torch.bool}

_NAMES = (
    *("seqlens_q", "seqlens_k", "cu_seqlens_q", "state_ids", "is_placeholder", "block_tables_offsets"),
    *("block_tables", "input_ids", "ngram_token_ids"),
)
"""The arrays, in the order of the pack and of the kernels."""

_DECISIVE = ("block_size", "dense_ratios", "sparse_ratios", "window_size", "swa_block_size", "max_ngram_size")
"""What the preconditions of a step, and the bounds of what the kernel writes, depend on."""


@dataclass(frozen=True, eq=False)
class MetadataZOS:
    """A decode step, a cell a sequence; n = num_reqs. Made by `prepare_decode_zos_inputs`, read by the kernels.

    All arrays are views of `pack`, so that one copy brings them to a device; each view is made when it is first asked
    for. They are the step's own: what happens to the sequences later is not seen. `dataclasses.replace` gives a step
    with arrays that lie elsewhere.
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
    layout: _core.ZosLayout

    def __getattr__(self, name: str) -> torch.Tensor | None:
        """An array that has not been asked for yet."""
        if name not in _NAMES or "pack" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        view = _view(self.pack, self.layout, name)
        self.__dict__[name] = view
        return view

    def require_engine(self, config: _core.MetadataConfig) -> None:
        """ValueError unless `config` decides the step as the one does that it was extracted with."""
        if self.config is config:
            return
        for name in _DECISIVE:
            if getattr(self.config, name) != getattr(config, name):
                raise ValueError(
                    f"{name} of the config is {getattr(config, name)}, the step was extracted with another"
                )

    @property
    def is_packed(self) -> bool:
        """Whether all arrays lie in the pack: not so of a step made by `dataclasses.replace`."""
        return "_is_packed" in self.__dict__

    def to(self, device: torch.device | str) -> MetadataZOS:
        """The step on a device, by one copy, to a GPU asynchronous where the pack is pinned; itself when it is there
        already. Arrays that do not lie in the pack are copied one by one.
        """
        target = target_from(device)
        pack = sent(self.pack, target)
        if self.is_packed:
            return self if pack is self.pack else _on_pack(self.__dict__, pack)
        moved: dict[str, Any] = {
            name: None if array is None else sent(array, target)
            for name, array in ((name, getattr(self, name)) for name in _NAMES)
        }
        return replace(self, pack=pack, **moved)

    def addresses(self, device: torch.device) -> tuple[int, ...]:
        """Addresses of the arrays on `device`, in the order of the kernels, 0 for none.

        Raises ValueError for one that lies elsewhere, or has not the dtype and the shape of its name.
        """
        if self.is_packed:
            if device_of(self.pack) != device:
                raise ValueError(f"the step lies on {self.pack.device}, not on {device}")
            return self.layout.addresses(self.pack.data_ptr())
        return tuple([self._address(name, device) for name in _NAMES])

    @property
    def table_cells(self) -> int:
        """Cells of block_tables."""
        return self.layout.table_cells if self.is_packed else self.block_tables.shape[0]

    def _address(self, name: str, device: torch.device) -> int:
        array = getattr(self, name)
        columns = self.config.max_ngram_size
        if array is None and columns <= 0:
            return 0
        shapes = {
            "block_tables_offsets": (self.num_reqs + 1,),
            "input_ids": (self.total_q,),
            "ngram_token_ids": (self.total_q, columns),
            "block_tables": (self.table_cells,),
        }
        shape = shapes.get(name, (self.num_reqs,))
        dtype = {"is_placeholder": torch.bool, "block_tables_offsets": torch.int64}.get(name, torch.int32)
        if array is None or (array.dtype, array.shape, array.device) != (dtype, shape, device):
            raise ValueError(f"{name} of the extracted step is not {dtype} {shape} on {device}")
        if not array.is_contiguous():
            raise ValueError(f"{name} of the extracted step is not contiguous")
        return int(array.data_ptr())


_SCALARS = ("config", "num_reqs", "total_q", "max_seqlen_q", "max_num_blocks")


def prepare_decode_zos_inputs(sequences: Sequence[_core.SequenceMetadata], config: _core.MetadataConfig) -> MetadataZOS:
    """Extracts a decode step's sequences in one pass on the host.

    Raises a subclass of PreconditionError, as `prepare_decode_v4` does: P-RATIO, P-LEN, P-TABLE, P-STATE, P-NGRAM,
    P-INT32. The last is decided by bounds that the host knows, for max_num_blocks columns; in one point it is wider:
    there is no cu_seqlens_k here, so the sum of seqlen_k may leave int32.
    """
    step = _core.plan_zos(sequences, config)
    layout = step.layout()
    pack = allocate("int32", (layout.bytes // torch.int32.itemsize,))
    step.fill(view_of(pack))
    return _on_pack({"config": config, "layout": layout, **step.scalars()}, pack)


def _on_pack(members: dict[str, Any], pack: torch.Tensor) -> MetadataZOS:
    """A step whose arrays are views of `pack`, made when they are asked for."""
    step = MetadataZOS.__new__(MetadataZOS)
    step.__dict__.update({name: members[name] for name in (*_SCALARS, "layout")}, pack=pack, _is_packed=True)
    return step


def _view(pack: torch.Tensor, layout: _core.ZosLayout, name: str) -> torch.Tensor | None:
    found = layout.array(name)
    if found is None:
        return None
    dtype, shape, offset = found
    begin = offset // _DTYPES[dtype].itemsize
    return pack.view(_DTYPES[dtype])[begin : begin + math.prod(shape)].view(shape)
