"""Reading a request trace in Mooncake's format: one JSON object a line, streamed and checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Annotated

import msgspec

from inputmeta.conformance.cases.files import CaseError, open_file
from inputmeta.conformance.console import plain_text

HASH_BLOCK_TOKENS = 512
"""Prompt tokens that one entry of ``hash_ids`` stands for."""

MAX_LINE_BYTES = 2**20
MAX_SHOWN = 80
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class TraceError(ValueError):
    """A trace that cannot be read. ``str()`` is one line: file, line number, field, value, what is wrong."""

    def __init__(self, text: str) -> None:
        super().__init__(plain_text(text))


class TraceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One request of a trace.

    ``timestamp`` is the arrival in ms since the start of the trace; ``input_length`` and ``output_length`` are tokens;
    ``hash_ids`` holds one id for every 512 prompt tokens, the last one possibly of fewer. Equal ids at the head of two
    lists mean an equal prefix.
    """

    timestamp: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    input_length: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    output_length: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    hash_ids: tuple[Annotated[int, msgspec.Meta(ge=0, le=2**53)], ...]


_DECODER = msgspec.json.Decoder(TraceRequest)


def read_trace(path: Path) -> Iterator[TraceRequest]:
    """Requests of a trace file in order, one line at a time; blank lines are skipped.

    Raises:
        TraceError: the file cannot be read, or is no regular one; a line longer than 1 MiB, not JSON, without exactly
            the four keys, with a value out of range, with a timestamp before the last line's, or with a number of
            ``hash_ids`` other than cdiv(input_length, 512).
    """
    previous = 0
    for number, line in _lines(path):
        try:
            request = decode_line(line, previous)
        except TraceError as error:
            raise TraceError(f"{path}:{number}: {error}") from None
        previous = request.timestamp
        yield request


def count_requests(path: Path) -> int:
    """Number of lines that are not blank: the total that progress is measured by.

    Raises:
        TraceError: the file cannot be read, or is no regular one; a line longer than 1 MiB. Nothing else is checked.
    """
    return sum(1 for _ in _lines(path))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number from 1; no more than one is held. Raises TraceError."""
    try:
        with open_file(path) as file:
            for number in count(1):
                line = file.readline(MAX_LINE_BYTES + 1)
                if len(line) > MAX_LINE_BYTES:
                    raise TraceError(f"{path}:{number}: line: more than {MAX_LINE_BYTES} bytes")
                if not line:
                    return
                if line.strip():
                    yield number, line
    except CaseError as error:
        raise TraceError(str(error)) from error
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error


def decode_line(line: bytes, previous: int = 0) -> TraceRequest:
    """Decode and check one line; ``previous`` is the timestamp of the line before, in ms.

    Raises:
        TraceError: as :func:`read_trace`, without file and line number.

    >>> decode_line(b'{"timestamp": 5, "input_length": 513, "output_length": 2, "hash_ids": [0, 7]}').hash_ids
    (0, 7)
    """
    try:
        request = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise TraceError(_describe(str(error), line)) from error
    except NOT_JSON as error:
        raise TraceError(_whole_line(line, f"not JSON: {error}")) from error
    if request.timestamp < previous:
        raise TraceError(f"timestamp: {request.timestamp}: before {previous}, the line before")
    blocks = -(-request.input_length // HASH_BLOCK_TOKENS)
    if len(request.hash_ids) != blocks:
        rule = f"input_length {request.input_length} takes {blocks} blocks of {HASH_BLOCK_TOKENS} tokens"
        raise TraceError(f"hash_ids: {len(request.hash_ids)} ids: {rule}")
    return request


def _describe(message: str, line: bytes) -> str:
    """``field: value: rule`` of a msgspec validation message, which itself has no value."""
    rule, _, where = message.partition(" - at ")
    named = re.search(r"\$\.(\w+)(?:\[(\d+)\])?", where) or re.search(r"field `(\w+)`", rule)
    try:
        raw = msgspec.json.decode(line)
    except NOT_JSON as error:
        return _whole_line(line, f"not JSON: {error}")
    if named is None or not isinstance(raw, dict):
        return _whole_line(line, rule)
    field = named.group(1)
    value = str(raw[field]) if field in raw else "(absent)"
    return f"{field}: {_shown(value)}: {rule}"


def _whole_line(line: bytes, rule: str) -> str:
    return f"line: {_shown(line.decode('utf-8', 'replace').strip())}: {rule}"


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
