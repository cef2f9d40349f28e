"""Conditions on the command line: what they exclude is counted, and claims that leave nothing end with 2."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.commands.main import app

SUBJECTS = '''
import dataclasses
from inputmeta.conformance.subjects import Conditions, Unsupported
from inputmeta.conformance.subjects.oracle import OracleSubject

class Limited(OracleSubject):
    conditions = Conditions()
    paths = ("decode",)

    def __init__(self):
        super().__init__(name="limited")
        self.capabilities = dataclasses.replace(
            self.capabilities, conditions=self.conditions, paths=frozenset(self.paths), in_place=False,
            refuses=frozenset(),
        )

class RingIsWindow(Limited):
    conditions = Conditions(ring_is_window=True)

class Nothing(Limited):
    conditions = Conditions(block_sizes={16}, window_sizes={24}, block_divides_window=True)

class Wrong(Limited):
    conditions = Conditions(largest_block=-1)

class Unwilling(Limited):
    def build(self, request):
        raise Unsupported("not today")

class Choosy(Limited):
    """Leaves out a field of some batches of the corpus, by the order in which they come."""

    every = (0,)
    seen = {}

    def build(self, request):
        result = dict(super().build(request))
        number = self.seen.setdefault(str((request.config, request.sequences)), len(self.seen))
        return result | ({"positions": Unsupported("every fourth")} if number in self.every else {})

class ChoosierStill(Choosy):
    every = (0, 1)
    seen = {}

class Otherwise(Limited):
    def build(self, request):
        result = dict(super().build(request))
        return result | {key: Unsupported("not at all") for key in result if key.startswith("klen")}

class Late(Limited):
    version = "5.15.1"

    def build(self, request):
        result = dict(super().build(request))
        return result | {"positions": result["positions"] + 1}

class LateStill(Late):
    version = "5.16.1"

class Repaired(Limited):
    version = "5.16.1"
'''


@pytest.fixture(autouse=True)
def _subjects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "limited_of_this_test.py").write_text(SUBJECTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(command: str, subject: str, *options: str) -> Result:
    """A command on a subject of this test, in this process."""
    arguments = [command, "--subject", f"limited_of_this_test:{subject}", "--in-process", *options]
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("options", [("check",), ("fuzz", "--seconds", "1"), ("compare", "--cases", "5")])
def test_claims_that_leave_nothing_to_draw_are_a_usage_error(options: tuple[str, ...]) -> None:
    command, *others = options
    result = run(command, "Nothing", *others)
    assert result.exit_code == exits.BAD_USAGE
    assert result.stderr.splitlines() == [
        "inputmeta: nothing is left to draw: no block size, ratio and window go together by block_sizes [16], "
        "window_sizes [24], block_divides_window"
    ]


def test_conditions_of_the_wrong_kind_are_no_subject() -> None:
    result = run("check", "Wrong")
    assert result.exit_code == exits.NO_SUBJECT
    assert "capabilities.conditions: largest_block is not a number of at least 0" in result.stderr


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A corpus of four cases of decode."""
    folder = tmp_path / "few"
    folder.mkdir()
    for file, case in load_corpus(bundled_corpus()):
        if case.path == "decode" and case.wants != "refused" and len(case.steps) == 1 and file.stat().st_size < 8_000:
            shutil.copy(file, folder)
            if len(list(folder.iterdir())) == 4:
                break
    return folder


def test_the_corpus_beyond_the_conditions_is_counted_with_the_condition(few: Path) -> None:
    result = run("check", "RingIsWindow", "--examples", "0", "--corpus", str(few))
    assert "not claimed by limited, in cases: B other than W (" in result.output
    replayed = run("replay", "RingIsWindow", *map(str, few.iterdir()))
    assert "does not claim B other than W" in replayed.output


def test_a_reason_that_grows_against_its_count_fails_a_check(few: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.toml"

    def check(subject: str, *options: str) -> Result:
        return run("check", subject, "--corpus", str(few), "--examples", "0", *options)

    written = check("Choosy", "--write-known-failures", str(known))
    assert written.exit_code == exits.CONFORMS, written.output
    assert 'reason = "positions: every fourth"\npart = "corpus"\ncases = 1\nof = 4\n' in known.read_text()
    assert check("Choosy", "--known-failures", str(known)).exit_code == exits.CONFORMS
    grown = check("ChoosierStill", "--known-failures", str(known))
    assert grown.exit_code == exits.DIFFERS
    assert "not built, corpus: positions: every fourth: 2 of 4 cases, recorded are 1 of 4" in grown.output
    other = check("Otherwise", "--known-failures", str(known))
    assert other.exit_code == exits.DIFFERS
    assert "not built, corpus: klen: not at all: " in other.output
    assert ", not recorded" in other.output
    assert check("Otherwise").exit_code == exits.CONFORMS


def test_a_known_failure_of_another_version_is_new(few: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.toml"

    def check(subject: str, *options: str) -> Result:
        return run("check", subject, "--corpus", str(few), "--examples", "0", *options)

    check("Late", "--write-known-failures", str(known))
    version = '\n[known.when]\nversion = "<5.16"\n'
    entries = known.read_text().split("\n[[known]]\n")
    known.write_text("\n[[known]]\n".join([entries[0], *(entry + version for entry in entries[1:])]))
    assert check("Late", "--known-failures", str(known)).exit_code == exits.CONFORMS
    assert check("LateStill", "--known-failures", str(known)).exit_code == exits.DIFFERS
    repaired = check("Repaired", "--known-failures", str(known))
    assert repaired.exit_code == exits.CONFORMS, repaired.output  # what is said of older versions is no complaint


def test_a_subject_that_builds_no_batch_visits_no_feature() -> None:
    result = run("check", "Unwilling", "--examples", "1")
    assert result.exit_code == exits.NOTHING_RAN
    assert "coverage: 0 of " in result.output
    assert " outside the claims" in result.output
