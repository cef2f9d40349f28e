"""The other files that are read: known failures, and journals that a killed run left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inputmeta.conformance.campaign.journal import Failed, Sent, recover
from inputmeta.conformance.campaign.known import KnownFailures, KnownFailuresError
from inputmeta.conformance.cases.files import decode_case, load_case
from inputmeta.conformance.cases.tests.untrusted import BOUNDED, CASE, case_bytes, damaged, is_one_line, mangled

KNOWN = "# ours\nMISMATCH:F-POS:positions – one late – #7\n8911836eaeacb586 – a window – -\n"
KNOWN_TOML = """# ours
[[known]]
signature = "MISMATCH:prompt:F-POS:positions:value"
reason = "one late"
issue = "#7"
"""
WORDS = st.sampled_from(
    [
        *("–", "-", " – ", "MISMATCH:F-POS:positions", "8911836eaeacb586", "#", "\x1b[2J", "..", "\u202e"),
        *("[[known]]", "\n", "case =", "signature =", "reason =", "issue =", "'x'", "[", "{", "1e9", "1979-05-27"),
    ]
)


def load_known(path: Path, data: bytes) -> None:
    """Entries, or one clear error."""
    path.write_bytes(data)
    error = None
    try:
        KnownFailures.load(path)
    except KnownFailuresError as refused:
        error = str(refused)
    assert error is None or is_one_line(error), repr(error)


@BOUNDED
@given(
    st.one_of(
        st.binary(max_size=300),
        damaged(KNOWN.encode()),
        damaged(KNOWN_TOML.encode()),
        st.lists(WORDS).map(lambda w: " ".join(w).encode()),
    ),
    st.sampled_from(["known.txt", "known.toml"]),
)
def test_any_known_failures(tmp_path: Path, data: bytes, name: str) -> None:
    load_known(tmp_path / name, data)


LOAD = """
import resource, sys
from pathlib import Path
from inputmeta.conformance.campaign.known import KnownFailures, KnownFailuresError
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
try:
    KnownFailures.load(Path(sys.argv[1]))
except KnownFailuresError as error:
    print(error)
"""
"""In a process of its own, since a device has no end and a pipe none to come."""


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "folder", "link"])
def test_known_failures_are_a_regular_file(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("link")
    command = [sys.executable, "-c", LOAD, str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert is_one_line(done.stdout.rstrip("\n"))
    assert name.rpartition("/")[2] in done.stdout


def journal_lines() -> bytes:
    case = decode_case(case_bytes(CASE))
    entries = (Sent(1, case), Failed("MISMATCH:F-POS:positions"), Sent(1, case), Sent(2, case))
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """A new folder each time; hypothesis runs one test many times."""
    return (made for number in range(10**6) if not (made := tmp_path / str(number)).mkdir())


def recovered(folder: Path, data: bytes) -> None:
    """Cases under their ids, or one line; the journal that cannot be used stays."""
    (folder / "journal-1.jsonl").write_bytes(data)
    files, problems = recover(folder)
    assert all(is_one_line(problem) for problem in problems), problems
    assert files_of(folder) == {path.name for path in files} | ({"journal-1.jsonl"} if problems else set())
    for path in files:
        assert load_case(path).id == path.stem


@BOUNDED
@given(st.one_of(st.binary(max_size=300), damaged(journal_lines())))
def test_any_journal(folders: Iterator[Path], data: bytes) -> None:
    recovered(next(folders), data)


@BOUNDED
@given(mangled(CASE), st.sampled_from(["", "../x", "\x1b[2J", "MISMATCH:F-POS:positions", "a\nb"]))
def test_a_journal_with_a_mangled_case(folders: Iterator[Path], case: object, signature: str) -> None:
    sent = json.dumps({"type": "sent", "worker": 1, "case": case})
    failed = json.dumps({"type": "failed", "signature": signature})
    recovered(next(folders), f"{sent}\n{failed}\n{sent}\n".encode())


def test_a_journal_that_is_no_file_is_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(journal_lines())
    folder = tmp_path / "out"
    folder.mkdir()
    os.mkfifo(folder / "journal-pipe.jsonl")
    (folder / "journal-folder.jsonl").mkdir()
    (folder / "journal-link.jsonl").symlink_to(victim)
    before = files_of(folder)
    files, problems = recover(folder)
    assert files == []
    assert len(problems) == 3
    assert all(is_one_line(problem) for problem in problems)
    assert files_of(folder) == before
    assert victim.exists()


def test_a_line_of_a_journal_is_read_to_the_limit_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inputmeta.conformance.campaign.journal.MAX_FILE_BYTES", 1000)
    (tmp_path / "journal-1.jsonl").write_bytes(b"{" + b" " * 5000 + b"}\n")
    files, problems = recover(tmp_path)
    assert files == []
    assert len(problems) == 1
    assert "1000" in problems[0]
