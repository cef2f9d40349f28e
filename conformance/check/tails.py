"""Tails: rows past the batch's, for a subject that promises their values (I-3, I-51).

A captured graph reads its buffers to their capacity. A subject that claims ``neutral_tails`` is given decode buffers
with more rows than the batch has; every row behind the batch's must hold what the one row of an empty batch would.
One that claims ``prompt_tails`` is given such buffers on the prompt path, and may return arrays with more rows there:
those behind the batch's must hold the value that it states for the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import Shapes
from inputmeta.conformance.check.compare import Wanted, finding
from inputmeta.conformance.check.verdicts import VALUE, Cell, Finding, Verdict, declared
from inputmeta.conformance.subjects.base import Capabilities, Result

PROMISED = "past total_q and promised to be neutral"
SPARE_ROWS = 3
"""Rows of the buffers past the longest batch of a case."""


@dataclass(frozen=True)
class Tails:
    """The cell of the rows past the batch's by flat key (None: not defined), and the rows of each buffer."""

    neutral: Mapping[str, oracle.Cell]
    capacity: Mapping[str, int]
    stated: bool = False
    """Whether the subject itself states the cells (I-51), of a prompt."""

    def shapes(self, shapes: Shapes) -> Shapes:
        """The shapes of a batch's fields with the rows of the buffers."""
        return {
            key: (dtype, (self.capacity[key], *shape[1:]) if key in self.neutral else shape)
            for key, (dtype, shape) in shapes.items()
        }

    def check(self, key: str, want: Wanted, view: np.ndarray, before: np.ndarray | None, step: int) -> Finding | None:
        """Finding on the rows of ``view`` behind those of ``want``.

        ``before``: the view before the step; None: it is an array of the subject's own.
        """
        neutral = self.neutral.get(key)
        if neutral is None:
            return None
        rows = want.field.shape[0]
        wrong = view[rows:] != neutral
        if not wrong.any():
            return None
        place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        index = (rows + int(place[0]), *(int(i) for i in place[1:]))
        convert = bool if want.field.dtype == "bool" else int
        cell = Cell(index, convert(view[index]), neutral)
        untouched = before is not None and not (wrong & (view[rows:] != before[rows:])).any()
        verdict = Verdict.UNWRITTEN if untouched else Verdict.MISMATCH
        promised = f"past the batch's and stated to hold {neutral}" if self.stated else PROMISED
        detail = f"rows from {rows} on are {promised}"
        kind = "" if untouched else VALUE
        return finding(verdict, step, key, want, detail=detail, cell=cell, differing=int(wrong.sum()), kind=kind)


NO_TAILS = Tails({}, {})


def tails_of(requests: list[Request], able: Capabilities) -> Tails:
    """The tails of the caller's buffers that a subject promises for the steps of a case; none if it fills none."""
    if not able.in_place or not requests:
        return NO_TAILS
    first = requests[0]
    neutral = stated(first, able) if first.path == "prompt" else neutral_of(first, able)
    rows = dict.fromkeys(neutral, 1)
    for request in requests if neutral else []:
        shapes = oracle.field_shapes(request.path, request.config, request.sequences)
        rows = {key: max(most, shapes[key][1][0]) for key, most in rows.items()}
    return Tails(neutral, {key: most + SPARE_ROWS for key, most in rows.items()}, stated=first.path == "prompt")


def neutral_of(request: Request, able: Capabilities) -> dict[str, oracle.Cell]:
    """Of a decode step, the neutral cell of each query-aligned field by flat key, if a subject promises it."""
    config = request.config
    return {
        key: declared(key).neutral_cell(config)
        for key in oracle.keys_of(request.path, config, request.expand if able.neutral_tails else ())
        if able.neutral_tails
        and declared(key).layout(request.path, config).rows == "query"
        and declared(key).name in able.fields_of(request.path)
    }


def stated(request: Request, able: Capabilities) -> dict[str, oracle.Cell]:
    """Of a prompt, the cell that a subject states for the rows past the batch's, by flat key; else nothing."""
    if request.path != "prompt" or not able.prompt_tails:
        return {}
    claimed = able.prompt_tails.keys() & able.fields_of(request.path)
    keys = oracle.keys_of(request.path, request.config, request.expand)
    return {key: able.prompt_tails[declared(key).name] for key in keys if declared(key).name in claimed}


def own_tails(
    wanted: Mapping[str, Wanted], result: Result, request: Request, able: Capabilities, step: int
) -> tuple[Result, list[Finding]]:
    """A result of the subject's own arrays without the rows past a prompt's, and what is wrong with these."""
    neutral = stated(request, able)
    tails = Tails(neutral, {}, stated=True)
    longer = {
        key: array
        for key in neutral.keys() & wanted.keys()
        if isinstance(array := result.get(key), np.ndarray)
        and array.shape[1:] == wanted[key].field.shape[1:]
        and array.ndim
        and len(array) > wanted[key].field.shape[0]
        and array.dtype == np.dtype(wanted[key].field.dtype)
    }
    found = [tails.check(key, wanted[key], longer[key], None, step) for key in wanted if key in longer]
    cut = {key: array[: wanted[key].field.shape[0]] for key, array in longer.items()}
    return {**result, **cut} if cut else result, [finding for finding in found if finding is not None]


def without_tails(result: Result, request: Request, able: Capabilities) -> Result:
    """A result with the batch's rows alone, whatever its arrays are: in the wide tier they may be a device's."""
    neutral = stated(request, able)
    if not neutral:
        return result
    shapes = oracle.field_shapes(request.path, request.config, request.sequences)
    arrays: dict[str, Any] = {key: array for key in neutral if getattr(array := result.get(key), "ndim", 0)}
    return {**result, **{key: array[: shapes[key][1][0]] for key, array in arrays.items()}}
