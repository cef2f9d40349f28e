"""The token ids of a step whose requests go on: from what the last step sampled and predicted (F-GATHER)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from inputmeta.engine import _core
from inputmeta.engine.device import HOST, device_of, kernels, queue_of
from inputmeta.engine.errors import OutError
from inputmeta.engine.tensors import view_of
from inputmeta.engine.zos.buffers import get_or_create
from inputmeta.engine.zos.inputs import MetadataZOS, source_addresses

_INT32_MAX = 2**31 - 1


def gather_input_ids_zos(  # noqa: PLR0917 - the engines' own order of arguments
    fresh_input_ids: torch.Tensor,
    prev_sampled_token_ids: torch.Tensor,
    prev_predict_token_ids: torch.Tensor,
    remap: torch.Tensor,
    seqlens_q: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    max_seqlen_q: int | None = None,
    out: torch.Tensor | None = None,
    *,
    fresh_cu_seqlens_q: torch.Tensor | None = None,
) -> torch.Tensor:
    """input_ids [rows] of a step of n sequences that follows one of m.

    Sequence i is new where remap[i] < 0: its rows are those of fresh_input_ids. Else it was sequence remap[i] of the
    last step: row 0 is prev_sampled_token_ids[remap[i]], row j >= 1 is prev_predict_token_ids[remap[i], j - 1]
    (F-GATHER).

    All are contiguous int32 tensors, in host memory or all on one GPU: fresh_input_ids [rows], prev_sampled_token_ids
    [m], prev_predict_token_ids [m, width], and [n]: remap, seqlens_q (rows), cu_seqlens_q (inclusive sums of it).
    `max_seqlen_q` (1 + the most drafts) bounds each of seqlens_q; None: `rows` does. `fresh_cu_seqlens_q` [n] are the
    sums by which fresh_input_ids is laid out, where they are not cu_seqlens_q (I-34). `out`: a buffer of at least
    `rows` cells, whose prefix is filled and returned; it may be fresh_input_ids where that has the step's layout, no
    other of the inputs. Rows past the last sum are not written; in a new tensor they are 0.

    On a GPU one kernel is launched on torch's current stream, after the one that fills a new tensor with 0, and nothing
    is waited for. What the arrays hold is not checked there: rows past max_seqlen_q, and those for which an index or a
    length points outside its array, are not written.

    Raises, before anything is written, ValueError for an input of another dtype, shape or place, and, with the array
    and the index, for lengths that are negative, more than max_seqlen_q, do not sum to cu_seqlens_q or sum to more than
    `rows`, for remap[i] >= m, and for seqlens_q[i] - 1 > width where remap[i] >= 0; OutError (P-OUT) for `out`.
    """
    inputs = {
        "prev_sampled_token_ids": prev_sampled_token_ids,
        "prev_predict_token_ids": prev_predict_token_ids,
        "remap": remap,
        "seqlens_q": seqlens_q,
        "cu_seqlens_q": cu_seqlens_q,
    }
    if fresh_cu_seqlens_q is not None:
        inputs["fresh_cu_seqlens_q"] = fresh_cu_seqlens_q
    target = None if out is None else {"input_ids": out}
    input_ids = output("input_ids", fresh_input_ids, target, inputs, in_place=fresh_cu_seqlens_q is None)
    inputs["fresh_input_ids"] = fresh_input_ids
    _gather(inputs, input_ids, _INT32_MAX if max_seqlen_q is None else max_seqlen_q, has_tail=False)
    return input_ids


def prepare_token_ids_zos(metadata_zos: MetadataZOS, out: Mapping[str, Any] | None = None) -> torch.Tensor:
    """input_ids [max(1, total_q)] of a step alone: those that `prepare_decode_v4_zos` writes.

    F-GATHER of the step's remap, prev_sampled_token_ids and prev_predict_token_ids over its extracted input_ids, these
    alone without remap; rows past the last sum are 0 (F-TAIL). It is done where the step lies. `out` has the buffer
    "input_ids" of at least so many cells, which shares no memory with an array of the step.

    Raises, before anything is written, ValueError as `gather_input_ids_zos` does; OutError (P-OUT) for `out`.
    """
    device = device_of(metadata_zos.input_ids)
    sources = metadata_zos.sources(device)
    inputs = {"seqlens_q": metadata_zos.seqlens_q, "cu_seqlens_q": metadata_zos.cu_seqlens_q, **sources}
    like = metadata_zos.input_ids
    if metadata_zos.total_q == 0:
        like = like.new_zeros(1)
    input_ids = output("input_ids", like, out, inputs, in_place=False)
    if metadata_zos.total_q == 0:
        input_ids.zero_()
        return input_ids
    inputs["fresh_input_ids"] = metadata_zos.input_ids
    _gather(inputs, input_ids, metadata_zos.max_seqlen_q, has_tail=True)
    return input_ids


def _gather(inputs: Mapping[str, torch.Tensor], input_ids: torch.Tensor, max_seqlen_q: int, *, has_tail: bool) -> None:
    """F-GATHER where `input_ids` lies."""
    device = device_of(input_ids)
    require_same_place(inputs, device)
    _require_shapes(inputs)
    if device == HOST:
        views = {name: view_of(tensor) for name, tensor in inputs.items()}
        _core.zos_gather(views, view_of(input_ids), max_seqlen_q, has_tail)
        return
    fresh, lengths = inputs["fresh_input_ids"], (inputs["seqlens_q"], inputs["cu_seqlens_q"])
    kernels().zos_gather(
        *queue_of(device),
        view_of(fresh, device),
        source_addresses({"fresh_cu_seqlens_q": inputs["cu_seqlens_q"], **inputs}),
        tuple(tensor.data_ptr() for tensor in lengths),
        lengths[0].shape[0],
        min(max_seqlen_q, fresh.shape[0]),
        view_of(input_ids, device),
        has_tail,
    )


def _require_shapes(inputs: Mapping[str, torch.Tensor]) -> None:
    """ValueError unless all arrays have the sequences that seqlens_q has, or those of the last step."""
    count = inputs["seqlens_q"].shape[:1]
    sampled = inputs.get("prev_sampled_token_ids", torch.empty(0)).shape[:1]
    width = inputs["prev_predict_token_ids"].shape[1:2] if "prev_predict_token_ids" in inputs else ()
    shapes = {
        "fresh_input_ids": inputs["fresh_input_ids"].shape[:1],
        "prev_sampled_token_ids": sampled,
        "prev_predict_token_ids": (*sampled, *width) if width else (*sampled, -1),
    }
    for name, tensor in inputs.items():
        wanted = tuple(shapes.get(name, count))
        if len(wanted) == 0 or tensor.shape != wanted:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, the arrays of the gather have another: {wanted}")


def require_same_place(inputs: Mapping[str, torch.Tensor], device: torch.device) -> None:
    """ValueError, which names the input, unless all are contiguous int32 tensors on `device`."""
    for name, tensor in inputs.items():
        if tensor.device != device or not tensor.is_contiguous() or tensor.dtype != torch.int32:
            place = "in host memory" if device == HOST else f"on {device}"
            found = f"{tensor.dtype}, strides {tensor.stride()}, {tensor.device}"
            raise ValueError(f"{name} is not a contiguous int32 tensor {place}: {found}")


def output(
    key: str, like: torch.Tensor, out: Mapping[str, Any] | None, inputs: Mapping[str, torch.Tensor], *, in_place: bool
) -> torch.Tensor:
    """An int32 tensor of the shape of `like` beside it: zeros, or a prefix of out[key] that shares no memory with the
    inputs; nor, unless it is `like` itself and that is allowed, with `like`.
    """
    device = device_of(like)
    if out is None:
        return torch.zeros(like.shape, dtype=torch.int32, device=device)
    tensor = get_or_create(key, tuple(like.shape), torch.int32, out, device)
    require_apart(key, tensor, inputs)
    if not (in_place and tensor.data_ptr() == like.data_ptr()):
        require_apart(key, tensor, {"fresh_input_ids" if key == "input_ids" else key: like})
    return tensor


def require_sources_apart(
    metadata_zos: MetadataZOS, sources: Mapping[str, torch.Tensor], fields: Mapping[str, torch.Tensor]
) -> None:
    """OutError (P-OUT) where a field of a step whose rows come from `sources` would be written over what is read."""
    if not sources:
        return
    read = {**sources, "input_ids of the step": metadata_zos.input_ids}
    if metadata_zos.ngram_token_ids is not None:
        read["ngram_token_ids of the step"] = metadata_zos.ngram_token_ids
    for key in ("input_ids", "ngram_token_ids", "cu_seqlens_q"):
        if key in fields and fields[key].data_ptr() != metadata_zos.cu_seqlens_q.data_ptr():
            require_apart(key, fields[key], read)


def require_apart(key: str, tensor: torch.Tensor, others: Mapping[str, torch.Tensor]) -> None:
    """OutError (P-OUT) unless an output shares no memory with any of `others`."""
    begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    for name, other in others.items():
        if begin < other.data_ptr() + other.nbytes and other.data_ptr() < end:
            raise OutError(None, key, f"in the memory of {name}", "shares no memory with what is read")
