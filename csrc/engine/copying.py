"""Copies of a step's tensors: into another step's buffers, whose addresses a captured graph knows, or to a device."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from inputmeta.engine.device import copy_into, sent
from inputmeta.engine.tensors import captured, prefix


def copy_tensors(target: Mapping[str, Any], source: Mapping[str, Any]) -> None:
    """Copies each tensor of `source` into the tensor of `target` under the same flat key; everything else is skipped.

    Raises ValueError, before anything is copied, for a tensor without a counterpart or with one of another shape or
    dtype: a stale or cast value would be read as this step's.
    """
    targets, sources = _tensors(target), _tensors(source)
    for key in sorted(targets.keys() ^ sources.keys()):
        owner = "this container" if key in targets else "the other"
        raise ValueError(f"{key}: only {owner} has this tensor")
    for key, tensor in sources.items():
        if tensor.shape != targets[key].shape or tensor.dtype != targets[key].dtype:
            raise ValueError(f"{key}: {_description(tensor)} cannot be copied into {_description(targets[key])}")
    for key, tensor in sources.items():
        copy_into(targets[key], tensor)


def tensors_on(flat: Mapping[str, Any], device: torch.device, out: Mapping[str, Any] | None) -> dict[str, Any]:
    """`flat` with its tensors on `device`, or in the buffers of `out` there; see `InputMetadataV4.to`."""
    tensors = _tensors(flat)
    if out is not None:
        targets = {
            key: prefix(captured(key, tuple(tensor.shape), tensor.dtype, out, device), tensor.shape[0])
            for key, tensor in tensors.items()
        }
        for key, tensor in tensors.items():
            copy_into(targets[key], tensor)
        return {**flat, **targets}
    moved = _moved({id(tensor): tensor for tensor in tensors.values()}.values(), device)
    return {**flat, **{key: moved[id(tensor)] for key, tensor in tensors.items()}}


def _moved(tensors: Iterable[torch.Tensor], device: torch.device) -> dict[int, torch.Tensor]:
    """Each tensor's copy on `device` by its identity: a storage that is theirs for the most part is sent once."""
    storages: dict[tuple[int, int], list[torch.Tensor]] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages.setdefault((storage.data_ptr(), storage.nbytes()), []).append(tensor)
    moved: dict[int, torch.Tensor] = {}
    for sharing in storages.values():
        storage = sharing[0].untyped_storage()
        if len(sharing) == 1 or 2 * sum(tensor.nbytes for tensor in sharing) <= storage.nbytes():
            moved.update((id(tensor), sent(tensor, device)) for tensor in sharing)
            continue
        whole = sent(_bytes_of(sharing[0]), device)
        moved.update((id(tensor), _same_place(tensor, whole)) for tensor in sharing)
    return moved


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's storage."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))


def _same_place(tensor: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """The tensor in the copy of its storage."""
    if whole.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
        return tensor
    empty = torch.empty(0, dtype=tensor.dtype, device=whole.device)
    return empty.set_(whole.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def _tensors(flat: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {key: value for key, value in flat.items() if isinstance(value, torch.Tensor)}


def _description(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"
