"""Poisoned and fenced output buffers.

Each field has a stretch of memory: a guard, then for each of its ratios a row and a guard. A row is filled with a
pattern before the subject runs; two runs with different patterns tell a cell that was not written from one that is
wrong, and a changed guard cell is a write outside. Over the steps of a case the memory stays and a view is a prefix of
its row, so that what a step leaves behind is there for the next, and every cell past the view counts as guard. The rows
of one field lie in one storage at even distances, as F-STACK wants the buckets of a captured buffer.

The fields of one dtype share an allocation, so that one comparison tells that nothing at all is wrong.
The memory is the host's, or that of a device: arrays of numpy, or of another namespace of the array API.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import array_api_compat.numpy

from inputmeta.conformance.reference import Array, Arrays, host_array

GUARD_CELLS = 256
"""Cells before and after a row; 1 KiB of int32 each."""
ALIGNED_CELLS = 64
"""A field begins at a multiple of so many cells: as well aligned as an allocation of its own."""

PATTERNS: tuple[dict[str, int], ...] = (
    {"int32": 0x5A5A5A5A, "bool": 1},
    {"int32": -0x5A5A5A5B, "bool": 0},
)
"""Poison by dtype, one dict a run. No field of a small case holds the int32 values; a bool has only two, so the
second run shows what the first may hide."""

HOST = Arrays.of(array_api_compat.numpy)
"""Host memory."""
Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape by flat key."""


@dataclass
class FencedRow:
    """The cells of one flat key: ``capacity`` of them from ``start`` on, in its field's memory, an array."""

    arrays: Arrays
    memory: Any
    start: int
    capacity: int

    def view(self, shape: tuple[int, ...]) -> Any:  # noqa: ANN401 - an array of the memory's kind
        """Contiguous prefix of the row with ``shape``; shares its memory."""
        return self.arrays.xp.reshape(self.memory[self.start : self.start + math.prod(shape)], shape)

    def outside(self, shape: tuple[int, ...]) -> Any:  # noqa: ANN401 - an array of the memory's kind
        """Copy of the cells around ``view(shape)``: the guard before, the rest of the row and the guard behind."""
        before = self.memory[self.start - GUARD_CELLS : self.start]
        return self.arrays.xp.concat([before, self.memory[self.start + math.prod(shape) : self._end]])

    def written_outside(self, before: Any, shape: tuple[int, ...]) -> list[int]:  # noqa: ANN401
        """Cells outside ``view(shape)`` that changed since ``before``, as offsets in cells from the view's start."""
        changed = host_array(self.arrays.where_true(before != self.outside(shape)))
        size = math.prod(shape)
        return [int(i) - GUARD_CELLS if i < GUARD_CELLS else int(i) - GUARD_CELLS + size for i in changed]

    @property
    def _end(self) -> int:
        return self.start + self.capacity + GUARD_CELLS


class _Place(NamedTuple):
    """Where a flat key's row lies: its dtype's block, the cells of its field there, its own start among them."""

    dtype: str
    field: slice
    start: int
    capacity: int


class Arena:
    """The fenced buffers of one run over the steps of a case. ``steps``: what each step will ask for."""

    def __init__(self, steps: list[Shapes], pattern: Mapping[str, int], arrays: Arrays = HOST) -> None:
        self._arrays = arrays
        self._places, sizes = _places(steps)
        self.blocks = {dtype: _filled(arrays, dtype, size, pattern[dtype]) for dtype, size in sizes.items()}
        """All the memory, by dtype."""

    @cached_property
    def rows(self) -> dict[str, FencedRow]:
        """The row of every flat key."""
        return {
            key: FencedRow(self._arrays, self.blocks[place.dtype][place.field], place.start, place.capacity)
            for key, place in self._places.items()
        }

    def copy(self) -> Arena:
        """The same buffers in memory of their own, as they are now."""
        copied = object.__new__(Arena)
        copied._arrays, copied._places = self._arrays, self._places
        copied.blocks = {dtype: self._arrays.xp.asarray(block, copy=True) for dtype, block in self.blocks.items()}
        return copied

    def same(self, other: Arena) -> bool:
        """Whether a copy holds the same in every cell, guards included."""
        return not any(bool(self._arrays.xp.any(block != other.blocks[dtype])) for dtype, block in self.blocks.items())

    def views(self, shapes: Shapes) -> dict[str, Any]:
        """The views of one step, as arrays of the memory's kind."""
        return {key: self.rows[key].view(shape) for key, (_, shape) in shapes.items()}

    def outside(self, shapes: Shapes) -> dict[str, Any]:
        """Copies of what lies outside the views of one step."""
        return {key: self.rows[key].outside(shape) for key, (_, shape) in shapes.items()}


def _places(steps: list[Shapes]) -> tuple[dict[str, _Place], dict[str, int]]:
    """Where each flat key lies, large enough for every step, and the cells of each dtype's block."""
    capacities: dict[str, int] = {}
    dtypes: dict[str, str] = {}
    for shapes in steps:
        for key, (dtype, shape) in shapes.items():
            capacities[key] = max(capacities.get(key, 0), math.prod(shape))
            dtypes[key] = dtype
    fields: dict[str, list[str]] = {}
    for key in capacities:
        fields.setdefault(key.partition(".")[0], []).append(key)
    places: dict[str, _Place] = {}
    sizes: dict[str, int] = {}
    for keys in fields.values():
        dtype = dtypes[keys[0]]
        capacity = max(capacities[key] for key in keys)
        distance = capacity + GUARD_CELLS
        begin = sizes.get(dtype, 0)
        end = begin + GUARD_CELLS + len(keys) * distance
        for index, key in enumerate(keys):
            places[key] = _Place(dtype, slice(begin, end), GUARD_CELLS + index * distance, capacity)
        sizes[dtype] = -(-end // ALIGNED_CELLS) * ALIGNED_CELLS
    return places, sizes


def _filled(arrays: Arrays, dtype: str, size: int, value: int) -> Array:
    return arrays.flags((size,), bool(value)) if dtype == "bool" else arrays.full((size,), value)
