"""Copies one step's tensors into another's buffers, whose addresses a captured graph knows."""

from collections.abc import Mapping
from typing import Any

import torch


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
        targets[key].copy_(tensor, non_blocking=True)


def _tensors(flat: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {key: value for key, value in flat.items() if isinstance(value, torch.Tensor)}


def _description(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"
