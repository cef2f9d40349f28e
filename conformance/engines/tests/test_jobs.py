"""The driver: what a call's exit code and output mean, what is run for whom, and a fault planted in torch itself."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.engines import __main__ as driver
from inputmeta.conformance.engines.expectations import Expectation, expectations
from inputmeta.conformance.engines.jobs import Job, chosen, run_planted
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
        assert told.says == "308 cases; F-RING MISMATCH CRASH"


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
    fuzz, fails, passes = driver.judged(wrong, 5)
    assert (fuzz.code, fuzz.formulas) == (exits.DIFFERS, ("CRASH",))
    assert (fails.code, fails.words[-3]) == (exits.DIFFERS, "verl-zigzag==0.7.1")
    assert (passes.code, passes.words[-3]) == (exits.CONFORMS, "verl-zigzag")
    assert fails.words[:-3] == passes.words[:-3]


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
    fault = Plant(
        "no-restore", "torch-zigzag-headtail", FILE, "torch.argsort(all_indices_tensor)", "all_indices_tensor"
    )
    assert run_planted(fault, 6).problem == ""
    none = Plant("nothing", "torch-zigzag-headtail", FILE, "chunk_size = seq_length //", "chunk_size = seq_length  //")
    assert run_planted(none, 6).problem == "exit code 0, want 1"
    nowhere = Plant("nowhere", "torch-zigzag-headtail", FILE, "no such text", "")
    assert "has no 'no such text'" in run_planted(nowhere, 6).problem
