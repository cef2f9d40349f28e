"""A Python subject as a program that speaks the protocol: ``python -m inputmeta.conformance.protocol.serve SUBJECT``.

Answers go to the standard output that the process was started with. The subject does not get at it: what it prints
goes to standard error, and its standard input is empty.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from inputmeta.conformance.cases.inputs import Inputs
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.containers import Inspect, inspector_of
from inputmeta.conformance.check.kept import NOTHING_KEPT, Kept, change_text
from inputmeta.conformance.protocol import convert
from inputmeta.conformance.protocol import messages as wire
from inputmeta.conformance.protocol.codec import (
    MAX_FRAME,
    ProtocolError,
    TooLongError,
    decode_line,
    encode,
    encode_line,
    read_frame,
    read_line,
)
from inputmeta.conformance.protocol.inputs import changed_input, inputs_of
from inputmeta.conformance.protocol.region import answer_into, batch_from, mapped
from inputmeta.conformance.protocol.round_messages import DrawnCases, RanCases, from_suite
from inputmeta.conformance.subjects.base import (
    AllocatingSubject,
    Rejection,
    Result,
    Subject,
    SubjectError,
    Unsupported,
    is_device_error,
)
from inputmeta.conformance.subjects.frames import error_text, frames_of, message_of
from inputmeta.conformance.subjects.loading import load_subject

NO_MEMORY = "no memory to send the answer"
NO_SUBJECT = 125
"""Exit code where there is no subject to serve."""


def serve(subject: Subject, source: BinaryIO, sink: BinaryIO, *, lines: bool = False) -> None:
    """Answer messages until ``bye`` or the end of ``source``.

    A message that is not valid is answered by an ``error`` with id -1. ``lines``: JSON, a message a line.
    """
    server = Server(subject)
    while True:
        try:
            body = read_line(source) if lines else read_frame(source)
        except ProtocolError as error:  # where the next message begins is not known
            send(error_answer(-1, "message", error), sink, lines)
            return
        if body is None:
            return
        try:
            message = decode_line(body, "suite") if lines else from_suite(body)
            answer = server.answer(message)
        except ProtocolError as error:
            answer = error_answer(-1, "message", error)
        except MemoryError:  # the builder's own is an answer
            del body
            answer = wire.ErrorAnswer(id=-1, kind="limit", message="no memory to read the batch")
        if answer is None:
            return
        send(answer, sink, lines)


def send(answer: wire.ProgramMessage | RanCases, sink: BinaryIO, lines: bool) -> None:
    """Write one answer; what cannot be sent because of its size is an ``error`` instead."""
    pack: Callable[[Any], bytes] = encode_line if lines else encode
    try:
        data = pack(answer)
    except (ProtocolError, MemoryError) as error:
        kind = "oversized" if isinstance(error, TooLongError) else "exception"
        number = getattr(answer, "id", -1)
        no_memory = wire.ErrorAnswer(id=number, kind="limit", message=NO_MEMORY)
        data = pack(no_memory if isinstance(error, MemoryError) else error_answer(number, kind, error))
    sink.write(data)
    sink.flush()


class Server:
    """Answers one message at a time."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.hello = convert.hello_answer(subject)
        self.greeted = False
        self.kept = NOTHING_KEPT
        self.inputs = Inputs()
        self.inspect = inspector_of(subject)

    def answer(self, message: object) -> wire.ProgramMessage | RanCases | None:
        """The answer to a message of the suite; None to ``bye``.

        Raises:
            ProtocolError: the message does not fit.
        """
        if isinstance(message, wire.Hello):
            if message.protocol != wire.VERSION:
                raise ProtocolError(f"protocol {message.protocol}; this program speaks {wire.VERSION}")
            self.greeted = True
            return self.hello
        if isinstance(message, wire.Build):
            if not self.greeted:
                raise ProtocolError("build before hello")
            if (message.allocation is None) != (self.subject.capabilities.allocates is None):
                raise ProtocolError("allocation is for programs that claim allocates, and always there for these")
            with mapped(message.memory) as region:
                request = convert.request_of(batch_from(message, region), arrays=self.takes_arrays(message))
                request = self.in_objects(request, message.refill)
                return answer_into(self.built(request, message.id, most_bytes(message)), region, message.memory)
        if isinstance(message, wire.Inspect):
            if not self.greeted or self.inspect is None:
                raise ProtocolError("inspect, which hello did not offer")
            with mapped(message.batch.memory) as region:
                return inspect_answer(self.inspect, convert.request_of(batch_from(message.batch, region)), message.id)
        if isinstance(message, wire.Reset):
            if not self.greeted or self.subject.capabilities.allocates is None:
                raise ProtocolError("reset, and hello did not claim allocates")
            return reset_answer(self.subject, message.id)
        if isinstance(message, DrawnCases):
            # Loaded only now: what draws takes long to load.
            from inputmeta.conformance.protocol.rounds import run_drawn  # noqa: PLC0415

            return run_drawn(self.subject, message)
        return None

    def in_objects(self, request: Request, refill: int | None) -> Request:
        """The batch in objects of its own, or in those of the batches before it if this process had them."""
        if refill is None:
            return request
        if refill == 0:
            self.inputs = Inputs()
        return request.handed(self.inputs)

    def takes_arrays(self, batch: wire.Build) -> bool:
        """Whether the subject gets numpy's int32 arrays: of a large batch if it takes them, as in process."""
        return batch.memory is not None and getattr(self.subject.capabilities, "int32_arrays", False)

    def built(self, request: Request, number: int, most: int = MAX_FRAME) -> wire.ProgramMessage:
        """The answer to a batch; an ``error`` if building it changed the arrays of the result before it.

        ``most``: bytes of an array that can be sent.
        """
        answer, kept = build_answer(self.subject, request, number, most)
        if request.out is not None:  # the caller's arrays: they are to change
            return answer
        before, self.kept = self.kept, kept
        changed = before.changed()
        if changed and isinstance(answer, wire.ResultAnswer):
            return wire.ErrorAnswer(id=number, kind="kept", message=change_text(changed))
        return answer


def most_bytes(batch: wire.Build) -> int:
    """Bytes of an array that an answer to the batch can hold."""
    return MAX_FRAME if batch.memory is None else max(MAX_FRAME, batch.memory.size - batch.memory.results)


def build_answer(
    subject: Subject, request: Request, number: int, most: int = MAX_FRAME
) -> tuple[wire.ProgramMessage, Kept]:
    """Have the subject build the batch with the id ``number``; whatever it raises is an answer too.

    Also the arrays that it returned of its own, where they are the answer. ``SystemExit`` is not caught: a subject that
    ends the process has ended it.
    """
    out = None if request.out is None else dict(request.out)
    before = inputs_of(request)
    try:
        result = subject.build(request)
    except Rejection as rejection:
        return reject_answer(rejection, out, number), NOTHING_KEPT
    except Unsupported as unsupported:
        return wire.ErrorAnswer(id=number, kind="unsupported", message=unsupported.reason), NOTHING_KEPT
    except Exception as error:  # a subject may raise anything; whatever it is, it is the answer
        return error_answer(number, kind_of(error), error), NOTHING_KEPT
    try:
        answer = result_answer(result, changed_input(before, inputs_of(request)), out, number, most)
        return answer, NOTHING_KEPT if out is not None else kept_of(answer, result)
    except MemoryError:
        return wire.ErrorAnswer(id=number, kind="limit", message=NO_MEMORY), NOTHING_KEPT
    except Exception as error:  # what it returned may do anything as well
        return error_answer(number, kind_of(error), error), NOTHING_KEPT


def reset_answer(subject: Subject, number: int) -> wire.ProgramMessage:
    """Have the subject forget every request; the answer, or what it raised."""
    assert isinstance(subject, AllocatingSubject)
    try:
        subject.reset()
    except Exception as error:  # a subject may raise anything
        return error_answer(number, kind_of(error), error)
    return wire.ResetAnswer(id=number)


def inspect_answer(inspect: Inspect, request: Request, number: int) -> wire.ProgramMessage:
    """What the container of a batch keeps of its promises, or why it could not be asked."""
    try:
        return convert.inspected_message(inspect(request), number)
    except Exception as error:  # a subject may raise anything
        return error_answer(number, kind_of(error), error)


def kept_of(answer: wire.ProgramMessage, result: Result) -> Kept:
    """The arrays of a result that were sent and are of a dtype that a field has."""
    fields = answer.fields if isinstance(answer, wire.ResultAnswer) else {}
    sent = [key for key, value in fields.items() if isinstance(value, wire.Array) and value.dtype in {"int32", "bool"}]
    return Kept(result, [key for key in sent if key in result])  # a long key was cut


def result_answer(
    result: object, changed: str | None, out: Mapping[str, np.ndarray] | None, number: int, most: int
) -> wire.ProgramMessage:
    """The answer that what a subject returned gives. ``changed``: the place of the request that it wrote to."""
    if changed:
        return wire.ErrorAnswer(id=number, kind="mutated", message=f"wrote into its input: {changed}")
    if not isinstance(result, Mapping):
        text = f"returned {type(result).__name__} instead of a mapping"
        return wire.ErrorAnswer(id=number, kind="exception", message=text)
    return convert.result_message(result, out, number, most)


def reject_answer(rejection: Rejection, out: Mapping[str, np.ndarray] | None, number: int) -> wire.ProgramMessage:
    """The answer that a subject's refusal gives."""
    try:
        return convert.reject_message(rejection, out, number)
    except TypeError as error:
        return error_answer(number, "exception", error, named=False)
    except MemoryError:
        return wire.ErrorAnswer(id=number, kind="limit", message=NO_MEMORY)


def kind_of(error: Exception) -> str:
    """The kind of the ``error`` that tells of what a subject raised."""
    if is_device_error(error):
        return "device"
    return "memory" if isinstance(error, MemoryError) else "exception"


def error_answer(number: int, kind: str, error: BaseException, *, named: bool = True) -> wire.ErrorAnswer:
    """An ``error`` with the text of an exception on one line, after its type where that tells something."""
    told = named and kind != "message"
    text = (error_text(error) if told else message_of(error))[:2000]
    return wire.ErrorAnswer(id=number, kind=kind, message=text, frames=frames_of(error) if told else ())  # type: ignore[arg-type]


def own_streams() -> tuple[BinaryIO, BinaryIO]:
    """The process's standard input and output for the protocol alone; the numbers 0 and 1 stand for others then."""
    source, sink = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return os.fdopen(source, "rb"), os.fdopen(sink, "wb")


def loaded(name: str) -> tuple[Subject, BinaryIO, BinaryIO]:
    """A subject, and the process's streams for the protocol alone; without a subject the process ends with 125."""
    source, sink = own_streams()
    return subject_or_exit(name), source, sink


def subject_or_exit(name: str) -> Subject:
    """A subject; without one the process ends with 125."""
    try:
        return load_subject(name)
    except SubjectError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(NO_SUBJECT)


def main(arguments: list[str]) -> int:
    """Entry point of the module: ``[--json] SUBJECT``."""
    lines = arguments[:1] == ["--json"]
    names = arguments[lines:]
    if len(names) != 1:
        sys.stderr.write("usage: python -m inputmeta.conformance.protocol.serve [--json] SUBJECT\n")
        return 2
    subject, source, sink = loaded(names[0])
    serve(subject, source, sink, lines=lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
