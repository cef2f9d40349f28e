"""Batches and results in shared memory: as in frames, bounded by what was offered, and nothing is left of it."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import PATTERNS, Arena
from inputmeta.conformance.protocol import codec, region, serve
from inputmeta.conformance.protocol import messages as wire
from inputmeta.conformance.protocol.codec import ProtocolError
from inputmeta.conformance.protocol.convert import build_message, hello_answer
from inputmeta.conformance.protocol.region import ALIGNMENT, Region, answer_from, batch_from, mapped
from inputmeta.conformance.subjects.base import SubjectFailure
from inputmeta.conformance.subjects.callables import probe
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta.conformance.workers import exchange
from inputmeta.conformance.workers.exchange import Forms, offered, room_for
from inputmeta.conformance.workers.subject import IsolatedSubject
from inputmeta.conformance.workers.target import Target
from inputmeta.conformance.workers.wire import FRAMES, LINES

WRONG = "inputmeta.conformance.workers.tests.test_region"


def in_place(request: Request) -> Request:
    shapes = {key: (field.dtype, field.shape) for key, field in request.expected().items() if field.shape}
    return dataclasses.replace(request, out=Arena([shapes], PATTERNS[0]).views(shapes))


@contextmanager
def sharing(request: Request, room: int | None = None) -> Iterator[Region]:
    made = Region(build_message(request, 1, int32=True), room_for(request) if room is None else room)
    try:
        yield made
    finally:
        made.close()


def opened_memory() -> list[str]:
    """What this process has open of shared memory."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # the folder's own
            continue
    return [link for link in links if "memfd:inputmeta" in link]


def test_a_subject_gives_the_same_in_shared_memory_and_an_interrupt_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with Target(subject="oracle").open() as subject:
        assert isinstance(subject, IsolatedSubject)
        assert subject.forms == Forms(int32=True, share_from=2**20, refills=True)
        for request in map(probe, ("prompt", "decode", "decode_zos")):
            results = []
            for share_from in (None, 0):
                subject.forms = Forms(int32=True, share_from=share_from)
                results += [subject.build(request), subject.build(in_place(request))]
            assert len(results[0]) > 20
            for result in results[1:]:
                assert result.keys() == results[0].keys()
                for key, value in results[0].items():
                    assert np.array_equal(result[key], value), key
                    assert type(result[key]) is type(value)
        assert opened_memory() == []
        beyond_the_limit(subject, monkeypatch)
        assert opened_memory() == []
        interrupted(subject, monkeypatch)
        assert opened_memory() == []


def beyond_the_limit(subject: IsolatedSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(region, "MAX_REGION", 4 * ALIGNMENT)
        with pytest.raises(SubjectFailure, match="of shared memory") as caught:
            subject.build(probe("decode"))
    assert (caught.value.verdict, caught.value.code) == ("UNSUPPORTED", "limit")
    assert subject._worker.alive


def interrupted(subject: IsolatedSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*_: object) -> None:
        assert len(opened_memory()) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(subject._worker, "call", call)
    with pytest.raises(KeyboardInterrupt):
        subject.build(probe("decode"))


def test_a_batch_survives_the_region() -> None:
    request = in_place(probe("decode_zos"))
    plain = build_message(request, 1, int32=True)
    with sharing(request) as made:
        sent = codec.decode_frame(codec.encode(made.batch)[4:], "suite")
        assert isinstance(sent, wire.Build)
        assert isinstance(sent.sequences[0].token_ids.data, int)
        assert isinstance(sent.out.buffers[0].data, int)
        assert sent.out.buffers[0].data >= sent.memory.results > sent.sequences[-1].recent_tokens.data
        with mapped(sent.memory) as memory:
            assert batch_from(sent, memory) == msgspec.structs.replace(plain, memory=sent.memory)
        with pytest.raises(ProtocolError, match="which is not named"):
            batch_from(sent, None)
        assert os.fstat(made.descriptor).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("size", [0, 1, 2**20])
def test_nobody_changes_its_size(size: int) -> None:
    """What the suite reads cannot go away under it."""
    with sharing(probe("decode")) as made, open(made.batch.memory.path, "r+b") as file:
        with pytest.raises(OSError) as caught:
            os.ftruncate(file.fileno(), size)
        assert caught.value.errno == errno.EPERM
        with pytest.raises(OSError):
            fcntl.fcntl(file.fileno(), fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def result(**arrays: tuple[str, tuple[int, ...], int]) -> wire.ResultAnswer:
    fields = {key: wire.Array(dtype=dtype, shape=shape, data=at) for key, (dtype, shape, at) in arrays.items()}
    return wire.ResultAnswer(id=1, fields=fields)


def test_results_lie_within_their_part_and_apart() -> None:
    with sharing(probe("decode"), room=4 * ALIGNMENT) as made:
        least, most = made.results, made.size
        os.pwrite(made.descriptor, np.arange(4, dtype=np.int32).tobytes(), most - 16)
        right = result(a=("int32", (4,), most - 16), b=("int32", (0,), most - 8), c=("bool", (1, 3), least))
        fields = answer_from(right, made).fields
        assert fields["a"].numpy().tolist() == [0, 1, 2, 3]
        assert (fields["b"].numpy().shape, fields["c"].numpy().tolist()) == ((0,), [[False] * 3])
        for wrong, text in [
            (result(a=("int32", (4,), most - 15)), f"bytes {most - 15} to {most + 1}"),
            (result(a=("int32", (0,), most + 1)), f"bytes {most + 1} to {most + 1}"),
            (result(a=("int32", (1,), least - 1)), f"bytes {least - 1} to {least + 3}"),
            (result(a=("int32", (2**31, 2**29), least)), "of the shared memory; it may have"),
            (result(a=("int32", (1,), 2**62)), "of the shared memory; it may have"),
            (result(a=("int32", (2,), least), b=("bool", (1,), least + 7)), f"two arrays hold byte {least + 7}"),
            (result(a=("int32", (2,), least), b=("int32", (2,), least)), "two arrays hold byte"),
            (result(a=("bool", (1,), most - 8)), "a bool is a byte 0 or 1"),
        ]:
            with pytest.raises(ProtocolError, match=text):
                answer_from(wrong, made)
        with pytest.raises(ProtocolError, match="which was not offered"):
            answer_from(right, None)


def test_a_refusal_brings_its_buffers_back_from_shared_memory() -> None:
    request = in_place(probe("decode"))
    with sharing(request) as made:
        buffers = made.batch.out.buffers
        told = wire.Reject(id=1, condition="P-LEN", sequence=0, field="seqlen_k", message="x", buffers=buffers)
        assert answer_from(told, made).buffers == build_message(request, 1).out.buffers
        outside = msgspec.structs.replace(buffers[0], data=0)
        with pytest.raises(ProtocolError):
            answer_from(msgspec.structs.replace(told, buffers=(outside,)), made)


def test_small_batches_come_in_frames_and_many_rows_count_for_their_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    request = probe("prompt")
    batch = build_message(request, 1)
    assert offered(batch, request, Forms()) is None
    assert offered(batch, request, Forms(share_from=2**20)) is None
    monkeypatch.setattr(exchange, "MANY_ROWS", 1)
    assert offered(batch, request, Forms(share_from=2**20)) is None
    made = offered(batch, request, Forms(share_from=2000))
    assert sum(array.size for array in exchange.arrays_of(batch)) < 2000
    assert made is not None
    made.close()


def test_without_shared_memory_a_frame_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> int:
        raise OSError(errno.ENOSYS, "none")

    monkeypatch.setattr(os, "memfd_create", none)
    request = probe("decode")
    assert offered(build_message(request, 1), request, Forms(share_from=0)) is None


def test_a_result_beyond_a_frame_comes_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "MAX_FRAME", 10_000)
    monkeypatch.setattr(codec, "MAX_FRAME", 10_000)
    positions = np.arange(2_501, dtype=np.int32)

    def build(request: Request) -> dict[str, np.ndarray]:
        return {"positions": positions}

    subject = OracleSubject()
    monkeypatch.setattr(subject, "build", build)
    server = serve.Server(subject)
    server.answer(wire.Hello(protocol=wire.VERSION, suite=""))
    for room, whole in ((0, False), (10_004, True)):
        with sharing(probe("decode"), room) as made:
            answer = server.answer(made.batch)
            assert isinstance(answer, wire.ResultAnswer)
            assert isinstance(answer.fields["positions"], wire.Array) == whole
            if whole:
                found = answer_from(codec.decode_frame(codec.encode(answer)[4:]), made)
                assert np.array_equal(found.fields["positions"].numpy(), positions)


class Dies(OracleSubject):
    """Has the file mapped then."""

    def build(self, request: Request) -> dict[str, np.ndarray]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}


def named_memory() -> set[Path]:
    return set(Path("/dev/shm").glob("*inputmeta*"))


def test_nothing_is_left_of_a_killed_worker() -> None:
    before = named_memory()
    with Target(subject=f"{WRONG}:Dies").open() as subject:
        assert isinstance(subject, IsolatedSubject)
        subject.forms = Forms(int32=True, share_from=0)
        with pytest.raises(SubjectFailure, match="SIGKILL"):
            subject.build(probe("decode"))
        assert (opened_memory(), named_memory() - before) == ([], set())


def test_nothing_is_left_of_a_killed_suite() -> None:
    before = named_memory()
    script = """
        import os, sys
        from inputmeta.conformance.protocol.convert import build_message
        from inputmeta.conformance.protocol.region import Region
        from inputmeta.conformance.subjects.callables import probe
        made = Region(build_message(probe("decode"), 1), 2**20)
        print(made.batch.memory.path, flush=True)
        sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    path = Path(process.stdout.readline().strip())
    assert path.exists()
    process.kill()
    process.communicate(timeout=30)
    assert (path.exists(), named_memory() - before) == (False, set())


def test_a_program_that_knows_neither_form_is_spoken_to_as_before() -> None:
    old = msgspec.to_builtins(hello_answer(OracleSubject()))
    del old["int32_arrays"], old["shared_memory"], old["refills"]
    hello = codec.decode_frame(msgspec.msgpack.encode(old))
    assert isinstance(hello, wire.HelloAnswer)
    forms = Forms.of(hello, FRAMES)
    assert forms == Forms(int32=False, share_from=None)
    request = probe("decode")
    batch = build_message(request, 1, int32=forms.int32)
    assert offered(batch, request, forms) is None
    sent = msgspec.msgpack.decode(codec.encode(batch)[4:])
    assert "memory" not in sent
    assert {value["dtype"] for value in sent["sequences"][0].values() if isinstance(value, dict)} == {"int64"}
    new = codec.decode_frame(codec.encode(hello_answer(OracleSubject()))[4:])
    assert Forms.of(new, LINES) == Forms(int32=True, share_from=None, refills=True)
