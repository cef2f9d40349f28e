"""What a subject that allocates gave (SPEC.md chapter 14): read, held to the rules of the pool, and what follows of it.

One :class:`History` is one pass over the steps of a case. The answer of a step is untrusted: its form is checked first
(A-FORM), then the rules, and only an answer that keeps them is put in place of the tables that the step came with, so
that the oracle says what its fields are to be. The first breach ends a pass: what follows would follow from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.allocated import Allocates
from inputmeta.conformance.cases.model import Allocation, Case
from inputmeta.conformance.cases.request import Request, StepAllocation
from inputmeta.conformance.check.refusals import failure_finding
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.interrupts import at_once
from inputmeta.conformance.subjects.base import (
    ALLOCATED_BLOCKS,
    ALLOCATED_STATES,
    AllocatingSubject,
    Rejection,
    Subject,
    SubjectError,
)

INTEGERS = (np.dtype(np.int32), np.dtype(np.int64))
MOST_CELLS = 2**24
"""Of an array of block tables."""
MOST_TOLD, MOST_IDS = 4, 8
"""Requests, and ids of each, that a finding on a field tells."""
PADDING = -1
"""What stands behind the ids of a table."""
Sizes = Allocation | StepAllocation
KINDS = {ALLOCATED_BLOCKS: "block", ALLOCATED_STATES: "state"}


class FormError(Exception):
    """An answer that breaks A-FORM. ``key``: of the array; ``str()`` says what is wrong."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.kind = KINDS[key]


def beyond(case: Case, claims: Allocates | None) -> str | None:
    """Why the pool of a case is too small for a subject that holds more than A-NEED says, or None."""
    if case.allocation is None or claims is None or not claims.spare_blocks:
        return None
    need = oracle.most_needed(case.steps, case.allocation, case.config.block_size, claims.spare_blocks)
    if need.blocks <= case.allocation.num_blocks:
        return None
    return f"a pool without {claims.spare_blocks} spare blocks a request"


class History:
    """A pass over the steps of a case, from a reset on."""

    def __init__(self, sizes: Sizes, claims: Allocates, config: oracle.MetadataConfig) -> None:
        """``sizes``: of the pool; the allocation of a case, or that of one of its steps."""
        self.claims = claims
        self.pool = oracle.Pool(
            config,
            sizes.num_blocks,
            sizes.num_states,
            reserved_blocks=claims.reserved_blocks,
            reserved_states=claims.reserved_states if claims.states else 0,
            shares_blocks=claims.shares_blocks,
        )

    def settled(self, request: Request, result: Mapping[str, object], step: int) -> Request | list[Finding]:
        """The step with the tables and states of its answer; or what is wrong with these."""
        assert request.allocation is not None
        try:
            tables, states = given(request, result, states=self.claims.states)
        except FormError as error:
            return [Finding(Verdict.ALLOCATION, step, None, "A-FORM", f"step {step}, {error}", kind=error.kind)]
        placed = zip(request.sequences, request.allocation.requests, tables, states, strict=True)
        sequences = [
            sequence if whose == oracle.NO_REQUEST else dataclasses.replace(sequence, block_table=table, state_id=state)
            for sequence, whose, table, state in placed
        ]
        breaches = self.pool.take(sequences, request.allocation.requests, request.allocation.ended)
        if breaches:
            return [_finding(breach, step) for breach in breaches]
        return dataclasses.replace(request, sequences=sequences)


def _finding(breach: oracle.Breach, step: int) -> Finding:
    detail = f"step {step}, {breach}"
    return Finding(Verdict.ALLOCATION, step, None, breach.rule, detail, kind=breach.what, sequence=breach.sequence)


def given(
    request: Request, result: Mapping[str, object], *, states: bool = True
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Block tables and state slots of an answer; the slots of the step itself where ``states`` is False.

    Raises:
        FormError: an array is missing, of another type, dtype or shape, or too large.
    """
    count = len(request.sequences)
    blocks = _integers(result, ALLOCATED_BLOCKS, count, 2)
    if blocks.size > MOST_CELLS:
        raise FormError(ALLOCATED_BLOCKS, f"{blocks.size} cells; at most {MOST_CELLS} are read")
    tables = [_table(row) for row in blocks]
    if not states:
        return tables, [sequence.state_id for sequence in request.sequences]
    return tables, [int(state) for state in _integers(result, ALLOCATED_STATES, count, 1)]


def _integers(result: Mapping[str, object], key: str, rows: int, axes: int) -> np.ndarray:
    array = result.get(key)
    if array is None:
        raise FormError(key, "is missing")
    if not isinstance(array, np.ndarray):
        raise FormError(key, f"is of type {type(array).__name__}; an array is wanted")
    if array.dtype not in INTEGERS:
        raise FormError(key, f"is of dtype {array.dtype}; int32 or int64 is wanted")
    if array.ndim != axes or array.shape[0] != rows:
        wanted = f"[{rows}, width]" if axes == 2 else f"[{rows}]"
        raise FormError(key, f"has shape {list(array.shape)}; {wanted} is wanted")
    return array


def _table(row: np.ndarray) -> tuple[int, ...]:
    """The ids of a row, without the padding behind them; padding between them stays, and is no block of the pool."""
    ids = np.flatnonzero(row != PADDING)
    return tuple(row[: int(ids[-1]) + 1].tolist()) if len(ids) else ()


def told(found: Finding, request: Request) -> Finding:
    """A finding on a field, with the tables and states of the answer that the field is to be of."""
    if found.cell is None or request.allocation is None:
        return found
    given = [
        f"request {whose} blocks {_brief(sequence.block_table)}, slot {sequence.state_id}"
        for whose, sequence in zip(request.allocation.requests, request.sequences, strict=True)
        if whose != oracle.NO_REQUEST
    ]
    more = f"; … {len(given) - MOST_TOLD} more" if len(given) > MOST_TOLD else ""
    return dataclasses.replace(found, detail=f"{found.detail}; it gave {'; '.join(given[:MOST_TOLD])}{more}")


def _brief(table: Sequence[int]) -> str:
    shown = " ".join(map(str, table[:MOST_IDS])) or "none"
    return shown + f" … {len(table)}" * (len(table) > MOST_IDS)


def begin(subject: Subject) -> Finding | None:
    """Have the subject forget every request (A-RESET); what it raises is a finding on the first step."""
    assert isinstance(subject, AllocatingSubject)
    try:
        with at_once():
            subject.reset()
    except SubjectError:
        raise
    except (Exception, SystemExit) as error:
        found = failure_finding(error, 0)
        return dataclasses.replace(found, detail=f"reset: {found.detail}")
    return None


def refused(rejection: Rejection, request: Request, step: int) -> Finding | None:
    """The finding on a step that was refused for want of blocks or slots (A-FIT); None for another reason."""
    if rejection.condition != "A-FIT" or request.allocation is None:
        return None
    at = rejection.sequence
    named = at is not None and 0 <= at < len(request.allocation.requests)
    whose = f"request {request.allocation.requests[at]} (sequence {at}): " if named and at is not None else ""
    pool = f"the pool ({request.allocation.num_blocks} blocks, {request.allocation.num_states} state slots)"
    detail = f"step {step}, {whose}refused, though {pool} has room for what the live requests need: {rejection}"
    kind = "state" if rejection.field == "state_id" else "block"
    return Finding(Verdict.ALLOCATION, step, None, "A-FIT", detail, kind=kind, sequence=at if named else None)
