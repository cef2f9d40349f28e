"""Messages in a stream of bytes that a stranger writes: the next one, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from inputmeta.conformance.protocol.codec import (
    HEADER,
    MAX_FRAME,
    MAX_LINE,
    Message,
    ProtocolError,
    decode_frame,
    decode_line,
    encode,
    encode_line,
)
from inputmeta.conformance.protocol.messages import ProgramMessage
from inputmeta.conformance.protocol.round_messages import from_worker
from inputmeta.conformance.subjects.base import SubjectFailure

SHOWN_BYTES = 40
"""Bytes of garbage that a failure quotes."""


class Split(Protocol):
    """Takes the first whole message off the front of a buffer; None if it is not all there yet."""

    def __call__(self, buffer: bytearray) -> bytes | None: ...


@dataclass(frozen=True)
class Wire:
    """One of the two forms in which messages are written."""

    encode: Callable[[Message], bytes]
    """The bytes to send; raises ProtocolError if there are too many."""
    split: Split
    limit: int
    """Most bytes of a message."""
    cell_bytes: int
    """Most bytes of a cell in it, of whatever integer dtype."""
    _decode: Callable[[bytes], Message]
    shares: bool = False
    """Arrays may lie in shared memory."""

    def decode(self, body: bytes) -> ProgramMessage:
        """The message in ``body``; raises SubjectFailure (garbage) if there is none."""
        try:
            return cast(ProgramMessage, self._decode(body))
        except ProtocolError as error:
            raise garbage(str(error)) from error


def garbage(detail: str) -> SubjectFailure:
    """The failure of an answer that is none."""
    return SubjectFailure("CRASH", f"garbage: {detail}", "garbage")


def oversized(detail: str) -> SubjectFailure:
    """The failure of an answer beyond the limit."""
    return SubjectFailure("CRASH", f"oversized: {detail}", "oversized")


def quoted(data: bytes | bytearray) -> str:
    """The first bytes as printable text."""
    return repr(bytes(data[:SHOWN_BYTES]))[1:]


def split_frame(buffer: bytearray, limit: int = MAX_FRAME) -> bytes | None:
    """Length, then body. A length that reads as text is a print on stdout, rather than a very long answer."""
    if len(buffer) < HEADER.size:
        return None
    (size,) = HEADER.unpack_from(buffer)
    if size > limit:
        if all(byte in b"\t\n\r" or 0x20 <= byte < 0x7F for byte in buffer[: HEADER.size]):
            raise garbage(f"text on stdout: {quoted(buffer)}")
        raise oversized(f"an answer of {size} bytes; a frame has at most {limit}")
    end = HEADER.size + size
    if len(buffer) < end:
        return None
    body = bytes(memoryview(buffer)[HEADER.size : end])
    del buffer[:end]
    return body


def split_line(buffer: bytearray, limit: int = MAX_LINE) -> bytes | None:
    """A line of JSON; empty lines are skipped."""
    while True:
        end = buffer.find(b"\n")
        if (len(buffer) if end < 0 else end) > limit:
            raise oversized(f"a line has at most {limit} bytes")
        if end < 0:
            return None
        line = bytes(memoryview(buffer)[: end + 1])
        del buffer[: end + 1]
        if line.strip():
            return line


def decode_worker(body: bytes) -> Message:
    """The message of a worker of ours, cases that it drew itself among them. Raises ProtocolError."""
    return cast(Message, from_worker(body))


FRAMES = Wire(encode, split_frame, MAX_FRAME, 8, decode_frame, shares=True)
LINES = Wire(encode_line, split_line, MAX_LINE, len("-9223372036854775808,"), decode_line)
OURS = Wire(encode, split_frame, MAX_FRAME, 8, decode_worker, shares=True)
"""Frames of a worker that draws cases too (:mod:`inputmeta.conformance.protocol.rounds`)."""
