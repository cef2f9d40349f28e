"""Messages survive the wire, what is not valid is refused, and a served subject answers everything."""

from __future__ import annotations

import dataclasses
import io
import resource
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.cases.model import Gather
from inputmeta.conformance.cases.request import StepAllocation
from inputmeta.conformance.check.buffers import PATTERNS, Arena
from inputmeta.conformance.protocol import convert
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
from inputmeta.conformance.protocol.serve import serve
from inputmeta.conformance.subjects import Allocates, Conditions, Rejection, Request
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta.conformance.subjects.paged import PagedSubject

CONFIG = oracle.MetadataConfig(
    block_size=8,
    window_size=3,
    swa_block_size=4,
    max_model_len=64,
    dense_ratios=(2,),
    sparse_ratios=(4,),
    max_ngram_size=2,
    lookup_table=(1, 2, 3, 4, 5, 6, 7, 8),
)


def sequence(keys: int, queries: int = 1) -> oracle.SequenceMetadata:
    known = keys + 1 - queries
    tokens = tuple(i % 8 for i in range(keys))
    return oracle.SequenceMetadata(
        seqlen_q=queries,
        seqlen_k=keys,
        block_table=tuple(range(5, 5 + keys // 2 // 4 + 1)),
        state_id=2,
        token_ids=tokens[:known],
        draft_tokens=tuple(range(queries - 1)),
        recent_tokens=tokens,
    )


def request(path: str = "decode", **changes: object) -> Request:
    gather = None
    if path == "decode_zos":
        gather = Gather(fresh_input_ids=(1, 2, 3), prev_sampled=(9,), prev_predict=((4, 5),), remap=(-1, 0))
    plain = Request(path=path, config=CONFIG, sequences=[sequence(9), sequence(12, 2)], gather=gather)
    return dataclasses.replace(plain, **changes)


def with_out(plain: Request) -> Request:
    shapes = {key: (f.dtype, f.shape) for key, f in plain.expected().items() if f.shape}
    return dataclasses.replace(plain, out=Arena([shapes], PATTERNS[0]).views(shapes))


def frames(*messages: object) -> io.BytesIO:
    return io.BytesIO(b"".join(encode(m) for m in messages))


def answers(data: bytes) -> list[object]:
    stream, found = io.BytesIO(data), []
    while (body := read_frame(stream)) is not None:
        found.append(decode_frame(body))
    return found


HELLO = wire.Hello(protocol=1, suite="test")


def served(subject: object, *messages: object) -> list[object]:
    sink = io.BytesIO()
    serve(subject, frames(HELLO, *messages, wire.Bye()), sink)
    return answers(sink.getvalue())[1:]


@pytest.mark.parametrize("path", ["decode", "decode_zos"])
@pytest.mark.parametrize("form", ["frame", "line"])
def test_a_request_survives_the_wire(path, form):
    plain = with_out(request(path))
    message = convert.build_message(plain, 7)
    if form == "frame":
        again = decode_frame(encode(message)[4:], "suite")
    else:
        again = decode_line(encode_line(message), "suite")
    assert again == message
    back = convert.request_of(again)
    for field in dataclasses.fields(Request):
        if field.name != "out":
            assert getattr(back, field.name) == getattr(plain, field.name)
    assert back.out.keys() == plain.out.keys()
    for key, array in plain.out.items():
        assert np.array_equal(back.out[key], array)
        assert back.out[key].flags.writeable
    assert len(convert.roots_of(back.out)) == len(convert.roots_of(plain.out))


def test_a_value_beyond_int64_is_unsupported():
    for broken in (
        dataclasses.replace(sequence(9), seqlen_k=2**63),
        dataclasses.replace(sequence(9), token_ids=(2**63,)),
    ):
        with pytest.raises(convert.BeyondInt64Error, match="value beyond int64"):
            convert.build_message(request(sequences=[broken]), 1)
    lowest = dataclasses.replace(sequence(9), state_id=-(2**63), token_ids=(-(2**63), 2**63 - 1))
    message = convert.build_message(request(sequences=[lowest]), 1)
    assert convert.request_of(decode_frame(encode(message)[4:], "suite")).sequences == [lowest]


@pytest.mark.parametrize("array_of", [tuple, np.array])
def test_each_array_is_int32_where_its_integers_fit(array_of):
    """At both bounds of int32, and one beyond; a gather's too. Without the claim all are int64."""
    fits, beyond = array_of((-(2**31), 2**31 - 1)), [array_of((-(2**31) - 1, 0)), array_of((0, 2**31))]
    one = dataclasses.replace(sequence(9), token_ids=fits, recent_tokens=beyond[0], compressed_tokens=beyond[1])
    plain = request("decode_zos", sequences=[one])
    message = convert.build_message(plain, 1, int32=True)
    sent = message.sequences[0]
    dtypes = [sent.block_table.dtype, sent.token_ids.dtype, sent.recent_tokens.dtype, sent.compressed_tokens.dtype]
    assert dtypes == ["int32", "int32", "int64", "int64"]
    assert (message.config.dense_ratios.dtype, message.gather.prev_predict.dtype) == ("int32", "int32")
    wide = convert.build_message(plain, 1)
    assert {a.dtype for a in (wide.sequences[0].token_ids, wide.gather.prev_predict)} == {"int64"}
    back, wanted = (convert.request_of(decode_frame(encode(m)[4:], "suite")) for m in (message, wide))
    assert back == wanted
    assert back.sequences[0].token_ids == (-(2**31), 2**31 - 1)


@pytest.mark.parametrize("path", ["decode", "decode_zos", "prompt"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_served_subject_gives_what_it_gives_in_process(path, in_place):
    plain = request(path)
    if path == "prompt":
        plain = dataclasses.replace(
            plain, sequences=[dataclasses.replace(s, token_ids=tuple(range(s.seqlen_k))) for s in plain.sequences]
        )
    here, there = (with_out(plain), with_out(plain)) if in_place else (plain, plain)
    wanted = OracleSubject().build(here)
    (answer,) = served(OracleSubject(), convert.build_message(there, 3))
    assert isinstance(answer, wire.ResultAnswer)
    assert answer.id == 3
    if in_place:
        assert all(not isinstance(value, wire.Array) for value in answer.fields.values())
    result = convert.apply_result(answer, there)
    assert result.keys() == wanted.keys()
    for key, value in wanted.items():
        assert np.array_equal(result[key], value), key
        assert type(result[key]) is type(value)
        assert not in_place or not isinstance(value, np.ndarray) or result[key] is there.out[key]


def test_a_refusal_brings_its_buffers_back():
    broken = with_out(request())
    broken = dataclasses.replace(broken, sequences=[dataclasses.replace(sequence(9), state_id=-1)])

    class WritesFirst(OracleSubject):
        def build(self, request):
            request.out["positions"][0] = 99
            return super().build(request)

    (answer,) = served(WritesFirst(), convert.build_message(broken, 1))
    rejection = convert.apply_reject(answer, broken)
    assert (rejection.condition, rejection.sequence, rejection.field) == ("P-STATE", 0, "state_id")
    assert broken.out["positions"][0] == 99


def test_claims_survive_the_wire():
    claims = dataclasses.replace(
        OracleSubject().capabilities,
        fields_on={"decode": frozenset({"klen", "positions"})},
        conditions=Conditions(
            block_sizes=frozenset({16, 64}), sparse_ratios=frozenset(), most_seqlen_q=1, cp_chunks="multiples-of-2p",
            largest_block=2**31 - 2, history=False, expansions=frozenset({"kv_swa_index"}),
        ),
    )  # fmt: skip
    message = msgspec.msgpack.encode(convert.claims_message(claims))
    assert convert.capabilities_of(msgspec.msgpack.decode(message, type=wire.Claims)) == claims


def test_claims_of_older_programs_have_no_conditions():
    message = msgspec.convert({"paths": ["prompt"], "fields": ["klen"]}, wire.Claims)
    claims = convert.capabilities_of(message)
    assert claims.conditions == Conditions()
    assert claims.fields_of("prompt") == {"klen"}


class Answers:
    """A subject that answers what a function gives."""

    name = "answers"
    capabilities = OracleSubject().capabilities

    def __init__(self, function):
        self.build = function


def raising(error: BaseException):
    def build(request):
        raise error

    return build


@pytest.mark.parametrize(
    ("build", "kind", "text"),
    [
        (raising(KeyError("x")), "exception", "KeyError: 'x'"),
        (raising(RuntimeError("CUDA error: an illegal memory access")), "device", "RuntimeError: CUDA error"),
        (lambda _: None, "exception", "returned NoneType instead of a mapping"),
        (lambda r: r.sequences.pop() and {}, "mutated", "wrote into its input: sequences"),
        (lambda r: object.__setattr__(r.sequences[0], "seqlen_k", 1) or {}, "mutated", "sequences[0].seqlen_k"),
        (raising(Rejection("P-LEN", "one", "f", "m")), "exception", "a Rejection whose"),
    ],
)
def test_errors_of_a_subject_are_answers(build, kind, text):
    (answer,) = served(Answers(build), convert.build_message(request(), 5))
    assert isinstance(answer, wire.ErrorAnswer)
    assert (answer.id, answer.kind) == (5, kind)
    assert text in answer.message


def test_a_read_only_buffer_is_told_and_an_ordinary_one_has_no_such_key():
    memory = np.zeros(4, dtype=np.int32)
    out = {"positions": memory[:2], "input_ids": memory[2:]}
    out["positions"].flags.writeable = False
    message = convert.out_message(out)
    assert [b"read_only" in msgspec.msgpack.encode(view) for view in message.views.values()] == [True, False]
    again = convert.out_of(message)
    assert {key: view.flags.writeable for key, view in again.items()} == {"positions": False, "input_ids": True}


def test_a_result_that_the_next_batch_changes_is_an_answer():
    array = np.zeros(2, dtype=np.int32)

    def build(_):
        array[:] += 1
        return {"positions": array}

    messages = [convert.build_message(request(), number) for number in (5, 6)]
    first, second = served(Answers(build), *messages)
    assert isinstance(first, wire.ResultAnswer)
    assert isinstance(second, wire.ErrorAnswer)
    assert (second.id, second.kind) == (6, "kept")
    assert second.message.endswith("changed: positions")


def test_wrong_types_keep_their_names():
    odd = {
        "a": np.zeros((2, 3), dtype=np.float32),
        "b": np.zeros(2, dtype=np.int64)[::2],
        "c": [1, 2],
        "d": np.int32(3),
        "e": None,
        "f": 2**70,
        "g": np.zeros(2, dtype=">i4"),
        "h": np.array([None]),
        "i": 1.5,
        3: 4,
    }
    (answer,) = served(Answers(lambda _: odd), convert.build_message(request(), 5))
    result = convert.apply_result(answer, request())
    assert (result["a"].dtype, result["a"].shape, result["b"].dtype) == (np.float32, (2, 3), np.int64)
    names = {key: type(value).__name__ for key, value in result.items() if key not in "ab"}
    assert names == {
        "c": "list", "d": "int32", "e": "NoneType", "f": "int beyond int64", "g": "array of >i4", "h": "array of |O",
        "i": "float",
    }  # fmt: skip


@pytest.mark.parametrize("lines", [False, True])
def test_what_cannot_be_sent_is_an_error(lines):
    message = convert.build_message(request(), 5)
    pack_one = encode_line if lines else encode
    sink = io.BytesIO()
    subject = Answers(lambda _: {"\ud800": 1})
    serve(subject, io.BytesIO(pack_one(HELLO) + pack_one(message)), sink, lines=lines)
    stream = io.BytesIO(sink.getvalue())
    read, decode = (read_line, decode_line) if lines else (read_frame, decode_frame)
    decode(read(stream))
    answer = decode(read(stream))
    assert (answer.id, answer.kind) == (5, "exception")
    assert "cannot be sent" in answer.message


def pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def array(**changes: object) -> dict[str, object]:
    return {"dtype": "int32", "shape": [2], "data": bytes(8)} | changes


def result(**fields: object) -> dict[str, object]:
    return {"type": "result", "id": 1, "fields": fields}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 5000,
        pack(None),
        pack({"type": "launch"}),
        pack({"type": "error", "id": 1, "kind": "other", "message": ""}),
        pack(result() | {"more": 1}),
        pack(result(a=array(shape=[3]))),
        pack(result(a=array(shape=[-2]))),
        pack(result(a=array(shape=[2**40, 2**40]))),
        pack(result(a=array(shape=[1] * 9))),
        pack(result(a=array(dtype="object"))),
        pack(result(a=array(dtype="bool", shape=[2], data=b"\x01\x02"))),
        pack(result(a=array(data=[1, 2]))),
        pack(result(a="x" * 65)),
        pack(result(a="\x1b[2J")),
        pack(result(a=2**63)),
        pack(result(a=1.5)),
        pack(result(**{"k" * 201: 1})),
        pack(result() | {"id": None}),
        pack(result() | {"fields": {1: 2}}),
        pack(result())[:-1],
        pack(result()) + b"\x00",
        b"\x82\xa4type\xa6result\xa6fields\xdf\xff\xff\xff\xff",
        b"\x82\xa4type\xa6result\xa7buffers\xdd\xff\xff\xff\xff",
        b"\x83\xa4type\xa6result\xa2id\x01\xa6fields\x81\xa1a\x83\xa5dtype\xa5int32\xa5shape\xdd\xff\xff\xff\xff",
    ],
)
def test_bytes_that_are_no_message_are_one_clear_error(body):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProtocolError, match=r"^not a valid message: [^\n]+$"):
        decode_frame(body)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_text_of_strangers_does_not_command_a_terminal():
    escape = "\x1b]0;owned\x07"
    sent = [
        {"type": "error", "id": 1, "kind": "exception", "message": escape},
        {"type": "reject", "id": 1, "condition": escape, "sequence": None, "field": escape, "message": escape},
        {"type": "hello", "protocol": 1, "name": escape, "version": escape,
         "capabilities": {"paths": [], "fields": []}},
    ]  # fmt: skip
    for message in sent:
        assert "owned" in repr(decode_frame(pack(message)))
        assert "\x1b" not in str(msgspec.to_builtins(decode_frame(pack(message))).values())
        assert "\\x1b" not in repr(decode_frame(pack(message)))
    with pytest.raises(ProtocolError) as caught:
        decode_frame(pack(result() | {escape: 1}))
    assert "owned" in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        b"{", b"[]", b"\xff", b"[" * 100_000, b"NaN", b"1e999", b"1" * 5000,
        b'{"type":"result","id":1,"fields":{"a":{"dtype":"int32","shape":[1],"data":[4294967296]}}}',
        b'{"type":"result","id":1,"fields":{"a":{"dtype":"int32","shape":[1],"data":[true]}}}',
        b'{"type":"result","id":1,"fields":{"a":{"dtype":"bool","shape":[1],"data":[1]}}}',
        b'{"type":"result","id":1,"fields":{"a":{"dtype":"int32","shape":[1],"data":[1.0]}}}',
        b'{"type":"result","id":1,"fields":{"a":{"dtype":"int32","shape":[2],"data":[1]}}}',
        b'{"type":"result","id":1,"fields":{"a":{"dtype":"int32","shape":[1],"data":[[1]]}}}',
        b'{"type":"result","id":1,"fields":{"a":{"dtype":"int32","shape":[1],"data":"AAAAAA=="}}}',
    ],
)  # fmt: skip
def test_lines_that_are_no_message_are_one_clear_error(line):
    with pytest.raises(ProtocolError, match=r"^not a valid message: [^\n]+$"):
        decode_line(line)


def test_frames_and_lines_are_limited_before_they_are_read():
    with pytest.raises(ProtocolError, match="longer than its limit"):
        read_frame(io.BytesIO(HEADER.pack(MAX_FRAME + 1)))
    with pytest.raises(ProtocolError, match="cut off"):
        read_frame(io.BytesIO(b"\x01\x00"))
    with pytest.raises(ProtocolError, match="cut off"):
        read_frame(io.BytesIO(HEADER.pack(3) + b"ab"))
    with pytest.raises(ProtocolError, match="longer than its limit"):
        read_line(io.BytesIO(b"x" * 20), limit=10)
    assert read_frame(io.BytesIO(b"")) is None
    assert read_line(io.BytesIO(b"\n\n")) is None


def test_views_that_leave_their_buffer_are_refused():
    message = convert.build_message(with_out(request()), 1)
    size = message.out.buffers[0].shape[0]
    key = next(key for key, view in message.out.views.items() if view.buffer == 0)
    for view in (
        wire.View(buffer=0, offset=size, shape=(1,)),
        wire.View(buffer=0, offset=0, shape=(2**31, 2**31)),
        wire.View(buffer=999, offset=0, shape=(1,)),
    ):
        out = wire.Out(buffers=message.out.buffers, views=message.out.views | {key: view})
        (answer,) = served(OracleSubject(), msgspec.structs.replace(message, out=out))
        assert (answer.id, answer.kind) == (-1, "message")
        assert "outside its buffer" in answer.message


def test_a_server_survives_what_it_cannot_read():
    message = convert.build_message(request(), 2)
    stream = io.BytesIO(encode(message) + HEADER.pack(2) + b"\xc1\xc1" + frames(HELLO, message).getvalue())
    sink = io.BytesIO()
    serve(OracleSubject(), stream, sink)
    found = answers(sink.getvalue())
    assert [type(answer) for answer in found] == [
        wire.ErrorAnswer, wire.ErrorAnswer, wire.HelloAnswer, wire.ResultAnswer,
    ]  # fmt: skip
    assert convert.capabilities_of(found[2].capabilities) == OracleSubject().capabilities


def test_buffers_of_another_size_are_refused():
    plain = with_out(request())
    (answer,) = served(OracleSubject(), convert.build_message(plain, 1))
    for wrong in (None, answer.buffers[1:], (*answer.buffers[:-1], wire.Array.of(np.zeros(1, np.int32)))):
        with pytest.raises(ProtocolError, match="buffers"):
            convert.apply_result(msgspec.structs.replace(answer, buffers=wrong), plain)


@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_the_module_serves_and_keeps_prints_out_of_the_answers(flag, tmp_path):
    (tmp_path / "noisy.py").write_text(
        "import os\n"
        "from inputmeta.conformance.subjects.oracle import OracleSubject\n"
        "print('on import')\n"
        "class Noisy(OracleSubject):\n"
        "    def build(self, request):\n"
        "        print('in build', flush=True); os.write(1, b'raw'); assert not os.read(0, 1)\n"
        "        return super().build(request)\n"
    )
    pack_one, sender = (encode_line, decode_line) if flag else (encode, decode_frame)
    sent = b"".join(pack_one(m) for m in (HELLO, convert.build_message(request(), 4), wire.Bye()))
    ended = subprocess.run(
        [sys.executable, "-m", "inputmeta.conformance.protocol.serve", *flag, "noisy:Noisy"],
        input=sent, capture_output=True, timeout=60, check=False, env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    read = read_line if flag else read_frame
    stream = io.BytesIO(ended.stdout)
    hello, answer = sender(read(stream)), sender(read(stream))
    assert read(stream) is None
    assert hello.name == "oracle"
    assert convert.apply_result(answer, request())["total_q"] == 3
    assert b"in build" in ended.stderr
    assert b"raw" in ended.stderr


def test_a_subject_that_cannot_be_loaded_is_one_line_and_125():
    ended = subprocess.run(
        [sys.executable, "-m", "inputmeta.conformance.protocol.serve", "no.such:thing"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (125, "")
    assert ended.stderr == "subject no.such:thing: ModuleNotFoundError: No module named 'no'\n"


def test_the_server_starts_without_heavy_modules():
    code = (
        "import sys, inputmeta.conformance.protocol.serve as s; s.load_subject('oracle');"
        "print(sorted({'torch', 'hypothesis', 'rich', 'typer'} & sys.modules.keys()))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"


OWN = StepAllocation(num_blocks=4, num_states=2, requests=(7, 3))


@pytest.mark.parametrize("form", ["frame", "line"])
def test_an_allocation_and_its_claims_survive_the_wire(form):
    plain = dataclasses.replace(request(), allocation=dataclasses.replace(OWN, ended=(2**31 - 1, 5)))
    message = convert.build_message(plain, 7)
    frame = form == "frame"
    again = decode_frame(encode(message)[4:], "suite") if frame else decode_line(encode_line(message), "suite")
    assert convert.request_of(again).allocation == plain.allocation
    claims = PagedSubject().capabilities
    claims = dataclasses.replace(claims, allocates=Allocates(reserved_blocks=1, shares_blocks=True, states=False))
    assert convert.capabilities_of(convert.claims_message(claims)).allocates == claims.allocates
    assert b"allocation" not in encode(convert.build_message(request(), 7))  # older programs know no such key


def test_a_served_subject_that_allocates_is_reset_and_answers_with_its_tables():
    first = dataclasses.replace(request(), allocation=OWN).bare()
    build = convert.build_message(first, 1)
    reset, one, twice, again, fresh = served(PagedSubject(), wire.Reset(id=5), build, build, wire.Reset(id=6), build)
    assert (reset, again) == (wire.ResetAnswer(id=5), wire.ResetAnswer(id=6))
    tables = [each.fields["allocated_blocks"].numpy().tolist() for each in (one, twice, fresh)]
    assert tables == [[[3, 2], [1, 0]]] * 3
    assert one.fields["allocated_states"].numpy().tolist() == [1, 0]


def test_a_subject_whose_reset_raises_and_messages_that_are_not_for_a_subject():
    class Stuck(PagedSubject):
        def reset(self):
            raise ValueError("stuck")

    (stuck,) = served(Stuck(), wire.Reset(id=5))
    assert (stuck.id, stuck.kind, stuck.message) == (5, "exception", "ValueError: stuck")
    plain = convert.build_message(request(), 1)
    owned = convert.build_message(dataclasses.replace(request(), allocation=OWN), 1)
    short = msgspec.structs.replace(owned, sequences=owned.sequences[:1])
    for subject, message, says in (
        (OracleSubject(), wire.Reset(id=5), "reset, and hello did not claim allocates"),
        (OracleSubject(), owned, "allocation is for programs that claim allocates"),
        (PagedSubject(), plain, "allocation is for programs that claim allocates"),
        (PagedSubject(), short, "requests are 2, of 1 sequences"),
    ):
        (answer,) = served(subject, message)
        assert (answer.id, answer.kind) == (-1, "message")
        assert says in answer.message
