"""Programs that break the protocol itself. Each is a function from the right answer's frame to what is written."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable

import msgspec

from inputmeta.conformance.mutants.mutant import Specimen, add
from inputmeta.conformance.protocol.codec import HEADER, encode
from inputmeta.conformance.protocol.convert import hello_answer
from inputmeta.conformance.protocol.messages import Build
from inputmeta.conformance.subjects.oracle import OracleSubject

Spoil = Callable[[bytes, Build], bytes]
"""The right answer as a frame, and the batch that it answers, to the bytes that are written in its place."""
SPOILS: dict[str, Spoil] = {}
"""By member."""


def program(name: str, declared: str, stands_for: str, kind: str = "WIRE") -> Callable[[Spoil], Spoil]:
    """Decorator: the function is a member of the zoo."""

    def enter(spoil: Spoil) -> Spoil:
        add(Specimen(name, kind, declared, stands_for, None))
        SPOILS[name] = spoil
        return spoil

    return enter


def frame(body: bytes) -> bytes:
    """Any bytes as the body of a frame."""
    return HEADER.pack(len(body)) + body


def plain(answer: bytes) -> dict[str, object]:
    """The map in an answer's frame, to be changed at will."""
    decoded: dict[str, object] = msgspec.msgpack.decode(answer[HEADER.size :])
    return decoded


def with_field(answer: bytes, array: object) -> bytes:
    """The answer with one more field."""
    message = plain(answer)
    fields = message.get("fields")
    message["fields"] = (fields if isinstance(fields, dict) else {}) | {"positions": array}
    return frame(msgspec.msgpack.encode(message))


@program(
    "log-line-before-the-answer",
    "CRASH:garbage",
    "a library logs to standard output: its text stands where a length should",
)
def log_line(answer: bytes, _: Build) -> bytes:
    return b"Loading safetensors checkpoint shards: 100%\n" + answer


@program("frame-of-nonsense", "CRASH:garbage", "an answer overwritten by another thread")
def frame_of_nonsense(answer: bytes, _: Build) -> bytes:
    return answer[: HEADER.size] + bytes(byte ^ 0xA5 for byte in answer[HEADER.size :])


@program("empty-frame", "CRASH:garbage", "an answer of no bytes")
def empty_frame(answer: bytes, _: Build) -> bytes:
    return frame(b"")


@program("announces-4-gib", "CRASH:oversized", "a negative length written as unsigned")
def announces_4_gib(answer: bytes, _: Build) -> bytes:
    return HEADER.pack(2**32 - 1) + answer[HEADER.size :]


@program("stops-in-the-middle", "HANG:timeout", "a writer that waits for a reader of its own")
def stops_in_the_middle(answer: bytes, _: Build) -> bytes:
    sys.stdout.buffer.write(answer[: len(answer) // 2])
    sys.stdout.buffer.flush()
    time.sleep(3600)
    return b""


@program("exits-in-the-middle", "CRASH:exit-3", "the process ends while its answer is in the pipe")
def exits_in_the_middle(answer: bytes, _: Build) -> bytes:
    sys.stdout.buffer.write(answer[: len(answer) // 2])
    sys.stdout.buffer.flush()
    sys.exit(3)


@program("answers-another-id", "CRASH:garbage", "answers overtake each other in a queue")
def answers_another_id(answer: bytes, _: Build) -> bytes:
    return frame(msgspec.msgpack.encode(plain(answer) | {"id": 10**9}))


@program("answers-twice", "CRASH:garbage", "a retry after the first answer had been sent")
def answers_twice(answer: bytes, _: Build) -> bytes:
    return answer + answer


@program("says-hello-again", "CRASH:garbage", "the program was restarted behind a wrapper")
def says_hello_again(answer: bytes, _: Build) -> bytes:
    return encode(hello_answer(OracleSubject()))


@program("sends-a-pickle", "CRASH:garbage", "an object that runs code where it is unpickled")
def sends_a_pickle(answer: bytes, _: Build) -> bytes:
    return frame(pickle.dumps({"fields": plain(answer)["id"]}))


@program("array-of-2-to-62-cells", "CRASH:garbage", "a shape whose product no memory holds")
def array_of_2_to_62_cells(answer: bytes, _: Build) -> bytes:
    return with_field(answer, {"dtype": "int32", "shape": [2**31, 2**31], "data": b"\0" * 4})


@program("array-of-negative-shape", "CRASH:garbage", "a size that wrapped")
def array_of_negative_shape(answer: bytes, _: Build) -> bytes:
    return with_field(answer, {"dtype": "int32", "shape": [-1], "data": b""})


@program("array-shorter-than-its-shape", "CRASH:garbage", "a length in cells where bytes are meant")
def array_shorter_than_its_shape(answer: bytes, _: Build) -> bytes:
    return with_field(answer, {"dtype": "int32", "shape": [4], "data": b"\0" * 4})


@program("array-of-objects", "CRASH:garbage", "a dtype that a reader might evaluate")
def array_of_objects(answer: bytes, _: Build) -> bytes:
    return with_field(answer, {"dtype": "object", "shape": [1], "data": b"\0" * 8})


@program("nested-100000-deep", "CRASH:garbage", "a structure that ends the stack of a recursive reader")
def nested_100000_deep(answer: bytes, _: Build) -> bytes:
    return frame(b"\x91" * 100_000 + b"\xc0")


@program("map-of-4-billion-keys", "CRASH:garbage", "a count for which a reader would set memory aside")
def map_of_4_billion_keys(answer: bytes, _: Build) -> bytes:
    return frame(b"\xdf\xff\xff\xff\xff")


@program("unknown-key", "CRASH:garbage", "an answer of another version of the protocol")
def unknown_key(answer: bytes, _: Build) -> bytes:
    return frame(msgspec.msgpack.encode(plain(answer) | {"elapsed": 0.5}))


@program("forgets-the-buffers", "CRASH:garbage", "in-place fields are neither sent nor in the buffers")
def forgets_the_buffers(answer: bytes, _: Build) -> bytes:
    return frame(msgspec.msgpack.encode(plain(answer) | {"buffers": []}))


@program("closes-stdout", "CRASH:eof", "the pipe is closed and the program lives on")
def closes_stdout(answer: bytes, _: Build) -> bytes:
    sys.stdout.flush()
    os.close(1)
    time.sleep(3600)
    return b""


@program("floods-stderr", "PASS", "warnings by the megabyte: no fault, and nothing may fill up", kind="NOISE")
def floods_stderr(answer: bytes, build: Build) -> bytes:
    if build.id % 8 == 0:
        sys.stderr.write("W0000 block table is not contiguous\n" * 30_000)
    return answer


def spoilt(name: str, answer: bytes, build: Build) -> bytes:
    """What a member writes in place of ``answer``: something wrong at batches with a placeholder, else the answer."""
    if not any(sequence.is_placeholder for sequence in build.sequences):
        return answer
    return SPOILS[name](answer, build)
