"""What the reference needs of an array library, and *ragged arithmetic* on it.

Runs of different lengths lie end to end, as sequences lie in a batch (:class:`Runs`): what is known of a run is an
int64 array in host memory with a cell a run, what is known of a row an int32 array of the library. There is no loop
over rows.

A device is not waited for: how many rows there are is known from the lengths of the runs, and cells are chosen by a
condition rather than by the indices of those for which it holds, whose number only the device knows.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Array(Protocol):
    """What is used of an array of the array API, of numpy or of torch. Arithmetic with a Python int keeps the dtype."""

    __hash__: None  # type: ignore[assignment]

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> object: ...
    @property
    def device(self) -> object: ...
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
    def full(self, shape: tuple[int, ...], fill_value: int, *, dtype: object, device: object) -> Array: ...
    def max(self, x: Array, /) -> Array: ...
    def maximum(self, x1: Array, x2: Array, /) -> Array: ...
    def min(self, x: Array, /) -> Array: ...
    def minimum(self, x1: Array, x2: Array, /) -> Array: ...
    def nonzero(self, x: Array, /) -> tuple[Array, ...]: ...
    def any(self, x: Array, /, *, axis: int | None = None) -> Array: ...
    def reshape(self, x: Array, shape: tuple[int, ...], /) -> Array: ...
    def searchsorted(self, x1: Array, x2: Array, /, *, side: Literal["left", "right"] = "left") -> Array: ...
    def stack(self, arrays: Sequence[Array], /, *, axis: int) -> Array: ...
    def where(self, condition: Array, x1: Array | int, x2: Array | int, /) -> Array: ...


@dataclass(frozen=True)
class Arrays:
    """A namespace and a device: what makes arrays. ``device`` None is the namespace's default."""

    xp: Namespace
    device: object = None
    host: builtins.bool = True
    """Whether it is numpy: what a condition holds for is then known at once."""

    @classmethod
    def of(cls, module: ModuleType, device: object = None) -> Arrays:
        """Of an array API module: numpy, ``array_api_compat.numpy``, ``array_api_compat.torch``."""
        return cls(cast(Namespace, module), device, module.__name__.rpartition(".")[2] == "numpy")

    def from_host(self, values: np.ndarray) -> Array:
        """A numpy array on the device; numpy and torch on the CPU take its memory. Torch copies without waiting."""
        if self.host or self.device is None:
            return self.xp.asarray(values)
        return cast(Array, cast(Any, self.xp.asarray(values)).to(self.device, non_blocking=True))

    def int32s(self, values: Int64s) -> Array:
        """Host values as int32 on the device. What does not fit wraps: only cells that are replaced afterwards may."""
        return self.from_host(values.astype(np.int32))

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
        return cast(Array, np.maximum(cast(Any, values), low) if self.host else cast(Any, values).clamp(min=low))

    def at_most(self, values: Array, high: int) -> Array:
        """``min(values, high)``."""
        return cast(Array, np.minimum(cast(Any, values), high) if self.host else cast(Any, values).clamp(max=high))

    def take(self, values: Array, indices: Array) -> Array:
        """``values[indices]`` by flat indices, none negative: allowing for those costs three kernels more."""
        if self.host:
            return cast(Array, np.take(cast(Any, values), cast(Any, indices), axis=0))
        return cast(Array, cast(Any, values).index_select(0, indices))

    def columns(self, *parts: Array) -> Array:
        """The parts side by side, [rows, len(parts)]."""
        return self.xp.stack(parts, axis=1)

    def is_flags(self, values: Array) -> bool:
        """Whether the dtype is bool."""
        return values.dtype == self.xp.bool

    def where_true(self, flags: Array) -> Array:
        """Indices of the true cells of a flat array, ascending. Waits for the device."""
        return self.xp.nonzero(flags)[0]

    def rows_where(self, flags: Array) -> Array | slice:
        """Rows for which work is to be done: those that are flagged; on a device, which is not waited for, all."""
        return self.where_true(flags) if self.host else slice(None)


class Runs:
    """Runs of ``counts`` rows [n] int64 that lie end to end."""

    def __init__(self, arrays: Arrays, counts: Int64s) -> None:
        self.arrays, self.counts = arrays, counts

    @cached_property
    def ends(self) -> Int64s:
        """Where each run ends: inclusive prefix sums [n] int64."""
        return np.cumsum(self.counts, dtype=np.int64)

    @cached_property
    def starts(self) -> Int64s:
        """Where each run begins: exclusive prefix sums [n] int64."""
        return self.ends - self.counts

    @cached_property
    def total(self) -> int:
        """Rows of all runs."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def run(self) -> Array:
        """The run of each row, [total] int32."""
        rows = self.arrays.arange(self.total)
        return self.arrays.int32(self.arrays.xp.searchsorted(self.arrays.int32s(self.ends), rows, side="right"))

    def prefix_sums(self) -> Array:
        """Prefix sums of the counts with the leading 0, [n + 1] int32."""
        return self.arrays.int32s(np.concatenate([[0], self.ends]))

    def spread(self, values: Int64s) -> Array:
        """``values[i]`` on each row of run i, [total] int32."""
        return self._spread(values.astype(np.int32))

    def spread_flags(self, values: Flags) -> Array:
        """``values[i]`` on each row of run i, [total] bool."""
        return self._spread(values)

    def spread_rows(self, values: Array) -> Array:
        """Row i of ``values`` [n, …] on each row of run i, [total, …]."""
        if self.arrays.host:
            return cast(Array, np.repeat(cast(Any, values), self.counts, axis=0))
        return self.arrays.take(values, self.run)

    def ranges(self, first: Int64s | int) -> Array:
        """``first[i], first[i] + 1, …`` (``counts[i]`` of them) for each i, end to end, [total] int32.

        >>> import array_api_compat.numpy
        >>> Runs(Arrays.of(array_api_compat.numpy), np.array([2, 0, 3])).ranges(np.array([5, 0, 7]))
        array([5, 6, 7, 8, 9], dtype=int32)
        """
        return self.spread(first - self.starts) + self.arrays.arange(self.total)

    def _spread(self, values: np.ndarray) -> Array:
        if self.arrays.host:
            return cast(Array, np.repeat(values, self.counts))
        return self.arrays.take(self.arrays.from_host(values), self.run)


def ceiling(dividend: Int64s, divisor: int) -> Int64s:
    """``cdiv``, cell by cell."""
    return -(-dividend // divisor)


def modulo(values: Array, divisor: int) -> Array:
    """``values % divisor``. numpy vectorises floor division by a scalar and does not vectorise the remainder."""
    return values - values // divisor * divisor
