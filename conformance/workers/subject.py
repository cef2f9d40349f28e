"""A subject that lives in a worker process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.containers import Inspected
from inputmeta.conformance.exits import OutOfMemory
from inputmeta.conformance.interrupts import noted
from inputmeta.conformance.protocol.codec import ProtocolError
from inputmeta.conformance.protocol.convert import (
    BeyondInt64Error,
    apply_reject,
    apply_result,
    capabilities_of,
    inspected_of,
)
from inputmeta.conformance.protocol.messages import (
    Build,
    ErrorAnswer,
    HelloAnswer,
    Inspect,
    ProgramMessage,
    Reject,
    Reset,
    ResetAnswer,
    ResultAnswer,
    SuiteMessage,
)
from inputmeta.conformance.protocol.messages import Inspected as InspectedAnswer
from inputmeta.conformance.protocol.round_messages import DrawnCases, RanCases
from inputmeta.conformance.subjects.base import Result, SubjectError, SubjectFailure, Unsupported, content_problem
from inputmeta.conformance.workers.exchange import Forms, ask, may_exceed
from inputmeta.conformance.workers.pool import Pool
from inputmeta.conformance.workers.process import FAREWELL_SECONDS, Worker, brief
from inputmeta.conformance.workers.wire import OURS, garbage

Answer = TypeVar("Answer")

ERRORS = {
    "exception": ("CRASH", "raised"),
    "memory": ("CRASH", "memory"),
    "device": ("DEVICE_ERROR", "device"),
    "mutated": ("OUT_OF_BOUNDS", "input"),
    "kept": ("OUT_OF_BOUNDS", "kept"),
    "oversized": ("CRASH", "oversized"),
    "limit": ("UNSUPPORTED", "limit"),
    "message": ("CRASH", "garbage"),
    "unsupported": ("CRASH", "garbage"),
}
"""Verdict and code of the kinds of ``error``."""

EXCEPTION = re.compile(r"\w+: ")
"""How the text of an error begins that an exception made."""

GOES_ON = frozenset({"raised", "input", "kept"})
"""Codes of failures that leave the worker fit for the next batch."""

DRAWING_BYTES = 256 * 2**20
"""What drawing and comparing cases may take of the memory of a worker."""

SPARES_WHERE_NEEDED = 2
"""Spares once a worker was replaced: shrinking goes from death to death, replays from fresh worker to fresh worker."""


class IsolatedSubject:
    """Asks a worker; a worker that fails to answer is replaced before the next batch.

    Satisfies :class:`inputmeta.conformance.subjects.base.Subject`. A context manager: it ends its workers.
    """

    def __init__(self, start: Callable[[], Worker], *, timeout: float, spares: int = 0) -> None:
        """``timeout``: seconds a batch. ``spares``: workers kept ready from the start.

        Raises:
            SubjectError: it cannot be started, does not say hello, or claims to check what is no precondition.
        """
        self.timeout = timeout
        self.pool = Pool(start, spares)
        self.generation = 0
        """Number of workers used so far."""
        self.calls = 0
        """Batches handed to the present worker."""
        self.slowest = 0.0
        """Seconds of the slowest answer, first answers of a worker left out."""
        begin = time.monotonic()
        self._worker = self._fresh()
        self.start_seconds = time.monotonic() - begin
        """What the first start took: an end may take as long."""
        hello = self._worker.hello()
        self.forms = Forms.of(hello, self._worker.wire)
        """How its arrays are sent."""
        self.name = hello.name
        self.version = hello.version
        # Whatever the program takes: messages are made of either form.
        self.capabilities = replace(capabilities_of(hello.capabilities), int32_arrays=True)
        self.inspect_container = self._inspected if hello.containers else None
        """Holds the container of a batch to its promises, in the worker; None: the program has none."""
        problem = content_problem(self.capabilities)
        if problem is not None:
            self.close()
            raise SubjectError(f"subject {self.name}: {problem}")

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`.

        Raises:
            SubjectFailure: the worker gave no answer, or a limit of the suite stands between (UNSUPPORTED).
            SubjectError: there is no worker to be had any more.
            OutOfMemory: the suite itself has no memory left.
        """
        return self._asked(request, lambda batch: batch, lambda answer, batch: result_of(answer, batch, request))

    def reset(self) -> None:
        """See :meth:`inputmeta.conformance.subjects.base.AllocatingSubject.reset`. Raises what ``build`` raises."""
        self.ensure()
        self.calls += 1
        try:
            reset_by(self._worker.call(Reset(id=self.calls), self.timeout), self.calls)
        except SubjectFailure as failure:
            if failure.code not in GOES_ON:
                self._worker.kill()
            raise

    def _inspected(self, request: Request) -> Inspected:
        """The promises of the container that the worker makes of a valid batch. Raises what ``build`` raises."""
        return self._asked(request, lambda batch: Inspect(id=batch.id, batch=batch), inspection_of)

    @property
    def draws(self) -> bool:
        """Whether its workers draw cases themselves."""
        return self._worker.wire is OURS

    def run_drawn(self, asked: DrawnCases, beat: Callable[[], object]) -> RanCases | None:
        """Have the worker draw cases and run them; None if it, or the suite in it, could not.

        ``beat``: what changes from build to build.

        Raises:
            SubjectFailure: the worker died, or stood still for longer than a batch may take.
            SubjectError: there is no worker to be had any more.
        """
        self.ensure()
        self._worker.allowance = DRAWING_BYTES
        answer = self._worker.call(asked, self.timeout, beat)  # type: ignore[arg-type]
        if not isinstance(answer, RanCases):
            return None
        self.slowest = max(self.slowest, answer.slowest)
        return answer

    def _asked(
        self,
        request: Request,
        message_of: Callable[[Build], SuiteMessage],
        understand: Callable[[ProgramMessage, Build], Answer],
    ) -> Answer:
        """What the worker's answer to a message about a batch means."""
        try:
            return self._call(request, message_of, understand)
        except MemoryError as error:  # the worker's own would have come as an answer
            self._worker.kill()
            raise OutOfMemory("for a batch and its answer") from error

    def _call(
        self,
        request: Request,
        message_of: Callable[[Build], SuiteMessage],
        understand: Callable[[ProgramMessage, Build], Answer],
    ) -> Answer:
        self.ensure()
        self.calls += 1
        try:
            begin = time.monotonic()
            answer, batch = ask(
                self._worker, request, self.calls, forms=self.forms, message_of=message_of, timeout=self.timeout
            )
        except (BeyondInt64Error, ProtocolError) as error:
            raise not_checked(str(error)) from error
        except SubjectFailure as failure:
            raise self._excused(failure, request) from failure
        if self.calls > 1:
            self.slowest = max(self.slowest, time.monotonic() - begin)
        try:
            return understand(answer, batch)
        except SubjectFailure as failure:
            limits = self._worker.memory_limits()
            if failure.code not in GOES_ON:
                self._worker.kill()
            if failure.code in {"memory", "limit"}:
                detail = f"out of memory ({limits}): {failure.detail}"
                raise SubjectFailure(failure.verdict, detail, failure.code, failure.frames) from failure
            raise self._excused(failure, request) from failure

    def _excused(self, failure: SubjectFailure, request: Request) -> SubjectFailure:
        """The failure, or where a right answer could be too large to be sent, that this was not checked."""
        if failure.code != "oversized" or not may_exceed(request, self._worker.wire):
            return failure
        return not_checked(f"an answer that may have more than {self._worker.wire.limit} bytes")

    def ensure(self) -> None:
        """Have a living worker: the next batch goes to it."""
        if not self._worker.alive:
            self.renew()

    def renew(self) -> None:
        """Replace the worker by a fresh one."""
        self._worker.kill()
        self.pool.spares = max(self.pool.spares, SPARES_WHERE_NEEDED)
        self._worker = self._fresh()

    def strike(self) -> None:
        """End the worker from another thread."""
        self._worker.strike()

    def beside(self) -> IsolatedSubject:
        """The same subject in workers of its own. Raises SubjectError."""
        other = IsolatedSubject(self.pool.start, timeout=self.timeout)
        other.capabilities = self.capabilities
        other.start_seconds = max(self.start_seconds, other.start_seconds)
        return other

    def close(self, *, at_once: bool = False) -> None:
        """End all workers. The one that was asked may take as long for its end as for its start, if not ``at_once``."""
        self.pool.close()
        if at_once or noted() is not None:
            self._worker.close()
        else:
            self._worker.close(max(FAREWELL_SECONDS, self.start_seconds))

    def __enter__(self) -> IsolatedSubject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(at_once=error is not None)

    def _fresh(self) -> Worker:
        """A worker that has said hello. A spare may have died waiting: a second one is tried."""
        self.generation += 1
        self.calls = 0
        try:
            worker = self.pool.take()
            try:
                worker.hello()
            except SubjectError:
                if self.generation == 1:
                    raise
                worker = self.pool.take()
                worker.hello()
        except BaseException:
            self.pool.close()
            raise
        return worker


def not_checked(detail: str) -> SubjectFailure:
    """What stands between is a limit of the suite: it says nothing of the subject."""
    return SubjectFailure("UNSUPPORTED", detail, "limit")


def result_of(answer: ProgramMessage, message: Build, request: Request) -> Result:
    """What an answer means.

    Raises:
        Rejection: it refuses the batch.
        SubjectFailure: it is an error, or no answer to this batch.
    """
    told = answer_to(answer, message.id, (ResultAnswer, Reject))
    try:
        if isinstance(told, ResultAnswer):
            return apply_result(told, request)
        assert isinstance(told, Reject)
        raise apply_reject(told, request)
    except ProtocolError as error:
        raise garbage(str(error)) from error


def reset_by(answer: ProgramMessage, number: int) -> None:
    """Whether an answer says that every request is forgotten. Raises SubjectFailure as :func:`result_of`."""
    answer_to(answer, number, (ResetAnswer,))


def inspection_of(answer: ProgramMessage, message: Build) -> Inspected:
    """What an answer to ``inspect`` means. Raises SubjectFailure as :func:`result_of`."""
    told = answer_to(answer, message.id, (InspectedAnswer,))
    assert isinstance(told, InspectedAnswer)
    try:
        return inspected_of(told)
    except ProtocolError as error:
        raise garbage(str(error)) from error


def answer_to(answer: ProgramMessage, number: int, kinds: tuple[type[ProgramMessage], ...]) -> ProgramMessage:
    """The answer, if it is one of these kinds to the message with this id.

    Raises:
        SubjectFailure: it is an error, or no answer to it.
    """
    if isinstance(answer, ErrorAnswer) and answer.id == number and answer.kind == "unsupported":
        raise Unsupported(answer.message)
    if isinstance(answer, ErrorAnswer) and answer.id in (number, -1):
        verdict, code = ERRORS[answer.kind]
        text = " ".join(answer.message.split())[:300]
        raised = code in {"raised", "device", "memory"} and EXCEPTION.match(text)
        raise SubjectFailure(verdict, f"raised {text}" if raised else text, code, answer.frames)
    if not isinstance(answer, kinds) or isinstance(answer, HelloAnswer):
        raise garbage(f"an answer of the wrong kind: {brief(answer)}")
    if answer.id != number:
        raise garbage(f"answered batch {answer.id}, was asked for batch {number}")
    return answer
