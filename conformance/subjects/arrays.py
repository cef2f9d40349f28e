"""The forms in which a scheduler may hand over the integers of a sequence, for a subject that takes arrays."""

from __future__ import annotations

from array import array as machine_array
from collections.abc import Callable, Sequence

import numpy as np

from inputmeta import oracle


def formed(sequence: oracle.SequenceMetadata, index: int) -> dict[str, object]:
    """The arrays of the sequence with this index; as they are where a value does not fit in the form's dtype.

    Numpy arrays stay as well: a batch of production size shares them, and copies would cost more than the step.
    """
    arrays: dict[str, object] = {}
    for place, name in enumerate(oracle.SEQUENCE_ARRAYS):
        values = getattr(sequence, name)
        if isinstance(values, np.ndarray):
            continue
        try:
            arrays[name] = FORMS[(index + place) % len(FORMS)](values)
        except OverflowError:
            arrays[name] = values
    return arrays


def strided(values: Sequence[int]) -> np.ndarray:
    """Every second cell of an array; those between hold what no array may."""
    cells = np.full(2 * len(values), -77, dtype=np.int32)
    cells[::2] = np.array(values, dtype=np.int32)  # OverflowError, where an assignment would wrap
    return cells[::2]


FORMS: tuple[Callable[[Sequence[int]], object], ...] = (
    tuple,
    lambda values: np.array(values, dtype=np.int32),
    strided,
    list,
    lambda values: np.array(values, dtype=np.int64),
    lambda values: machine_array("i", values),
    lambda values: np.array(values, dtype=">i4"),
    lambda values: np.array(values[::-1], dtype=np.int64)[::-1],
)
"""What a scheduler may hand over: plain integers, buffers of int32, and arrays that have to be read cell by cell."""
