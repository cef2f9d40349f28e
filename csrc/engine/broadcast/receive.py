"""Puts what a broadcast brought into a container that is there (I-41): addresses of tensors that fit do not move."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch

from inputmeta.engine.broadcast.manifest import Container, ContainerT
from inputmeta.engine.device import copy_into


def fill(receiver: ContainerT, brought: Container) -> ContainerT:
    """`receiver` with the fields of `brought` and no other.

    A tensor of the same path, dtype, shape and device keeps its address and is written in place, unless it shares
    memory with one that is written for another value; a dict stays the object that it is, with the keys that were
    brought. All else is replaced.
    """
    plan = _Plan()
    values = {
        field.name: plan.value(getattr(receiver, field.name), getattr(brought, field.name)) for field in fields(brought)
    }
    with torch.inference_mode():  # outside of it a tensor that was made in it cannot be written
        for target, source in plan.copies:
            copy_into(target, source)
    for held, items in plan.dicts.values():
        held.clear()
        held.update(items)
    for name, value in values.items():
        setattr(receiver, name, value)
    return receiver


class _Plan:
    """What is to be done: nothing of the receiver changes while it is made."""

    def __init__(self) -> None:
        self.copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.dicts: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}

    def value(self, held: object, brought: object) -> object:
        """What stands where the receiver has `held`."""
        if isinstance(brought, dict):
            known = held if isinstance(held, dict) and id(held) not in self.dicts else {}
            self.dicts[id(known)] = (known, {})
            items = {key: self.value(known.get(key), item) for key, item in brought.items()}
            self.dicts[id(known)] = (known, items)
            return known
        if isinstance(brought, torch.Tensor) and isinstance(held, torch.Tensor) and self._takes(held, brought):
            return held
        return brought

    def _takes(self, held: torch.Tensor, brought: torch.Tensor) -> bool:
        if (held.dtype, held.shape, held.device) != (brought.dtype, brought.shape, brought.device):
            return False
        if held.layout != torch.strided or _overlaps_itself(held):
            return False
        for target, source in self.copies:
            if _same_view(target, held) and source is brought:
                return True
            if _share_memory(target, held):
                return False
        self.copies.append((held, brought))
        return True


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two of its cells may be one: then it cannot be written."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return True
        reach += stride * (size - 1)
    return False


def _same_view(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.stride() == other.stride() and one.device == other.device


def _share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.device != other.device or 0 in {one.numel(), other.numel()}:
        return False
    (begin, end), (first, last) = _extent(one), _extent(other)
    return begin < last and first < end


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first byte of a strided tensor and of the byte past its last."""
    reach = 1 + sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size()
