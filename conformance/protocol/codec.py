"""Messages to bytes and back: MessagePack in length-prefixed frames, and lines of JSON for people."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np

from inputmeta.conformance.console import plain_text
from inputmeta.conformance.protocol.messages import DTYPES, ProgramMessage, SuiteMessage

MAX_FRAME = 256 * 2**20
"""Largest body of a frame, bytes."""
MAX_LINE = 64 * 2**20
"""Largest line of JSON, bytes: numbers take more room in memory than in text."""
HEADER = struct.Struct("<I")
"""A frame's length in bytes, before it."""
MAX_DEPTH = 8
"""Nesting of a message, with room to spare."""

Sender = Literal["suite", "program"]
Message = SuiteMessage | ProgramMessage

_encoder = msgspec.msgpack.Encoder()
_suite: msgspec.msgpack.Decoder[SuiteMessage] = msgspec.msgpack.Decoder(SuiteMessage)
_program: msgspec.msgpack.Decoder[ProgramMessage] = msgspec.msgpack.Decoder(ProgramMessage)


class ProtocolError(Exception):
    """Bytes that are no valid message; ``str()`` is one line."""


class TooLongError(ProtocolError):
    """A message that has more bytes than a frame or line may have."""


def encode(message: msgspec.Struct) -> bytes:
    """A whole frame: length, then body.

    Raises:
        TooLongError: the body is longer than a frame may be.
        ProtocolError: it holds text that is not Unicode.
    """
    try:
        body = _encoder.encode(message)
    except UnicodeError as error:
        raise ProtocolError(f"a message that cannot be sent: {error}") from error
    if len(body) > MAX_FRAME:
        raise TooLongError(f"a message of {len(body)} bytes; a frame has at most {MAX_FRAME}")
    return HEADER.pack(len(body)) + body


def decode_frame(body: bytes, sender: Sender = "program") -> Message:
    """The message in the body of a frame that ``sender`` wrote.

    Raises:
        ProtocolError: it is not valid.
    """
    try:
        return (_suite if sender == "suite" else _program).decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise refused(error) from error


def encode_line(message: Message) -> bytes:
    """The message as one line of JSON, newline included; arrays hold their cells as a flat list."""
    try:
        line = msgspec.json.encode(_with_lists(msgspec.to_builtins(message, builtin_types=(bytes,)))) + b"\n"
    except UnicodeError as error:
        raise ProtocolError(f"a message that cannot be sent: {error}") from error
    if len(line) > MAX_LINE:
        raise TooLongError(f"a message of {len(line)} bytes; a line has at most {MAX_LINE}")
    return line


def decode_line(line: bytes, sender: Sender = "program") -> Message:
    """The message in one line of JSON.

    Raises:
        ProtocolError: it is not valid.
    """
    kind: Any = SuiteMessage if sender == "suite" else ProgramMessage
    if len(line) > MAX_LINE:
        raise ProtocolError(f"a message of {len(line)} bytes; a line has at most {MAX_LINE}")
    try:
        plain = _with_bytes(msgspec.json.decode(line), MAX_DEPTH)
        message: Message = msgspec.convert(plain, kind, builtin_types=(bytes,))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise refused(error) from error
    return message


def read_frame(stream: BinaryIO, limit: int = MAX_FRAME) -> bytes | None:
    """The body of the next frame; None at the end of the stream.

    Raises:
        ProtocolError: longer than ``limit``, or cut off.
    """
    header = stream.read(HEADER.size)
    if not header:
        return None
    size = HEADER.unpack(header)[0] if len(header) == HEADER.size else limit + 1
    if size > limit:
        raise ProtocolError("a frame that is cut off or longer than its limit")
    body = stream.read(size)
    if len(body) != size:
        raise ProtocolError("a frame that is cut off")
    return body


def read_line(stream: BinaryIO, limit: int = MAX_LINE) -> bytes | None:
    """The next line that is not empty; None at the end of the stream.

    Raises:
        ProtocolError: longer than ``limit``.
    """
    while line := stream.readline(limit + 1):
        if len(line) > limit:
            raise ProtocolError("a line that is longer than its limit")
        if line.strip():
            return line
    return None


def refused(error: BaseException) -> ProtocolError:
    """What is raised of bytes that a decoder refuses."""
    return ProtocolError(f"not a valid message: {plain_text(' '.join(str(error).split()))[:500]}")


def _with_lists(value: object) -> object:
    if isinstance(value, dict):
        if isinstance(value.get("data"), bytes):
            cells = np.frombuffer(value["data"], dtype=DTYPES[value["dtype"]])
            return value | {"data": cells.tolist()}
        return {key: _with_lists(item) for key, item in value.items()}
    return [_with_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _with_bytes(value: object, depth: int) -> object:
    """Arrays with their cells as bytes; a list that no array of its dtype can hold stays for the types to refuse."""
    if depth == 0:
        raise ProtocolError(f"not a valid message: nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        if value.keys() == {"dtype", "shape", "data"}:
            return value | {"data": _cells(value["dtype"], value["data"])}
        return {key: _with_bytes(item, depth - 1) for key, item in value.items()}
    return [_with_bytes(item, depth - 1) for item in value] if isinstance(value, list) else value


def _cells(dtype: object, data: object) -> object:
    if not isinstance(dtype, str) or dtype not in DTYPES or not isinstance(data, list):
        return data
    kinds = {type(cell) for cell in data}
    wanted = {bool} if dtype == "bool" else {int, float} if dtype.startswith("float") else {int}
    if not kinds <= wanted:
        raise ProtocolError(
            f"not a valid message: {dtype} cells that are {', '.join(sorted(k.__name__ for k in kinds))}"
        )
    try:
        return np.array(data, dtype=DTYPES[dtype]).tobytes()
    except OverflowError as error:
        raise ProtocolError(f"not a valid message: a cell that does not fit {dtype}") from error
