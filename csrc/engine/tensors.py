"""Allocation and checking of tensors: Python's half of "plan the sizes, allocate, fill"."""

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch

from engine.errors import OutError

TensorView: TypeAlias = tuple[int, tuple[int, ...], str]
"""A contiguous host tensor as it crosses the binding: address, shape, dtype ("int32" or "bool")."""

FieldPlan: TypeAlias = tuple[str, str, tuple[int, ...]]
"""A tensor to be written: flat key ("klen.4"), dtype, shape."""

_DTYPES = {"int32": torch.int32, "bool": torch.bool}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@functools.cache
def _pin_memory() -> bool:
    """Whether host tensors are page-locked, so that a copy to the device can be asynchronous."""
    return torch.cuda.is_available()


def allocate(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A host tensor with undefined contents, pinned when there is a device to copy it to."""
    return torch.empty(shape, dtype=_DTYPES[dtype], pin_memory=_pin_memory())


def view_of(tensor: torch.Tensor) -> TensorView:
    """Address, shape and dtype of a tensor, for the core to read or write.

    Raises ValueError when it is not in host memory, not contiguous, or of a dtype that no field has: the core would
    follow its address all the same.
    """
    if not tensor.is_cpu or not tensor.is_contiguous() or tensor.dtype not in _NAMES:
        found = f"{tensor.dtype}, strides {tensor.stride()}, {tensor.device}"
        raise ValueError(f"a contiguous int32 or bool tensor in host memory is needed, not {found}")
    return tensor.data_ptr(), tensor.shape, _NAMES[tensor.dtype]


def table_columns(out: Mapping[str, Any] | None) -> int | None:
    """Columns of the caller's block tables; None when there are none to speak of, which P-OUT then reports."""
    tables = None if out is None else out.get("block_tables")
    return tables.shape[1] if isinstance(tables, torch.Tensor) and tables.ndim == 2 else None


def tensor_for(plan: FieldPlan, out: Mapping[str, Any] | None) -> torch.Tensor:
    """The tensor that a planned field is written to: the caller's own if `out` is given, else a new one.

    Raises OutError (P-OUT) when `out` lacks it, or has it with another shape, dtype, layout or device.
    """
    key, dtype, shape = plan
    if out is None:
        return allocate(dtype, shape)
    tensor = out.get(key)
    if not isinstance(tensor, torch.Tensor):
        found = None if tensor is None else type(tensor).__name__
        raise OutError(None, key, found, "is a torch.Tensor in `out`")
    if tensor.dtype != _DTYPES[dtype]:
        raise OutError(None, key, str(tensor.dtype), f"dtype is torch.{dtype}")
    if tensor.shape != shape:
        raise OutError(None, key, str(tuple(tensor.shape)), f"shape is {shape}")
    if not tensor.is_cpu:
        raise OutError(None, key, str(tensor.device), "is in host memory")
    if not tensor.is_contiguous():
        raise OutError(None, key, f"strided {tensor.stride()}", "is contiguous")
    return tensor
