"""A container's tensors, of whatever framework: anything with a dtype and a shape that numpy sees in host memory.

torch's tensors and numpy's arrays are; nothing of a framework is imported here. ``np.asarray`` gives the same memory,
so that what is written through it is seen by the container.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from inputmeta.oracle.container import Tensor

Value = Any
"""A value of a container, in its own form or that of the model."""

HOST_DEVICES = (1, 3)
"""DLPack's numbers for host memory, plain and pinned."""


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor: it has a dtype and a shape, and is no numpy scalar."""
    return hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, np.generic)


def on_host(tensor: Value) -> bool:
    """Whether a tensor's memory can be read here."""
    place = getattr(tensor, "__dlpack_device__", None)
    try:
        return place is None or int(place()[0]) in HOST_DEVICES
    except (BufferError, ValueError):  # of no device that DLPack knows
        return False


def cells(tensor: Value) -> np.ndarray:
    """A tensor's own memory as an array."""
    return np.asarray(tensor)


def disturb(tensor: Value) -> None:
    """Write another value into every cell of a tensor."""
    memory = cells(tensor)
    memory[...] = ~memory if memory.dtype == np.bool_ else memory + 1


def shares(one: Value, other: Value) -> bool:
    """Whether two tensors are views of the same cells, or have none."""
    a, b = cells(one).__array_interface__, cells(other).__array_interface__
    return one is other or (a["shape"] == b["shape"] and (0 in a["shape"] or a["data"][0] == b["data"][0]))


@cache
def name_of(dtype: np.dtype) -> str:
    """A dtype's name, which numpy is slow to make."""
    return str(dtype.name)


def plain(value: Value) -> Value:
    """A value as the oracle's model has it: tensors and dicts copied, all else as it is."""
    if is_tensor(value):
        array = cells(value)
        return Tensor(name_of(array.dtype), array.shape, array.tobytes())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def rows(value: Value) -> Value:
    """A tensor as a list of its rows, and anything else as it is."""
    return cells(value).tolist() if is_tensor(value) else value


def told(value: Value) -> str:
    """A value of :func:`plain` in a few words: the cells of a small tensor, the form of a large one.

    >>> told(Tensor("int32", (2,), b"\\x01\\0\\0\\0\\x02\\0\\0\\0")), told({"4": 1}), told(None)
    ('int32 [2] [1, 2]', "a dict with ['4']", 'None')
    """
    if isinstance(value, dict):
        return f"a dict with {sorted(map(str, value))[:8]}"
    if not isinstance(value, Tensor):
        return repr(value)[:100]
    array = np.frombuffer(value.cells, dtype=value.dtype)  # type: ignore[call-overload]
    shown = f" {array.tolist()}" if array.size <= MOST_TOLD else ""
    return f"{value.dtype} {list(value.shape)}{shown}"


MOST_TOLD = 16
"""Cells of a tensor that is shown whole."""


def difference(got: Value, want: Value) -> str:
    """Where two values of :func:`plain`, which differ, do so: the key, the first cell, or what they are.

    >>> difference({"4": {"a": 1}}, {"4": {"a": 2}})
    "['4'] ['a'] is 1, want 2"
    """
    if isinstance(got, Tensor) and isinstance(want, Tensor) and got[:2] == want[:2]:
        one, other = (np.frombuffer(t.cells, dtype=t.dtype) for t in (got, want))  # type: ignore[call-overload]
        wrong = np.flatnonzero(one != other)
        if wrong.size:
            cell = np.unravel_index(int(wrong[0]), want.shape)
            return f"cell {list(map(int, cell))} is {one[wrong[0]]}, want {other[wrong[0]]}"
    if isinstance(got, dict) and isinstance(want, dict) and got.keys() == want.keys():
        key = next(key for key, value in want.items() if type(got[key]) is not type(value) or got[key] != value)
        return f"[{key!r}] {difference(got[key], want[key])}"
    return f"is {told(got)}, want {told(want)}"
