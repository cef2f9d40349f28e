"""Programs that break the protocol itself. Each is a function from the right answer's frame to what is written, or from
a batch to what is read of it.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable

import msgspec
import numpy as np

from inputmeta.conformance.mutants.mutant import Mutant, add, name_of
from inputmeta.conformance.protocol.codec import HEADER, encode
from inputmeta.conformance.protocol.convert import hello_answer
from inputmeta.conformance.protocol.messages import Array, Build, Memory, Sequence
from inputmeta.conformance.subjects.oracle import OracleSubject

Spoil = Callable[[bytes, Build], bytes]
"""The right answer as a frame, and the batch that it answers, to the bytes that are written in its place."""
SPOILS: dict[str, Spoil] = {}
"""By mutant."""
Read = Callable[[Build], Build]
"""A batch to what the program takes it for."""
SHARING: set[str] = set()
"""Mutants that ask for every batch in shared memory."""
READS: dict[str, Read] = {}
"""By mutant."""
MOST_SEQUENCES = 4
"""Of a batch whose answer is spoilt."""


def program(declared: str, stands_for: str, kind: str = "WIRE", *, shared: bool = False) -> Callable[[Spoil], Spoil]:
    """Decorator: the function is a mutant, by its own name. ``shared``: its batches come in shared memory."""

    def enter(spoil: Spoil) -> Spoil:
        name = name_of(spoil)
        add(Mutant(name, kind, declared, stands_for, None))
        SPOILS[name] = spoil
        SHARING.update([name] * shared)
        return spoil

    return enter


def misreading(declared: str, stands_for: str) -> Callable[[Read], Read]:
    """Decorator: the function is a mutant, by its own name, whose answers are right for what it reads."""

    def enter(read: Read) -> Read:
        name = name_of(read)
        add(Mutant(name, "WIRE", declared, stands_for, None))
        READS[name] = read
        return read

    return enter


def frame(body: bytes) -> bytes:
    """Any bytes as the body of a frame."""
    return HEADER.pack(len(body)) + body


def changed(answer: bytes, **values: object) -> bytes:
    """The answer with other values of some keys."""
    return frame(msgspec.msgpack.encode(msgspec.msgpack.decode(answer[HEADER.size :]) | values))


def with_positions(answer: bytes, shape: list[int], cells: int, dtype: str = "int32") -> bytes:
    """The answer with ``positions`` of this shape, and the bytes of so many cells."""
    fields = msgspec.msgpack.decode(answer[HEADER.size :]).get("fields", {})
    array = {"dtype": dtype, "shape": shape, "data": b"\0" * 4 * cells}
    return changed(answer, fields=fields | {"positions": array})


def placed(answer: bytes, place: int, cells: int = 1) -> bytes:
    """The answer with int32 ``positions`` at byte ``place`` of the shared memory."""
    fields = msgspec.msgpack.decode(answer[HEADER.size :]).get("fields", {})
    return changed(answer, fields=fields | {"positions": {"dtype": "int32", "shape": [cells], "data": place}})


def memory_of(build: Build) -> Memory:
    """The shared memory of a batch that comes in it."""
    assert build.memory is not None
    return build.memory


def write(data: bytes) -> None:
    """Hand over part of an answer now."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@program("CRASH:garbage", "a library logs to standard output: its text stands where a length should")
def log_line_before_the_answer(answer: bytes, _: Build) -> bytes:
    return b"Loading safetensors checkpoint shards: 100%\n" + answer


@program("CRASH:garbage", "an answer overwritten by another thread")
def frame_of_nonsense(answer: bytes, _: Build) -> bytes:
    return answer[: HEADER.size] + bytes(byte ^ 0xA5 for byte in answer[HEADER.size :])


@program("CRASH:garbage", "an answer of no bytes")
def empty_frame(answer: bytes, _: Build) -> bytes:
    return frame(b"")


@program("CRASH:oversized", "a negative length written as unsigned")
def announces_4_gib(answer: bytes, _: Build) -> bytes:
    return HEADER.pack(2**32 - 1) + answer[HEADER.size :]


@program("HANG:timeout", "a writer that waits for a reader of its own")
def stops_in_the_middle(answer: bytes, _: Build) -> bytes:
    write(answer[: len(answer) // 2])
    time.sleep(3600)
    return b""


@program("CRASH:exit-3", "the process ends while its answer is in the pipe")
def exits_in_the_middle(answer: bytes, _: Build) -> bytes:
    write(answer[: len(answer) // 2])
    sys.exit(3)


@program("CRASH:garbage", "answers overtake each other in a queue")
def answers_another_id(answer: bytes, _: Build) -> bytes:
    return changed(answer, id=10**9)


@program("CRASH:garbage", "a retry after the first answer had been sent")
def answers_twice(answer: bytes, _: Build) -> bytes:
    return answer + answer


@program("CRASH:garbage", "a log buffer is flushed to standard output behind the answer")
def log_line_after_the_answer(answer: bytes, _: Build) -> bytes:
    write(answer)
    time.sleep(0.05)  # too late for its own batch: it counts against the next
    return b"Generated 1 sequence, 23.1 tokens/s\n"


@program("CRASH:garbage", "the program was restarted behind a wrapper")
def says_hello_again(answer: bytes, _: Build) -> bytes:
    return encode(hello_answer(OracleSubject()))


@program("CRASH:garbage", "an object that runs code where it is unpickled")
def sends_a_pickle(answer: bytes, build: Build) -> bytes:
    return frame(pickle.dumps({"fields": build.id}))


@program("CRASH:garbage", "a shape whose product no memory holds")
def array_of_2_to_62_cells(answer: bytes, _: Build) -> bytes:
    return with_positions(answer, [2**31, 2**31], cells=1)


@program("CRASH:garbage", "a size that wrapped")
def array_of_negative_shape(answer: bytes, _: Build) -> bytes:
    return with_positions(answer, [-1], cells=0)


@program("CRASH:garbage", "a length in cells where bytes are meant")
def array_shorter_than_its_shape(answer: bytes, _: Build) -> bytes:
    return with_positions(answer, [4], cells=1)


@program("CRASH:garbage", "a dtype that a reader might evaluate")
def array_of_objects(answer: bytes, _: Build) -> bytes:
    return with_positions(answer, [1], cells=2, dtype="object")


@program("CRASH:garbage", "a structure that ends the stack of a recursive reader")
def nested_100000_deep(answer: bytes, _: Build) -> bytes:
    return frame(b"\x91" * 100_000 + b"\xc0")


@program("CRASH:garbage", "a count for which a reader would set memory aside")
def map_of_4_billion_keys(answer: bytes, _: Build) -> bytes:
    return frame(b"\xdf\xff\xff\xff\xff")


@program("CRASH:garbage", "an answer of another version of the protocol")
def unknown_key(answer: bytes, _: Build) -> bytes:
    return changed(answer, elapsed=0.5)


@program("CRASH:garbage", "in-place fields are neither sent nor in the buffers")
def forgets_the_buffers(answer: bytes, _: Build) -> bytes:
    return changed(answer, buffers=[])


@program("CRASH:garbage", "a result in shared memory that nobody offered")
def result_in_no_region(answer: bytes, _: Build) -> bytes:
    return placed(answer, 0)


@program("CRASH:garbage", "a size in cells taken for bytes", shared=True)
def result_beyond_the_region(answer: bytes, build: Build) -> bytes:
    return placed(answer, memory_of(build).size - 4, cells=2)


@program("CRASH:garbage", "a pointer sent as an offset", shared=True)
def result_at_an_address(answer: bytes, _: Build) -> bytes:
    return placed(answer, 0x7FFF_FFFF_F000)


@program("CRASH:garbage", "a difference that went below zero", shared=True)
def result_before_the_region(answer: bytes, _: Build) -> bytes:
    return placed(answer, -4)


@program("CRASH:garbage", "results written from the beginning on, over the batch", shared=True)
def result_over_the_batch(answer: bytes, _: Build) -> bytes:
    return placed(answer, 0)


@program("CRASH:garbage", "an allocator that gives the same place twice", shared=True)
def results_in_one_place(answer: bytes, build: Build) -> bytes:
    array = {"dtype": "int32", "shape": [1], "data": memory_of(build).results}
    fields = msgspec.msgpack.decode(answer[HEADER.size :]).get("fields", {})
    return changed(answer, fields=fields | {"positions": array, "cu_seqlens_q": array})


@program("CRASH:garbage", "a bool that is a byte of something else", shared=True)
def result_of_other_bytes(answer: bytes, build: Build) -> bytes:
    memory = memory_of(build)
    with open(memory.path, "r+b") as file:
        file.seek(memory.results)
        file.write(b"\xa5")
    array = {"dtype": "bool", "shape": [1], "data": memory.results}
    return changed(answer, fields={"gate_force_random": array}, buffers=None)


@program("PASS", "every batch and result in shared memory: no fault", kind="NOISE", shared=True)
def shares_everything(answer: bytes, _: Build) -> bytes:
    return answer


@program("CRASH:eof", "the pipe is closed and the program lives on")
def closes_stdout(answer: bytes, _: Build) -> bytes:
    sys.stdout.flush()
    os.close(1)
    time.sleep(3600)
    return b""


@program("PASS", "warnings by the megabyte: no fault, and nothing may fill up", kind="NOISE")
def floods_stderr(answer: bytes, build: Build) -> bytes:
    if build.id % 8 == 0:
        sys.stderr.write("W0000 block table is not contiguous\n" * 30_000)
    return answer


@misreading("MISMATCH:F-IDS:input_ids", "cells of int32 pass through a type of 16 bits")
def reads_int32_tokens_as_int16(build: Build) -> Build:
    def read(sequence: Sequence) -> Sequence:
        tokens = sequence.token_ids
        if tokens.dtype != "int32":
            return sequence
        cells = tokens.numpy().astype(np.int16).astype(np.int32)
        return msgspec.structs.replace(sequence, token_ids=Array.of(cells))

    return msgspec.structs.replace(build, sequences=tuple(map(read, build.sequences)))


PROGRAMS = (*SPOILS, *READS)
"""Every mutant of this module."""


def spoilt(name: str, answer: bytes, build: Build) -> bytes:
    """What a mutant writes: something wrong at small batches with a placeholder, else the answer."""
    if len(build.sequences) > MOST_SEQUENCES or not any(sequence.is_placeholder for sequence in build.sequences):
        return answer
    if name not in SPOILS or (name in SHARING and build.memory is None):
        return answer
    return SPOILS[name](answer, build)
