"""Builders that check no precondition, or some: an honest one conforms, and what is left out is counted."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.cases.files import load_case, save_case
from inputmeta.conformance.commands.main import app

CORPUS = bundled_corpus()
BUILDERS = '''
import dataclasses
from inputmeta.conformance.subjects import Rejection
from inputmeta.conformance.subjects.oracle import OracleSubject

class Builder(OracleSubject):
    """Takes whatever breaks none of what it checks; what it must never be given ends in an error of its own."""

    checks = ()
    refuses = ()

    def __init__(self):
        super().__init__(name="builder")
        self.capabilities = dataclasses.replace(self.capabilities, refuses=frozenset(self.refuses))

    def build(self, request):
        try:
            return super().build(request)
        except Rejection as rejection:
            if rejection.condition in self.checks or "P-OUT" in str(rejection):
                raise
            raise KeyError(f"would read what is not there: {rejection}") from rejection

class ChecksNone(Builder):
    pass

class ChecksTables(Builder):
    checks = refuses = ("P-TABLE", "P-LEN", "P-RATIO")

class ClaimsMore(Builder):
    checks = ("P-TABLE", "P-LEN", "P-RATIO")
    refuses = ("P-TABLE", "P-LEN", "P-RATIO", "P-STATE")

class ClaimsAll(Builder):
    refuses = ("P-RATIO", "P-LEN", "P-TABLE", "P-STATE", "P-NGRAM", "P-INT32", "P-OUT")

class Misspelt(Builder):
    refuses = ("P-TABEL",)
'''


@pytest.fixture(autouse=True)
def _builders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "builders_of_this_test.py").write_text(BUILDERS)
    monkeypatch.syspath_prepend(str(tmp_path))


def run(command: str, builder: str, *arguments: object) -> Result:
    """A command on a builder, in this process."""
    words = [command, "--subject", f"builders_of_this_test:{builder}", "--in-process", *arguments]
    return CliRunner().invoke(app, [str(word) for word in words])


def check(builder: str, corpus: Path, *arguments: object, examples: int = 100) -> Result:
    folders = ("--corpus", corpus, "--save-dir", corpus.parent / "saved")
    return run("check", builder, "--examples", examples, *folders, *arguments)


def broken_cases(corpus: Path) -> set[Path]:
    """The cases of a corpus all of whose steps break a precondition."""
    return {path for path in corpus.glob("*.json") if all(step.refused for step in load_case(path).expected)}


@pytest.mark.slow
def test_an_honest_builder_without_validation_conforms(few_cases: Path) -> None:
    ended = check("ChecksNone", few_cases)
    assert ended.exit_code == exits.CONFORMS, ended.output
    passed = len(list(few_cases.glob("*.json"))) - len(broken_cases(few_cases))
    outside = f"{len(broken_cases(few_cases))} outside the claims"
    assert ended.output.splitlines()[0] == f"corpus cases: {passed} passed, 0 failed, 0 unsupported, {outside}"
    assert "outside the claims, so not drawn: batches that break P-RATIO, P-LEN, P-TABLE, P-STATE" in ended.output
    assert "PASS 100\n" in ended.output


@pytest.mark.slow
def test_it_does_not_if_it_claims_to_validate_unless_the_user_leaves_that_out(few_cases: Path) -> None:
    assert check("ClaimsAll", few_cases, examples=0).exit_code == exits.DIFFERS
    ended = check("ClaimsAll", few_cases, "--valid-only")
    assert ended.exit_code == exits.CONFORMS, ended.output
    assert f"{len(broken_cases(few_cases))} outside the claims" in ended.output


@pytest.mark.slow
def test_what_is_claimed_is_asked_for_and_nothing_else(few_cases: Path) -> None:
    assert check("ChecksTables", few_cases).exit_code == exits.CONFORMS
    ended = check("ClaimsMore", few_cases, examples=0)
    assert ended.exit_code == exits.DIFFERS
    assert "CRASH: breaks P-STATE; raised KeyError" in ended.output
    assert "CRASH: breaks P-NGRAM" not in ended.output


@pytest.mark.slow
def test_what_is_not_drawn_is_not_missed(tmp_path: Path) -> None:
    ended = run("fuzz", "ChecksNone", "--seed", 1, "--seconds", 3, "--save-dir", tmp_path / "saved", "--coverage")
    assert ended.exit_code == exits.CONFORMS, ended.output
    assert "batches that break P-RATIO" in ended.output
    assert not [line for line in ended.output.splitlines() if "  P-" in line or "REFUSED:" in line]


def test_an_unknown_precondition_is_one_line() -> None:
    ended = run("fuzz", "Misspelt")
    assert ended.exit_code == exits.NO_SUBJECT
    assert ended.output.count("\n") == 1
    assert "capabilities.refuses: there is no 'P-TABEL'; there are P-RATIO, P-LEN" in ended.output


def test_of_several_steps_those_that_are_valid_are_run(tmp_path: Path) -> None:
    """A refused step between two valid ones: left out without a claim, asked for with one."""
    several = next(
        path
        for path in sorted(CORPUS.glob("*.json"))
        if 0 < sum(bool(step.refused) for step in load_case(path).expected) < len(load_case(path).steps)
    )
    case = load_case(several)
    ((index, broken),) = ((i, e.refused) for i, e in enumerate(case.expected) if e.refused)
    ended = run("replay", "ChecksNone", several)
    assert ended.exit_code == exits.CONFORMS, ended.output
    names = " or ".join(sorted({refusal.condition for refusal in broken}))
    assert f"PASS {several}: {len(case.steps) - 1} steps, " in ended.output
    assert ended.output.endswith(f"; not claimed: refusal for {names}\n")
    right = run("replay", "ClaimsAll", several, "--subject", "oracle")
    assert f"refused as required: step {index} for " in right.output
    assert run("replay", "ClaimsAll", several, "--valid-only").exit_code == exits.CONFORMS
    assert run("replay", "ClaimsAll", several).exit_code == exits.DIFFERS


def test_nothing_but_what_is_outside_the_claims_is_nothing_checked(tmp_path: Path) -> None:
    for path in sorted(broken_cases(CORPUS))[:3]:
        save_case(load_case(path), tmp_path / "cases" / path.name)
        assert run("replay", "ChecksNone", path).exit_code == exits.NOTHING_RAN
    ended = check("ChecksNone", tmp_path / "cases", examples=0)
    assert ended.exit_code == exits.NOTHING_RAN
    assert ended.output == "corpus cases: 0 passed, 0 failed, 0 unsupported, 3 outside the claims\n"


def test_a_comparison_leaves_out_what_a_party_does_not_check(tmp_path: Path) -> None:
    (path, *_) = sorted(broken_cases(CORPUS))
    assert run("compare", "ClaimsAll", path, "--valid-only").exit_code == exits.NOTHING_RAN
    assert run("compare", "ClaimsAll", path).exit_code == exits.DIFFERS
    both = run("compare", "ChecksNone", "--subject", "oracle", path)
    assert both.exit_code == exits.CONFORMS, both.output
    assert "builder claims no refusal of 1 steps that break a precondition" in both.output
    generated = run("compare", "ChecksNone", "--cases", 60, "--save-dir", tmp_path / "saved")
    assert generated.exit_code == exits.CONFORMS, generated.output
