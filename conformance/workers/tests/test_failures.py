"""Every way in which a subject can fail to answer has its verdict, loses no case, and costs only its worker."""

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
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.workers.process import Worker
from inputmeta.conformance.workers.target import Target

CONFIG = Config(block_size=4, dense_ratios=(1,), sparse_ratios=(2,), window_size=2, swa_block_size=3, max_model_len=16)
PROGRAM = Path(__file__).with_name("program.py")


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


GOOD, BAD = prompt(2), prompt(2, 3)
INVALID = msgspec.structs.replace(BAD, steps=((sequence(9, 3, block_table=(1,)),),))


def wrong(name: str, **limits: object) -> Target:
    return Target(subject=f"inputmeta.conformance.workers.tests.wrong:{name}", **limits)


def program(mode: str, **limits: object) -> Target:
    return Target(command=shlex.join([sys.executable, str(PROGRAM), mode]), **limits)


KINDS = [
    (wrong("Segfaults"), "CRASH:SIGSEGV:-", "died by SIGSEGV; stderr: about to read address 0"),
    (wrong("Aborts"), "CRASH:SIGABRT:-", "died by SIGABRT"),
    (wrong("Exits"), "CRASH:exit-3:-", "ended with exit code 3"),
    (wrong("Raises"), "CRASH:raised:-", "raised ZeroDivisionError: by zero"),
    (wrong("BreaksDevice"), "DEVICE_ERROR:device:-", "raised RuntimeError: CUDA error: an illegal memory access"),
    (wrong("Hangs", timeout=2.0), "HANG:timeout:-", "no answer within 2 s"),
    (wrong("Hogs", memory_limit=300), "CRASH:memory:-", "MiB resident, limit 300 MiB"),
]


@pytest.mark.parametrize(("target", "signature", "detail"), KINDS, ids=[kind[1] for kind in KINDS])
def test_a_failure_has_its_verdict_and_costs_only_its_worker(target: Target, signature: str, detail: str) -> None:
    with target.open(spares=1) as subject:
        session = Session(subject)
        assert session.run(GOOD).findings == []
        (finding,) = session.run(BAD).findings
        assert finding.signature == signature
        assert detail in finding.detail
        assert session.run(GOOD).findings == []
        (again,) = session.run(INVALID).findings
        assert again.signature == signature[:-1] + "P-TABLE"


def test_a_spare_that_has_started_takes_over() -> None:
    with wrong("Segfaults").open(spares=1) as subject:
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
    ("text", "CRASH:garbage:-", "text on stdout: 'Segment 1 of 4 done"),
    ("noise", "CRASH:garbage:-", "not a valid message"),
    ("oversized", "CRASH:oversized:-", "an answer of 536870913 bytes"),
    ("id", "CRASH:garbage:-", "answered batch 0, was asked for batch 1"),
    ("hello", "CRASH:garbage:-", "an answer of the wrong kind"),
    ("middle", "CRASH:exit-7:-", "ended with exit code 7 in the middle of an answer"),
    ("closes", "CRASH:eof:-", "closed its stdout and lives on"),
    ("deaf", "HANG:timeout:-", "no answer within 2 s"),
    ("twice", "CRASH:garbage:-", "bytes after the answer"),
    ("chatty", "CRASH:garbage:-", "and that was that"),  # too late for its batch: counts against the next
]


@pytest.mark.parametrize(("mode", "signature", "detail"), WIRE, ids=[kind[0] for kind in WIRE])
def test_a_program_that_breaks_the_wire(mode: str, signature: str, detail: str) -> None:
    with program(mode, timeout=2.0).open() as subject:
        session = Session(subject)
        findings = [found for _ in range(2) for found in session.run(GOOD).findings]
        found = {finding.signature: finding.detail for finding in findings}
        assert set(found) == {signature}
        assert detail in found[signature]


def test_a_program_that_keeps_to_the_protocol_passes() -> None:
    with program("right").open() as subject:
        assert subject.name == "program"
        assert Session(subject).run(BAD).findings == []


def test_what_a_subject_prints_is_no_answer() -> None:
    with wrong("Prints").open() as subject:
        assert Session(subject).run(BAD).findings == []


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (program("greets"), "no hello: garbage: text on stdout: 'Welcome to the builder!"),
        (program("protocol"), "no hello of protocol 1, but"),
        (Target(command="/no/such/program"), "/no/such/program: No such file"),
        (Target(command="true"), "no hello: ended with exit code 0"),
        (Target(command="sh -c 'echo no licence >&2; exit 4'"), "no licence"),
        (Target(command="'"), "--subject-command: No closing quotation"),
        (Target(command=""), "--subject-command: is empty"),
        (Target(json=True), "--subject-json: belongs to --subject-command"),
        (Target(command="true", in_process=True), "--in-process: a --subject-command is a process of its own"),
        (wrong("NoSuch"), "has no attribute NoSuch"),
    ],
)
def test_a_subject_that_does_not_start_is_one_line(target: Target, why: str) -> None:
    with pytest.raises(SubjectError) as caught, target.open():
        pass
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_death_between_two_cases_is_seen_by_the_next() -> None:
    with wrong("EndsAfterwards").open() as subject:
        session = Session(subject)
        assert session.run(BAD).findings == []
        time.sleep(0.6)
        (finding,) = session.run(GOOD).findings
        assert finding.signature == "CRASH:SIGKILL:-"


def test_a_kill_takes_what_the_worker_started() -> None:
    worker = Worker(["sh", "-c", "sleep 3600 & echo $! >&2; cat"])
    with pytest.raises(SubjectError):
        worker.hello(timeout=3.0)
    child = int(worker.stderr.split()[0])
    for _ in range(200):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            break
        time.sleep(0.01)
    else:
        pytest.fail("the child lives")


def test_a_batch_that_cannot_be_sent_is_unsupported() -> None:
    with wrong("Prints").open() as subject:
        session = Session(subject)
        huge = prompt(2, max_num_blocks=None, config=msgspec.structs.replace(CONFIG, pad_token=2**63))
        outcome = session.run(huge)
        assert (outcome.findings, outcome.ran, outcome.unsupported) == ([], False, {"value beyond int64"})


def test_the_same_exception_is_the_same_finding_in_process() -> None:
    found = []
    for in_process in (False, True):
        with wrong("Raises", in_process=in_process).open() as subject:
            found += Session(subject).run(BAD).findings
    assert found[0] == found[1]


def test_the_journal_is_read_back_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with wrong("Segfaults").open() as subject, Journal(folder) as journal:
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
        with wrong("Raises", in_process=True).open() as subject, Journal(tmp_path) as journal:
            Session(subject, journal).run(case)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(GOOD)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        interrupted(BAD)
    (file,), problems = recover(tmp_path)
    assert problems == []
    assert load_case(file).title == "interrupted run: CRASH:raised:-"
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
    with wrong("Segfaults").open(spares=1) as subject:
        session = Session(subject)
        subject.pool._waiting[0].process.kill()
        session.run(BAD)
        assert session.run(GOOD).findings == []


def test_a_subject_that_cannot_be_started_again_ends_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "builder"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {PROGRAM} middle\n")
    script.chmod(0o755)
    with Target(command=str(script)).open() as subject:
        script.unlink()
        session = Session(subject)
        (finding,) = session.run(GOOD).findings
        assert finding.code == "exit-7"
        with pytest.raises(SubjectError, match="No such file"):
            session.run(GOOD)
