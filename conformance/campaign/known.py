"""Known failures: what a subject is known to get wrong, so that a run fails only for something new.

An entry (:mod:`inputmeta.conformance.campaign.known_file`) names a case, and covers the findings on it that have one
of its signatures, or all if it has none; or it names a signature (verdict, path, formula, field, kind), and covers
every finding of that identity: a wrong shape that is known hides no wrong value, nor the same on another path.
Matching is exact: there are no patterns, and an entry that no longer fails is reported, so that the list only
shrinks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from inputmeta.conformance.campaign.known_file import (
    CASE_ID,
    KnownFailure,
    KnownFailuresError,
    read,
    write,
)
from inputmeta.conformance.cases.files import case_id
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.verdicts import Finding, Signature

__all__ = ["KnownFailure", "KnownFailures", "KnownFailuresError"]

UNKNOWN = ("unknown", "-")
"""Reason and issue of an entry that was written by the suite."""


class KnownFailures:
    """The entries of a file, and which of them a run has met. Without entries nothing is known."""

    def __init__(self, entries: Iterable[KnownFailure] = (), path: Path | None = None) -> None:
        self.entries = {entry.key: entry for entry in entries}
        self.path = path
        self.matched: set[str] = set()
        """Keys of entries that a finding matched."""
        self.shown: set[tuple[str, str]] = set()
        """Id and signature of what cases with an entry showed."""
        self.ran: set[str] = set()
        """Ids of the cases that were run."""
        self.left_out: set[str] = set()
        """Ids of the cases that this run had and did not run: not claimed, or another path was asked for."""

    @classmethod
    def load(cls, path: Path) -> KnownFailures:
        """Read a file; raises KnownFailuresError, see :func:`inputmeta.conformance.campaign.known_file.read`."""
        return cls(read(path), path)

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self.entries)

    def saw(self, case: Case, *, ran: bool = True) -> None:
        """Note a case of the run; ``ran`` False if it was left out as not claimed, or by the caller's choice."""
        if self.entries:
            self.saw_id(case_id(case), ran=ran)

    def saw_id(self, name: str, *, ran: bool = True) -> None:
        """The same of the case with this id."""
        (self.ran if ran else self.left_out).add(name)

    @property
    def case_ids(self) -> tuple[str, ...]:
        """Ids of the cases that have an entry."""
        return tuple(entry.key for entry in self.entries.values() if entry.is_case)

    def match(self, finding: Finding, case: Case | None) -> KnownFailure | None:
        """The entry that covers a finding on a case (None: one that has no id), its own first; None if it is new."""
        if not self.entries:
            return None
        keys = (*(() if case is None else (case_id(case),)), *keys_of(finding.identity))
        found = [entry for key in keys if (entry := self.entries.get(key)) is not None and covers(entry, finding)]
        self.matched.update(entry.key for entry in found)
        self.shown.update((entry.key, str(finding.identity)) for entry in found if entry.is_case)
        return found[0] if found else None

    def gone(self, entry: KnownFailure) -> list[str]:
        """Signatures of an entry that its case, which ran, did not show, ascending."""
        if entry.key not in self.ran:
            return []
        return sorted(text for text in entry.signatures if (entry.key, text) not in self.shown)

    def unused(self) -> list[KnownFailure]:
        """Entries that a whole run did not meet, or not in full, in file order; those of cases that it left out do not
        count.
        """
        return [
            entry
            for key, entry in self.entries.items()
            if (key not in self.matched and key not in self.left_out) or self.gone(entry)
        ]

    def passing(self) -> list[KnownFailure]:
        """Entries of cases that ran and did not fail as they say: wrong whatever else was run."""
        return [entry for entry in self.unused() if entry.key in self.ran]

    def complaint(self, entry: KnownFailure) -> str:
        """One line on an unused entry: file, place, key, what is wrong with it."""
        about = f"({entry.reason} – {entry.issue})"
        if entry.key in self.matched:
            return (
                f"{self.path}{entry.place}: {entry.key}: does not show {', '.join(self.gone(entry))}; remove it {about}"
            )
        what = "the case passes" if entry.key in self.ran else "no case of this run" if entry.is_case else "not seen"
        return f"{self.path}{entry.place}: {entry.key}: {what}; remove the entry {about}"

    def write(self, failing: Mapping[str, Collection[str]], path: Path) -> None:
        """Write the present failures, sorted; ``path`` is TOML afterwards, whatever it was.

        ``failing``: keys, those of cases with the signatures that they showed.

        Reason and issue are those that stand in ``path``, or else here, also at a short signature that covers the
        present one. Entries of cases that this run left out stay.

        Raises:
            KnownFailuresError: ``path`` cannot be written, or is a file that holds no known failures.
        """
        standing = KnownFailures.load(path) if path.exists() else KnownFailures()
        told = {**self.entries, **standing.entries}
        left = {key: told[key].signatures for key in self.left_out if key in told}
        write(rewritten(told, {**left, **failing}), path)


def keys_of(signature: Signature) -> tuple[str, str]:
    """The keys under which an entry may cover a signature: as it is, and as lines of text have it."""
    return str(signature), signature.short


def covers(entry: KnownFailure, finding: Finding) -> bool:
    """Whether an entry with the key of the finding, or of its case, is about it."""
    return not entry.signatures or str(finding.identity) in entry.signatures


def rewritten(told: dict[str, KnownFailure], failing: Mapping[str, Collection[str]]) -> Iterator[KnownFailure]:
    """The entries of ``failing``, signatures first, with what is ``told`` of them."""
    for key in sorted(failing, key=lambda key: (CASE_ID.fullmatch(key) is not None, key)):
        keys = (key,) if CASE_ID.fullmatch(key) else keys_of(Signature.parse(key))
        known = next((told[each] for each in keys if each in told), None)
        reason, issue = UNKNOWN if known is None else (known.reason, known.issue)
        yield KnownFailure(key, reason, issue, frozenset(failing[key]))
