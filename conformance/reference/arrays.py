"""What the reference needs of an array library, and *ragged arithmetic* on it.

Runs of different lengths lie end to end, as sequences lie in a batch: what is known of a run is an int64 array with a
cell a run, what is known of a row an int32 array made of it with ``repeat`` and ``arange``. There is no loop over rows.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, cast

import numpy as np


class Array(Protocol):
    """What is used of an array of the array API, of numpy or of torch. Arithmetic with a Python int keeps the dtype."""

    __hash__: None  # type: ignore[assignment]

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> object: ...
    def __getitem__(self, key: object, /) -> Array: ...
    def __setitem__(self, key: object, value: object, /) -> None: ...
    def __add__(self, other: Array | int, /) -> Array: ...
    def __radd__(self, other: int, /) -> Array: ...
    def __sub__(self, other: Array | int, /) -> Array: ...
    def __rsub__(self, other: int, /) -> Array: ...
    def __mul__(self, other: Array | int, /) -> Array: ...
    def __rmul__(self, other: int, /) -> Array: ...
    def __floordiv__(self, other: Array | int, /) -> Array: ...
    def __mod__(self, other: Array | int, /) -> Array: ...
    def __neg__(self) -> Array: ...
    def __and__(self, other: Array, /) -> Array: ...
    def __or__(self, other: Array, /) -> Array: ...
    def __invert__(self) -> Array: ...
    def __eq__(self, other: object, /) -> Array: ...  # type: ignore[override]
    def __ne__(self, other: object, /) -> Array: ...  # type: ignore[override]
    def __lt__(self, other: Array | int, /) -> Array: ...
    def __le__(self, other: Array | int, /) -> Array: ...
    def __gt__(self, other: Array | int, /) -> Array: ...
    def __ge__(self, other: Array | int, /) -> Array: ...
    def __int__(self) -> int: ...
    def __bool__(self) -> bool: ...


class Namespace(Protocol):
    """The functions that are used of an array API namespace."""

    bool: object
    int32: object
    int64: object

    def arange(self, start: int, stop: int, *, dtype: object, device: object) -> Array: ...
    def argsort(self, x: Array, /) -> Array: ...
    def asarray(self, obj: object, /, *, device: object = None, copy: builtins.bool | None = None) -> Array: ...
    def astype(self, x: Array, dtype: object, /) -> Array: ...
    def clip(self, x: Array, /, min: Array | int, max: Array | int) -> Array: ...
    def concat(self, arrays: Sequence[Array], /) -> Array: ...
    def cumulative_sum(self, x: Array, /, *, dtype: object, include_initial: builtins.bool = False) -> Array: ...
    def full(self, shape: tuple[int, ...], fill_value: int, *, dtype: object, device: object) -> Array: ...
    def max(self, x: Array, /) -> Array: ...
    def maximum(self, x1: Array, x2: Array, /) -> Array: ...
    def min(self, x: Array, /) -> Array: ...
    def minimum(self, x1: Array, x2: Array, /) -> Array: ...
    def nonzero(self, x: Array, /) -> tuple[Array, ...]: ...
    def any(self, x: Array, /, *, axis: int | None = None) -> Array: ...
    def repeat(self, x: Array, repeats: Array, /, *, axis: int) -> Array: ...
    def reshape(self, x: Array, shape: tuple[int, ...], /) -> Array: ...
    def searchsorted(self, x1: Array, x2: Array, /) -> Array: ...
    def stack(self, arrays: Sequence[Array], /, *, axis: int) -> Array: ...
    def sum(self, x: Array, /) -> Array: ...
    def where(self, condition: Array, x1: Array | int, x2: Array | int, /) -> Array: ...


@dataclass(frozen=True)
class Arrays:
    """A namespace and a device: what makes arrays. ``device`` None is the namespace's default."""

    xp: Namespace
    device: object = None

    @classmethod
    def of(cls, module: ModuleType, device: object = None) -> Arrays:
        """Of an array API module: numpy, ``array_api_compat.numpy``, ``array_api_compat.torch``."""
        return cls(cast(Namespace, module), device)

    def from_host(self, values: np.ndarray) -> Array:
        """A numpy array on the device; numpy and torch on the CPU take its memory."""
        return self.xp.asarray(values, device=self.device)

    def int64s(self, values: Sequence[int]) -> Array:
        """Python integers, [len(values)] int64."""
        return self.from_host(np.array(values, dtype=np.int64))

    def arange(self, stop: int, start: int = 0) -> Array:
        """[stop - start] int32."""
        return self.xp.arange(start, stop, dtype=self.xp.int32, device=self.device)

    def full(self, shape: tuple[int, ...], value: int) -> Array:
        """`value` in every cell, int32."""
        return self.xp.full(shape, value, dtype=self.xp.int32, device=self.device)

    def flags(self, shape: tuple[int, ...], value: bool) -> Array:
        """`value` in every cell, bool."""
        return self.xp.full(shape, value, dtype=self.xp.bool, device=self.device)

    def int32(self, values: Array) -> Array:
        """The values as int32. What does not fit wraps: only cells that are replaced afterwards may."""
        return self.xp.astype(values, self.xp.int32)

    def at_least(self, values: Array, low: int) -> Array:
        """``max(values, low)``."""
        return self.xp.where(values < low, low, values)

    def at_most(self, values: Array, high: int) -> Array:
        """``min(values, high)``."""
        return self.xp.where(values > high, high, values)

    def columns(self, *parts: Array) -> Array:
        """The parts side by side, [rows, len(parts)]."""
        return self.xp.stack(parts, axis=1)

    def is_flags(self, values: Array) -> bool:
        """Whether the dtype is bool."""
        return values.dtype == self.xp.bool

    def total(self, counts: Array) -> int:
        """The sum; 0 of no cell."""
        return int(self.xp.sum(counts))

    def starts(self, counts: Array) -> Array:
        """Where each run begins when runs of `counts` lie end to end: exclusive prefix sums [n] int64."""
        return self.xp.cumulative_sum(counts, dtype=self.xp.int64) - counts

    def prefix_sums(self, counts: Array) -> Array:
        """Prefix sums with the leading 0, [n + 1] int32."""
        return self.int32(self.xp.cumulative_sum(counts, dtype=self.xp.int64, include_initial=True))

    def spread(self, values: Array, counts: Array) -> Array:
        """``values[i]`` repeated ``counts[i]`` times, [sum(counts)] int32."""
        return self.xp.repeat(self.int32(values), counts, axis=0)

    def spread_flags(self, values: Array, counts: Array) -> Array:
        """``values[i]`` repeated ``counts[i]`` times, [sum(counts)] bool."""
        return self.xp.repeat(values, counts, axis=0)

    def ranges(self, first: Array | int, counts: Array) -> Array:
        """``first[i], first[i] + 1, …`` (``counts[i]`` of them) for each i, end to end, [sum(counts)] int32.

        >>> import array_api_compat.numpy
        >>> Arrays.of(array_api_compat.numpy).ranges(np.array([5, 0, 7]), np.array([2, 0, 3]))
        array([5, 6, 7, 8, 9], dtype=int32)
        """
        shift = self.spread(first - self.starts(counts), counts)
        return shift + self.arange(shift.shape[0])

    def where_true(self, flags: Array) -> Array:
        """Indices of the true cells of a flat array, ascending."""
        return self.xp.nonzero(flags)[0]


def ceiling(dividend: Array, divisor: int) -> Array:
    """``cdiv``, cell by cell."""
    return -(-dividend // divisor)


def modulo(values: Array, divisor: int) -> Array:
    """``values % divisor``. numpy vectorises floor division by a scalar and does not vectorise the remainder."""
    return values - values // divisor * divisor
