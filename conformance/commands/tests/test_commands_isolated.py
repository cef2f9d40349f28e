"""The command line on subjects that die, flicker, or are known to be wrong."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.fuzz import fuzz
from inputmeta.conformance.cases.files import case_id, load_case, save_case
from inputmeta.conformance.cases.request import complete_case, store_case
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.mutants import MUTANTS
from inputmeta.conformance.mutants.history import LUCK
from inputmeta.conformance.trace import TraceOptions, trace_config
from inputmeta.conformance.workers.pool import Pool
from inputmeta.conformance.workers.target import Target
from inputmeta.conformance.workers.tests.test_failures import BAD, GOOD, prompt

pytestmark = pytest.mark.slow  # processes are started, and waited for

SEGFAULTS, RAISES = "mutant:segfault-at-one-length", "mutant:raises"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of a case that most mutants fail on, and one that they pass."""
    for name, case in {"bad": BAD, "good": GOOD}.items():
        save_case(complete_case(msgspec.structs.replace(case, title=name, tags=("F-POS",))), tmp_path / f"{name}.json")
    return tmp_path


@pytest.fixture
def short_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fuzz.run_campaign", "check.fuzz"):
        monkeypatch.setattr(f"inputmeta.conformance.commands.{name}", partial(fuzz, shrink_seconds=2))


@pytest.fixture
def few_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the label is not the point, each failure is replayed twice, not five times: every replay is a process."""
    monkeypatch.setattr("inputmeta.conformance.campaign.judging.TIMES", 2)


def known(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "known.txt"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def replay_commands(text: str) -> list[list[str]]:
    """The arguments of every ``inputmeta replay`` that a report names."""
    return [shlex.split(line)[2:] for line in text.splitlines() if line.startswith("  replay   inputmeta ")]


def test_options_that_name_a_target_again() -> None:
    assert Target().options == "--subject engine"
    target = Target(command="./my builder 'a b'", json=True, timeout=2.5, memory_limit=100)
    arguments = shlex.split(target.options)
    assert arguments[:2] == ["--subject-command", "./my builder 'a b'"]
    assert arguments[2:] == ["--subject-json", "--timeout", "2.5", "--memory-limit", "100"]
    assert Target(subject="x:y", in_process=True).options == "--subject x:y --in-process"


@pytest.mark.usefixtures("few_replays")
def test_check_survives_a_segfault_and_labels_it(folder: Path, tmp_path: Path) -> None:
    common = ("--corpus", str(folder), "--examples", "0", "--save-dir", str(tmp_path / "failures"))
    result = run("check", "--subject", SEGFAULTS, "--timeout", "7", *common)
    assert result.exit_code == exits.DIFFERS
    assert "1 passed, 1 failed, 0 unsupported" in result.stdout
    assert "CRASH: died by SIGSEGV; stderr: about to read address 0" in result.stdout
    assert "  label    deterministic: 2 of 2 in fresh workers, 2 of 2 in a warm one" in result.stdout
    (command,) = replay_commands(result.stdout)
    assert command == ["replay", str(folder / "bad.json"), "--subject", SEGFAULTS, "--timeout", "7"]
    assert run(*command).exit_code == exits.DIFFERS
    assert not (tmp_path / "failures").exists()


@pytest.mark.usefixtures("few_replays")
@pytest.mark.slow
def test_the_replay_command_of_a_program_names_it_again(folder: Path, tmp_path: Path) -> None:
    command = shlex.join(MUTANTS["exits-in-the-middle"].command)
    also = msgspec.structs.replace(BAD, title="also bad", tags=("F-POS",), steps=(BAD.steps[0][1:],))
    save_case(complete_case(also), folder / "also.json")
    common = ("--corpus", str(folder), "--examples", "0", "--save-dir", str(tmp_path / "failures"))
    result = run("check", "--subject-command", command, *common)
    assert result.exit_code == exits.DIFFERS
    assert "1 passed, 2 failed, 0 unsupported" in result.stdout
    commands = replay_commands(result.stdout)
    assert [arguments[1:4] for arguments in commands] == [
        [str(folder / name), "--subject-command", command] for name in ("also.json", "bad.json")
    ]
    assert run(*commands[0]).exit_code == exits.DIFFERS
    labels = [line for line in result.stdout.splitlines() if line.startswith("  label")]
    assert labels == [
        "  label    deterministic: 2 of 2 in fresh workers, 2 of 2 in a warm one",
        "  label    deterministic: 1 of 1 in fresh workers, 1 of 1 in a warm one",  # the signature was labelled before
    ]


@pytest.mark.usefixtures("short_shrink", "few_replays")
def test_fuzz_saves_a_case_that_says_how_it_comes_back(tmp_path: Path) -> None:
    arguments = ("--seed", "1", "--seconds", "20", "--path", "decode", "--save-dir", str(tmp_path))
    result = run("fuzz", "--subject", RAISES, *arguments)
    assert result.exit_code == exits.DIFFERS
    for command in replay_commands(result.stdout):
        case = load_case(Path(command[1]))
        assert case.title == "CRASH raised, deterministic"
        assert "; deterministic: 2 of 2 in fresh workers, 2 of 2 in a warm one" in case.origin.found_by


@pytest.mark.slow
@pytest.mark.usefixtures("short_shrink")
def test_fuzz_saves_the_steps_that_provoke_a_failure(tmp_path: Path) -> None:
    arguments = ("--seed", "2", "--seconds", "20", "--path", "prompt", "--save-dir", str(tmp_path))
    result = run("fuzz", "--subject", "mutant:every-7th-call", *arguments)
    assert result.exit_code == exits.DIFFERS
    assert "  label    only after earlier cases: 0 of 5 alone in fresh workers, 5 of 5 with 3 steps" in result.stdout
    commands = replay_commands(result.stdout)  # in one that breaks a relation alone, the seventh call is in one step
    (command,) = (command for command in commands if "only after earlier" in load_case(Path(command[1])).title)
    assert len(load_case(Path(command[1])).steps) == 3
    assert run(*command).exit_code == exits.DIFFERS


def test_replay_runs_its_files_in_one_worker(tmp_path: Path) -> None:
    first, second = (str(store_case(case, tmp_path)) for case in (prompt(7), GOOD))
    subject = ("--subject", "mutant:wrong-after-a-large-batch")
    assert run("replay", second, first, *subject).exit_code == exits.CONFORMS
    together = run("replay", first, second, *subject)
    assert together.exit_code == exits.DIFFERS
    assert together.stdout.startswith("PASS ")


@pytest.mark.usefixtures("few_replays")
@pytest.mark.slow
def test_a_flaky_failure_has_a_verdict_of_its_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bad.json").unlink()
    monkeypatch.setenv(LUCK, str(tmp_path / "made"))
    monkeypatch.setattr(Pool, "fill", lambda _: None)  # one process after the other
    common = ("--corpus", str(folder), "--examples", "0", "--save-dir", str(tmp_path / "failures"))
    arguments = ("check", "--subject", "mutant:wrong-in-every-second-process", *common)
    result = run(*arguments)
    assert result.exit_code == exits.DIFFERS
    assert re.search("FLAKY: MISMATCH came back 1 of 2 times: wrong value", result.stdout)
    assert re.search("  label    1 of 2: 1 of 2 in fresh workers, ", result.stdout)
    (tmp_path / "made").unlink()  # the first worker is wrong again
    listed = known(tmp_path, "FLAKY:F-POS:positions – every second process – #1")
    again = run(*arguments, "--known-failures", listed)
    assert "KNOWN FLAKY:prompt:F-POS:positions:value: every second process – #1" in again.stdout


def test_check_with_known_failures(folder: Path, tmp_path: Path) -> None:
    common = (
        "--subject",
        RAISES,
        "--corpus",
        str(folder),
        "--examples",
        "0",
        "--save-dir",
        str(tmp_path / "f"),
    )
    covered = known(tmp_path, f"{case_id(BAD)} – divides – #7")
    result = run("check", *common, "--known-failures", covered)
    assert result.exit_code == exits.CONFORMS
    assert "KNOWN CRASH:prompt:-:-:raised: divides – #7" in result.stdout
    assert "1 passed, 0 failed, 0 unsupported, 1 known" in result.stdout
    stale = known(tmp_path, "CRASH:raised:- – divides – #7", f"{case_id(GOOD)} – passes – #8")
    result = run("check", *common, "--known-failures", stale)
    assert result.exit_code == exits.DIFFERS
    assert f"known.txt:2: {case_id(GOOD)}: the case passes" in result.stdout
    assert run("check", *common, "--known-failures", known(tmp_path, "nonsense")).exit_code == exits.BAD_USAGE


@pytest.mark.slow
@pytest.mark.usefixtures("short_shrink", "few_replays")
def test_known_failures_are_written_and_then_cover_the_run(folder: Path, tmp_path: Path) -> None:
    common = ("--subject", RAISES, "--corpus", str(folder), "--save-dir", str(tmp_path / "f"))
    target = tmp_path / "written.txt"
    first = run("check", *common, "--examples", "100", "--write-known-failures", str(target))
    assert first.exit_code == exits.DIFFERS
    written = target.read_text()
    assert f'case = "{case_id(BAD)}"\nsignatures = [' in written
    assert 'signature = "CRASH:decode:-:-:raised"\nreason = "unknown"' in written
    replayed = run("replay", str(folder / "bad.json"), common[0], common[1], "--known-failures", str(target))
    assert replayed.exit_code == exits.CONFORMS
    assert "KNOWN CRASH:prompt:-:-:raised: unknown – -" in replayed.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("short_shrink", "few_replays")
def test_fuzz_goes_on_past_known_failures_and_warns_of_unused_ones(tmp_path: Path) -> None:
    file = known(tmp_path, "CRASH:raised:- – divides – #7", "MISMATCH:F-POS:positions – fixed long ago – #2")
    arguments = ("--seed", "1", "--seconds", "1", "--path", "decode", "--save-dir", str(tmp_path / "f"))
    result = run("fuzz", "--subject", RAISES, *arguments, "--known-failures", file)
    assert result.exit_code in (exits.CONFORMS, exits.DIFFERS)  # on an invalid batch it is another failure
    assert "KNOWN" in result.stdout
    assert "MISMATCH:F-POS:positions: not seen" in result.stderr


def test_a_subject_runs_in_this_process_on_request(tmp_path: Path) -> None:
    store_case(BAD, tmp_path)
    (file,) = tmp_path.glob("*.json")
    result = run("replay", str(file), "--subject", RAISES, "--in-process")
    assert result.exit_code == exits.DIFFERS
    assert result.stdout.rstrip().endswith("mutant:raises --in-process")
    refused = run("replay", str(file), "--subject-command", "true", "--in-process")
    assert refused.exit_code == exits.NO_SUBJECT
    assert refused.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_trace_in_a_worker_sees_a_crash(tmp_path: Path) -> None:
    length = trace_config(TraceOptions()).block_size  # the last chunk ends where the first block does
    line = {"timestamp": 0, "input_length": length, "output_length": 4, "hash_ids": [1]}
    file = tmp_path / "small.jsonl"
    file.write_text(json.dumps(line) + "\n")
    arguments = ("--rows", "20", "--drafts", "2", "--save-dir", str(tmp_path / "saved"))
    result = run("trace", str(file), "--subject", SEGFAULTS, "--isolated", *arguments)
    assert result.exit_code == exits.DIFFERS
    assert "CRASH: died by SIGSEGV" in result.stdout
    (command,) = replay_commands(result.stdout)
    assert run(*command).exit_code == exits.DIFFERS
