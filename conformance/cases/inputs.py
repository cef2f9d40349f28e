"""The arrays that a batch comes in: as a capturing engine does, one batch after the other refills the same objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from inputmeta import oracle


class AnyArray(Protocol):
    """numpy's arrays, torch's tensors, and whatever else has a shape and is assigned to whole."""

    @property
    def shape(self) -> Sequence[int]:
        """Cells of each dimension."""

    @property
    def dtype(self) -> object:
        """Of the cells; text tells it from others."""

    def __setitem__(self, place: Any, values: Any, /) -> None:  # noqa: ANN401 - each library has types of its own
        """``array[...] = values`` fills it in place."""


Filled = TypeVar("Filled", bound=AnyArray)


class Inputs:
    """The objects of a run of batches: those of the first one are refilled with the contents of each that follows.

    The list of sequences is one object, and so is each array of integers of the sequence at a place: lists, whatever
    their lengths. Arrays that a subject makes itself are kept where it asks for that (:meth:`filled`).
    """

    def __init__(self) -> None:
        self.place = -1
        """Of the batch that was handed over last: 0 is the first."""
        self._sequences: list[oracle.SequenceMetadata] = []
        self._lists: dict[tuple[int, str], list[int]] = {}
        self._arrays: dict[tuple[str, tuple[int, ...], str], Any] = {}

    def hand(self, sequences: Sequence[oracle.SequenceMetadata]) -> list[oracle.SequenceMetadata]:
        """The sequences of the next batch in the objects of those before; arrays of numpy stay as they are."""
        self.place += 1
        self._sequences[:] = [replace(each, **self._lists_of(index, each)) for index, each in enumerate(sequences)]
        return self._sequences

    def _lists_of(self, index: int, sequence: oracle.SequenceMetadata) -> dict[str, Any]:
        return {name: self._list(index, sequence, name) for name in oracle.SEQUENCE_ARRAYS}

    def _list(self, index: int, sequence: oracle.SequenceMetadata, name: str) -> Sequence[int]:
        values: Sequence[int] = getattr(sequence, name)
        if isinstance(values, np.ndarray):
            return values
        held = self._lists.setdefault((index, name), [])
        held[:] = values
        return held

    def filled(self, name: str, fresh: Filled) -> Filled:
        """``fresh`` the first time that an array of its name, shape and dtype comes; then that one, filled with it."""
        held: Filled = self._arrays.setdefault((name, tuple(fresh.shape), str(fresh.dtype)), fresh)
        if held is not fresh:
            held[...] = fresh
        return held


def fixed(value: object) -> object:
    """A value that no later write reaches: a list as a tuple, all else as it is."""
    return tuple(value) if isinstance(value, list) else value
