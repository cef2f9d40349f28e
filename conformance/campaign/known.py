"""Known failures: a text file of what a subject is known to get wrong, so that a run fails only for something new.

A line is ``case id or signature – reason – issue``::

    # what the v3 builder still gets wrong
    MISMATCH:F-POS:positions – rows of a chunk start one late – ENGINE-812
    8911836eaeacb586 – window at the start of a context – https://tracker.example/77

A case id covers every finding on that case, a signature (verdict, formula, field; and missing, type, dtype or shape
where the field's form is wrong) every finding of that identity: a wrong shape that is known hides no wrong value.
Matching is exact: there are no patterns, and an entry that no longer fails is reported, so that the list only shrinks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from inputmeta.conformance.cases.files import CaseError, case_id, read_file
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.console import plain_text

MAX_FILE_BYTES = 2**20
MAX_LINE = 2000
"""Characters of a line."""

UNKNOWN = ("unknown", "-")
"""Reason and issue of an entry that was written by the suite."""

SEPARATOR = re.compile(r"\s+[–—-]\s+")
CASE_ID = re.compile(r"[0-9a-f]{16}")
SIGNATURE = re.compile(r"[A-Z_]+(:[^\s:]+)+")
NOT_FAILURES = frozenset({"PASS", "UNSUPPORTED", "KNOWN"})


class KnownFailuresError(ValueError):
    """A known-failures file that cannot be used. ``str()`` is one line: file, line, what is wrong."""

    def __init__(self, text: str) -> None:
        super().__init__(plain_text(text))


@dataclass(frozen=True)
class KnownFailure:
    """One entry: ``key`` is a case id (16 hexadecimal digits) or a signature."""

    key: str
    reason: str
    issue: str
    line: int = 0
    """Its line in the file, from 1; 0 for an entry that no file holds yet."""

    @property
    def is_case(self) -> bool:
        """Whether the key names a case, rather than a signature."""
        return CASE_ID.fullmatch(self.key) is not None

    def __str__(self) -> str:
        """The line of the file."""
        return f"{self.key} – {self.reason} – {self.issue}"


class KnownFailures:
    """The entries of a file, and which of them a run has met. Without entries nothing is known."""

    def __init__(self, entries: Iterable[KnownFailure] = (), path: Path | None = None) -> None:
        self.entries = {entry.key: entry for entry in entries}
        self.path = path
        self.matched: set[str] = set()
        """Keys of entries that a finding matched."""
        self.ran: set[str] = set()
        """Ids of the cases that were run."""
        self.left_out: set[str] = set()
        """Ids of the cases that this run had and did not run: not claimed, or another path was asked for."""

    @classmethod
    def load(cls, path: Path) -> KnownFailures:
        """Read a file.

        Raises:
            KnownFailuresError: unreadable, no plain file, larger than 1 MiB, not UTF-8, or a line that is no entry.
        """
        try:
            text = read_file(path, MAX_FILE_BYTES, "a known-failures file").decode("utf-8")
        except CaseError as error:
            raise KnownFailuresError(str(error)) from error
        except UnicodeDecodeError as error:
            raise KnownFailuresError(f"{path}: not UTF-8 at byte {error.start}") from error
        try:
            return cls(parse(text), path)
        except KnownFailuresError as error:
            raise KnownFailuresError(f"{path}{error}") from error

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self.entries)

    def saw(self, case: Case, *, ran: bool = True) -> None:
        """Note a case of the run; ``ran`` False if it was left out as not claimed, or by the caller's choice."""
        if self.entries:
            (self.ran if ran else self.left_out).add(case_id(case))

    def match(self, finding: Finding, case: Case) -> KnownFailure | None:
        """The entry that covers a finding on a case, the case's own first; None if it is new."""
        if not self.entries:
            return None
        found = [self.entries[key] for key in (case_id(case), finding.signature) if key in self.entries]
        self.matched.update(entry.key for entry in found)
        return found[0] if found else None

    def unused(self) -> list[KnownFailure]:
        """Entries that a whole run did not meet, in file order; entries of cases that it left out do not count."""
        return [e for key, e in self.entries.items() if key not in self.matched and key not in self.left_out]

    def passing(self) -> list[KnownFailure]:
        """Entries of cases that ran and did not fail: wrong whatever else was run."""
        return [entry for entry in self.unused() if entry.key in self.ran]

    def complaint(self, entry: KnownFailure) -> str:
        """One line on an unused entry: file, line, key, what is wrong with it."""
        what = "the case passes" if entry.key in self.ran else "no case of this run" if entry.is_case else "not seen"
        return f"{self.path}:{entry.line}: {entry.key}: {what}; remove the entry ({entry.reason} – {entry.issue})"

    def rewritten(self, failing: Iterable[str]) -> KnownFailures:
        """The entries of the present failures, by case id or signature: reason and issue kept where they are known."""
        keys = sorted(set(failing), key=lambda key: (CASE_ID.fullmatch(key) is not None, key))
        return KnownFailures(self.entries.get(key) or KnownFailure(key, *UNKNOWN) for key in keys)

    def save(self, path: Path) -> None:
        """Write the entries, one a line, signatures before case ids.

        Raises:
            KnownFailuresError: the file cannot be written.
        """
        lines = ["# case id or signature – reason – issue", *map(str, self.entries.values())]
        try:
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        except OSError as error:
            raise KnownFailuresError(f"{path}: {error.strerror}") from error


def parse(text: str) -> Iterator[KnownFailure]:
    """The entries of a file's text.

    Raises:
        KnownFailuresError: a line that is no entry, or a key that stands twice; the text begins with ``:LINE:``.

    >>> [entry.key for entry in parse("# ours\\n\\nMISMATCH:F-POS:positions - one late - #7\\n")]
    ['MISMATCH:F-POS:positions']
    """
    seen: dict[str, int] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        entry = parse_line(stripped, number)
        if entry.key in seen:
            raise KnownFailuresError(f":{number}: {entry.key} stands in line {seen[entry.key]} already")
        seen[entry.key] = number
        yield entry


def parse_line(line: str, number: int) -> KnownFailure:
    """One entry; the reason may hold dashes, key and issue may not stand apart from them by blanks."""
    if len(line) > MAX_LINE or not line.isprintable():
        raise KnownFailuresError(f":{number}: longer than {MAX_LINE} characters, or not printable")
    key, *rest = SEPARATOR.split(line, maxsplit=1)
    marks = list(SEPARATOR.finditer(rest[0])) if rest else []
    if not marks:
        raise KnownFailuresError(f":{number}: want `case id or signature – reason – issue`")
    reason, issue = rest[0][: marks[-1].start()], rest[0][marks[-1].end() :]
    verdict = key.partition(":")[0]
    known_verdict = verdict in Verdict.__members__ and verdict not in NOT_FAILURES
    if not CASE_ID.fullmatch(key) and not (SIGNATURE.fullmatch(key) and known_verdict):
        raise KnownFailuresError(f":{number}: {key} is no case id and no signature (VERDICT:FORMULA:FIELD)")
    return KnownFailure(key, reason.strip(), issue.strip(), number)
