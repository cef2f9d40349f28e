"""``inputmeta show``: a case in a terminal, and what a subject has wrong of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.cases.files import save_case
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.report.tests.cases import DECODE, PROMPT


def show(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["show", *map(str, arguments)], env={"COLUMNS": "100"})


@pytest.fixture
def decode(tmp_path: Path) -> Path:
    save_case(DECODE, tmp_path / "decode.json")
    return tmp_path / "decode.json"


def test_a_case_is_drawn_without_a_subject(decode: Path) -> None:
    shown = show(decode)
    assert shown.exit_code == exits.CONFORMS
    assert [title for title in ("Sequences", "Block tables", "Window ring") if f"\n{title}\n" in shown.stdout] == [
        "Sequences",
        "Block tables",
        "Window ring",
    ]
    assert "\x1b" not in shown.stdout


def test_what_a_subject_has_wrong_is_marked(decode: Path) -> None:
    shown = show(decode, "--subject", "mutant:F-SWADEC.full-window", "--in-process")
    assert shown.exit_code == exits.DIFFERS
    assert "MISMATCH:decode:F-SWADEC:kv_swa_index_offset_len:value" in shown.stdout
    assert "> sequence 1, row 0, position 2" in shown.stdout
    assert "17, want 12" in shown.stdout
    right = show(decode, "--subject", "oracle", "--in-process")
    assert right.exit_code == exits.CONFORMS
    assert right.stdout.startswith("PASS: oracle\n")


def test_a_step_that_there_is_not_is_bad_usage(decode: Path) -> None:
    shown = show(decode, "--step", "1")
    assert (shown.exit_code, shown.stdout) == (exits.BAD_USAGE, "")
    assert shown.stderr == f"inputmeta: {decode}: step 1, but there are 1\n"


def test_a_subject_that_does_not_claim_it_ran_nothing(tmp_path: Path) -> None:
    save_case(PROMPT, tmp_path / "prompt.json")
    claims_decode = ("--subject", "inputmeta.conformance.examples.callable_subject:build", "--in-process")
    shown = show(tmp_path / "prompt.json", *claims_decode)
    assert shown.exit_code == exits.NOTHING_RAN
    assert shown.stdout.startswith("UNSUPPORTED: ")
