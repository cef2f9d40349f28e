"""Exact comparison of built fields with the oracle's. Cells that are not defined are left out, and only those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.check.evidence import Evidence, evidence_of
from inputmeta.conformance.check.verdicts import VALUE, Cell, Finding, Verdict
from inputmeta.conformance.subjects.base import Unsupported


@dataclass(frozen=True)
class Wanted:
    """An expected field as arrays: ``values`` int64 and ``defined`` bool, both of the chosen rows.

    ``defined`` is None when every cell is. ``rows`` are the field rows that the first axis stands for; None: all.

    """

    field: oracle.ExpectedField
    values: np.ndarray
    defined: np.ndarray | None
    rows: np.ndarray | None

    @classmethod
    def of(cls, field: oracle.ExpectedField) -> Wanted:
        """Convert the oracle's cells. The built shape is that of the field with the chosen rows in the first axis."""
        rows = None if field.rows is None else np.asarray(field.rows, dtype=np.int64)
        shape = field.shape if rows is None else (len(rows), *field.shape[1:])
        try:
            return cls(field, np.array(field.cells, dtype=np.int64).reshape(shape), None, rows)
        except TypeError:  # a None among the cells
            values, defined = with_holes(field.cells, shape)
            return cls(field, values, defined, rows)

    @cached_property
    def memory(self) -> bytes | None:
        """The memory of an array that is right; None where not every cell is wanted."""
        whole = self.rows is None and self.defined is None
        return self.values.astype(self.field.dtype).tobytes() if whole else None

    @property
    def tensor(self) -> bool:
        """Whether the field is a tensor, rather than a plain scalar."""
        return self.field.shape != ()

    def differing(self, actual: np.ndarray) -> np.ndarray:
        """Mask over the chosen rows of cells that are defined and differ; ``actual`` has the full shape."""
        chosen = actual if self.rows is None else actual[self.rows]
        wrong: np.ndarray = chosen != self.values
        return wrong if self.defined is None else wrong & self.defined

    def compared(self) -> int:
        """Number of cells that are compared."""
        return int(self.values.size if self.defined is None else self.defined.sum())

    def cell(self, actual: np.ndarray, position: tuple[int, ...]) -> Cell:
        """The cell at ``position`` among the chosen rows, with its index in the full field."""
        index = position if self.rows is None else (int(self.rows[position[0]]), *position[1:])
        convert = bool if self.field.dtype == "bool" else int
        return Cell(index=index, got=convert(actual[index]), want=convert(self.values[position]))


def with_holes(cells: Sequence[int | bool | None], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Values (0 where None) and the mask of defined cells, both of ``shape``.

    A row is mostly a defined prefix and a tail of None, which slices convert faster than cells.
    """
    width = shape[-1]
    values = np.zeros((len(cells) // width, width), dtype=np.int64)
    defined = np.zeros(values.shape, dtype=bool)
    for row, start in enumerate(range(0, len(cells), width)):
        line = cells[start : start + width]
        known = width - line.count(None)
        prefix = [cell for cell in line[:known] if cell is not None]
        if len(prefix) == known:
            values[row, :known] = prefix
            defined[row, :known] = True
            continue
        for column, cell in enumerate(line):
            if cell is not None:
                values[row, column] = cell
                defined[row, column] = True
    return values.reshape(shape), defined.reshape(shape)


def compare_fields(wanted: Mapping[str, Wanted], actual: Mapping[str, object], step: int = 0) -> list[Finding]:
    """Findings on every wanted field, in declaration order; none when all conform."""
    findings = (compare_field(key, want, actual.get(key), step) for key, want in wanted.items())
    return [finding for finding in findings if finding is not None]


def compare_field(key: str, want: Wanted, actual: object, step: int) -> Finding | None:
    """Finding on one field, or None: missing, wrong type, dtype or shape, or the differing cells.

    UNSUPPORTED, with its reason, if the subject says that it does not build the field of this batch.
    """
    if isinstance(actual, Unsupported):
        return finding(Verdict.UNSUPPORTED, step, key, want, detail=actual.reason)
    problem = form_problem(want, actual)
    if problem is not None:
        return finding(Verdict.MISMATCH, step, key, want, detail=problem.text, kind=problem.kind)
    array = np.asarray(actual)
    if want.memory is not None and array.tobytes() == want.memory:
        return None
    wrong = want.differing(array)
    count = int(wrong.sum())
    if not count:
        return None
    position = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    cell = want.cell(array, position)
    chosen = array if want.rows is None else array[want.rows]
    return finding(
        Verdict.MISMATCH,
        step,
        key,
        want,
        detail="wrong value",
        cell=cell,
        differing=count,
        kind=VALUE,
        evidence=evidence_of(chosen, want.values, want.defined, wrong, rows=want.rows, first=position),
    )


def tensor_shapes(wanted: Mapping[str, Wanted]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtype and shape of the wanted tensors by flat key."""
    return {key: (want.field.dtype, want.field.shape) for key, want in wanted.items() if want.tensor}


class FormProblem(NamedTuple):
    """What is wrong with the form of a built field. ``kind`` is part of the signature."""

    kind: Literal["missing", "type", "dtype", "shape"]
    text: str


def form_problem(want: Wanted, actual: object) -> FormProblem | None:
    """What is wrong with the form of a built field, or None."""
    if actual is None:
        return FormProblem("missing", "the field is missing")
    if not want.tensor:
        kind = bool if want.field.dtype == "bool" else int
        right = isinstance(actual, kind) and (kind is bool or not isinstance(actual, bool))
        text = f"a plain {kind.__name__} is wanted, got {type(actual).__name__}"
        return None if right else FormProblem("type", text)
    if not isinstance(actual, np.ndarray):
        return FormProblem("type", f"an array is wanted, got {type(actual).__name__}")
    if actual.dtype != np.dtype(want.field.dtype):
        return FormProblem("dtype", f"dtype {actual.dtype}, want {want.field.dtype}{first_outside(want, actual)}")
    if actual.shape != want.field.shape:
        return FormProblem("shape", f"shape {list(actual.shape)}, want {list(want.field.shape)}")
    return None


def first_outside(want: Wanted, actual: np.ndarray) -> str:
    """Of integers in another dtype than int32, the first value that int32 cannot hold, as words; else empty."""
    if want.field.dtype != "int32" or actual.dtype.kind not in "iu":
        return ""
    outside = np.argwhere((actual < -(2**31)) | (actual > 2**31 - 1))
    if not len(outside):
        return ""
    index = tuple(int(i) for i in outside[0])
    return f"; {list(index)} holds {int(actual[index])}, outside int32"


def finding(
    verdict: Verdict,
    step: int,
    key: str,
    want: Wanted,
    *,
    detail: str,
    cell: Cell | None = None,
    differing: int = 0,
    kind: str = "",
    evidence: Evidence | None = None,
) -> Finding:
    """A finding on a field, with the formula of its declaration."""
    formula = want.field.formula
    return Finding(verdict, step, key, formula, detail, cell, differing, want.compared(), kind=kind, evidence=evidence)
