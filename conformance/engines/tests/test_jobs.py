"""The driver: what a call's exit code and output mean, what is run for whom, and a fault planted in torch itself."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from threading import Lock

import pytest
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.engines import __main__ as driver
from inputmeta.conformance.engines import found
from inputmeta.conformance.engines.expectations import Expectation, expectations
from inputmeta.conformance.engines.forks import LATE, Asked, Engine
from inputmeta.conformance.engines.jobs import Job, chosen, planted_job
from inputmeta.conformance.engines.plants import Plant
from inputmeta.conformance.engines.plants_torch import FILE

DIFFERS = """
308 cases in 1.7 s, 61567 cells compared: PASS 69 MISMATCH 216

MISMATCH: wrong value
  field    slot_mapping_store_swa  int32[total_q]
  formula  F-RING  slot_mapping_store_swa = state_id * B + pos % B
CRASH: raised OverflowError: too large
"""


@pytest.mark.parametrize(
    ("wanted", "formulas", "code", "output", "problem"),
    [
        (exits.CONFORMS, (), exits.CONFORMS, "12 cases in 1.0 s", ""),
        (exits.CONFORMS, (), exits.DIFFERS, DIFFERS, "exit code 1, want 0"),
        (exits.DIFFERS, ("F-RING", "CRASH"), exits.DIFFERS, DIFFERS, ""),
        (exits.DIFFERS, ("F-RING", "F-SWADEC"), exits.DIFFERS, DIFFERS, "did not show: F-SWADEC"),
        (exits.DIFFERS, (), exits.CONFORMS, "12 cases in 1.0 s", "exit code 0, want 1"),
        (exits.DIFFERS, (), exits.NO_SUBJECT, "", "exit code 125, want 1"),
    ],
)
def test_an_outcome_other_than_expected_is_a_problem(wanted, formulas, code, output, problem) -> None:
    told = Job("a call", ("fuzz",), wanted, formulas).told(code, output, 1.0)
    assert told.problem == problem
    if output == DIFFERS:
        assert told.says == "308 cases in 1.7 s; F-RING MISMATCH CRASH"


@pytest.mark.parametrize(
    ("names", "subject", "meant"),
    [
        ([], "verl-zigzag", True),
        (["verl"], "verl-zigzag-thd", True),
        (["verl-zigzag"], "verl-zigzag==0.7.1", True),
        (["verl-zigzag"], "verl-zigzag-thd", False),
        (["fla-core"], "fla-index", True),
        (["torch"], "verl-zigzag", False),
    ],
)
def test_subjects_are_chosen_by_name_and_by_engine(names, subject, meant) -> None:
    assert chosen(names, subject) is meant


def test_a_wrong_release_fails_its_cases_and_the_right_one_passes_them() -> None:
    wrong = next(each for each in expectations() if each.subject == "verl-zigzag==0.7.1")
    fuzz, fails = driver.judged(wrong, 5)
    passes = next(iter(driver.righted("verl", None)))
    assert (fuzz.code, fuzz.formulas) == (exits.DIFFERS, ("CRASH",))
    assert (fails.code, fails.words[-1]) == (exits.DIFFERS, "verl-zigzag==0.7.1")
    assert (passes.code, passes.words[-1]) == (exits.CONFORMS, "verl-zigzag")
    assert fails.words[:-1] == passes.words[:-1]
    assert list(driver.righted("verl", "0.7.1")) == []


def test_every_subject_is_judged_in_the_process_of_its_release() -> None:
    """And each planted fault once."""
    units = list(driver.units([], 5, driver.plants()))
    names = [job.name for unit in units for job in unit.jobs]
    assert len(set(names)) == len(names)
    for each in expectations():
        bare, _, version = each.subject.partition("==")
        mine = [unit for unit in units if any(job.name.startswith(f"{each.subject}: ") for job in unit.jobs)]
        assert [unit.version for unit in mine] == [version or None]
        assert driver.packages.PACKAGES[mine[0].package].gives(bare)
    assert sum(job.plant is not None for unit in units for job in unit.jobs) == len(driver.plants())


def test_known_failures_go_with_what_passes() -> None:
    jobs = list(driver.judged(Expectation("verl-zigzag-thd"), 5))
    assert all("--known-failures" in job.words for job in jobs)


@pytest.mark.slow
def test_what_is_not_done_in_time_fails_and_an_unknown_name_is_one_line() -> None:
    app = driver.typer.Typer()
    app.command()(driver.main)
    ended = CliRunner().invoke(app, ["torch-zigzag", "--limit", "1", "--jobs", "1", "--no-plants", "--seconds", "5"])
    assert ended.exit_code == exits.DIFFERS
    assert "FAILED  time was up after 1 s: 1 of 2 calls were not made" in ended.output
    ended = CliRunner().invoke(app, ["nothing"])
    assert ended.exit_code == exits.BAD_USAGE
    assert ended.stderr == "inputmeta: there is no engine or subject 'nothing'\n"


@pytest.mark.slow
def test_a_fault_planted_in_torch_shows_and_one_that_changes_nothing_does_not() -> None:
    with Engine("torch") as engine:

        def problem(old: str, new: str, file: str = FILE) -> str:
            told = planted_job(Plant("a-fault", "torch-zigzag-headtail", file, old, new)).run(engine)
            return told.problem or told.says.partition("; ")[2]

        assert problem("torch.argsort(all_indices_tensor)", "all_indices_tensor") == "F-REVERSE MISMATCH"
        assert problem("chunk_size = seq_length //", "chunk_size = seq_length  //") == "exit code 0, want 1"
        ended = engine.ask(Asked(plant=Plant("nowhere", "torch-zigzag-headtail", FILE, "no such text", "")))
        assert (ended.code, "has no 'no such text'" in ended.output) == (exits.TOOL_FAILED, True)
        ended = engine.ask(Asked(plant=Plant("late", "torch-zigzag-headtail", "torch/__init__.py", "import", "")))
        assert "torch/__init__.py: is imported already, and no fault in it would be seen" in ended.output
        late = engine.ask(Asked(("fuzz", "--subject", "torch-zigzag", "--in-process", "--seconds", "60"), seconds=0.5))
        assert late.code == LATE
        ended = engine.ask(Asked(("check", "--subject", "torch-zigzag", "--in-process", "--examples", "0")))
        assert (ended.code, "0 failed" in ended.output) == (exits.CONFORMS, True)


def test_an_engine_that_is_not_here_is_said_and_not_waited_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(driver.packages.FOLDER_VARIABLE, str(tmp_path))
    with Engine("verl") as engine:
        ended = engine.ask(Asked(("check",)))
    assert (ended.code, ended.output) == (
        exits.TOOL_FAILED,
        "inputmeta: verl 0.9.1 is not here: inputmeta engines fetch verl==0.9.1\n",
    )


def test_what_cannot_be_fetched_is_told_and_what_lies_beside_an_engine_comes_first(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(driver.packages, "fetch", lambda name, version=None: asked.append((name, version)))
    assert driver.fetch(driver.packages.PACKAGES["vllm"], None, defaultdict(Lock)) == ""
    assert driver.fetch(driver.packages.PACKAGES["verl"], "0.7.1", defaultdict(Lock)) == ""
    assert driver.fetch(driver.packages.PACKAGES["torch"], None, defaultdict(Lock)) == ""
    assert asked == [("triton", None), ("vllm", None), ("verl", "0.7.1")]

    def fails(name, version=None):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(driver.packages, "fetch", fails)
    assert "No space left" in driver.fetch(driver.packages.PACKAGES["vllm"], None, defaultdict(Lock))


def test_the_record_counts_what_was_seen() -> None:
    plant = Plant("a-fault", "torch-zigzag", FILE, "a", "b")
    told = planted_job(plant).told(exits.DIFFERS, "12 cases in 0.5 s\nMISMATCH: wrong\n  formula  F-ZIGZAG\n", 1.0)
    unseen = planted_job(plant).told(exits.CONFORMS, "500 cases in 9.5 s\n", 10.0)
    text = found.record([(plant, unseen)])
    assert f"| torch-zigzag | a-fault | `{FILE}` | not seen |  |  |" in text.splitlines()
    other = dataclasses.replace(plant, name="another")
    lines = found.record([(other, unseen), (plant, told)], text).splitlines()
    assert f"| torch-zigzag | a-fault | `{FILE}` | 12 | 0.5 | F-ZIGZAG MISMATCH |" in lines
    assert lines[-1] == "1 of 2 seen."
    assert found.record([], "\n".join(lines)).splitlines() == lines


def test_the_record_has_every_fault_as_seen() -> None:
    """Written by ``ci/engines --record``."""
    rows = [line.split(" | ")[:4] for line in found.FILE.read_text(encoding="utf-8").splitlines()]
    told = {(row[0].removeprefix("| "), row[1]) for row in rows if len(row) == 4 and row[3].isdigit()}
    assert {(plant.subject, plant.name) for plant in driver.plants()} == told
