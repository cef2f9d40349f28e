"""The token ids of a step whose requests go on: from what the last step sampled and predicted (F-GATHER)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from inputmeta.engine import _core
from inputmeta.engine.device import HOST, device_of, kernels, queue_of
from inputmeta.engine.errors import OutError
from inputmeta.engine.tensors import TensorView, view_of
from inputmeta.engine.zos.buffers import get_or_create


def gather_input_ids_zos(  # noqa: PLR0917 - the engines' own order of arguments
    fresh_input_ids: torch.Tensor,
    prev_sampled: torch.Tensor,
    prev_predict: torch.Tensor,
    remap: torch.Tensor,
    seqlens_q: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """input_ids [rows] of a step of n sequences that follows one of m.

    Sequence i is new where remap[i] < 0: its rows are those of fresh_input_ids. Else it was sequence remap[i] of the
    last step: row 0 is prev_sampled[remap[i]], row j >= 1 is prev_predict[remap[i], j - 1] (F-GATHER).

    All are contiguous int32 tensors, in host memory or all on one GPU: fresh_input_ids [rows], prev_sampled [m],
    prev_predict [m, drafts], and [n]: remap, seqlens_q (rows), cu_seqlens_q (inclusive sums of it). `out`: a buffer of
    at least `rows` cells, whose prefix is filled and returned; it may be fresh_input_ids, no other of the inputs. Rows
    past the last sum are not written; in a new tensor they are 0.

    On a GPU one kernel is launched on torch's current stream, after the one that fills a new tensor with 0, and nothing
    is waited for. What the arrays hold is not
    checked there: rows for which an index or a length points outside its array are not written.

    Raises, before anything is written, ValueError for an input of another dtype, shape or place, for lengths that are
    negative, do not sum to cu_seqlens_q or sum to more than `rows`, for remap[i] >= m, and for seqlens_q[i] - 1 >
    drafts where remap[i] >= 0; OutError (P-OUT) for `out`.
    """
    inputs = {
        "prev_sampled": prev_sampled,
        "prev_predict": prev_predict,
        "remap": remap,
        "seqlens_q": seqlens_q,
        "cu_seqlens_q": cu_seqlens_q,
    }
    input_ids = _output("input_ids", fresh_input_ids, None if out is None else {"input_ids": out}, inputs)
    _gather({"fresh_input_ids": fresh_input_ids, **inputs}, input_ids)
    return input_ids


def prepare_decode_inputs_zos_varlen(  # noqa: PLR0917 - in the order of gather_input_ids_zos
    seqlens_q: torch.Tensor,
    fresh_input_ids: torch.Tensor,
    prev_sampled: torch.Tensor,
    prev_predict: torch.Tensor,
    remap: torch.Tensor,
    out: Mapping[str, Any] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """cu_seqlens_q [n], inclusive, and input_ids [rows] of a step whose drafts vary in number.

    How many rows a sequence has depends on how many drafts of the step before were accepted, which the device knows
    and the host does not yet. So `seqlens_q` [n] int32, that of the last step's `MetadataZOS` once its sampler has
    overwritten it, decides, not the host's count; it is summed here, where it lies. The host's count is an upper bound:
    `rows`, the length of fresh_input_ids, is the room for all drafts, and rows past the last sum are not written (in a
    new tensor: 0).

    The other inputs and errors as in `gather_input_ids_zos`. `out` has the buffers "cu_seqlens_q" [at least n] and
    "input_ids" [at least rows]; the first shares no memory with an input.
    """
    inputs = {
        "prev_sampled": prev_sampled,
        "prev_predict": prev_predict,
        "remap": remap,
        "seqlens_q": seqlens_q,
    }
    input_ids = _output("input_ids", fresh_input_ids, out, inputs)
    cu_seqlens_q = _output("cu_seqlens_q", seqlens_q, out, {**inputs, "fresh_input_ids": fresh_input_ids})
    if out is not None:
        _require_apart("cu_seqlens_q", cu_seqlens_q, {"input_ids": input_ids})
    _gather({"fresh_input_ids": fresh_input_ids, **inputs}, input_ids, cu_seqlens_q)
    return cu_seqlens_q, input_ids


def _gather(inputs: Mapping[str, torch.Tensor], input_ids: torch.Tensor, sums: torch.Tensor | None = None) -> None:
    """F-GATHER where `input_ids` lies; with `sums`, the lengths are summed into it first."""
    device = device_of(input_ids)
    views = _views(inputs, device)
    out = view_of(input_ids, device)
    if device == HOST:
        _core.zos_gather(views, out, sums=None if sums is None else view_of(sums))
        return
    if sums is not None:
        views["cu_seqlens_q"] = view_of(sums, device)
    kernels().zos_gather(*queue_of(device), tuple(views.values()), out, sums is not None)


def _views(inputs: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, TensorView]:
    """The inputs as they cross the binding, which checks shapes; ValueError names the one that cannot."""
    views = {}
    for name, tensor in inputs.items():
        if tensor.device != device or not tensor.is_contiguous() or tensor.dtype != torch.int32:
            place = "in host memory" if device == HOST else f"on {device}"
            found = f"{tensor.dtype}, strides {tensor.stride()}, {tensor.device}"
            raise ValueError(f"{name} is not a contiguous int32 tensor {place}: {found}")
        views[name] = view_of(tensor, device)
    return views


def _output(
    key: str, like: torch.Tensor, out: Mapping[str, Any] | None, inputs: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """An int32 tensor of the shape of `like` beside it, zeros or a prefix of out[key] that shares no memory with the
    inputs.
    """
    device = device_of(like)
    if out is None:
        return torch.zeros(like.shape, dtype=torch.int32, device=device)
    tensor = get_or_create(key, tuple(like.shape), torch.int32, out, device)
    _require_apart(key, tensor, inputs)
    if key == "input_ids" and tensor.data_ptr() != like.data_ptr():
        _require_apart(key, tensor, {"fresh_input_ids": like})
    return tensor


def _require_apart(key: str, tensor: torch.Tensor, others: Mapping[str, torch.Tensor]) -> None:
    begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    for name, other in others.items():
        if begin < other.data_ptr() + other.nbytes and other.data_ptr() < end:
            raise OutError(None, key, f"in the memory of {name}", "shares no memory with what is read")
