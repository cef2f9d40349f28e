"""Invalid batches: they must be refused, for a precondition that they break, and nothing may be written before.

A refusal names the condition, the sequence and the field. Of several that are broken any one will do (I-17), but it
must be one: the named sequence must break the named condition, by the named field.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import PATTERNS, Arena
from inputmeta.conformance.check.out_faults import spoilt, written_before
from inputmeta.conformance.check.verdicts import Finding, Verdict, declared
from inputmeta.conformance.interrupts import at_once
from inputmeta.conformance.subjects.base import (
    Rejection,
    Result,
    Subject,
    SubjectError,
    SubjectFailure,
    Unsupported,
    is_device_error,
)
from inputmeta.conformance.subjects.frames import frames_of, message_of

MOST_CELLS = 2**16
"""Largest buffer that an invalid batch is offered."""
RULES: dict[str, tuple[frozenset[str], ...]] = {
    "P-RATIO": (
        frozenset({"block_size", "dense_ratios", "sparse_ratios", "ca_ratios"}),
        frozenset({"window_size", "swa_block_size"}),
        frozenset({"cp_size", "cp_rank"}),
    ),
    "P-LEN": (frozenset({"seqlen_q", "seqlen_k", "token_ids", "draft_tokens", "max_model_len"}),),
    "P-NGRAM": (frozenset({"compressed_tokens", "recent_tokens", "lookup_table"}),),
}
"""Fields that one rule of a condition ties together: whoever names one of them has named the rule."""
INPUTS = frozenset(
    f.name for kind in (oracle.MetadataConfig, oracle.SequenceMetadata) for f in dataclasses.fields(kind)
)
"""Fields that come in. P-INT32 of a value that is written has its name in the oracle, which leaves open what an engine
names: the field written, or the input that made it too large."""


def check_refusal(subject: Subject, request: Request, step: int, broken: set[str]) -> list[Finding]:
    """Findings on a batch that breaks the preconditions ``broken``; none if the subject refuses it as it should.

    A subject that fills in place is asked a second time with buffers of the shapes that the batch would have, as far as
    it has any. They may not be right, so that it may name P-OUT as well (I-17).
    """
    # Without the caller's buffers there is no table width, which may have been all that was wrong.
    bare = dataclasses.replace(request, max_num_blocks=None, out_fault=None)
    bare_errors = bare.violations()
    problem = refusal_problem(subject, bare, step, bare_errors) if bare_errors else None
    if problem is not None or not subject.capabilities.in_place:
        return [] if problem is None else [problem]
    shapes = offered_shapes(subject, request)
    arena = Arena([shapes], PATTERNS[0])
    before = arena.copy()
    views = arena.views(shapes)
    if request.out_fault is not None:
        views = spoilt(views, request.out_fault)
    offered = dataclasses.replace(request, out=views, out_fault=None)
    problem = refusal_problem(subject, offered, step, request.violations(), may_doubt_out=True)
    at = None if request.out_fault is None else request.out_fault.key
    if problem is not None and at is not None and problem.verdict is not Verdict.UNSUPPORTED:
        problem = dataclasses.replace(problem, key=at)
        if problem.verdict is Verdict.ACCEPTED:
            return [problem]
    written = []
    if not arena.same(before):
        written = [k for k, row in arena.rows.items() if not np.array_equal(row.memory, before.rows[k].memory)]
    if request.out_fault is not None and broken == {"P-OUT"}:
        written = [key for key in written if not written_before(key, request.out_fault, request)]
    if written:
        condition = min(broken)
        detail = f"breaks {condition}, but {', '.join(sorted(written))} had been written before it was refused"
        return [Finding(Verdict.ACCEPTED, step, at or written[0], condition, detail)]
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


def refusal_problem(
    subject: Subject,
    request: Request,
    step: int,
    errors: Sequence[oracle.PreconditionError],
    *,
    may_doubt_out: bool = False,
) -> Finding | None:
    """Finding if the subject does not refuse a batch for one of the ``errors`` that it has (I-17).

    ``may_doubt_out``: the buffers may be wrong as well, so that P-OUT is right whatever it names.
    """
    allowed = {error.condition for error in errors}
    condition = min(allowed - {"P-OUT"} or allowed)
    try:
        ask(subject, request)
    except Rejection as rejection:
        if rejection.condition in allowed:
            return misnamed(rejection, errors, step)
        if may_doubt_out and rejection.condition == "P-OUT":
            return None
        detail = f"breaks {', '.join(sorted(allowed))}, was refused for {rejection.condition} at {rejection.field}"
        return Finding(Verdict.ACCEPTED, step, None, condition, detail)
    except NotBuilt as error:
        found = error.finding(step)
        if found.verdict is Verdict.UNSUPPORTED:
            return found
        return dataclasses.replace(found, formula=condition, detail=f"breaks {condition}; {found.detail}")
    return Finding(Verdict.ACCEPTED, step, None, condition, f"breaks {condition} and was accepted")


def misnamed(rejection: Rejection, errors: Sequence[oracle.PreconditionError], step: int) -> Finding | None:
    """Finding if a refusal for the right condition names a sequence that keeps it, or a field that is not in it."""
    same = [error for error in errors if error.condition == rejection.condition]
    if rejection.condition == "P-OUT" or any(written(error) for error in same):
        return None
    at_sequence = [error for error in same if error.sequence == rejection.sequence]
    if not at_sequence:
        places = ", ".join(sorted({place_of(error.sequence) for error in same}))
        detail = f"{rejection.condition} is broken at {places}, the refusal names {place_of(rejection.sequence)}"
        return Finding(Verdict.ACCEPTED, step, None, rejection.condition, detail, kind="sequence")
    fields = {name for error in at_sequence for name in tied_fields(error)}
    if rejection.field in fields:
        return None
    detail = f"{rejection.condition} is broken by {', '.join(sorted(fields))}, the refusal names {rejection.field!r}"
    return Finding(Verdict.ACCEPTED, step, None, rejection.condition, detail, kind="field")


def written(error: oracle.PreconditionError) -> bool:
    """Whether it is a value to be written that does not fit, not one that came in."""
    return error.condition == "P-INT32" and error.field not in INPUTS


def tied_fields(error: oracle.PreconditionError) -> set[str]:
    """The fields that the broken rule is about."""
    tied = [rule for rule in RULES.get(error.condition, ()) if error.field in rule]
    return {error.field}.union(*tied)


def place_of(sequence: int | None) -> str:
    """A sequence, or what is no sequence's, in words."""
    return "the configuration or the batch" if sequence is None else f"sequence {sequence}"


def offered_shapes(subject: Subject, request: Request) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtype and shape by flat key of the claimed tensors: what the batch would have, or one cell where that is none.

    A batch whose buffers alone are at fault has the shapes of the valid batch.
    """
    valid = dataclasses.replace(request, out_fault=None)
    if request.out_fault is not None and not valid.violations():
        able = subject.capabilities.fields_of(request.path)
        expected = {key: want for key, want in valid.expected().items() if want.shape and declared(key).name in able}
        return {key: (want.dtype, want.shape) for key, want in expected.items()}
    shapes = oracle.field_shapes(request.path, request.config, request.sequences, request.max_num_blocks)
    offered: dict[str, tuple[str, tuple[int, ...]]] = {}
    for key, (field, shape) in shapes.items():
        if shape and field.name in subject.capabilities.fields_of(request.path):
            usable = min(shape) >= 1 and math.prod(shape) <= MOST_CELLS
            offered[key] = (field.dtype, shape if usable else (1,) * len(shape))
    return offered


def failure_finding(error: BaseException, step: int) -> Finding:
    """The finding on a batch that a subject did not answer, from what it raised instead."""
    if isinstance(error, Unsupported):
        return Finding(Verdict.UNSUPPORTED, step, None, "-", error.reason)
    if isinstance(error, SubjectFailure):
        return Finding(Verdict(error.verdict), step, None, "-", error.detail, code=error.code, frames=error.frames)
    detail = f"raised {type(error).__name__}: {message_of(error)[:200]}"
    frames = frames_of(error)
    if is_device_error(error):
        return Finding(Verdict.DEVICE_ERROR, step, None, "-", detail, code="device", frames=frames)
    if isinstance(error, MemoryError):
        return Finding(Verdict.CRASH, step, None, "-", f"out of memory: {detail}", code="memory", frames=frames)
    return Finding(Verdict.CRASH, step, None, "-", detail, code="raised", frames=frames)
