"""Poisoned and fenced output buffers.

Each field gets one allocation: guard, view, guard. The view is filled with a pattern before the subject runs; two runs
with different patterns tell a cell that was not written from one that is wrong, and a changed guard cell is a write
outside. Over the steps of a case the allocation stays and the view is a prefix of it, so that what a step leaves behind
is there for the next, and every cell past the view counts as guard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

GUARD_CELLS = 256
"""Cells before and after a buffer; 1 KiB of int32 each."""

PATTERNS: tuple[dict[str, int], ...] = (
    {"int32": 0x5A5A5A5A, "bool": 1},
    {"int32": -0x5A5A5A5B, "bool": 0},
)
"""Poison by dtype, one dict a run. No field of a small case holds the int32 values; a bool has only two, so the
second run shows what the first may hide."""


@dataclass
class FencedBuffer:
    """One field's allocation, ``capacity`` cells between two guards."""

    memory: np.ndarray
    capacity: int

    @classmethod
    def allocate(cls, dtype: str, capacity: int, pattern: int) -> FencedBuffer:
        """A buffer of ``capacity`` cells, poison everywhere, guards included."""
        return cls(np.full(capacity + 2 * GUARD_CELLS, pattern, dtype=np.dtype(dtype)), capacity)

    def view(self, shape: tuple[int, ...]) -> np.ndarray:
        """Contiguous prefix of the buffer with ``shape``; shares its memory."""
        return self.memory[GUARD_CELLS : GUARD_CELLS + math.prod(shape)].reshape(shape)

    def outside(self, shape: tuple[int, ...]) -> np.ndarray:
        """Copy of all cells that do not belong to ``view(shape)``."""
        return np.concatenate([self.memory[:GUARD_CELLS], self.memory[GUARD_CELLS + math.prod(shape) :]])

    def written_outside(self, before: np.ndarray, shape: tuple[int, ...]) -> list[int]:
        """Cells outside ``view(shape)`` that changed since ``before``, as offsets in cells from the view's start."""
        changed = np.flatnonzero(before != self.outside(shape))
        size = math.prod(shape)
        return [int(i) - GUARD_CELLS if i < GUARD_CELLS else int(i) - GUARD_CELLS + size for i in changed]


class Arena:
    """The fenced buffers of one run over the steps of a case, one a flat key."""

    def __init__(self, pattern: dict[str, int]) -> None:
        self.pattern = pattern
        self.buffers: dict[str, FencedBuffer] = {}

    def reserve(self, key: str, dtype: str, capacity: int) -> None:
        """Make sure that ``key`` has a buffer of at least ``capacity`` cells; called before the first step runs."""
        held = self.buffers.get(key)
        if held is None or held.capacity < capacity:
            self.buffers[key] = FencedBuffer.allocate(dtype, capacity, self.pattern[dtype])

    def views(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        """The views of one step."""
        return {key: self.buffers[key].view(shape) for key, shape in shapes.items()}

    def outside(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        """Copies of what lies outside the views of one step."""
        return {key: self.buffers[key].outside(shape) for key, shape in shapes.items()}
