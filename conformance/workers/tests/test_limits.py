"""The limits of the suite never accuse a subject; out of memory says whose, and within which limits."""

import dataclasses
import io
import math
import resource
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.campaign.journal import Journal
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.files import load_case, save_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.check import runner
from inputmeta.conformance.exits import OutOfMemory
from inputmeta.conformance.protocol import codec, convert, serve
from inputmeta.conformance.protocol import messages as wire
from inputmeta.conformance.subjects.base import SubjectFailure
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta.conformance.workers import exchange
from inputmeta.conformance.workers import subject as isolated
from inputmeta.conformance.workers.exchange import may_exceed
from inputmeta.conformance.workers.process import MIB, Worker
from inputmeta.conformance.workers.subject import IsolatedSubject
from inputmeta.conformance.workers.target import Target
from inputmeta.conformance.workers.tests.test_failures import BAD, GOOD, sequence
from inputmeta.conformance.workers.wire import FRAMES, LINES, Wire, split_line

EXAMPLE = Path(__file__).parents[2] / "examples" / "json_program.py"
HERE = __name__.rpartition(".")[0] + ".memory_program"
MOST_DIVISORS = 2_095_133_040
"""The integer of int32 with most divisors, 1,600: a valid configuration has at most so many ratios."""


def decode(sequences: int) -> Case:
    return msgspec.structs.replace(GOOD, path="decode", steps=(tuple(sequence(9, 1) for _ in range(sequences)),))


def many_ratios(count: int, path: str) -> Case:
    """A valid case with the ``count`` smallest ratios that a block of MOST_DIVISORS tokens may have."""
    low = [n for n in range(1, math.isqrt(MOST_DIVISORS) + 1) if MOST_DIVISORS % n == 0]
    ratios = sorted({*low, *(MOST_DIVISORS // n for n in low)})
    config = msgspec.structs.replace(
        GOOD.config, block_size=MOST_DIVISORS, dense_ratios=(), sparse_ratios=tuple(ratios[:count])
    )
    return msgspec.structs.replace(GOOD, path=path, config=config, steps=((sequence(9, 1, block_table=(1,)),),))


def limited(most_bytes: int) -> Wire:
    """Lines of a program that are longer than ``most_bytes`` are not read."""
    return dataclasses.replace(LINES, split=partial(split_line, limit=most_bytes), limit=most_bytes)


@pytest.mark.slow
def test_hundreds_of_ratios_pass() -> None:
    with Target(subject="oracle").open() as subject:
        for path in ("prompt", "decode"):
            outcome = Session(subject).run(many_ratios(600, path))
            assert (outcome.findings, outcome.unsupported, outcome.ran) == ([], set(), True)
            assert len(outcome.keys) > 1800


@pytest.mark.parametrize("path", ["prompt", "decode", "decode_zos"])
def test_no_valid_batch_has_more_fields_than_a_message_may(path: str) -> None:
    request = step_request(many_ratios(2000, path), 0)
    assert (len(request.config.sparse_ratios), request.violations()) == (1600, [])
    config = dataclasses.replace(request.config, cp_size=2 if path == "prompt" else 1)
    assert len(oracle.field_shapes(path, config, request.sequences)) <= wire.MOST_ARRAYS


def test_a_right_answer_that_is_too_long_is_not_checked_and_one_that_need_not_be_is_a_crash() -> None:
    argv = [sys.executable, "-I", "-S", str(EXAMPLE)]
    with IsolatedSubject(lambda: Worker(argv, wire=limited(1500)), timeout=10.0) as subject:
        outcome = Session(subject).run(decode(200))
        assert (outcome.findings, outcome.ran) == ([], False)
        assert "an answer that may have more than 1500 bytes" in outcome.unsupported
    with IsolatedSubject(lambda: Worker(argv, wire=limited(1500)), timeout=10.0) as subject:
        request = step_request(decode(1), 0)
        subject._worker.wire = dataclasses.replace(subject._worker.wire, split=partial(split_line, limit=100))
        subject._worker.wire = dataclasses.replace(subject._worker.wire, limit=10**6)
        with pytest.raises(SubjectFailure) as caught:
            subject.build(request)
        assert (caught.value.verdict, caught.value.code) == ("CRASH", "oversized")


def test_what_a_right_answer_may_take() -> None:
    request = step_request(decode(100), 0)
    need = sum(
        math.prod(shape) for _, shape in oracle.field_shapes("decode", request.config, request.sequences).values()
    )
    for form in (FRAMES, LINES):
        assert may_exceed(request, dataclasses.replace(form, limit=need * form.cell_bytes))
        assert not may_exceed(request, form)
    broken = dataclasses.replace(request, sequences=[dataclasses.replace(request.sequences[0], state_id=-1)])
    assert not may_exceed(broken, dataclasses.replace(FRAMES, limit=1))  # a refusal is short
    line = codec.encode_line(wire.ResultAnswer(id=1, fields={"x": wire.Array.of(np.full(1000, -(2**63)))}))
    assert len(line) <= 1000 * LINES.cell_bytes + 300


def test_a_python_subject_whose_answer_cannot_be_sent_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = wire.ResultAnswer(id=7, fields={"positions": wire.Array.of(np.zeros(1000, np.int32))})
    monkeypatch.setattr(codec, "MAX_FRAME", 1000)
    sink = io.BytesIO()
    serve.send(answer, sink, lines=False)
    told = codec.decode_frame(sink.getvalue()[4:])
    assert isinstance(told, wire.ErrorAnswer)
    assert (told.id, told.kind) == (7, "oversized")


@pytest.fixture
def small_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers may have 4 GiB of address space."""
    started = Worker.__init__

    def start(self: Worker, *arguments: object, **named: object) -> None:
        started(self, *arguments, **named)
        resource.prlimit(self.process.pid, resource.RLIMIT_AS, (4096 * MIB, 4096 * MIB))

    monkeypatch.setattr(Worker, "__init__", start)


@pytest.mark.usefixtures("small_address_space")
def test_a_subject_without_memory_is_told_as_such_with_the_limits() -> None:
    with Target(subject=f"{HERE}:Greedy", memory_limit=3000).open() as subject:
        session = Session(subject)
        assert session.run(GOOD).findings == []
        (finding,) = session.run(BAD).findings
        assert finding.signature == "CRASH:prompt:-:-:memory"
        assert finding.detail.startswith(
            "out of memory (limit 3000 MiB, RLIMIT_AS 4096 MiB): raised MemoryError: Unable to allocate"
        )
        assert "numeric.py" in finding.frames[-1]
        assert session.run(GOOD).findings == []


def test_in_process_too() -> None:
    with Target(subject=f"{HERE}:Greedy", in_process=True).open() as subject:
        (finding,) = Session(subject).run(BAD).findings
        assert finding.signature == "CRASH:prompt:-:-:memory"
        assert finding.detail.startswith("out of memory: raised MemoryError: Unable to allocate")


@pytest.mark.parametrize("text", ["what(): std::bad_alloc", "MemoryError", "fork: Cannot allocate memory"])
def test_a_program_that_dies_of_it_is_told_with_the_limits(text: str) -> None:
    script = f"echo {shlex.quote(text)} >&2; kill -ABRT $$"
    worker = Worker(["sh", "-c", script])
    with pytest.raises(SubjectFailure) as caught:
        worker._exchange(10.0)
    assert caught.value.detail == f"out of memory (limit 8192 MiB): died by SIGABRT; stderr: {text}"


def test_a_view_that_looks_larger_than_memory_is_a_wrong_field() -> None:
    with Target(subject=f"{HERE}:Wide").open() as subject:
        (finding,) = Session(subject).run(GOOD).findings
    assert finding.signature == "MISMATCH:prompt:F-POS:positions:type"
    assert "array of <i4 [1048576, 1048576]" in finding.detail


def no_memory(*_: object, **__: object) -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (exchange, "build_message"),
        (Worker, "_serve"),
        (isolated, "apply_result"),
        (runner, "Arena"),
        (runner, "wanted_fields"),
        (runner, "compare_fields"),
    ],
)
def test_the_suite_without_memory_is_no_verdict_and_its_case_is_saved(
    owner: object, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Target(subject="oracle").open() as subject, Journal(tmp_path) as journal:
        session = Session(subject, journal)
        assert session.run(GOOD).findings == []
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, no_memory)
            with pytest.raises(OutOfMemory) as caught:
                session.run(BAD)
        (file,) = tmp_path.glob("*.json")
        assert str(caught.value).startswith("out of memory")
        assert str(caught.value).endswith(f" at case {file.stem}, saved as {file}")
        assert load_case(file).steps == BAD.steps
        assert session.run(BAD).findings == []


@pytest.mark.parametrize(
    ("owner", "name"), [(convert, "request_of"), (convert, "result_message"), (convert, "reject_message")]
)
def test_an_adapter_without_memory_is_not_the_builder(
    owner: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = name == "reject_message"
    case = msgspec.structs.replace(GOOD, steps=((sequence(9, 3, block_table=(1,)),),)) if broken else GOOD
    hello = codec.encode(wire.Hello(protocol=wire.VERSION, suite="1"))
    batch = codec.encode(convert.build_message(step_request(case, 0), 3))
    monkeypatch.setattr(owner, name, no_memory)
    sink = io.BytesIO()
    serve.serve(OracleSubject(), io.BytesIO(hello + batch), sink)
    sink.seek(0)
    codec.read_frame(sink)
    answer = codec.decode_frame(codec.read_frame(sink) or b"")
    assert isinstance(answer, wire.ErrorAnswer)
    assert answer.kind == "limit"
    with pytest.raises(SubjectFailure) as caught:
        isolated.result_of(answer, convert.build_message(step_request(GOOD, 0), 3), step_request(GOOD, 0))
    assert caught.value.verdict == "UNSUPPORTED"


def test_out_of_memory_ends_the_command_with_70(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from inputmeta.conformance.check import runner\n"
        "from inputmeta.conformance.commands.main import main\n"
        "def no_memory(*_, **__): raise MemoryError\n"
        "runner.wanted_fields = no_memory\n"
        "sys.argv = ['inputmeta', *{}, '--subject', 'oracle', '--in-process']\n"
        "main()\n"
    )
    case = tmp_path / "case.json"
    save_case(GOOD, case)
    for arguments, saved in ((["replay", str(case)], False), (["fuzz", "--seconds", "20", "--seed", "1"], True)):
        ended = subprocess.run(
            [sys.executable, "-c", code.replace("{}", repr(arguments))],
            capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path,
        )  # fmt: skip
        assert ended.returncode == 70, ended.stderr
        last = ended.stderr.splitlines()[-1]
        assert last.startswith("inputmeta: out of memory at case ")
        assert not saved or load_case(tmp_path / last.rpartition(" saved as ")[2]).steps
