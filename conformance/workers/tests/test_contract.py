"""``subject check``: right adapters pass every check, and each check fails on an adapter that is wrong in its way."""

from __future__ import annotations

import json
import os
import sys
from io import BytesIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inputmeta.conformance.check import containers
from inputmeta.conformance.commands.main import app as main_app
from inputmeta.conformance.commands.subject import app
from inputmeta.conformance.mutants import MUTANTS
from inputmeta.conformance.mutants.containers import Contained
from inputmeta.conformance.protocol.codec import decode_frame, encode, read_frame
from inputmeta.conformance.protocol.messages import VERSION, Build, Hello, ResultAnswer
from inputmeta.conformance.protocol.serve import Server
from inputmeta.conformance.subjects import load_subject
from inputmeta.conformance.workers import contract as check
from inputmeta.conformance.workers.contract import CHECKS, Session, run_check, run_checks
from inputmeta.conformance.workers.contract_batches import sending
from inputmeta.conformance.workers.process import Worker
from inputmeta.conformance.workers.wire import FRAMES

pytestmark = pytest.mark.slow  # processes are started, and waited for

HERE = Path(__file__).parent
WRONG = "inputmeta.conformance.workers.tests.wrong_adapters"


def starting(*arguments: str):
    paths = os.pathsep.join(path for path in sys.path if path)
    argv = [sys.executable, *arguments]
    return lambda: Worker(argv, wire=sending(FRAMES), env={**os.environ, "PYTHONPATH": paths})


class InThisProcess:
    """A worker that is none: it answers every message as :mod:`inputmeta.conformance.protocol.serve` does."""

    argv = ("-m", "inputmeta.conformance.protocol.serve")
    wire = sending(FRAMES)

    def __init__(self, name: str) -> None:
        self.server = Server(load_subject(name))
        self.alive = True

    def hello(self):
        return self.answer(encode(Hello(protocol=VERSION, suite="")))

    def call(self, message, timeout=None):
        return self.answer(message if isinstance(message, bytes) else encode(message))

    def answer(self, frame: bytes):
        answer = self.server.answer(decode_frame(read_frame(BytesIO(frame)), "suite"))
        return decode_frame(read_frame(BytesIO(encode(answer))), "program")

    def kill(self) -> None:
        self.alive = False


def problems(start, name: str) -> str:
    session = Session(start)
    try:
        found = run_check(name, dict(CHECKS)[name], session)
    finally:
        session.worker.kill()
    assert found.skipped is None
    return "\n".join(found.problems)


def test_the_oracle_passes_every_check():
    results = list(run_checks(starting("-m", "inputmeta.conformance.protocol.serve", "oracle")))
    assert [(r.name, r.problems) for r in results] == [(name, ()) for name, _ in CHECKS]
    assert [r.name for r in results if r.skipped is not None] == ["allocation", "container"]


def test_what_is_not_built_fails_no_check() -> None:
    results = list(
        run_checks(starting("-m", "inputmeta.conformance.protocol.serve", f"{WRONG}:BuildsSome"), robust=False)
    )
    assert [(r.name, r.problems) for r in results if r.problems] == []
    assert "fields" not in {r.name for r in results if r.skipped is not None}


def test_of_an_adapter_that_builds_nothing_nothing_is_checked() -> None:
    session = Session(lambda: InThisProcess(f"{WRONG}:BuildsNone"))
    for name in ("answers", "fields", "repeatable", "rejects", "in-place", "out"):
        found = run_check(name, dict(CHECKS)[name], session)
        assert (found.problems, found.skipped) == ((), "each of the batches is unsupported")


def test_a_container_of_which_nothing_can_be_inspected_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "on_host", lambda tensor: False)
    monkeypatch.delattr(Contained, "extract")
    session = Session(lambda: InThisProcess("mutant:copy-shares"))
    found = run_check("container", dict(CHECKS)["container"], session)
    assert (found.problems, (found.skipped or "").partition(":")[0]) == (
        (),
        "nothing of its containers could be inspected",
    )


def test_a_container_is_inspected_where_it_lives() -> None:
    wrong = starting("-m", "inputmeta.conformance.protocol.serve", "mutant:copy-shares")
    assert "I-46: recursive_copy_" in problems(wrong, "container")
    assert problems(lambda: InThisProcess("engine"), "container") == ""


@pytest.mark.parametrize(
    ("subject", "name", "text"),
    [
        (f"{WRONG}:claims_an_unknown_field", "hello", "fields: there is no 'position_ids'"),
        (f"{WRONG}:claims_nothing", "hello", "paths: nothing is claimed"),
        (
            "mutant:refuses-placeholders",
            "answers",
            "prompt, 1 sequences, a placeholder: refused: P-STATE: ",
        ),
        ("mutant:returns-int64", "fields", "positions: dtype int64, want int32"),
        ("mutant:returns-lists-of-python-ints", "fields", "positions: an array is wanted, got list"),
        ("mutant:returns-one-row-too-few", "fields", "query_indices: shape [3], want [4]"),
        ("mutant:leaves-a-field-out", "fields", "cu_seqlens_q: the field is missing"),
        ("mutant:grows-at-a-repeat", "repeatable", "cu_seqlens_q is not the same a second time"),
        ("mutant:mutates-its-input", "inputs", "wrote into its input: sequences[0].state_id"),
        ("mutant:checks-nothing", "rejects", "P-STATE: is accepted; it breaks P-STATE"),
        (f"{WRONG}:RefusesBadly", "rejects", "P-STATE: names sequence 99 of 2"),
        (f"{WRONG}:RefusesBadly", "rejects", "names the field 'thing', which is neither"),
        (f"{WRONG}:RefusesBadly", "rejects", "says nothing"),
        ("mutant:refuses-with-an-assertion", "rejects", "is not refused: CRASH (raised): "),
        ("mutant:wrong-after-a-refusal", "rejects", "positions is another after a refusal"),
        ("mutant:fills-buffers-of-its-own", "in-place", "positions is another in the caller's buffers"),
        ("mutant:writes-one-past-the-end", "in-place", "query_indices: wrote outside its buffer"),
        ("mutant:writes-before-it-refuses", "in-place", "wrote into the buffers of a batch that it refused"),
        (
            "mutant:tail-promised-neutral-but-stale",
            "in-place",
            "rows from 4 on are past total_q and promised to be neutral",
        ),
        ("mutant:allocates-what-is-missing", "out", " missing: is accepted; it breaks P-OUT"),
        ("mutant:cuts-rows-to-the-buffer", "out", " short: is accepted; it breaks P-OUT"),
        ("mutant:casts-to-the-buffer", "out", " dtype: is accepted; it breaks P-OUT"),
        ("mutant:writes-through-the-flag", "out", " read-only: is accepted; it breaks P-OUT"),
        ("mutant:expands-into-any-buffer", "out", "kv_swa_full_index narrow: is accepted; it breaks P-OUT"),
        ("mutant:believes-in-even-spacing", "out", " overlapping: is accepted; it breaks P-OUT"),
        ("mutant:writes-before-it-refuses", "out", " was written"),
    ],
)
def test_a_wrong_subject_fails_the_check_of_its_fault(subject, name, text, monkeypatch):
    monkeypatch.setattr(check, "MOST_LINES", 10**6)
    assert text in problems(lambda: InThisProcess(subject), name)


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("dies-of-an-invalid-message", "invalid-messages", "a message of an unknown type: ended with exit code 9"),
        ("takes-an-invalid-message-for-a-batch", "invalid-messages", "answered by Reject"),
        ("fails-after-bye", "bye", "ended with exit code 1"),
        ("stays-after-bye", "bye", "has not ended 1 s after bye"),
    ],
)
def test_a_wrong_program_fails_the_check_of_its_fault(kind, name, text, monkeypatch):
    if kind == "stays-after-bye":
        monkeypatch.setattr(check, "BYE_SECONDS", 1.0)
    session = Session(starting(str(HERE / "wrong_program.py"), kind))
    try:
        assert any(text in problem for problem in dict(CHECKS)[name](session))
    finally:
        session.worker.kill()


def test_a_subject_that_dies_fails_and_the_check_goes_on_with_another_worker():
    found = problems(starting("-m", "inputmeta.conformance.protocol.serve", "mutant:exits-with-3"), "answers")
    assert [line.partition(",")[0] for line in found.splitlines()] == ["prompt", "decode", "decode_zos"]
    assert all("CRASH (exit-3)" in line for line in found.splitlines())


def test_a_program_that_misreads_int32_arrays_fails() -> None:
    start = starting(*MUTANTS["reads-int32-tokens-as-int16"].command[1:])
    assert "input_ids is another of int32 arrays" in problems(start, "int32-arrays")


def test_a_program_that_misplaces_its_results_fails() -> None:
    start = starting(*MUTANTS["result-beyond-the-region"].command[1:])
    assert "of the shared memory; it may have" in problems(start, "shared-memory")


class ReadsAnyPlace(Server):
    """Builds something of whatever lies at a place that is not right."""

    def answer(self, message):
        if isinstance(message, Build) and message.id == 10**6:
            return ResultAnswer(id=message.id, fields={})
        return super().answer(message)


def test_a_program_that_reads_any_place_fails() -> None:
    worker = InThisProcess("oracle")
    worker.server = ReadsAnyPlace(load_subject("oracle"))
    found = problems(lambda: worker, "shared-memory")
    assert "an array beyond the end of the shared memory: answered by " in found
    assert "shared memory that is not there: answered by " in found


def test_a_program_that_answers_another_batch_fails() -> None:
    start = starting(*MUTANTS["answers-another-id"].command[1:])
    assert "answered batch 1000000000, was asked for batch 3" in problems(start, "answers")


def test_a_right_program_passes():
    results = {r.name: r for r in run_checks(starting(str(HERE / "wrong_program.py"), "none"))}
    assert results["inputs"].skipped == "a program is handed a copy"
    assert not any(r.problems for r in results.values())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("oracle-paged", ""),
        ("mutant:leaked-block", "refused: A-FIT: no block is free"),
        ("mutant:null-block-given", "path decode: A-RANGE: step "),
        ("mutant:float-tables", "path decode: A-FORM: step 0, allocated_blocks: is of dtype float32"),
    ],
)
def test_over_a_short_history_the_rules_of_allocation_are_kept(name: str, says: str) -> None:
    found = problems(lambda: InThisProcess(name), "allocation")
    assert found.startswith(says) if says else found == ""


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_the_command_says_what_failed_and_ends_with_one():
    right = run("check", "--subject", "oracle", "--robust")
    assert right.exit_code == 0, right.output
    states = {"container": "skipped", "allocation": "skipped"}
    assert [line.split()[:2] for line in right.output.splitlines()] == [[states.get(n, "ok"), n] for n, _ in CHECKS]
    wrong = run("check", "--subject", "mutant:leaves-a-field-out")
    assert wrong.exit_code == 1
    assert "\nFAILED  fields" in wrong.output
    assert "        - prompt, 2 sequences: cu_seqlens_q: the field is missing" in wrong.output


@pytest.mark.slow
def test_messages_that_are_not_valid_are_sent_on_request_alone():
    """A shim that ends at the first invalid message passes, and is told what was left out."""
    shim = f"{sys.executable} {HERE / 'wrong_program.py'} dies-of-an-invalid-message"
    usual = run("check", "--subject-command", shim)
    assert usual.exit_code == 0, usual.output
    (line,) = [line for line in usual.output.splitlines() if " invalid-messages " in line]
    assert line.startswith("skipped ")
    assert line.endswith("(left out, --robust asks for it)")
    asked = run("check", "--subject-command", shim, "--robust")
    assert asked.exit_code == 1
    assert "FAILED  invalid-messages" in asked.output


def test_a_refusal_that_is_not_claimed_is_not_asked_for():
    for name, valid_only in ((f"{WRONG}:checks_none", False), ("mutant:checks-nothing", True)):
        session = Session(lambda name=name: InThisProcess(name), valid_only=valid_only)
        checks = {check: run_check(check, dict(CHECKS)[check], session) for check in ("hello", "rejects", "in-place")}
        assert checks["rejects"].skipped == "it claims to check no precondition"
        assert not any(found.problems for found in checks.values())
    found = problems(lambda: InThisProcess(f"{WRONG}:checks_tables_alone"), "rejects")
    assert "P-TABLE: is accepted; it breaks P-TABLE" in found
    assert "P-STATE" not in found


def test_a_program_that_claims_an_unknown_refusal_is_one_line():
    program = f"{sys.executable} {HERE / 'wrong_program.py'} claims-an-unknown-refusal"
    ended = CliRunner().invoke(main_app, ["fuzz", "--subject-command", program])
    assert ended.exit_code == 125
    assert ended.output == (
        "inputmeta: subject oracle: capabilities.refuses: there is no 'P-LENGTH'; there are P-RATIO, P-LEN, P-TABLE, "
        "P-STATE, P-NGRAM, P-INT32, P-OUT\n"
    )


@pytest.mark.parametrize("wrong", [("--subject", "oracle", "--subject-command", "x"), ("--subject-json",)])
def test_options_that_exclude_each_other(wrong):
    ended = run("check", *wrong)
    assert (ended.exit_code, ended.output.count("\n")) == (2, 1)


def test_the_command_speaks_to_programs_and_in_json():
    ended = run("check", "--subject-command", f"{sys.executable} {HERE / 'wrong_program.py'} none", "--json")
    assert ended.exit_code == 0, ended.output
    assert {r["name"] for r in json.loads(ended.output)} == {name for name, _ in CHECKS}


def test_no_subject_is_one_line_and_125():
    ended = run("check", "--subject", "no.such:thing")
    assert ended.exit_code == 125
    assert ended.output.count("\n") == 1
    assert "no.such:thing" in ended.output


def test_the_list_holds_bundled_subjects():
    assert run("list").output.splitlines()[0].split() == [
        "engine",
        "inputmeta.conformance.subjects.engine:EngineSubject",
        "inputmeta",
    ]
    assert {row["name"] for row in json.loads(run("list", "--json").output)} >= {"engine", "oracle"}
