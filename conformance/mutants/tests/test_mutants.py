"""Every member of the zoo gets the verdict that is declared for it, with a fixed seed, every time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from inputmeta.conformance import exits
from inputmeta.conformance.cases.corpus import BUG_CLASSES
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.mutants import MEMBERS, Specimen
from inputmeta.conformance.mutants.devices import driver
from inputmeta.conformance.mutants.mutant import Wrong
from inputmeta.conformance.mutants.runs import run
from inputmeta.conformance.subjects import SubjectError, load_subject

NAMED_BY_THE_ISSUE = (
    "segfault-at-one-length",
    "hangs-at-one-ratio",
    "illegal-access",
    "every-7th-call",
    "answer-for-the-previous-case",
    "mutates-its-input",
    "returns-int64",
    "leaves-the-last-row",
    "writes-one-past-the-end",
)


@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS.keys())
def test_it_gets_its_verdict(member: Specimen) -> None:
    if member.gpu and driver() is None:
        pytest.skip("no CUDA device")
    result = run(member, shrink_seconds=0, examine=member.label == "flaky")
    assert result.right, result
    assert (result.got == Verdict.PASS) == (member.kind == "NOISE")


SHRUNK = {
    "leaves-the-last-row": (1, 1),
    "grows-at-a-repeat": (1, 1),
    "segfault-at-one-length": (1, 3),
}
"""At most so many steps and sequences in the minimal case. Through crashes shrinking takes longer than a test may."""


@pytest.mark.parametrize(("name", "size"), SHRUNK.items(), ids=SHRUNK.keys())
def test_its_case_is_small(name: str, size: tuple[int, int]) -> None:
    result = run(MEMBERS[name], shrink_seconds=8)
    assert result.right, result
    assert (result.steps, result.sequences) <= size
    assert result.size < 700


def test_what_needs_earlier_cases_is_saved_with_them() -> None:
    result = run(MEMBERS["every-7th-call"], shrink_seconds=2)
    assert result.right, result
    assert result.label == "only after earlier cases"
    assert result.steps > 1


def test_a_run_is_the_same_every_time() -> None:
    for name in ("prefix-counted-twice", "memo-by-shape", "segfault-at-one-length"):
        once, again = (run(MEMBERS[name], shrink_seconds=0, examine=False) for _ in range(2))
        assert once == msgspec.structs.replace(again, seconds=once.seconds)


def test_a_verdict_that_is_not_the_declared_one_is_wrong() -> None:
    member = MEMBERS["returns-int64"]
    for declared in ("MISMATCH:F-POS:position_ids", "UNWRITTEN:F-POS:positions", "PASS"):
        other = changed(member, declared=declared)
        assert not run(other, shrink_seconds=0, examine=False).right
    labelled = changed(member, label="flaky")
    assert not run(labelled, shrink_seconds=0).right


def changed(member: Specimen, **changes: str) -> Specimen:
    return Specimen(**{**vars(member), **changes})


def test_a_member_that_does_nothing_wrong_is_noticed() -> None:
    tame = Specimen("prints-to-stdout", "NOISE", "MISMATCH", "", MEMBERS["prints-to-stdout"].make, paths=("decode",))
    assert not run(tame, shrink_seconds=0, examine=False, rounds=1).right


def test_the_zoo_holds_what_it_should() -> None:
    kinds = {member.kind for member in MEMBERS.values()}
    assert len(MEMBERS) >= 40
    assert set(BUG_CLASSES) <= kinds
    assert {"CRASH", "HANG", "MEMORY", "WIRE", "DEVICE_ERROR", "FLAKY", "REFUSAL"} <= kinds
    assert set(NAMED_BY_THE_ISSUE) <= MEMBERS.keys()
    assert all(member.stands_for and member.declared for member in MEMBERS.values())
    assert {member.declared.partition(":")[0] for member in MEMBERS.values()} >= {
        *(verdict for verdict in Verdict if verdict not in (Verdict.UNSUPPORTED, Verdict.KNOWN))
    }


def test_it_is_a_subject_by_name() -> None:
    assert isinstance(load_subject("zoo:returns-int64"), Wrong)
    with pytest.raises(SubjectError, match="zoo nobody: none of drafts-counted-twice"):
        load_subject("zoo:nobody")
    with pytest.raises(
        SubjectError, match=r"a program, --subject-command 'python -m inputmeta\.conformance\.mutants\.programs answers"
    ):
        load_subject("zoo:answers-twice")


@pytest.mark.parametrize("where", [[], ["--in-process"]], ids=["worker", "in process"])
def test_nothing_that_a_subject_says_reaches_the_terminal(tmp_path: Path, where: list[str]) -> None:
    options = ["--path", "decode", "--seed", "1", "--seconds", "20", "--save-dir", str(tmp_path / "saved"), *where]
    code = "from inputmeta.conformance.commands.main import main; main()"
    command = [sys.executable, "-c", code, "fuzz", "--subject", "zoo:raises-in-escapes", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == exits.DIFFERS, done.stderr
    assert "raised ValueError: ?]0;owned??[2J?gnp" in done.stdout
    saved = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "saved").iterdir())
    assert all(line.isprintable() for text in (done.stdout, done.stderr, saved) for line in text.split("\n"))


def test_its_workers_start_without_the_large_packages() -> None:
    code = (
        "import sys, inputmeta.conformance.mutants, inputmeta.conformance.protocol.serve;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'hypothesis', 'rich', 'typer'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
