"""Messages of strangers: whatever the bytes, a message or a ProtocolError, on both sides of the pipe."""

from __future__ import annotations

import io
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inputmeta.conformance.cases.files import decode_case
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.cases.tests.untrusted import BOUNDED, CASE, NASTY, case_bytes, damaged, is_one_line, mangled
from inputmeta.conformance.check.buffers import PATTERNS, Arena
from inputmeta.conformance.protocol import messages as wire
from inputmeta.conformance.protocol.codec import (
    HEADER,
    MAX_FRAME,
    ProtocolError,
    decode_frame,
    decode_line,
    encode,
    encode_line,
    read_frame,
    read_line,
)
from inputmeta.conformance.protocol.convert import (
    apply_reject,
    apply_result,
    build_message,
    capabilities_of,
    claims_message,
    field_value,
    request_of,
)
from inputmeta.conformance.protocol.region import Region, answer_from, answer_into, mapped
from inputmeta.conformance.protocol.serve import build_answer, serve
from inputmeta.conformance.subjects import Request
from inputmeta.conformance.subjects.oracle import OracleSubject


def request() -> Request:
    """A batch on fenced buffers, as the runner hands it over."""
    plain = step_request(decode_case(case_bytes(CASE)), 0)
    shapes = {key: (field.dtype, field.shape) for key, field in plain.expected().items() if field.shape}
    out = dict(Arena([shapes], PATTERNS[0]).views(shapes))
    return Request(**{**vars(plain), "out": out})


SUBJECT = OracleSubject()
BUILD = build_message(request(), 1)
RESULT, _ = build_answer(SUBJECT, request_of(BUILD), BUILD.id)
HELLO = wire.HelloAnswer(
    protocol=wire.VERSION, name="it", version="1", capabilities=claims_message(SUBJECT.capabilities)
)
REJECT = wire.Reject(id=1, condition="P-LEN", sequence=0, field="seqlen_k", message="too long")
ERROR = wire.ErrorAnswer(id=1, kind="exception", message="ValueError: no", frames=("builder.py:1 in build",))
ANSWERS = [RESULT, HELLO, REJECT, ERROR]
SHAPES = st.sampled_from(
    [[2**31, 2**31], [-1], [2**63], [0] * 9, [0, 2**31], [1.0], "2", [2**31] * 8, [2**31, 2**31, 0], [True]]
)
VALUES = st.one_of(
    NASTY.filter(lambda value: not (isinstance(value, int) and abs(value) >= 2**64)),
    SHAPES,
    st.binary(max_size=16),
    st.builds(lambda shape, data: {"dtype": "int32", "shape": shape, "data": data}, SHAPES, st.binary(max_size=16)),
)


def plain(message: object) -> object:
    """A message as maps and lists that can be changed at will."""
    return msgspec.to_builtins(message, builtin_types=(bytes,))


def body(message: object) -> bytes:
    """The body of the frame of a message, or of anything else."""
    return msgspec.msgpack.encode(message)


def hello_with(claims: dict[str, object]) -> bytes:
    """The body of an answer to hello with some of its claims changed."""
    return body(plain(HELLO) | {"capabilities": plain(HELLO)["capabilities"] | claims})


def receive(data: bytes, decode: Callable[..., object] = decode_frame, region: Region | None = None) -> None:
    """What the suite does with an answer: a result, a refusal, claims, or a ProtocolError of one line."""
    asked = request()
    text = None
    try:
        answer = answer_from(decode(data, "program"), region)
        if isinstance(answer, wire.ResultAnswer):
            result = apply_result(answer, asked)
            assert all(isinstance(key, str) for key in result)
        elif isinstance(answer, wire.Reject):
            apply_reject(answer, asked)
        elif isinstance(answer, wire.HelloAnswer):
            capabilities_of(answer.capabilities)
    except ProtocolError as error:
        text = str(error)
    assert text is None or is_one_line(text), repr(text)


def served(data: bytes, *, lines: bool = False) -> list[object]:
    """The answers of a served subject to bytes of a suite that is none."""
    sink = io.BytesIO()
    serve(SUBJECT, io.BytesIO(data), sink, lines=lines)
    sink.seek(0)
    answers = []
    while (answer := read_line(sink) if lines else read_frame(sink)) is not None:
        answers.append(decode_line(answer) if lines else decode_frame(answer))
    return answers


@BOUNDED
@given(st.binary(max_size=200))
def test_any_body_from_a_program(data: bytes) -> None:
    receive(data)


@BOUNDED
@given(st.sampled_from(ANSWERS).flatmap(lambda answer: damaged(body(answer))))
def test_a_damaged_answer(data: bytes) -> None:
    receive(data)


@BOUNDED
@given(st.sampled_from(ANSWERS).flatmap(lambda answer: mangled(plain(answer), VALUES)))
def test_a_mangled_answer(message: object) -> None:
    receive(body(message))


@BOUNDED
@given(st.data())
def test_a_mangled_answer_in_shared_memory(data: st.DataObject) -> None:
    region = Region(BUILD, 4096)
    try:
        with mapped(region.batch.memory) as memory:
            answer = answer_into(RESULT, memory, region.batch.memory)
        assert answer_from(answer, region) == RESULT
        places = st.sampled_from([0, 1, region.results, region.results - 1, region.size, region.size - 1, 2**62])
        receive(body(data.draw(mangled(plain(answer), VALUES | places))), region=region)
        message = data.draw(mangled(plain(region.batch), VALUES | places))
        hello = encode(wire.Hello(protocol=wire.VERSION, suite="test"))
        answers = served(hello + HEADER.pack(len(body(message))) + body(message) + encode(BUILD))
        assert answers[-1] == RESULT
    finally:
        region.close()


@BOUNDED
@given(st.sampled_from(ANSWERS).flatmap(lambda answer: damaged(encode_line(answer))))
def test_a_damaged_line(data: bytes) -> None:
    receive(data, decode_line)


@BOUNDED
@given(damaged(encode(BUILD)))
def test_a_damaged_batch_does_not_end_the_server(data: bytes) -> None:
    assert all(isinstance(answer, wire.ProgramMessage) for answer in served(data))


@BOUNDED
@given(mangled(plain(BUILD), VALUES))
def test_a_mangled_batch_is_answered(message: object) -> None:
    hello = encode(wire.Hello(protocol=wire.VERSION, suite="test"))
    mangled_build = body(message)
    answers = served(hello + HEADER.pack(len(mangled_build)) + mangled_build + encode(BUILD))
    assert isinstance(answers[0], wire.HelloAnswer)
    assert answers[-1] == RESULT  # the next batch is answered as if nothing had been
    assert len(answers) in (2, 3)


@BOUNDED
@given(st.binary(max_size=100))
def test_any_line_to_the_server(data: bytes) -> None:
    served(data + b"\n", lines=True)


DEEP = b"\x91" * 100_000 + b"\xc0"


@pytest.mark.parametrize(
    "data",
    [
        DEEP,
        b"\x81\xa4type" + DEEP,
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x81" * 50_000,
        hello_with({"paths": ["x"] * 10_000}),
        hello_with({"fields_on": {str(i): [] for i in range(11)}}),
        hello_with({"conditions": {"block_sizes": [4] * 1001}}),
        hello_with({"conditions": {"block_sizes": [0]}}),
        hello_with({"conditions": {"history": "no"}}),
        hello_with({"conditions": {"unheard-of": 1}}),
        body(plain(RESULT) | {"fields": {str(i): 0 for i in range(2**16 + 1)}}),
        body(plain(RESULT) | {"fields": {"k" * 1000: 0}}),
        body({"type": "result", "id": 2**64 - 1, "fields": {}, "buffers": None}),
        body(msgspec.msgpack.Ext(1, b"x" * 100)),
        body(plain(ERROR) | {"frames": ["x"] * 21}),
        body(plain(ERROR) | {"frames": ["x" * 201]}),
        body(plain(ERROR) | {"frames": "x"}),
    ],
)
def test_a_bomb_is_refused_before_it_goes_off(data: bytes) -> None:
    for sender in ("program", "suite"):
        with pytest.raises(ProtocolError) as caught:
            decode_frame(data, sender)
        assert is_one_line(str(caught.value))


def test_a_length_is_checked_before_the_body_is_read() -> None:
    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size == HEADER.size, "nothing but the header may be read"
            return HEADER.pack(MAX_FRAME + 1)

    with pytest.raises(ProtocolError):
        read_frame(Endless())


def test_a_line_without_an_end_is_read_to_the_limit_only() -> None:
    class Endless(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            assert size == 1001
            return b"x" * 1001

    with pytest.raises(ProtocolError):
        read_line(Endless(), 1000)


def test_buffers_of_another_size_write_nothing() -> None:
    asked = request()
    before = {key: array.copy() for key, array in asked.out.items()}
    grown = tuple(wire.Array.of(np.append(buffer.numpy(), buffer.numpy()[:1])) for buffer in RESULT.buffers)
    for buffers in (grown, RESULT.buffers[:-1], (), RESULT.buffers[:1] * len(RESULT.buffers)):
        with pytest.raises(ProtocolError):
            apply_result(msgspec.structs.replace(RESULT, buffers=buffers), asked)
        assert all(np.array_equal(asked.out[key], cells) for key, cells in before.items())


def test_frames_of_an_error_are_optional_and_plain() -> None:
    old = {"type": "error", "id": 1, "kind": "exception", "message": "ValueError: no"}
    assert decode_frame(body(old)) == msgspec.structs.replace(ERROR, frames=())
    assert plain(msgspec.structs.replace(ERROR, frames=())) == old  # as an older suite knows it
    evil = decode_frame(body(old | {"frames": ["builder.py:1\x1b[2J\nin build"]}))
    assert isinstance(evil, wire.ErrorAnswer)
    assert evil.frames == ("builder.py:1?[2J?in build",)


@pytest.mark.parametrize(
    ("dtype", "shape", "says"),
    [
        ("int32", [2**31, 2**31, 0], "[2147483648, 2147483648, 0] cells of int32 are more than an array can have"),
        ("bool", [2**31] * 7 + [0], "cells of bool are more than an array can have"),
        ("int64", [2**31, 2**31], "[2147483648, 2147483648] cells of int64 are more than an array can have"),
        ("int32", [2**31, 2**30], "[2147483648, 1073741824] cells of int32 are more than an array can have"),
        ("int32", [2**30, 2**30], "[1073741824, 1073741824] cells of int32 are 4611686018427387904 bytes, not 0"),
        ("int32", [0, 2**40], "<= 2147483648"),
        ("int32", [-1], ">= 0"),
        ("int32", [0] * 9, "of length <= 8"),
        ("int32", [True], "got `bool`"),
        ("int32", [0.5], "got `float`"),
        ("int32", 0, "got `int`"),
    ],
)
def test_a_shape_that_no_array_has_is_refused_in_words(dtype: str, shape: object, says: str) -> None:
    fields = {"positions": {"dtype": dtype, "shape": shape, "data": b""}}
    with pytest.raises(ProtocolError) as caught:
        decode_frame(body(plain(RESULT) | {"fields": fields}))
    assert says in str(caught.value)
    assert is_one_line(str(caught.value))


@pytest.mark.parametrize("shape", [(2**31, 0), (0, 2**31), (0,) * 8, (2**20, 2**20, 0)])
def test_an_empty_array_of_any_shape_that_there_is_comes_through(shape: tuple[int, ...]) -> None:
    array = wire.Array.of(np.empty(shape, dtype=np.int32))
    answer = decode_frame(body(plain(RESULT) | {"fields": {"positions": plain(array)}}))
    assert isinstance(answer, wire.ResultAnswer)
    value = answer.fields["positions"]
    assert isinstance(value, wire.Array)
    assert value.numpy().shape == shape


@pytest.mark.parametrize(
    ("array", "sent"),
    [
        (np.empty((2**40, 0), dtype=np.int32), "array of <i4 [1099511627776, 0]"),
        (np.broadcast_to(np.int32(1), (2**31, 2**20)), "array of <i4 [2147483648, 1048576]"),
        (np.broadcast_to(False, (1,) * 9), "array of |b1 [1, 1, 1, 1, 1, 1, 1, 1, 1]"),
        (np.zeros(3, dtype=">i4"), "array of >i4"),
        (np.zeros(3, dtype=object), "array of |O"),
    ],
)
def test_an_array_that_no_message_holds_is_sent_as_its_dtype_and_shape(array: np.ndarray, sent: str) -> None:
    assert field_value(array) == sent


def test_an_array_of_any_strides_is_sent_as_its_cells() -> None:
    cells = np.arange(24, dtype=np.int32).reshape(4, 6)
    for view in (cells[::-1], cells[:, ::-2], cells.T, np.broadcast_to(cells[0], (3, 6)), cells[:0]):
        value = field_value(view)
        assert isinstance(value, wire.Array)
        assert np.array_equal(value.numpy(), view)
