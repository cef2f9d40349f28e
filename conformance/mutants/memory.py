"""What goes wrong with memory: the caller's buffers, what lies around them, and the caller's inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Fields, Mutant, Wrong, add, wrong_class
from inputmeta.conformance.subjects.base import Rejection, Result
from inputmeta.oracle.batch import build


def offered(request: Request, key: str) -> np.ndarray | None:
    """The caller's array of a field if it gave one."""
    return None if request.out is None else request.out.get(key)


class KeepsCells(Wrong):
    """Leaves some cells of one field of the caller's buffers as they were."""

    key = "positions"

    def build(self, request: Request) -> Result:
        cells = offered(request, self.key)
        held = None if cells is None else cells.copy()
        fields = super().build(request)
        if cells is not None and held is not None:
            self.keep(cells, held)
        return fields

    def keep(self, cells: np.ndarray, held: np.ndarray) -> None:
        """Put back what ``held`` has; here, the last row."""
        cells[-1:] = held[-1:]


@wrong_class("UNWRITTEN", "UNWRITTEN:F-POS:positions", "a loop that ends one row early")
class LeavesTheLastRow(KeepsCells):
    pass


@wrong_class("UNWRITTEN", "UNWRITTEN:F-POS:positions", "buffers are taken to be zeroed")
class LeavesWhatIsZero(KeepsCells):
    def keep(self, cells: np.ndarray, held: np.ndarray) -> None:
        cells[cells == 0] = held[cells == 0]


@wrong_class(
    "UNWRITTEN",
    "UNWRITTEN:F-SWADEC:kv_swa_index",
    "-1 right of the length was written once, at capture",
    paths=("decode", "decode_zos"),
)
class LeavesThePaddingOfAnIndex(KeepsCells):
    key = "kv_swa_index"

    def keep(self, cells: np.ndarray, held: np.ndarray) -> None:
        cells[cells == -1] = held[cells == -1]


@wrong_class("UNWRITTEN", "UNWRITTEN", "claims in-place filling and returns new arrays")
class FillsBuffersOfItsOwn(Wrong):
    def build(self, request: Request) -> Result:
        mine = None if request.out is None else {key: array.copy() for key, array in request.out.items()}
        return super().build(dataclasses.replace(request, out=mine))


@wrong_class(
    "STALE", "MISMATCH:F-RING:slot_mapping_store_swa", "slots are accumulated in a buffer that is taken to be zeroed"
)
class AddsToWhatIsThere(KeepsCells):
    key = "slot_mapping_store_swa"

    def keep(self, cells: np.ndarray, held: np.ndarray) -> None:
        cells += held


@wrong_class(
    "STALE",
    "UNWRITTEN:F-IDS:input_ids",
    "after a larger batch the last row is left as it was: only reused buffers show it",
    label="not flaky",
)
class KeepsRowsOfALargerBatch(KeepsCells):
    key = "input_ids"
    most = 0

    def keep(self, cells: np.ndarray, held: np.ndarray) -> None:
        if len(cells) < self.most:
            cells[-1] = held[-1]
        self.most = max(self.most, len(cells))


def beside(array: np.ndarray, place: int) -> np.ndarray:
    """The cell ``place`` cells from the start of a contiguous array, inside it or not, as an array of one."""
    window = np.lib.stride_tricks.as_strided(
        array.reshape(-1), shape=(abs(place) + 1,), strides=(array.itemsize if place >= 0 else -array.itemsize,)
    )
    return window[-1:]


def writes_outside(
    name: str, cell: str, stands_for: str, places: Callable[[int], Iterable[int]], value: int = 7
) -> None:
    """Enter a mutant that writes beside the caller's array of one field.

    ``cell``: formula and field. ``places``: from the array's size to the cells, counted from its start, that are hit.
    """

    def spoil(request: Request, _: Fields) -> None:
        array = offered(request, cell.partition(":")[2])
        if array is not None:
            for place in places(array.size):
                beside(array, place)[:] = value

    add(Mutant(name, "OUT_OF_BOUNDS", f"OUT_OF_BOUNDS:{cell}", stands_for, lambda: Wrong(name, spoil)))


writes_outside("writes-one-past-the-end", "F-QIDX:query_indices", "<= in a kernel's loop", lambda size: [size])
writes_outside(
    "writes-before-the-start", "F-RING:slot_mapping_store_swa", "a padding index of -1 is written to", lambda size: [-1]
)
writes_outside(
    "writes-64-bit-cells",
    "F-CU:cu_seqlens_q",
    "the last cell is stored as 64 bits: its upper half lands on the neighbour",
    lambda size: [size],
    value=0,
)
writes_outside(
    "pads-to-the-tile",
    "F-MASK:valid_token_mask",
    "rows up to the next multiple of 8 are cleared, whatever the buffer's size",
    lambda size: range(size, -(-(size + 1) // 8) * 8),
    value=False,
)


@wrong_class("ALIAS", "OUT_OF_BOUNDS:input", "sorts or extends the scheduler's lists in place")
class MutatesItsInput(Wrong):
    def after(self, request: Request, fields: Fields) -> None:
        for sequence in request.sequences:
            object.__setattr__(sequence, "state_id", sequence.state_id + 1)


@wrong_class(
    "ALIAS",
    "OUT_OF_BOUNDS:kept",
    "every step is built in one set of buffers, of which the result is a view: overlapped with the next, it changes",
    label="not flaky",
)
class ReturnsViewsOfOnePool(Wrong):
    in_place = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.pool: dict[str, np.ndarray] = {}

    def after(self, request: Request, fields: Fields) -> None:
        for key, array in list(fields.items()):
            if isinstance(array, np.ndarray):
                if self.pool.get(key, array[:0]).size < array.size:
                    self.pool[key] = np.empty(array.size, dtype=array.dtype)
                fields[key] = self.pool[key][: array.size].reshape(array.shape)
                fields[key][:] = array


@wrong_class("REFUSAL", "ACCEPTED:P-", "checks after the first rows are filled")
class WritesBeforeItRefuses(Wrong):
    def before(self, request: Request) -> None:
        array = offered(request, "positions")
        if array is not None:
            array[:1] = 0


@wrong_class(
    "STALE",
    "UNWRITTEN:F-RING:slot_mapping_store_swa",
    "rows past the batch of a captured buffer keep the last step's slots, though neutral ones are promised",
    paths=("decode", "decode_zos"),
)
class TailPromisedNeutralButStale(Wrong):
    neutral_tails = True
    stale = "slot_mapping_store_swa"

    def build(self, request: Request) -> Result:
        if request.out is None or request.path == "prompt":
            return super().build(request)
        rows = sum(sequence.seqlen_q for sequence in request.sequences)
        tails = {key: array for key, array in request.out.items() if row_of_a_query(request, key)}
        heads = {key: array[:rows] for key, array in tails.items()}
        fields = super().build(dataclasses.replace(request, out=request.out | heads))
        for key, neutral in neutral_rows(request).items():
            if key in tails and key != self.stale:
                tails[key][rows:] = neutral
        return fields


@wrong_class(
    "SENT",
    "MISMATCH:F-RING:slot_mapping_store_swa",
    "a prompt's rows are padded to a bucket, with slot 0 where -1 is stated: the padding overwrites the first cell",
    paths=("prompt",),
)
class PadsAPromptWithSlot0(Wrong):
    in_place = False
    padded = "slot_mapping_store_swa"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.capabilities = dataclasses.replace(self.capabilities, prompt_tails={self.padded: -1})

    def after(self, request: Request, fields: Fields) -> None:
        if request.path == "prompt":
            fields[self.padded] = np.pad(fields[self.padded], (0, -len(fields[self.padded]) % 8))


def row_of_a_query(request: Request, key: str) -> bool:
    """Whether a field has a row for each query row."""
    return oracle.FIELDS[key.partition(".")[0]].layout(request.path, request.config).rows == "query"


def neutral_rows(request: Request) -> dict[str, np.ndarray]:
    """The row of an empty batch (I-3) by flat key; tables have none."""
    empty = build(request.path, request.config, [], expand=request.expand)
    return {
        key: np.array(field.cells).astype(field.dtype).reshape(field.shape)
        for key, field in empty.items()
        if field.shape and None not in field.cells
    }


def shape_wanted(request: Request, key: str) -> tuple[int, ...]:
    """Of a field; of tables that are too narrow, as they should be."""
    valid = dataclasses.replace(request, max_num_blocks=None) if request.violations() else request
    return valid.expected()[key].shape


class TakesAnyBuffer(Wrong):
    """Does not look at one property of the caller's buffers before it fills them."""

    def build(self, request: Request) -> Result:
        try:
            return super().build(request)
        except Rejection as right:
            if right.condition != "P-OUT" or request.out is None or not self.takes(request, right.field):
                raise
        width = None if request.violations() else request.max_num_blocks  # tables that are too narrow are cut
        fields = super().build(dataclasses.replace(request, out=None, max_num_blocks=width))
        for key, array in request.out.items():
            value = fields.get(key)
            if isinstance(value, np.ndarray):
                array.flags.writeable = True
                np.copyto(array, value[tuple(slice(0, size) for size in array.shape)], casting="unsafe")
        return {**fields, **request.out}

    def takes(self, request: Request, key: str) -> bool:
        """Whether it goes on although the buffer of ``key`` is not as it should be."""
        raise NotImplementedError


@wrong_class("OUT", "ACCEPTED:P-OUT", "what the caller left out is allocated: a captured graph never sees it")
class AllocatesWhatIsMissing(TakesAnyBuffer):
    def takes(self, request: Request, key: str) -> bool:
        return offered(request, key) is None


@wrong_class(
    "OUT", "ACCEPTED:P-OUT", "a step is cut to the rows that its buffers have: the last sequence is not served"
)
class CutsRowsToTheBuffer(TakesAnyBuffer):
    def takes(self, request: Request, key: str) -> bool:
        array = offered(request, key)
        return array is not None and len(array) < shape_wanted(request, key)[0]


@wrong_class("OUT", "ACCEPTED:P-OUT", "the stride of a row is the buffer's: columns that do not fit are dropped")
class CutsColumnsToTheBuffer(TakesAnyBuffer):
    def takes(self, request: Request, key: str) -> bool:
        array = offered(request, key)
        return array is not None and array.ndim == 2 and array.shape[1] < shape_wanted(request, key)[1]


@wrong_class("OUT", "ACCEPTED:P-OUT", "cells are cast to the dtype that the buffer happens to have")
class CastsToTheBuffer(TakesAnyBuffer):
    def takes(self, request: Request, key: str) -> bool:
        array = offered(request, key)
        return array is not None and array.dtype != oracle.FIELDS[key.partition(".")[0]].dtype

    @staticmethod
    def moved(request: Request, key: str) -> bool:
        """Whether it is as it should be, so that its place is not."""
        array = offered(request, key)
        fits = array is not None and array.flags.writeable and array.shape == shape_wanted(request, key)
        return array is not None and fits and array.dtype == oracle.FIELDS[key.partition(".")[0]].dtype


@wrong_class(
    "OUT",
    "ACCEPTED:P-OUT",
    "buckets are found by the first one's place and a stride; where the others lie is not looked at",
    paths=("decode_zos",),
)
class BelievesInEvenSpacing(TakesAnyBuffer):
    def takes(self, request: Request, key: str) -> bool:
        return "." in key and CastsToTheBuffer.moved(request, key) and request.path == "decode_zos"


@wrong_class("OUT", "ACCEPTED:P-OUT", "compiled code gets the address alone: what is read-only is written all the same")
class WritesThroughTheFlag(TakesAnyBuffer):
    def takes(self, request: Request, key: str) -> bool:
        array = offered(request, key)
        return array is not None and not array.flags.writeable


class TakesAnyBufferOfACall(TakesAnyBuffer):
    """Looks at the buffers of one call, after which it has written its own, and not at those of a later one."""

    call: oracle.Call

    def takes(self, request: Request, key: str) -> bool:
        return oracle.FIELDS[key.partition(".")[0]].written_by(request.path, request.config) == self.call


@wrong_class("OUT", "ACCEPTED:P-OUT", "buffers are looked at when a step is prepared, those of its expansions never")
class ExpandsIntoAnyBuffer(TakesAnyBufferOfACall):
    call = "expand"


@wrong_class(
    "OUT", "ACCEPTED:P-OUT", "buffers are looked at in the full layout, those of the mirror never", paths=("prompt",)
)
class MirrorsIntoAnyBuffer(TakesAnyBufferOfACall):
    call = "mirror"
