"""Poisoned and fenced output buffers.

Each field gets one allocation: a guard, then for each of its ratios a row and a guard. A row is filled with a pattern
before the subject runs; two runs with different patterns tell a cell that was not written from one that is wrong, and a
changed guard cell is a write outside. Over the steps of a case the allocation stays and a view is a prefix of its row,
so that what a step leaves behind is there for the next, and every cell past the view counts as guard. The rows of one
field lie in one storage at even distances, as F-STACK wants the buckets of a captured buffer.

The memory is the host's, or that of a device: arrays of numpy, or of another namespace of the array API.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import array_api_compat.numpy

from inputmeta.conformance.reference import Array, Arrays, host_array

GUARD_CELLS = 256
"""Cells before and after a row; 1 KiB of int32 each."""

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
    """The cells of one flat key: ``capacity`` of them from ``start`` on, in its field's memory."""

    arrays: Arrays
    memory: Array
    start: int
    capacity: int

    def view(self, shape: tuple[int, ...]) -> Array:
        """Contiguous prefix of the row with ``shape``; shares its memory."""
        return self.arrays.xp.reshape(self.memory[self.start : self.start + math.prod(shape)], shape)

    def outside(self, shape: tuple[int, ...]) -> Array:
        """Copy of the cells around ``view(shape)``: the guard before, the rest of the row and the guard behind."""
        before = self.memory[self.start - GUARD_CELLS : self.start]
        return self.arrays.xp.concat([before, self.memory[self.start + math.prod(shape) : self._end]])

    def written_outside(self, before: Array, shape: tuple[int, ...]) -> list[int]:
        """Cells outside ``view(shape)`` that changed since ``before``, as offsets in cells from the view's start."""
        changed = host_array(self.arrays.where_true(before != self.outside(shape)))
        size = math.prod(shape)
        return [int(i) - GUARD_CELLS if i < GUARD_CELLS else int(i) - GUARD_CELLS + size for i in changed]

    @property
    def _end(self) -> int:
        return self.start + self.capacity + GUARD_CELLS


class Arena:
    """The fenced buffers of one run over the steps of a case. ``steps``: what each step will ask for."""

    def __init__(self, steps: list[Shapes], pattern: dict[str, int], arrays: Arrays = HOST) -> None:
        capacities: dict[str, int] = {}
        dtypes: dict[str, str] = {}
        for shapes in steps:
            for key, (dtype, shape) in shapes.items():
                capacities[key] = max(capacities.get(key, 0), math.prod(shape))
                dtypes[key] = dtype
        fields: dict[str, list[str]] = {}
        for key in capacities:
            fields.setdefault(key.partition(".")[0], []).append(key)
        self.rows: dict[str, FencedRow] = {}
        for keys in fields.values():
            dtype = dtypes[keys[0]]
            capacity = max(capacities[key] for key in keys)
            distance = capacity + GUARD_CELLS
            shape = (GUARD_CELLS + len(keys) * distance,)
            flags = dtype == "bool"
            memory = arrays.flags(shape, bool(pattern[dtype])) if flags else arrays.full(shape, pattern[dtype])
            for index, key in enumerate(keys):
                self.rows[key] = FencedRow(arrays, memory, GUARD_CELLS + index * distance, capacity)

    def views(self, shapes: Shapes) -> dict[str, Any]:
        """The views of one step, as arrays of the memory's kind."""
        return {key: self.rows[key].view(shape) for key, (_, shape) in shapes.items()}

    def outside(self, shapes: Shapes) -> dict[str, Array]:
        """Copies of what lies outside the views of one step."""
        return {key: self.rows[key].outside(shape) for key, (_, shape) in shapes.items()}
