"""Paths that cannot be used: bad usage, said before anything is run. A device that is full: the tool failed."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.cases.files import CaseError, check_folder
from inputmeta.conformance.commands.main import app

CASE = next(iter(sorted(bundled_corpus().glob("f-pos*.json"))))
SUBJECT = ("--subject", "oracle", "--in-process")
REQUEST = '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [0]}\n'


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a trace."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.jsonl").write_text(REQUEST)
    return tmp_path


def unusable_file(at: Path) -> Path:
    (at / "file").touch()
    return at / "file"


def below_a_file(at: Path) -> Path:
    return unusable_file(at) / "folder" / "of" / "it"


def long_name(at: Path) -> Path:
    return at / ("x" * 256)


def dangling(at: Path) -> Path:
    (at / "link").symlink_to(at / "absent")
    return at / "link"


WRITING = {
    "fuzz": ("fuzz", "--seconds", "5", *SUBJECT, "--save-dir"),
    "check": ("check", "--examples", "0", *SUBJECT, "--save-dir"),
    "compare": ("compare", CASE, *SUBJECT, "--save-dir"),
    "trace": ("trace", "trace.jsonl", "--subject", "oracle", "--save-dir"),
    "corpus add": ("corpus", "add", CASE, "--corpus"),
}


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("made", [unusable_file, below_a_file, long_name, dangling])
def test_a_folder_that_cannot_be_used_is_bad_usage(at: Path, command: str, made: Callable[[Path], Path]) -> None:
    folder = made(at)
    before = sorted(at.rglob("*"))
    ended = run(*WRITING[command], folder)
    assert (ended.exit_code, ended.stdout) == (exits.BAD_USAGE, "")
    assert ended.stderr.startswith(f"inputmeta: {folder}: ")
    assert ended.stderr.count("\n") == 1
    assert sorted(at.rglob("*")) == before


@pytest.mark.parametrize("command", ["fuzz", "check", "replay"])
@pytest.mark.parametrize("made", [lambda at: at, below_a_file, long_name])
def test_a_list_that_cannot_be_written_is_bad_usage(at: Path, command: str, made: Callable[[Path], Path]) -> None:
    call = WRITING[command][:-1] if command in WRITING else ("replay", CASE, *SUBJECT)
    ended = run(*call, "--write-known-failures", made(at))
    assert (ended.exit_code, ended.stdout) == (exits.BAD_USAGE, "")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("call", [("check", *SUBJECT), ("corpus", "list"), ("corpus", "fmt"), ("corpus", "lint")])
@pytest.mark.parametrize("made", [unusable_file, long_name, dangling, lambda at: at])
def test_a_corpus_that_cannot_be_read_is_bad_usage(
    at: Path, call: tuple[str, ...], made: Callable[[Path], Path]
) -> None:
    ended = run(*call, "--corpus", made(at))
    assert (ended.exit_code, ended.stdout) == (exits.BAD_USAGE, "")


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process can grow: what a full device is, for a short while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("command", WRITING)
def test_a_device_that_is_full_is_a_failure_of_the_tool(at: Path, command: str) -> None:
    call = list(WRITING[command])
    if command in {"compare", "trace"}:  # they write what differs
        call[call.index("oracle")] = "mutant:F-POS.one-late"
    with no_room():
        ended = run(*call, at / "folder")
    assert ended.exit_code == exits.TOOL_FAILED, ended.output
    assert ended.stderr.endswith(f": {os.strerror(errno.EFBIG)}\n")


def test_a_full_list_of_failures_is_a_failure_of_the_tool(at: Path) -> None:
    file = at / "known.toml"
    with no_room():
        ended = run("replay", CASE, *SUBJECT, "--write-known-failures", file)
    assert ended.exit_code == exits.TOOL_FAILED
    assert ended.stderr == f"inputmeta: {file}: {os.strerror(errno.EFBIG)}\n"


def test_a_device_is_no_list_of_failures() -> None:
    ended = run("replay", CASE, *SUBJECT, "--write-known-failures", "/dev/full")
    assert (ended.exit_code, ended.stdout) == (exits.BAD_USAGE, "")


def test_a_folder_that_can_be_made_is_not_made_yet(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CaseError, match="Not a directory"):
        check_folder(below_a_file(tmp_path))


def test_a_file_system_that_takes_no_files(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="files cannot be written there"):
        check_folder(Path("/proc/self"))
