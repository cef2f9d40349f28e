"""The wide tier in ``fuzz`` and ``check``: its share, what is said of it, how its failures are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.campaign import wide, wide_cases
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.subjects.loading import load_subject
from inputmeta.conformance.wide import loop
from inputmeta.conformance.wide.forms import Claims, draw_batch

WRONG = "mutant:second-tile-at-row-512"
RIGHT = "inputmeta.conformance.wide.tests.large_batches:Right"


def run(folder: Path, *arguments: object) -> Result:
    words = [str(word) for word in arguments]
    return CliRunner().invoke(app, [*words, "--in-process", "--save-dir", str(folder)])


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inputmeta.conformance.commands.fuzz.LEAST_SECONDS", 0.2)


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_fuzz_gives_it_a_share_and_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "fuzz", "--subject", RIGHT, "--seconds", 2.5, "--seed", 2, "--path", "decode")
    assert done.exit_code == exits.CONFORMS, done.output
    assert "2.5 s, 0.5 s of them wide" in done.output
    assert "forms: many short, few deep, wide tables, wide expansions" in done.output
    assert "not tested: refusals" in done.output
    assert "sequences (" in done.output


def test_a_short_run_leaves_it_out_and_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "fuzz", "--subject", RIGHT, "--seconds", 0.2, "--seed", 2)
    assert "too few for the wide tier" in done.output
    assert "wide: seed" not in done.output


@pytest.fixture
def chunks() -> str:
    """A batch of long chunks, as the command line names it."""
    claims = Claims(load_subject(WRONG).capabilities, ("prompt",))
    return f"3:{next(index for index in range(9) if draw_batch(claims, 3, index).form == 'long chunks')}"


def test_what_an_ordinary_case_shows_is_told_as_one(tmp_path: Path, chunks: str) -> None:
    done = run(tmp_path, "fuzz", "--subject", WRONG, "--wide", chunks, "--path", "prompt")
    assert done.exit_code == exits.DIFFERS, done.output
    assert "MISMATCH: wrong value" in done.output
    assert f"found as wide batch {chunks}" in done.output
    (file,) = tmp_path.glob("*.json")
    case = load_case(file)
    assert [len(step) for step in case.steps] == [1]
    found = run_case(case, load_subject(WRONG)).findings
    assert [each.field for each in found] == ["input_ids"]


@pytest.fixture
def no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case is too large to be run in the ordinary way."""
    monkeypatch.setattr(wide_cases, "ORDINARY_CELLS", 0)


@pytest.mark.usefixtures("no_case")
def test_what_the_batch_alone_shows_is_told_with_its_command(tmp_path: Path, chunks: str) -> None:
    done = run(tmp_path, "fuzz", "--subject", WRONG, "--wide", chunks, "--path", "prompt")
    assert done.exit_code == exits.DIFFERS, done.output
    assert "MISMATCH:prompt:F-IDS:input_ids:value: wrong value" in done.output
    index = chunks.partition(":")[2]
    assert re.search(rf"batch    {index} of seed 3, long chunks, prompt: \d sequences of \d+ rows", done.output)
    assert "deterministic: 2 of 2 in this process; reduced until no single step further fails" in done.output
    assert "from row 512 of a chunk on: 513 query rows of sequence 0 fail, 512 pass" in done.output
    again = f"inputmeta fuzz --wide {chunks} --subject {WRONG} --in-process --path prompt"
    assert f"replay   {again}" in done.output
    assert list(tmp_path.glob("*.json")) == []
    assert run(tmp_path, "fuzz", "--subject", RIGHT, "--wide", chunks).exit_code == exits.CONFORMS


def test_known_failures_are_known(tmp_path: Path, chunks: str) -> None:
    entries = tmp_path / "known.toml"
    entries.write_text(
        '[[known]]\nsignature = "MISMATCH:prompt:F-IDS:input_ids:value"\nreason = "later"\nissue = "#1"\n'
    )
    named = ("fuzz", "--subject", WRONG, "--wide", chunks, "--path", "prompt", "--known-failures", entries)
    done = run(tmp_path, *named)
    assert done.exit_code == exits.CONFORMS, done.output
    assert "KNOWN MISMATCH:prompt:F-IDS:input_ids:value: later" in done.output


def test_a_fault_of_the_suite_accuses_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [Finding(Verdict.SUITE, 0, "positions", "F-POS", "got is the reference, want the oracle: wrong value")]
    monkeypatch.setattr(loop, "compared", lambda *_: told)
    done = run(tmp_path, "fuzz", "--subject", RIGHT, "--wide", "1:0")
    assert done.exit_code == exits.TOOL_FAILED
    assert "SUITE:" in done.output
    assert "a fault of the suite: please report it" in done.output
    assert "MISMATCH" not in done.output


@pytest.mark.parametrize("text", ["1", "a:b", "1:-2", "1:2:3", f"{2**63}:0"])
def test_a_name_that_is_none_is_one_line(tmp_path: Path, text: str) -> None:
    done = run(tmp_path, "fuzz", "--subject", RIGHT, "--wide", text)
    assert done.exit_code == exits.BAD_USAGE
    assert f"--wide {text}: " in done.output


def test_what_is_said_of_slow_and_refused_batches() -> None:
    text = wide.summary(wide.Wide(1, ("decode",), loop.Counts(unsupported=2), late=1))
    assert "2 beyond the subject or a limit" in text
    assert "1 without an answer in time, which says nothing of the subject" in text
