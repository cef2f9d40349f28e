"""What goes wrong with memory: the caller's buffers, what lies around them, and the caller's inputs."""

from __future__ import annotations

import dataclasses

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Fields, Wrong, wrong_answer, wrong_class
from inputmeta.conformance.subjects.base import Result
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
class AddsToWhatIsThere(Wrong):
    def build(self, request: Request) -> Result:
        slots = offered(request, "slot_mapping_store_swa")
        held = None if slots is None else slots.copy()
        fields = super().build(request)
        if slots is not None and held is not None:
            slots += held
        return fields


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


@wrong_answer("OUT_OF_BOUNDS", "OUT_OF_BOUNDS:F-QIDX:query_indices", "<= in a kernel's loop")
def writes_one_past_the_end(request: Request, _: Fields) -> None:
    array = offered(request, "query_indices")
    if array is not None:
        beside(array, array.size)[:] = 7


@wrong_answer("OUT_OF_BOUNDS", "OUT_OF_BOUNDS:F-RING:slot_mapping_store_swa", "a padding index of -1 is written to")
def writes_before_the_start(request: Request, _: Fields) -> None:
    array = offered(request, "slot_mapping_store_swa")
    if array is not None:
        beside(array, -1)[:] = 7


@wrong_answer(
    "OUT_OF_BOUNDS",
    "OUT_OF_BOUNDS:F-CU:cu_seqlens_q",
    "the last cell is stored as 64 bits: its upper half lands on the neighbour",
)
def writes_64_bit_cells(request: Request, _: Fields) -> None:
    array = offered(request, "cu_seqlens_q")
    if array is not None:
        beside(array, array.size)[:] = 0


@wrong_answer(
    "OUT_OF_BOUNDS",
    "OUT_OF_BOUNDS:F-MASK:valid_token_mask",
    "rows up to the next multiple of 8 are cleared, whatever the buffer's size",
)
def pads_to_the_tile(request: Request, _: Fields) -> None:
    array = offered(request, "valid_token_mask")
    if array is not None:
        for place in range(array.size, -(-(array.size + 1) // 8) * 8):
            beside(array, place)[:] = False


@wrong_class("ALIAS", "OUT_OF_BOUNDS:input", "sorts or extends the scheduler's lists in place")
class MutatesItsInput(Wrong):
    def after(self, request: Request, fields: Fields) -> None:
        for sequence in request.sequences:
            object.__setattr__(sequence, "state_id", sequence.state_id + 1)


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
