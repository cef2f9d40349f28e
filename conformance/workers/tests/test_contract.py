"""``subject check``: right adapters pass every check, and each check fails on an adapter that is wrong in its way."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inputmeta.conformance.commands.subject import subject_app
from inputmeta.conformance.workers import contract as check
from inputmeta.conformance.workers.contract import CHECKS, Session, run_check, run_checks, sending
from inputmeta.conformance.workers.process import Worker
from inputmeta.conformance.workers.wire import FRAMES

HERE = Path(__file__).parent
WRONG = "inputmeta.conformance.workers.tests.wrong_adapters"


def starting(*arguments: str):
    paths = os.pathsep.join(path for path in sys.path if path)
    argv = [sys.executable, *arguments]
    return lambda: Worker(argv, wire=sending(FRAMES), env={**os.environ, "PYTHONPATH": paths})


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
    assert [(r.name, r.problems, r.skipped) for r in results] == [(name, (), None) for name, _ in CHECKS]


@pytest.mark.parametrize(
    ("subject", "name", "text"),
    [
        ("claims_an_unknown_field", "hello", "fields: there is no 'position_ids'"),
        ("claims_nothing", "hello", "paths: nothing is claimed"),
        ("RefusesEverything", "answers", "prompt, 2 sequences: refused: P-LEN: too long"),
        ("Dies", "answers", "CRASH (exit-3)"),
        ("ReturnsInt64", "fields", "positions: dtype int64, want int32"),
        ("ReturnsTensors", "fields", "positions: an array is wanted, got Tensor"),
        ("OneRowShort", "fields", "query_indices: shape [3], want [4]"),
        ("ForgetsAField", "fields", "total_q: the field is missing"),
        ("CountsCalls", "repeatable", "positions is not the same a second time"),
        ("ChangesItsInput", "inputs", "wrote into its input: sequences[0].seqlen_k"),
        ("AcceptsEverything", "rejects", "P-STATE: is accepted; it breaks P-STATE"),
        ("RefusesBadly", "rejects", "P-STATE: names sequence 99 of 2"),
        ("RefusesBadly", "rejects", "names the field 'thing', which is neither"),
        ("RefusesBadly", "rejects", "says nothing"),
        ("RaisesInsteadOfRefusing", "rejects", "is not refused: CRASH (raised): "),
        ("RemembersAfterARefusal", "rejects", "positions is another after a refusal"),
        ("IgnoresOut", "in-place", "positions is another in the caller's buffers"),
        ("WritesBehind", "in-place", "positions: wrote outside its buffer"),
        ("WritesBeforeItRefuses", "in-place", "wrote into the buffers of a batch that it refused"),
        (
            "claims_tails_that_it_does_not_write",
            "in-place",
            "rows from 4 on are past total_q and promised to be neutral",
        ),
    ],
)
def test_a_wrong_subject_fails_the_check_of_its_fault(subject, name, text, monkeypatch):
    monkeypatch.setattr(check, "MOST_LINES", 10**6)
    assert text in problems(starting("-m", "inputmeta.conformance.protocol.serve", f"{WRONG}:{subject}"), name)


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("dies-of-an-invalid-message", "invalid-messages", "a message of an unknown type: ended with exit code 9"),
        ("takes-an-invalid-message-for-a-batch", "invalid-messages", "answered by Reject"),
        ("answers-another-id", "answers", "answered batch 2, was asked for batch 1"),
        ("fails-after-bye", "bye", "ended with exit code 1"),
        ("stays-after-bye", "bye", "has not ended 1 s after bye"),
    ],
)
def test_a_wrong_program_fails_the_check_of_its_fault(kind, name, text, monkeypatch):
    if kind == "stays-after-bye":
        monkeypatch.setattr(check, "BYE_SECONDS", 1.0)
    assert text in problems(starting(str(HERE / "wrong_program.py"), kind), name)


def test_a_right_program_passes():
    results = {r.name: r for r in run_checks(starting(str(HERE / "wrong_program.py"), "none"))}
    assert results["inputs"].skipped == "a program is handed a copy"
    assert not any(r.problems for r in results.values())


def run(*arguments: str):
    return CliRunner().invoke(subject_app, list(arguments))


def test_the_command_says_what_failed_and_ends_with_one():
    right = run("check", "--subject", "oracle")
    assert right.exit_code == 0, right.output
    assert [line.split()[:2] for line in right.output.splitlines()] == [["ok", name] for name, _ in CHECKS]
    wrong = run("check", "--subject", f"{WRONG}:ForgetsAField")
    assert wrong.exit_code == 1
    assert "\nFAILED  fields" in wrong.output
    assert "        - prompt, 2 sequences: total_q: the field is missing" in wrong.output


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
