"""Stage one: `MetadataZOS`, what a decode step says once a sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from inputmeta.engine import _core
from inputmeta.engine.device import device_of, sent, target_from
from inputmeta.engine.tensors import TensorView, allocate, view_of

_DTYPES = {"int32": torch.int32, "int64": torch.int64, "bool": torch.bool}

_NAMES = (
    *("seqlens_q", "seqlens_k", "cu_seqlens_q", "state_ids", "is_placeholder", "block_tables_offsets"),
    *("block_tables", "input_ids", "ngram_token_ids"),
)
"""The arrays, in the order of the pack and of the kernels."""

_FOLLOWING = (
    *("remap", "prev_sampled_token_ids", "prev_predict_token_ids", "prev_seqlens_q", "prev_num_accepted_tokens"),
    "fresh_cu_seqlens_q",
)
"""The arrays of a step that follows another one; None where there is nothing of the kind."""

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

    # What a step brings that follows one of m sequences (F-REMAP, F-GATHER), by `dataclasses.replace`.
    # [n] int32: the sequence's place in the last step, negative for a new one; None: all are new.
    remap: torch.Tensor | None = None
    # [m] int32: the token sampled behind the last accepted draft.
    prev_sampled_token_ids: torch.Tensor | None = None
    # [m, width] int32: the drafts predicted behind that token.
    prev_predict_token_ids: torch.Tensor | None = None
    # [m] int32, rows: those that the last step had.
    prev_seqlens_q: torch.Tensor | None = None
    # [m] int32: drafts of the last step that were accepted, 0 to prev_seqlens_q - 1.
    prev_num_accepted_tokens: torch.Tensor | None = None
    # [n] int32, rows: cu_seqlens_q as extracted, where the sums have been made anew (F-VARLEN); input_ids and
    # ngram_token_ids are laid out by it (I-34). None: cu_seqlens_q itself.
    fresh_cu_seqlens_q: torch.Tensor | None = None

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
            for name, array in ((name, getattr(self, name)) for name in (*_NAMES, *_FOLLOWING))
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
    def extracted_cu_seqlens_q(self) -> torch.Tensor:
        """[n] int32, rows: where the sequences of the extracted layout end (C)."""
        return self.cu_seqlens_q if self.fresh_cu_seqlens_q is None else self.fresh_cu_seqlens_q

    def sources(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The arrays of F-GATHER and of the extracted layout by name; empty where the step's rows are the extracted
        ones and none of its tokens comes from the last step. The extracted sums are always among them, the last step's
        tokens with remap.

        Raises ValueError for one that is missing, lies elsewhere, or has not the dtype and the shape of its name.
        """
        if self.remap is None and self.fresh_cu_seqlens_q is None:
            return {}
        found = {"fresh_cu_seqlens_q": self._checked("fresh_cu_seqlens_q", self.extracted_cu_seqlens_q, device)}
        if self.remap is None:
            return found
        found["remap"] = self._checked("remap", self.remap, device)
        sampled, predict = self.prev_sampled_token_ids, self.prev_predict_token_ids
        previous = 0 if sampled is None else sampled.shape[0]
        width = predict.shape[1] if predict is not None and predict.ndim == 2 else 0
        shapes = {"prev_sampled_token_ids": (previous,), "prev_predict_token_ids": (previous, width)}
        for name, tensor in (("prev_sampled_token_ids", sampled), ("prev_predict_token_ids", predict)):
            found[name] = self._checked(name, tensor, device, shapes[name])
        return found

    def accepted(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The arrays of F-REMAP by name, empty without remap. Errors as for `sources`, whose m is theirs."""
        if self.remap is None:
            return {}
        previous = tuple(self.sources(device)["prev_sampled_token_ids"].shape)
        names = ("prev_seqlens_q", "prev_num_accepted_tokens")
        return {
            "remap": self.remap,
            **{name: self._checked(name, getattr(self, name), device, previous) for name in names},
        }

    def lengths(self, device: torch.device) -> dict[str, torch.Tensor]:
        """seqlens_q, seqlens_k, and the sums as extracted. Errors as for `sources`."""
        return {
            "seqlens_q": self._checked("seqlens_q", self.seqlens_q, device),
            "seqlens_k": self._checked("seqlens_k", self.seqlens_k, device),
            "fresh_cu_seqlens_q": self._checked("fresh_cu_seqlens_q", self.extracted_cu_seqlens_q, device),
        }

    def _checked(
        self, name: str, tensor: torch.Tensor | None, device: torch.device, shape: tuple[int, ...] | None = None
    ) -> torch.Tensor:
        """An int32 array of the step, [n] unless `shape` says otherwise."""
        shape = (self.num_reqs,) if shape is None else shape
        if tensor is None:
            raise ValueError(f"{name} of the step is missing")
        found = (tensor.dtype, tensor.shape, tensor.device)
        if found != (torch.int32, shape, device) or not tensor.is_contiguous():
            raise ValueError(
                f"{name} is not a contiguous torch.int32 tensor {shape} on {device}: {tensor.dtype} "
                f"{tuple(tensor.shape)}, strides {tensor.stride()}, on {tensor.device}"
            )
        return tensor

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


def source_addresses(sources: Mapping[str, torch.Tensor]) -> tuple[int, ...]:
    """`MetadataZOS.sources` as the kernels take them."""
    if not sources:
        return ()
    names = ("fresh_cu_seqlens_q", "remap", "prev_sampled_token_ids", "prev_predict_token_ids")
    predict = sources.get("prev_predict_token_ids")
    sizes = (0, 0) if predict is None else (predict.shape[0], predict.shape[1])
    return *(sources[name].data_ptr() if name in sources else 0 for name in names), *sizes


def step_views(step: MetadataZOS, checked: Mapping[str, torch.Tensor], names: Sequence[str]) -> dict[str, TensorView]:
    """`checked`, the step's arrays `names` that are not None, and its block_tables_offsets, as they cross the binding.

    Raises ValueError for one that is not contiguous in host memory or of a dtype that no array has.
    """
    found = {name: getattr(step, name) for name in names} | dict(checked)
    views: dict[str, TensorView] = {}
    for name, tensor in found.items():
        if tensor is None:
            continue
        try:
            views[name] = view_of(tensor)
        except ValueError as error:
            raise ValueError(f"{name} of the step: {error}") from error
    offsets = step.block_tables_offsets
    if not offsets.is_cpu or not offsets.is_contiguous() or offsets.dtype != torch.int64:
        raise ValueError("block_tables_offsets is not a contiguous int64 tensor in host memory")
    views["block_tables_offsets"] = (offsets.data_ptr(), offsets.shape, "int64")
    return views


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
