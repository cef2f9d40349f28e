"""Invalid batches: they must be refused, for a precondition that they break, and nothing may be written before."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import PATTERNS, Arena
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.interrupts import at_once
from inputmeta.conformance.subjects.base import (
    Rejection,
    Result,
    Subject,
    SubjectError,
    SubjectFailure,
    is_device_error,
)
from inputmeta.conformance.subjects.frames import frames_of, message_of

MOST_CELLS = 2**16
"""Largest buffer that an invalid batch is offered."""


def check_refusal(subject: Subject, request: Request, step: int, broken: set[str]) -> list[Finding]:
    """Findings on a batch that breaks the preconditions ``broken``; none if the subject refuses it as it should.

    A subject that fills in place is asked a second time with buffers of the shapes that the batch would have, as far as
    it has any. They may not be right, so that it may name P-OUT as well (I-17).
    """
    # Without the caller's buffers there is no table width, which may have been all that was wrong.
    bare = dataclasses.replace(request, max_num_blocks=None)
    broken_bare = {error.condition for error in bare.violations()}
    problem = refusal_problem(subject, bare, step, broken_bare) if broken_bare else None
    if problem is not None or not subject.capabilities.in_place:
        return [] if problem is None else [problem]
    shapes = offered_shapes(subject, request)
    arena = Arena([shapes], PATTERNS[0])
    before = {key: row.memory.copy() for key, row in arena.rows.items()}
    offered = dataclasses.replace(request, out=arena.views(shapes))
    problem = refusal_problem(subject, offered, step, broken | {"P-OUT"})
    written = [key for key, row in arena.rows.items() if not np.array_equal(row.memory, before[key])]
    if written:
        condition = min(broken)
        detail = f"breaks {condition}, but {', '.join(sorted(written))} had been written before it was refused"
        return [Finding(Verdict.ACCEPTED, step, written[0], condition, detail)]
    return [] if problem is None else [problem]


class NotBuilt(Exception):  # noqa: N818 - an answer about the subject
    """A subject did not answer a batch; its cause is what it raised instead."""

    def finding(self, step: int) -> Finding:
        """As a finding."""
        assert self.__cause__ is not None
        return failure_finding(self.__cause__, step)


def ask(subject: Subject, request: Request) -> Result:
    """The subject's answer to a batch. A signal strikes at once: the subject may take for ever.

    Raises:
        Rejection: it refuses the batch.
        SubjectError: it cannot be started any more.
        NotBuilt: it raised anything else, the end of its process included.
        Interrupted: the run is to end.
    """
    try:
        with at_once():
            return subject.build(request)
    except (Rejection, SubjectError):
        raise
    except (Exception, SystemExit) as error:
        raise NotBuilt from error


def refusal_problem(subject: Subject, request: Request, step: int, allowed: set[str]) -> Finding | None:
    """Finding if the subject does not refuse a batch for one of the ``allowed`` conditions (I-17)."""
    condition = min(allowed - {"P-OUT"} or allowed)
    try:
        ask(subject, request)
    except Rejection as rejection:
        if rejection.condition in allowed:
            return None
        detail = f"breaks {', '.join(sorted(allowed))}, was refused for {rejection.condition} at {rejection.field}"
        return Finding(Verdict.ACCEPTED, step, None, condition, detail)
    except NotBuilt as error:
        found = error.finding(step)
        if found.verdict is Verdict.UNSUPPORTED:
            return found
        return dataclasses.replace(found, formula=condition, detail=f"breaks {condition}; {found.detail}")
    return Finding(Verdict.ACCEPTED, step, None, condition, f"breaks {condition} and was accepted")


def offered_shapes(subject: Subject, request: Request) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtype and shape by flat key of the claimed tensors: what the batch would have, or one cell where that is none."""
    shapes = oracle.field_shapes(request.path, request.config, request.sequences, request.max_num_blocks)
    offered: dict[str, tuple[str, tuple[int, ...]]] = {}
    for key, (field, shape) in shapes.items():
        if shape and field.name in subject.capabilities.fields:
            usable = min(shape) >= 1 and math.prod(shape) <= MOST_CELLS
            offered[key] = (field.dtype, shape if usable else (1,) * len(shape))
    return offered


def failure_finding(error: BaseException, step: int) -> Finding:
    """The finding on a batch that a subject did not answer, from what it raised instead."""
    if isinstance(error, SubjectFailure):
        return Finding(Verdict(error.verdict), step, None, "-", error.detail, code=error.code, frames=error.frames)
    detail = f"raised {type(error).__name__}: {message_of(error)[:200]}"
    frames = frames_of(error)
    if is_device_error(error):
        return Finding(Verdict.DEVICE_ERROR, step, None, "-", detail, code="device", frames=frames)
    if isinstance(error, MemoryError):
        return Finding(Verdict.CRASH, step, None, "-", f"out of memory: {detail}", code="memory", frames=frames)
    return Finding(Verdict.CRASH, step, None, "-", detail, code="raised", frames=frames)
