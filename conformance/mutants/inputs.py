"""Builders that take an array of integers for memory of one form: int32, native, one cell behind the other."""

from __future__ import annotations

import dataclasses

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Wrong, wrong_class
from inputmeta.conformance.subjects.arrays import formed
from inputmeta.conformance.subjects.base import Result


class ReadsMemory(Wrong):
    """Gets its integers in every form, and does not look at one property of an array."""

    def build(self, request: Request) -> Result:
        sequences = []
        for index, sequence in enumerate(request.sequences):
            arrays = {name: self.read(values) for name, values in formed(sequence, index).items()}
            sequences.append(oracle.SequenceMetadata(**vars(sequence) | arrays))
        return super().build(dataclasses.replace(request, sequences=sequences))

    def read(self, values: object) -> tuple[int, ...]:
        """The integers that it sees."""
        cells = self.seen(values) if isinstance(values, np.ndarray) and values.size else values
        return tuple(int(cell) for cell in cells)  # type: ignore[attr-defined]

    def seen(self, array: np.ndarray) -> np.ndarray:
        """The cells that it reads of an array."""
        raise NotImplementedError


WRONG = "MISMATCH or ACCEPTED or REJECTED"
"""What was not read right may break a precondition, or keep one that is broken."""


@wrong_class("DTYPE", WRONG, "the address of a view is taken, its stride is not: cells between those meant are read")
class BelievesInOneStride(ReadsMemory):
    def seen(self, array: np.ndarray) -> np.ndarray:
        step = array.itemsize
        first = array if array.strides[0] > 0 else array[::-1]  # stays in the memory
        return np.lib.stride_tricks.as_strided(first, strides=(step,))


@wrong_class(
    "DTYPE", WRONG, "an array is cast to int32 by its bytes: every second cell of an int64 array is a high half"
)
class BelievesInInt32(ReadsMemory):
    def seen(self, array: np.ndarray) -> np.ndarray:
        return array if array.itemsize == 4 else np.ascontiguousarray(array).view(np.int32)[: array.size]


@wrong_class("DTYPE", WRONG, "an array that comes from a file or a socket is read in the machine's byte order")
class BelievesInNativeOrder(ReadsMemory):
    def seen(self, array: np.ndarray) -> np.ndarray:
        return array.view(array.dtype.newbyteorder("="))
