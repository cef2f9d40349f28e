"""Stage two: the buffers that the kernels write, new or captured by a graph (F-STACK, P-OUT).

A captured buffer has room for the largest step. A smaller one uses the prefix of its rows: the storage and the
addresses are those that the graph knows, and the cells behind the prefix are not touched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from inputmeta.engine.errors import OutError
from inputmeta.engine.tensors import captured, prefix


def get_or_create(
    key: str, size: tuple[int, ...], dtype: torch.dtype, out: Mapping[str, Any] | None, device: torch.device | str
) -> torch.Tensor:
    """A tensor of shape `size`: a new one with undefined contents, or the first size[0] rows of out[key].

    Raises OutError (P-OUT) unless out[key] is there, on `device`, contiguous, of this dtype, with this shape but at
    least size[0] rows.
    """
    if out is None:
        return torch.empty(size, dtype=dtype, device=device)
    return prefix(captured(key, size, dtype, out, device), size[0])


def get_or_create_stacked(  # noqa: PLR0917 - the engines' own order of arguments
    name: str,
    keys: Sequence[str],
    size: tuple[int, ...],
    dtype: torch.dtype,
    out: Mapping[str, Any] | None,
    device: torch.device | str,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """One buffer [n_ratio, q_stride, *size[1:]] for the buckets `keys` of a field, contiguous, for the kernel; and a
    view of shape `size` a bucket, the prefix of the buffer's row, for the container.

    Without `out` it is new and q_stride = size[0]. With it, out["name.key"] are the rows that were captured, and
    q_stride is their spacing. Raises OutError (P-OUT) unless each of them is as `get_or_create` wants it and all lie in
    one storage, in the order of `keys`, evenly spaced by whole rows, without overlap, q_stride rows in the storage for
    each. Without keys the buffer is empty and no key of `out` is read.
    """
    if out is None or not keys:
        stacked = torch.empty((len(keys), *size), dtype=dtype, device=device)
        return stacked, {key: stacked[index] for index, key in enumerate(keys)}
    rows = [captured(f"{name}.{key}", size, dtype, out, device) for key in keys]
    spacing = _spacing(name, keys, rows)
    q_stride = spacing // math.prod(size[1:])
    stacked = rows[0].as_strided((len(keys) * spacing,), (1,)).view(len(keys), q_stride, *size[1:])
    return stacked, {key: prefix(row, size[0]) for key, row in zip(keys, rows, strict=True)}


def _spacing(name: str, keys: Sequence[str], rows: Sequence[torch.Tensor]) -> int:
    """Cells from one captured row of a stack to the next; OutError unless the rows are those of one buffer."""
    first, row_cells = rows[0], math.prod(rows[0].shape[1:])
    fields = [f"{name}.{key}" for key in keys]
    storage = first.untyped_storage()
    for field, row in zip(fields[1:], rows[1:], strict=True):
        if row.untyped_storage().data_ptr() != storage.data_ptr():
            raise OutError(None, field, "in another storage", f"lies in the storage of {fields[0]} (F-STACK)")
    widest = max(row.numel() for row in rows)
    offsets = [int(row.storage_offset()) - int(first.storage_offset()) for row in rows]
    spacing = widest if len(rows) == 1 else offsets[1]
    if spacing < widest or spacing % row_cells != 0:
        rule = f"lies whole rows of {row_cells} cells past {fields[0]}, {widest} or more (F-STACK)"
        raise OutError(None, fields[1], f"{spacing} cells past it", rule)
    for index, (field, distance) in enumerate(zip(fields, offsets, strict=True)):
        if distance != index * spacing:
            rule = f"lies {index} * {spacing} cells past {fields[0]}: even spacing (F-STACK)"
            raise OutError(None, field, f"{distance} cells past it", rule)
    room = storage.nbytes() // first.element_size() - int(rows[-1].storage_offset())
    if room < spacing:
        rule = f"has room for {spacing} cells, as the buckets before it (F-STACK)"
        raise OutError(None, fields[-1], f"{room} cells before the end of its storage", rule)
    return spacing
