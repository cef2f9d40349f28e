"""A case may say whether it is to be refused or valid in every step; one that is not so is an error, and is not run."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.journal import Journal, recover
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.cases.files import case_id, load_case, save_case
from inputmeta.conformance.cases.request import wants_of
from inputmeta.conformance.commands.main import app

CORPUS = bundled_corpus()
BROKEN = load_case(CORPUS / "p-table-a-negative-block-is-refused.json")
WHOLE = load_case(next(iter(sorted(CORPUS.glob("f-pos*.json")))))
WRONG = "at $.wants: says valid, but step 0 breaks a precondition: P-TABLE: sequence 1: block_table has the entry -1"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def file(tmp_path: Path):
    def save(case, wants: str | None, name: str = "case.json") -> Path:
        path = tmp_path / "cases" / name
        save_case(msgspec.structs.replace(case, wants=wants), path)
        return path

    return save


def test_what_a_case_wants_is_no_part_of_its_id(file) -> None:
    assert case_id(load_case(file(BROKEN, "refused"))) == case_id(BROKEN) == BROKEN.id
    assert load_case(file(BROKEN, "refused")).wants == "refused"
    assert BROKEN.wants is None
    assert (wants_of(BROKEN), wants_of(WHOLE)) == ("refused", "valid")


@pytest.mark.parametrize(("case", "wants"), [(BROKEN, "refused"), (BROKEN, None), (WHOLE, "valid"), (WHOLE, None)])
def test_a_case_that_is_what_it_says_is_run(file, case, wants: str | None) -> None:
    for command in (("replay", file(case, wants)), ("check", "--examples", 0, "--corpus", file(case, wants).parent)):
        ended = run(*command, "--subject", "oracle", "--in-process")
        assert ended.exit_code == exits.CONFORMS, ended.output


@pytest.mark.parametrize(
    ("case", "wants", "says"),
    [(BROKEN, "valid", WRONG), (WHOLE, "refused", "at $.wants: says refused, but no step breaks a precondition")],
)
def test_a_case_that_is_not_is_one_error(file, tmp_path: Path, case, wants: str, says: str) -> None:
    path = file(case, wants)
    for command in (
        ("replay", path, "--subject", "oracle", "--in-process"),
        ("check", "--examples", 0, "--corpus", path.parent, "--subject", "oracle", "--in-process"),
        ("compare", path, "--subject", "oracle", "--in-process"),
        ("corpus", "add", path, "--corpus", tmp_path / "mine"),
    ):
        ended = run(*command)
        assert ended.exit_code == exits.REFUSED, ended.output
        assert ended.stdout == ""
        assert ended.stderr.count("\n") == 1
        assert ended.stderr.startswith(f"inputmeta: {path}: {says}")
    linted = run("corpus", "lint", "--corpus", path.parent)
    assert linted.exit_code == exits.DIFFERS
    assert f"{path.name}: {says}" in linted.stdout


def test_another_word_is_a_bad_file(file, tmp_path: Path) -> None:
    path = file(WHOLE, "valid")
    path.write_text(path.read_text().replace('"wants": "valid"', '"wants": "PASS"'))
    ended = run("replay", path, "--subject", "oracle", "--in-process")
    assert (ended.exit_code, "at $.wants: Invalid enum value 'PASS'" in ended.stderr) == (exits.BAD_USAGE, True)


@pytest.mark.parametrize(("case", "wants"), [(BROKEN, "refused"), (WHOLE, "valid")])
def test_what_is_added_says_what_it_wants(file, tmp_path: Path, case, wants: str) -> None:
    """And what a killed run leaves: it is known at that moment."""
    folder = tmp_path / "mine"
    assert run("corpus", "add", file(case, None), "--corpus", folder).exit_code == exits.CONFORMS
    (added,) = folder.glob("*.json")
    assert json.loads(added.read_text())["wants"] == wants
    journal = Journal(tmp_path / "saved")
    journal.sent(0, case)
    journal.close(keep=True)
    ((saved,), problems) = recover(tmp_path / "saved")
    assert (load_case(saved).wants, problems) == (wants, [])


@pytest.mark.slow
def test_a_stored_failure_says_what_it_wants(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    fault = ("--subject", "mutant:P-TABLE.one-short", "--in-process", "--save-dir", saved)
    assert run("fuzz", *fault, "--seed", 3, "--seconds", 20, "--path", "decode").exit_code == exits.DIFFERS
    stored = [load_case(path) for path in saved.glob("*.json")]
    assert stored
    assert {case.wants for case in stored} == {"refused"}
