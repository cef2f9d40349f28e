"""Every way in which a subject can fail to answer has its verdict, loses no case, and costs only its worker."""

import os
import re
import shlex
import sys
import time
from pathlib import Path

import msgspec
import pytest

from inputmeta.conformance.campaign.journal import Journal, recover
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.check.report import describe
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.mutants import MUTANTS
from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.workers.pool import Pool
from inputmeta.conformance.workers.process import Limits, Worker
from inputmeta.conformance.workers.target import Target

pytestmark = pytest.mark.slow  # processes are started, and waited for

CONFIG = Config(block_size=4, dense_ratios=(1,), sparse_ratios=(2,), window_size=2, swa_block_size=3, max_model_len=16)
PROGRAM = Path(__file__).with_name("wrong_program.py")


def sequence(length: int, chunk: int, **changes: object) -> Sequence:
    facts = {
        "seqlen_q": chunk,
        "seqlen_k": length,
        "block_table": (5, 3, 9),
        "token_ids": tuple(range(50, 50 + length)),
    }
    return Sequence(**facts | changes)


def prompt(*chunks: int, **changes: object) -> Case:
    case = Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=(tuple(sequence(9, chunk) for chunk in chunks),))
    return msgspec.structs.replace(case, **changes)


PADDED = sequence(4, 2, is_placeholder=True)
"""A full block long and a placeholder: most mutants strike at one of the two."""
GOOD = prompt(2)
BAD = msgspec.structs.replace(GOOD, steps=((sequence(9, 2), PADDED),))
INVALID = msgspec.structs.replace(GOOD, steps=((sequence(9, 3, block_table=(1,)),),))


def wrong(name: str, **limits: object) -> Target:
    """A mutant, as a subject or as a program."""
    mutant = MUTANTS[name]
    if mutant.make is None:
        return Target(command=shlex.join(mutant.command), **limits)
    return Target(subject=f"mutant:{name}", **limits)


def program(kind: str, **limits: object) -> Target:
    return Target(command=shlex.join([sys.executable, str(PROGRAM), kind]), **limits)


KINDS = [
    (wrong("segfault-at-one-length"), "CRASH:prompt:-:-:SIGSEGV", "died by SIGSEGV; stderr: about to read address 0"),
    (wrong("aborts-at-a-placeholder"), "CRASH:prompt:-:-:SIGABRT", "died by SIGABRT"),
    (wrong("exits-with-3"), "CRASH:prompt:-:-:exit-3", "ended with exit code 3"),
    (wrong("raises"), "CRASH:prompt:-:-:raised", "raised ZeroDivisionError: integer modulo by zero"),
    (
        wrong("illegal-access"),
        "DEVICE_ERROR:prompt:-:-:device",
        "raised RuntimeError: CUDA error: an illegal memory access",
    ),
    (wrong("deadlocks", timeout=1.0), "HANG:prompt:-:-:timeout", "no answer within 1 s"),
    (wrong("takes-all-memory", memory_limit=200), "CRASH:prompt:-:-:memory", "MiB resident, limit 200 MiB"),
]


@pytest.fixture
def no_spares(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker after the other: none is started in advance."""
    monkeypatch.setattr(Pool, "fill", lambda _: None)


@pytest.mark.usefixtures("no_spares")
@pytest.mark.parametrize(("target", "signature", "detail"), KINDS, ids=[kind[1] for kind in KINDS])
def test_a_failure_has_its_verdict_and_costs_only_its_worker(target: Target, signature: str, detail: str) -> None:
    with target.open() as subject:
        session = Session(subject)
        assert session.run(GOOD).findings == []
        (finding,) = session.run(BAD).findings
        assert finding.signature == signature
        assert detail in finding.detail
        assert session.run(GOOD).findings == []


@pytest.mark.usefixtures("no_spares")
@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("segfaults-on-a-short-table", "CRASH:prompt:P-TABLE:-:SIGSEGV"),
        ("crashes-on-a-short-table", "CRASH:prompt:P-TABLE:-:raised"),
    ],
)
def test_a_failure_where_a_refusal_is_due_says_of_which_precondition(name: str, signature: str) -> None:
    with wrong(name).open() as subject:
        session = Session(subject)
        assert [finding.signature for finding in session.run(INVALID).findings] == [signature]
        assert session.run(GOOD).findings == []


def test_a_spare_that_has_started_takes_over() -> None:
    with wrong("segfault-at-one-length").open(spares=1) as subject:
        session = Session(subject)
        for _ in range(40):  # while the spare starts
            session.run(GOOD)
        worker = subject.generation
        spare = subject.pool._waiting[0]
        spare.hello()
        session.run(BAD)
        session.run(GOOD)
        assert subject._worker is spare
        assert subject.generation == worker + 1


WIRE = [
    ("log-line-before-the-answer", "CRASH:prompt:-:-:garbage", "text on stdout: 'Loading safetensors checkpoint"),
    ("frame-of-nonsense", "CRASH:prompt:-:-:garbage", "not a valid message"),
    ("announces-4-gib", "CRASH:prompt:-:-:oversized", "an answer of 4294967295 bytes"),
    ("answers-another-id", "CRASH:prompt:-:-:garbage", "answered batch 1000000000, was asked for batch "),
    ("says-hello-again", "CRASH:prompt:-:-:garbage", "an answer of the wrong kind"),
    ("exits-in-the-middle", "CRASH:prompt:-:-:exit-3", "ended with exit code 3 in the middle of an answer"),
    ("closes-stdout", "CRASH:prompt:-:-:eof", "closed its stdout and lives on"),
    ("stops-in-the-middle", "HANG:prompt:-:-:timeout", "no answer within 1 s"),
    ("answers-twice", "CRASH:prompt:-:-:garbage", "bytes after the answer"),
    ("log-line-after-the-answer", "CRASH:prompt:-:-:garbage", "'Generated 1 sequence, 23.1 tokens/s"),
]


@pytest.mark.parametrize(("name", "signature", "detail"), WIRE, ids=[kind[0] for kind in WIRE])
def test_a_program_that_breaks_the_wire(name: str, signature: str, detail: str) -> None:
    with wrong(name, timeout=1.0).open() as subject:
        session = Session(subject)
        assert session.run(GOOD).findings == []
        (finding,) = session.run(BAD).findings
        assert finding.signature == signature
        assert detail in finding.detail


def test_a_program_that_keeps_to_the_protocol_passes() -> None:
    with program("none").open() as subject:
        assert subject.name == "oracle"
        assert Session(subject).run(BAD).findings == []


def test_what_a_subject_prints_is_no_answer() -> None:
    with wrong("prints-to-stdout").open() as subject:
        assert Session(subject).run(BAD).findings == []


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (program("greets-in-text"), "no hello: garbage: text on stdout: 'Welcome to the builder!"),
        (program("speaks-another-protocol"), "no hello of protocol 1, but"),
        (Target(command="/no/such/program"), "/no/such/program: No such file"),
        (Target(command="true"), "no hello: ended with exit code 0"),
        (Target(command="sh -c 'echo no licence >&2; exit 4'"), "no licence"),
        (Target(command="'"), "--subject-command: No closing quotation"),
        (Target(command=""), "--subject-command: is empty"),
        (Target(json=True), "--subject-json: belongs to --subject-command"),
        (Target(command="true", in_process=True), "--in-process: a --subject-command is a process of its own"),
        (Target(subject="inputmeta.conformance.subjects.oracle:NoSuch"), "has no attribute NoSuch"),
        (Target(subject="mutant:nobody"), "mutant nobody: none of"),
    ],
)
def test_a_subject_that_does_not_start_is_one_line(target: Target, why: str) -> None:
    with pytest.raises(SubjectError) as caught, target.open():
        pass
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_spares")
def test_a_death_between_two_cases_is_seen_by_the_next() -> None:
    with wrong("aborts-at-a-placeholder").open() as subject:
        session = Session(subject)
        assert session.run(GOOD).findings == []
        process = subject._worker.process
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # how it ended stays to be seen
        (finding,) = session.run(GOOD).findings
        assert finding.signature == "CRASH:prompt:-:-:SIGKILL"


def test_a_kill_takes_what_the_worker_started() -> None:
    worker = Worker(["sh", "-c", "sleep 3600 & echo $! >&2; exec sleep 3600"], limits=Limits(startup=1.0))
    with pytest.raises(SubjectError, match=r"^no hello within 1 s, the limit of a subject's start: --startup-seconds "):
        worker.hello()
    child = int(worker.stderr.split()[0])
    for _ in range(200):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            break
        time.sleep(0.01)
    else:
        pytest.fail("the child lives")


def test_a_batch_that_cannot_be_sent_is_unsupported() -> None:
    with wrong("prints-to-stdout").open() as subject:
        session = Session(subject)
        huge = prompt(2, max_num_blocks=None, config=msgspec.structs.replace(CONFIG, pad_token=2**63))
        outcome = session.run(huge)
        assert (outcome.findings, outcome.ran, outcome.unsupported) == ([], False, {"value beyond int64"})


LEAVES_OUT = """
from inputmeta.conformance.subjects import Unsupported
from inputmeta.conformance.subjects.oracle import OracleSubject

class LeavesOut(OracleSubject):
    def build(self, request):
        if len(request.sequences) > 1:
            raise Unsupported("more than one \x1b[2J sequence")
        return dict(super().build(request)) | {"positions": Unsupported("never")}
"""


def test_what_is_not_built_crosses_the_wire_and_costs_no_worker(tmp_path: Path) -> None:
    (tmp_path / "leaves_out_of_this_test.py").write_text(LEAVES_OUT)
    argv = [sys.executable, "-m", "inputmeta.conformance.protocol.serve", "leaves_out_of_this_test:LeavesOut"]
    command = shlex.join(["env", f"PYTHONPATH={tmp_path}", *argv])
    with Target(command=command).open() as subject:
        session = Session(subject)
        first = subject._worker
        batch, field = session.run(prompt(2, 3)), session.run(prompt(2))
        assert (batch.findings, batch.ran, batch.unsupported) == ([], False, {"more than one ?[2J sequence"})
        assert (field.findings, field.ran) == ([], True)
        assert "positions: never" in field.unsupported
        assert "positions" not in field.keys
        assert subject._worker is first


def test_the_same_exception_is_the_same_finding_in_process() -> None:
    found = []
    for in_process in (False, True):
        with wrong("raises", in_process=in_process).open() as subject:
            found += Session(subject).run(BAD).findings
    assert found[0] == found[1]
    assert found[0].frames == found[1].frames
    frames = found[0].frames
    assert all(re.search(r"mutants/\w+\.py:\d+ in \w+: \S", frame) for frame in frames)
    lines = describe(found[0], BAD, "replay").splitlines()
    assert lines[0] == "CRASH: raised ZeroDivisionError: integer modulo by zero"
    assert lines[1 : 1 + len(frames)] == [f"  raised   {frames[0]}", *(f"           {frame}" for frame in frames[1:])]


@pytest.mark.usefixtures("no_spares")
def test_the_journal_is_read_back_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with wrong("segfault-at-one-length").open() as subject, Journal(folder) as journal:
        session = Session(subject, journal)
        for case in (GOOD, prompt(1), BAD):
            session.run(case)
        mark = session.mark()
        assert session.earlier(mark) == [GOOD, prompt(1)]
        session.run(prompt(4))
        assert session.earlier(session.mark()) == []
        assert session.earlier(mark) == [GOOD, prompt(1)]
        assert len(list(folder.iterdir())) == 1
    assert not folder.exists()


def test_an_interrupted_run_leaves_its_failures_to_the_next(tmp_path: Path) -> None:
    def interrupted(case: Case) -> None:
        with wrong("raises", in_process=True).open() as subject, Journal(tmp_path) as journal:
            Session(subject, journal).run(case)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(GOOD)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        interrupted(BAD)
    (file,), problems = recover(tmp_path)
    assert problems == []
    assert load_case(file).title == "interrupted run: CRASH:prompt:-:-:raised"
    assert list(tmp_path.iterdir()) == [file]


def test_a_journal_that_is_none_stays_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal-x.jsonl"
    for text in ('{"type": "sent"}\n', "[" * 10**5 + "\n", "\xff\n"):
        path.write_text(text)
        files, (problem,) = recover(tmp_path)
        assert files == []
        assert problem.startswith(f"{path}: line 1: ")
    path.write_text('{"type": "sent", "worker": 1, "ca')  # cut off: it was never handed over
    assert recover(tmp_path) == ([], [])
    assert not path.exists()


def test_verdicts_without_an_answer_have_names() -> None:
    assert {"HANG", "DEVICE_ERROR", "FLAKY", "KNOWN"} <= set(Verdict)


def test_a_spare_that_died_waiting_is_made_up_for() -> None:
    with wrong("segfault-at-one-length").open(spares=1) as subject:
        session = Session(subject)
        subject.pool._waiting[0].process.kill()
        session.run(BAD)
        assert session.run(GOOD).findings == []


def test_a_subject_that_cannot_be_started_again_ends_the_campaign(tmp_path: Path) -> None:
    script = tmp_path / "builder"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(MUTANTS['exits-in-the-middle'].command)}\n")
    script.chmod(0o755)
    with Target(command=str(script)).open() as subject:
        script.unlink()
        session = Session(subject)
        (finding,) = session.run(BAD).findings
        assert finding.code == "exit-3"
        with pytest.raises(SubjectError, match="No such file"):
            session.run(GOOD)
