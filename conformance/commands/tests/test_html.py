"""``--html FILE``: every command that judges writes a page, in one step, whatever ended the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.cases.files import save_case
from inputmeta.conformance.commands import reports
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.report.tests.cases import FAILING
from inputmeta.conformance.report.tests.pages import Parsed

CASE, MUTANT = FAILING["prompt"]
WRONG = ("--subject", f"mutant:{MUTANT}", "--in-process")
REQUEST = '{"timestamp": 0, "input_length": 400, "output_length": 3, "hash_ids": [0]}\n'


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a case, a corpus of it and a trace."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    save_case(CASE, tmp_path / "corpus" / "case.json")
    (tmp_path / "trace.jsonl").write_text(REQUEST)
    return tmp_path


CALLS = {
    "replay": ("replay", "corpus/case.json", *WRONG),
    "check": ("check", "--corpus", "corpus", "--examples", "0", *WRONG),
    "compare": ("compare", "corpus/case.json", *WRONG),
    "trace": ("trace", "trace.jsonl", *WRONG),
    "fuzz": ("fuzz", "--seconds", "0.5", "--seed", "1", *WRONG),
}
SAYS = {
    "replay": ("MISMATCH slot_mapping_store_swa", "corpus/case.json", "Window ring"),
    "check": ("corpus corpus", "MISMATCH slot_mapping_store_swa", "deterministic: 5 of 5 in this process"),
    "compare": (
        "Who agrees with whom",
        "Cells of slot_mapping_store_swa",
        "Where slot_mapping_store_swa differs",
        f"slot_mapping_store_swa: oracle | mutant:{MUTANT}",
        "Window ring",
    ),
    "trace": ("trace trace.jsonl", "requests: 1 read", "MISMATCH slot_mapping_store_swa", "Window ring"),
    "fuzz": ("generated", "exactly-full", "What each boundary is", "MISMATCH slot_mapping_store_swa"),
}
SOME_SLOW = [pytest.param(each, marks=pytest.mark.slow) if each in {"fuzz", "trace"} else each for each in CALLS]


@pytest.mark.parametrize("command", SOME_SLOW)
def test_a_command_writes_a_page(at: Path, command: str) -> None:
    ended = run(*CALLS[command], "--html", "page.html")
    assert ended.exit_code == exits.DIFFERS, ended.output
    text = (at / "page.html").read_text(encoding="utf-8")
    parsed = Parsed(text)
    assert parsed.open == []
    assert f"inputmeta {command}" in text
    assert [said for said in SAYS[command] if said not in text] == []
    assert not list(at.glob(".*.tmp"))


def test_a_run_that_conforms_has_a_page_too(at: Path) -> None:
    ended = run("replay", "corpus/case.json", "--subject", "oracle", "--in-process", "--html", "new/page.html")
    assert ended.exit_code == exits.CONFORMS
    text = (at / "new" / "page.html").read_text(encoding="utf-8")
    assert "conforms</span>" in text
    assert 'id="failures"' not in text


@pytest.mark.parametrize("command", CALLS)
@pytest.mark.parametrize("file", [".", "file/page.html", "x" * 256])
def test_a_page_that_cannot_be_written_is_bad_usage_before_anything_is_run(at: Path, command: str, file: str) -> None:
    (at / "file").touch()
    ended = run(*CALLS[command], "--html", file)
    assert (ended.exit_code, ended.stdout) == (exits.BAD_USAGE, "")
    assert ended.stderr.startswith(f"inputmeta: {file}: ")
    assert ended.stderr.count("\n") == 1


def test_a_device_that_is_full_is_a_failure_of_the_tool_and_keeps_the_old_page(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (at / "page.html").write_text("old")

    def full(_path: Path, _text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reports, "replace_file", full)
    ended = run(*CALLS["replay"], "--html", "page.html")
    assert ended.exit_code == exits.TOOL_FAILED
    assert ended.stderr == "inputmeta: page.html: No space left on device\n"
    assert (at / "page.html").read_text() == "old"


def test_what_was_found_before_a_run_could_not_go_on_is_in_the_page(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("inputmeta.conformance.commands.replay.conclusion", broken)
    ended = run(*CALLS["replay"], "--html", "page.html")
    assert isinstance(ended.exception, OSError)
    text = (at / "page.html").read_text(encoding="utf-8")
    assert "Ended early: OSError: " in text
    assert "MISMATCH slot_mapping_store_swa" in text


@pytest.mark.slow
def test_without_a_page_no_template_is_imported(at: Path) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print('jinja2' in sys.modules));"
        "from inputmeta.conformance.commands.main import app; app(sys.argv[1:])"
    )
    for extra, imported in (((), "False"), (("--html", "page.html"), "True")):
        call = [sys.executable, "-c", code, *CALLS["replay"], *extra]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[-1] == imported
