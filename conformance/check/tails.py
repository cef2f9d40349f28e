"""Neutral tails: rows of the caller's buffers past ``total_q``, for a subject that promises their values (I-3).

A captured graph reads its buffers to their capacity. A subject that claims ``neutral_tails`` is given decode buffers
with more rows than the batch has; every row behind the batch's must hold what the one row of an empty batch would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import Shapes
from inputmeta.conformance.check.compare import Wanted, finding
from inputmeta.conformance.check.verdicts import VALUE, Cell, Finding, Verdict, declared
from inputmeta.conformance.subjects.base import Capabilities

SPARE_ROWS = 3
"""Rows of the buffers past the longest batch of a case."""


@dataclass(frozen=True)
class Tails:
    """The neutral cell of each query-aligned field by flat key (None: not defined), and the rows of the buffers."""

    neutral: Mapping[str, oracle.Cell]
    capacity: int

    def shapes(self, shapes: Shapes) -> Shapes:
        """The shapes of a batch's fields with the rows of the buffers."""
        return {
            key: (dtype, (self.capacity, *shape[1:]) if key in self.neutral else shape)
            for key, (dtype, shape) in shapes.items()
        }

    def check(self, key: str, want: Wanted, view: np.ndarray, before: np.ndarray, step: int) -> Finding | None:
        """Finding on the rows of ``view`` behind those of ``want``; ``before``: the view before the step."""
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
        untouched = not (wrong & (view[rows:] != before[rows:])).any()
        verdict = Verdict.UNWRITTEN if untouched else Verdict.MISMATCH
        detail = f"rows from {rows} on are past total_q and promised to be neutral"
        kind = "" if untouched else VALUE
        return finding(verdict, step, key, want, detail=detail, cell=cell, differing=int(wrong.sum()), kind=kind)


NO_TAILS = Tails({}, 0)


def tails_of(requests: list[Request], able: Capabilities) -> Tails:
    """The tails that a subject promises for the steps of a case; none if it does not, or builds no decode step."""
    if not (able.in_place and able.neutral_tails and requests) or requests[0].path == "prompt":
        return NO_TAILS
    first = requests[0]
    config = first.config
    neutral = {
        key: declared(key).neutral_cell(config)
        for key in oracle.keys_of(first.path, config, first.expand)
        if declared(key).layout(first.path, config).rows == "query" and declared(key).name in able.fields_of(first.path)
    }
    rows = max(sum(sequence.seqlen_q for sequence in request.sequences) for request in requests)
    return Tails(neutral, max(1, rows) + SPARE_ROWS)
