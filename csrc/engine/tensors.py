"""Allocation and checking of tensors: Python's half of "plan the sizes, allocate, fill"."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from inputmeta.engine.device import HOST
from inputmeta.engine.errors import OutError

TensorView: TypeAlias = tuple[int, tuple[int, ...], str]
"""A contiguous tensor as it crosses the binding: address, shape, dtype ("int32" or "bool")."""

FieldPlan: TypeAlias = tuple[str, str, tuple[int, ...]]
"""A tensor to be written: flat key ("klen.4"), dtype, shape."""

_DTYPES = {"int32": torch.int32, "bool": torch.bool}
_ALIGNMENT = 16
"""Bytes: what the widest load of a kernel wants."""

_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@functools.cache
def _pin_memory() -> bool:
    """Whether host tensors are page-locked, so that a copy to the device can be asynchronous."""
    return torch.cuda.is_available()


def allocate(dtype: str, shape: tuple[int, ...], device: torch.device = HOST) -> torch.Tensor:
    """A tensor with undefined contents; in host memory, pinned when there is a device to copy it to."""
    if device.type != "cpu":
        return torch.empty(shape, dtype=_DTYPES[dtype], device=device)
    return torch.empty(shape, dtype=_DTYPES[dtype], pin_memory=_pin_memory())


def allocate_fields(fields: Sequence[FieldPlan]) -> list[torch.Tensor]:
    """Host tensors for the fields of a step. Where there is a device to copy them to, all lie in one pinned storage, so
    that one copy brings them there.
    """
    if not _pin_memory():
        return [allocate(dtype, shape) for _, dtype, shape in fields]
    return packed(fields, lambda cells: allocate("int32", (cells,)))


def packed(fields: Sequence[FieldPlan], make: Callable[[int], torch.Tensor]) -> list[torch.Tensor]:
    """The fields as views of one int32 tensor, which `make` makes; each begins at a multiple of 16 bytes."""
    sizes = [math.prod(shape) * _DTYPES[dtype].itemsize for _, dtype, shape in fields]
    spaces = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]
    pack = make(sum(spaces) // 4)
    # One call for the pieces of all fields: a slice costs microseconds.
    pieces = {
        dtype: pack.view(_DTYPES[dtype]).split_with_sizes(
            [cells for size, space in zip(sizes, spaces, strict=True) for cells in _cells(size, space, dtype)]
        )
        for dtype in {dtype for _, dtype, _ in fields}
    }
    views = [pieces[dtype][2 * index] for index, (_, dtype, _) in enumerate(fields)]
    return [view if len(shape) == 1 else view.view(shape) for view, (_, _, shape) in zip(views, fields, strict=True)]


def _cells(size: int, space: int, dtype: str) -> tuple[int, int]:
    """Cells of a field of `size` bytes and of the gap behind it. Seen as int32, a field of flags may be cut short."""
    cells = size // _DTYPES[dtype].itemsize
    return cells, space // _DTYPES[dtype].itemsize - cells


def view_of(tensor: torch.Tensor, device: torch.device = HOST) -> TensorView:
    """Address, shape and dtype of a tensor, for the core or a kernel to read or write.

    Raises ValueError when it is not on `device`, not contiguous, or of a dtype that no field has: its address would be
    followed all the same.
    """
    if tensor.device != device or not tensor.is_contiguous() or tensor.dtype not in _NAMES:
        place = "in host memory" if device.type == "cpu" else f"on {device}"
        found = f"{tensor.dtype}, strides {tensor.stride()}, {tensor.device}"
        raise ValueError(f"a contiguous int32 or bool tensor {place} is needed, not {found}")
    return tensor.data_ptr(), tensor.shape, _NAMES[tensor.dtype]


def table_columns(out: Mapping[str, Any] | None) -> int | None:
    """Columns of the caller's block tables; None when there are none to speak of, which P-OUT then reports."""
    tables = None if out is None else out.get("block_tables")
    return tables.shape[1] if isinstance(tables, torch.Tensor) and tables.ndim == 2 else None


def tensor_for(plan: FieldPlan, out: Mapping[str, Any] | None, device: torch.device = HOST) -> torch.Tensor:
    """The tensor that a planned field is written to: the caller's own if `out` is given, else a new one.

    Raises OutError (P-OUT) when `out` lacks it, or has it with another shape, dtype, layout or device.
    """
    key, dtype, shape = plan
    if out is None:
        return allocate(dtype, shape, device)
    tensor = out.get(key)
    # The one that is nearly always there; whatever else it is, the checks in their order say.
    if (
        type(tensor) is torch.Tensor
        and tensor.shape == shape
        and tensor.dtype is _DTYPES[dtype]
        and tensor.is_cpu
        and device is HOST
        and tensor.is_contiguous()
    ):
        return tensor
    return captured(key, shape, _DTYPES[dtype], out, device, is_exact=True)


def prefix_for(plan: FieldPlan, out: Mapping[str, Any] | None, device: torch.device = HOST) -> torch.Tensor:
    """As `tensor_for`, but a tensor of `out` may have more rows: the first ones are written to."""
    key, dtype, shape = plan
    if out is None:
        return allocate(dtype, shape, device)
    return prefix(captured(key, shape, _DTYPES[dtype], out, device), shape[0])


def prefix(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """The first rows. A view costs microseconds, and the largest step needs none."""
    return tensor if tensor.shape[0] == rows else tensor[:rows]


def captured(
    key: str,
    size: tuple[int, ...],
    dtype: torch.dtype,
    out: Mapping[str, Any],
    device: torch.device | str,
    *,
    is_exact: bool = False,
) -> torch.Tensor:
    """out[key], all of it. OutError (P-OUT) unless it is contiguous, on `device`, and of shape `size`, or of more rows
    where that need not be exact.
    """
    tensor = out.get(key)
    if not isinstance(tensor, torch.Tensor):
        found = None if tensor is None else type(tensor).__name__
        raise OutError(None, key, found, "is a torch.Tensor in `out`")
    if tensor.dtype != dtype:
        raise OutError(None, key, str(tensor.dtype), f"dtype is {dtype}")
    is_prefix = tensor.ndim == len(size) and tensor.shape[1:] == size[1:] and tensor.shape[0] >= size[0]
    if tensor.shape != size if is_exact else not is_prefix:
        rule = f"shape is {size}" if is_exact else f"shape is {size}, or more in the first dimension"
        raise OutError(None, key, str(tuple(tensor.shape)), rule)
    target = torch.device(device)
    if tensor.device.type != target.type or target.index not in {None, tensor.device.index}:
        raise OutError(
            None, key, str(tensor.device), "is in host memory" if target.type == "cpu" else f"is on {device}"
        )
    if not tensor.is_contiguous():
        raise OutError(None, key, f"strided {tensor.stride()}", "is contiguous")
    return tensor
