"""Tests of an adapter: whether a program keeps the protocol and its own claims. The values are for the suite to judge.

Every check works on one worker, which is replaced if a check loses it. What a check finds is a list of lines.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import get_args

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.model import FaultKind, OutFault
from inputmeta.conformance.cases.request import Request, step_requests
from inputmeta.conformance.check.allocation import History
from inputmeta.conformance.check.buffers import PATTERNS, Arena, Shapes
from inputmeta.conformance.check.compare import Wanted, form_problem, tensor_shapes
from inputmeta.conformance.check.containers import inspectable
from inputmeta.conformance.check.key_sets import compare_key_sets, wanted_key_sets
from inputmeta.conformance.check.out_faults import beyond, spoilt, written_before
from inputmeta.conformance.check.tails import tails_of
from inputmeta.conformance.protocol import messages as wire
from inputmeta.conformance.subjects.base import (
    Rejection,
    SubjectFailure,
    Unsupported,
)
from inputmeta.conformance.workers.contract_batches import (
    broken_batches,
    described,
    history_of,
    invalid_messages,
)
from inputmeta.conformance.workers.contract_forms import check_int32_arrays, check_refills, check_shared_memory
from inputmeta.conformance.workers.contract_session import (
    Session,
    Skipped,
    copied,
    differences,
    invalid_problems,
    said,
)
from inputmeta.conformance.workers.process import Worker

INPUT_NAMES = frozenset(oracle.MetadataConfig.__dataclass_fields__) | frozenset(
    oracle.SequenceMetadata.__dataclass_fields__
)
"""What a refusal may name as the field at fault, beside a declared field (P-OUT, P-INT32) and ``sequences``."""
BYE_SECONDS = 10.0
"""For a program to end after ``bye``: unloading a framework takes its time."""
MOST_LINES = 5
"""Lines that a check gives at most."""


@dataclass(frozen=True)
class CheckResult:
    """What one check gave. ``problems`` empty and ``skipped`` None: it holds."""

    name: str
    meaning: str
    problems: tuple[str, ...] = ()
    skipped: str | None = None


def check_hello(session: Session) -> Iterator[str]:
    """The name is not empty, and what is claimed are paths, fields, devices and modes that there are."""
    if not session.hello.name.strip():
        yield "the name is empty"
    known = {
        "paths": frozenset(oracle.PATHS),
        "fields": frozenset(oracle.FIELDS) | oracle.KEY_SETS.keys(),
        "devices": frozenset({"cpu", "cuda"}),
        "yoco_modes": frozenset({"off", "mask", "compact"}),
        "refuses": frozenset(oracle.PRECONDITIONS),
    }
    for claim, names in known.items():
        claimed: frozenset[str] = getattr(session.claims, claim)
        if not claimed and claim != "refuses":
            yield f"{claim}: nothing is claimed"
        for name in sorted(claimed - names):
            yield f"{claim}: there is no {name!r}"
    if session.claims.neutral_tails and not session.claims.in_place:
        yield "neutral_tails is claimed without in_place"


def check_answers(session: Session) -> Iterator[str]:
    """A valid batch of each claimed path is answered by a result."""
    for request in session.valid():
        try:
            session.ask(request)
        except Unsupported:
            session.leave_out(request)
        except (Rejection, SubjectFailure) as failure:
            yield f"{described(request)}: {said(failure)}"
    session.valid()  # an adapter that builds none of them is not checked


def check_fields(session: Session) -> Iterator[str]:
    """Every claimed field of the path comes back as a host array or plain scalar of its declared dtype and shape; a
    claimed key set as int64 [pairs, 3].
    """
    for request in session.valid():
        result = session.ask(request)
        for key, want in session.claimed(request).items():
            answer = result.get(key)
            problem = None if isinstance(answer, Unsupported) else form_problem(want, answer)
            if problem is not None:
                yield f"{described(request)}: {key}: {problem.text}"
        for found in compare_key_sets(wanted_key_sets(session.claims, request), result, 0):
            if found.on_form:
                yield f"{described(request)}: {found.key}: {found.detail}"


def check_repeatable(session: Session) -> Iterator[str]:
    """The same batch gives the same fields, at once and after others."""
    requests = session.valid()
    first = [copied(session.ask(request)) for request in requests]
    for request, before in [*zip(requests, first, strict=True), *zip(requests[::-1], first[::-1], strict=True)]:
        yield from differences(session, request, before, session.ask(request), "is not the same a second time")


def check_inputs(session: Session) -> Iterator[str]:
    """The batch handed over is not written to. Seen where the subject is Python; a program has a copy of its own."""
    if not any(word.startswith("inputmeta.conformance.protocol.") for word in session.worker.argv):
        raise Skipped("a program is handed a copy")
    for request in session.valid():
        try:
            session.ask(request)
        except SubjectFailure as failure:
            if failure.code != "input":
                raise
            yield f"{described(request)}: {failure.detail}"


def check_rejects(session: Session) -> Iterator[str]:
    """A broken batch is refused by a well-formed ``reject``, and the next valid batch is built as before."""
    if not session.claims.refuses:
        raise Skipped("it claims to check no precondition")
    for request in session.valid():
        before = copied(session.ask(request))
        for what, broken in broken_batches(request, session.claims):
            for problem in refusal_problems(session, broken):
                yield f"{described(request)}, {what}: {problem}"
        yield from differences(session, request, before, session.ask(request), "is another after a refusal")


def refusal_problems(session: Session, request: Request) -> Iterator[str]:
    """What is wrong with the refusal of a broken batch."""
    broken = {error.condition for error in request.violations()}
    try:
        session.ask(request)
    except Rejection as rejection:
        if rejection.condition not in broken:
            yield f"refused for {rejection.condition!r}; it breaks {', '.join(sorted(broken))}"
        if rejection.sequence is not None and not 0 <= rejection.sequence < len(request.sequences):
            yield f"names sequence {rejection.sequence} of {len(request.sequences)}"
        if rejection.field.partition(".")[0] not in INPUT_NAMES | oracle.FIELDS.keys() | {"sequences"}:
            yield f"names the field {rejection.field!r}, which is neither an input nor a declared field"
        if not str(rejection).strip():
            yield "says nothing: the message is empty"
    except Unsupported:  # a program need not refuse what it does not build
        return
    except SubjectFailure as failure:
        yield f"is not refused: {said(failure)}"
    else:
        yield f"is accepted; it breaks {', '.join(sorted(broken))}"


def check_invalid_messages(session: Session) -> Iterator[str]:
    """A message that is not valid is answered by ``error`` with id -1 and kind "message"; the next batch is built."""
    if not session.robust:
        raise Skipped("left out, --robust asks for it")
    request = session.valid()[0]
    yield from invalid_problems(session, request, invalid_messages(session.worker.wire, request))


def check_in_place(session: Session) -> Iterator[str]:
    """The caller's buffers are filled as the program's own are, nothing around them; a refusal writes nothing."""
    if not session.claims.in_place:
        raise Skipped("in_place is not claimed")
    for request in session.valid():
        own = copied(session.ask(request))
        wanted = session.claimed(request)
        tails = tails_of([request], session.claims)
        shapes = tails.shapes(tensor_shapes(wanted))
        for pattern in PATTERNS:
            arena = Arena([shapes], pattern)
            offered = dataclasses.replace(request, out=arena.views(shapes))
            fences = arena.outside(shapes)
            before = {key: view.copy() for key, view in arena.views(shapes).items()}
            filled = session.ask(offered)
            for key, fence in fences.items():
                if arena.rows[key].written_outside(fence, shapes[key][1]):
                    yield f"{described(request)}: {key}: wrote outside its buffer"
            for key, view in before.items():
                problem = tails.check(key, wanted[key], arena.rows[key].view(view.shape), view, 0)
                if problem is not None:
                    yield f"{described(request)}: {key}: {problem.detail}"
            rows = {key: first_rows(filled.get(key), wanted[key]) for key in wanted}
            yield from differences(session, request, own, rows, "is another in the caller's buffers")
        for _, broken in islice(broken_batches(offered, session.claims), 1):
            kept = {key: row.memory.copy() for key, row in arena.rows.items()}
            yield from (f"{described(request)}: {problem}" for problem in refusal_problems(session, broken))
            if any(not np.array_equal(row.memory, kept[key]) for key, row in arena.rows.items()):
                yield f"{described(request)}: wrote into the buffers of a batch that it refused"


def check_out(session: Session) -> Iterator[str]:
    """A buffer that is missing, of another shape or dtype, or read-only where that is claimed, is refused for P-OUT
    before its call writes.
    """
    if not session.claims.in_place or not session.claims.must_refuse({"P-OUT"}):
        raise Skipped("in_place, or to refuse for P-OUT, is not claimed")
    kinds: tuple[FaultKind, ...] = get_args(FaultKind)
    for number, request in enumerate(session.valid()):
        wanted = session.claimed(request)
        shapes = tensor_shapes(wanted)
        for place, kind in enumerate(kinds):
            faults = [OutFault(key=key, fault=kind) for key in shapes]
            possible = [fault for fault in faults if beyond(fault, request.path, shapes, session.claims) is None]
            if possible:
                fault = possible[(number + place) % len(possible)]
                for problem in out_problems(session, dataclasses.replace(request, out_fault=fault), fault, shapes):
                    yield f"{described(request)}, {fault.key} {kind}: {problem}"


def out_problems(session: Session, request: Request, fault: OutFault, shapes: Shapes) -> Iterator[str]:
    """What is wrong with the refusal of a batch that comes with one buffer at fault."""
    arena = Arena([shapes], PATTERNS[0])
    before = {key: row.memory.copy() for key, row in arena.rows.items()}
    problems = list(refusal_problems(session, dataclasses.replace(request, out=spoilt(arena.views(shapes), fault))))
    yield from problems
    written = [key for key, row in arena.rows.items() if not np.array_equal(row.memory, before[key])]
    of_its_call = [key for key in written if not written_before(key, fault, request)]
    if of_its_call and not problems:
        yield f"{of_its_call[0]} was written"


def first_rows(value: object, want: Wanted) -> object:
    """A field without the rows past the batch's."""
    return value[: want.field.shape[0]] if isinstance(value, np.ndarray) and value.ndim and want.tensor else value


def check_allocation(session: Session) -> Iterator[str]:
    """Over a short history the tables and states given keep the rules of SPEC.md chapter 14; after a reset, again."""
    claims = session.claims.allocates
    if claims is None:
        raise Skipped("allocates is not claimed")
    asked = 0
    for path in sorted(session.claims.paths & set(oracle.PATHS)):
        case = history_of(path, claims)  # type: ignore[arg-type]
        steps = step_requests(case, in_place=False)
        if any(session.claims.lacks(step) is not None for step in steps):
            continue
        for _ in range(2):
            assert case.allocation is not None
            history = History(case.allocation, claims, steps[0].config)
            for index, step in enumerate(steps):
                found = history.settled(step, session.ask(step, first=index == 0), index)
                asked += 1
                if isinstance(found, list):
                    yield from (f"path {path}: {each.formula}: {each.detail}" for each in found)
                    break
    if not asked:
        raise Skipped("the claimed conditions leave no step of a short history")


def check_container(session: Session) -> Iterator[str]:
    """A container keeps what SPEC.md chapter 11 promises: flat dicts, copies, cleans, views, images, broadcasts."""
    if not session.hello.containers:
        raise Skipped("it has no containers to inspect")
    kept = 0
    for request in filter(inspectable, session.valid()):
        found = session.inspect(request)
        kept += len(found.kept)
        yield from (f"{described(request)}: {broken.number}: {broken.detail}" for broken in found.broken)
        kept += len(found.broken)
    if not kept:
        raise Skipped("nothing of its containers could be inspected: they are on a device, or have none of the methods")


def check_bye(session: Session) -> Iterator[str]:
    """The program ends by itself, with exit code 0, after ``bye``."""
    session.ensure()
    worker = session.worker
    process = worker.process
    assert process.stdin is not None
    os.write(process.stdin.fileno(), worker.wire.encode(wire.Bye()))
    end = time.monotonic() + BYE_SECONDS
    while (state := os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
        if time.monotonic() >= end:
            yield f"has not ended {BYE_SECONDS:g} s after bye"
            return
        time.sleep(0.01)
    if (state.si_code, state.si_status) != (os.CLD_EXITED, 0):
        yield f"ended with {'exit code' if state.si_code == os.CLD_EXITED else 'signal'} {state.si_status}"


CHECKS: tuple[tuple[str, Callable[[Session], Iterator[str]]], ...] = (
    ("hello", check_hello),
    ("answers", check_answers),
    ("fields", check_fields),
    ("repeatable", check_repeatable),
    ("int32-arrays", check_int32_arrays),
    ("refills", check_refills),
    ("shared-memory", check_shared_memory),
    ("inputs", check_inputs),
    ("rejects", check_rejects),
    ("invalid-messages", check_invalid_messages),
    ("in-place", check_in_place),
    ("out", check_out),
    ("allocation", check_allocation),
    ("container", check_container),
    ("bye", check_bye),
)
"""Every check with its name; the docstring says what holds."""


def run_checks(start: Callable[[], Worker], *, robust: bool = True, valid_only: bool = False) -> Iterator[CheckResult]:
    """Run every check on the program that ``start`` starts; its worker's wire must be one of :func:`sending`.

    ``robust``: with invalid messages. ``valid_only``: without batches that break a precondition.

    Raises:
        SubjectError: it does not start or says no hello.
    """
    session = Session(start, robust=robust, valid_only=valid_only)
    try:
        for name, check in CHECKS:
            yield run_check(name, check, session)
    finally:
        session.worker.kill()


def run_check(name: str, check: Callable[[Session], Iterator[str]], session: Session) -> CheckResult:
    """One check; a program that gives no answer, or refuses where it should not, fails it."""
    meaning = (check.__doc__ or "").strip()
    problems: dict[str, None] = {}
    try:
        for problem in check(session):
            problems.setdefault(problem)
    except Skipped as reason:
        return CheckResult(name, meaning, skipped=str(reason))
    except Unsupported as answer:  # of a variant of a batch that it builds, or of one that was not asked for before
        if not problems:
            return CheckResult(name, meaning, skipped=f"unsupported: {answer}")
    except (Rejection, SubjectFailure) as failure:
        problems.setdefault(said(failure))
    lines = list(problems)
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} more"]
    return CheckResult(name, meaning, tuple(lines))
