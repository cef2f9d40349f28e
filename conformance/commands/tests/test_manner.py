"""How things are said: only failures and a last line with --quiet, colours on a terminal alone."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.cases.files import load_case, save_case
from inputmeta.conformance.commands.main import app

CASE = next(iter(sorted(bundled_corpus().glob("f-pos*.json"))))
WRONG = "mutant:F-IDS.chunk-start"
FAILED = r"MISMATCH: wrong value\n(  .*\n)*"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def quiet(*arguments: object) -> Result:
    return run(*arguments, "--quiet")


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (
            ("fuzz", "--seconds", 1, "--seed", 4),
            r"fuzz oracle: seed 4, \d+ cases in .* s, \d+ cells compared: PASS \d+",
        ),
        pytest.param(
            ("check", "--examples", 100, "--path", "decode", "--coverage"),
            r"corpus cases: \d+ passed, 0 failed, \d+ unsupported; generated, seed 0: 100 cases in .*: PASS 100",
            marks=pytest.mark.slow,
        ),
        (("replay", CASE, CASE), "2 cases: 2 passed, 0 failed, 0 unsupported"),
        (("compare", CASE), r"compare oracle, oracle#2: 1 cases, \d+ answers, 0 of \d+ fields differ"),
    ],
)
def test_quiet_is_one_line_where_nothing_fails(arguments: tuple[object, ...], last: str, few_cases: Path) -> None:
    save = ("--save-dir", few_cases.parent / "saved") if arguments[0] != "replay" else ()
    save += ("--corpus", few_cases) if arguments[0] == "check" else ()
    ended = quiet(*arguments, "--subject", "oracle", "--in-process", *save)
    assert ended.exit_code == exits.CONFORMS, ended.output
    assert re.fullmatch(last + "\n", ended.output), ended.output
    assert len(run(*arguments, "--subject", "oracle", "--in-process", *save).output.splitlines()) > 1


def test_quiet_says_failures_and_one_line(tmp_path: Path) -> None:
    wrong = ("--subject", WRONG, "--in-process")
    replayed = quiet("replay", CASE, *wrong)
    assert replayed.exit_code == exits.DIFFERS
    assert re.fullmatch(f"({FAILED})+1 cases: 0 passed, 1 failed, 0 unsupported\n", replayed.output), replayed.output
    save_case(load_case(CASE), tmp_path / "cases" / "one.json")
    save = ("--save-dir", tmp_path / "saved")
    checked = quiet("check", "--corpus", tmp_path / "cases", "--examples", 0, *wrong, *save)
    assert re.fullmatch(
        f"one.json: .*\n({FAILED})+corpus cases: 0 passed, 1 failed, 0 unsupported\n", checked.output
    ), checked.output
    fuzzed = quiet("fuzz", "--seconds", 10, "--seed", 4, *wrong, *save)
    assert re.fullmatch(f"(\n{FAILED})+fuzz {WRONG}: seed 4, .*MISMATCH .*\n", fuzzed.output), fuzzed.output


def test_a_known_failure_is_no_failure_to_quiet(tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("MISMATCH:F-CTXLEN:context_lens – late – #1\n")
    mutant = ("--subject", "mutant:F-CTXLEN.before-this-row", "--in-process", "--known-failures", known)
    case = next(iter(sorted(bundled_corpus().glob("f-ctxlen*.json"))))
    assert "KNOWN MISMATCH:decode:F-CTXLEN" in run("replay", case, *mutant).output
    assert quiet("replay", case, *mutant).output == "1 cases: 0 passed, 0 failed, 0 unsupported, 1 known\n"


@pytest.mark.slow
def test_quiet_of_a_check_of_an_adapter() -> None:
    right = quiet("subject", "check", "--subject", "oracle")
    assert right.output == "13 checks: 11 passed, 0 failed, 2 skipped\n"
    wrong = quiet("subject", "check", "--subject", "mutant:leaves-a-field-out")
    assert wrong.output.startswith("FAILED  fields")
    assert "\nok " not in wrong.output


def on_terminal(*arguments: object, **environment: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    code = "from inputmeta.conformance.commands.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=plain | {"TERM": "xterm-256color"} | environment,
    ):
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end was closed
                break
            if not part:
                break
            written += part
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


ESCAPE = "\x1b["


@pytest.mark.slow
def test_verdicts_have_colours_on_a_terminal_alone() -> None:
    wrong = ("replay", CASE, "--subject", WRONG, "--in-process")
    shown = on_terminal(*wrong)
    assert "\x1b[1;31mMISMATCH\x1b[0m: wrong value" in shown
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == run(*wrong).output
    right = on_terminal("replay", CASE, "--subject", "oracle", "--in-process")
    assert right.startswith("\x1b[32mPASS\x1b[0m ")
    for quenched in (on_terminal(*wrong, NO_COLOR="1"), on_terminal(*wrong, TERM="dumb"), run(*wrong).output):
        assert ESCAPE not in quenched
        assert quenched.startswith("MISMATCH: wrong value")


def test_a_pipe_has_no_colours_whatever_is_forced() -> None:
    code = "from inputmeta.conformance.commands.main import main; main()"
    words = [sys.executable, "-c", code, "replay", str(CASE), "--subject", WRONG, "--in-process"]
    forced = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    piped = subprocess.run(words, capture_output=True, text=True, env=forced, check=False)
    assert ESCAPE not in piped.stdout
    assert piped.stdout.startswith("MISMATCH: wrong value")


def test_what_a_stranger_says_commands_no_terminal(tmp_path: Path) -> None:
    """Neither an escape nor the markup of the library that colours."""
    name = "[bold red]x\x1b[31mPASS y.json"
    file = tmp_path / name
    file.write_bytes(CASE.read_bytes())
    shown = on_terminal("replay", file, "--subject", "oracle", "--in-process")
    assert shown.startswith("\x1b[32mPASS\x1b[0m ")
    assert "[bold red]x?[31mPASS y.json" in shown
    assert shown.count(ESCAPE) == 2
