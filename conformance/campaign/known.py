"""Known failures: what a subject is known to get wrong, so that a run fails only for something new.

An entry (:mod:`inputmeta.conformance.campaign.known_file`) names a case, and covers the findings on it that have one
of its signatures, or all if it has none; or it names a signature (verdict, path, formula, field, kind), and covers
every finding of that identity: a wrong shape that is known hides no wrong value, nor the same on another path.
Matching is exact: there are no patterns, and an entry that no longer fails is reported, so that the list only
shrinks. An entry may hold for some versions of the subject and some configurations alone: elsewhere the same is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from inputmeta import oracle
from inputmeta.conformance.campaign.known_counts import Recorded, Seen, grown
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

    def __init__(
        self, entries: Iterable[KnownFailure] = (), path: Path | None = None, recorded: Iterable[Recorded] = ()
    ) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self.path = path
        self.version = ""
        """Of the subject; empty: it states none."""
        self.recorded = tuple(recorded)
        """What is not built, as it is recorded; without any nothing is said of it."""
        self.seen: list[Seen] = []
        """What parts of this run did not build."""
        self.matched: set[str] = set()
        """Names of entries that a finding matched."""
        self.beside: set[str] = set()
        """Keys of entries, none of which applied to a finding that has the key."""
        self.shown: set[tuple[str, str]] = set()
        """Id and signature of what cases with an entry showed."""
        self.ran: set[str] = set()
        """Ids of the cases that were run."""
        self.left_out: set[str] = set()
        """Ids of the cases that this run had and did not run: not claimed, or another path was asked for."""

    @classmethod
    def load(cls, path: Path) -> KnownFailures:
        """Read a file; raises KnownFailuresError, see :func:`inputmeta.conformance.campaign.known_file.read`."""
        found = read(path)
        return cls(found.entries, path, found.recorded)

    def afresh(self) -> KnownFailures:
        """The same for another run of the subject, which has met nothing yet."""
        known = KnownFailures(self.entries.values(), self.path, self.recorded)
        known.version = self.version
        return known

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

    def of_case(self, identity: str) -> list[KnownFailure]:
        """The entries of a case, by its id, that apply to the subject's version."""
        return [entry for entry in self.entries.values() if entry.key == identity and self.applies(entry)]

    def applies(self, entry: KnownFailure) -> bool:
        """Whether an entry is about the subject's version."""
        return entry.when.takes_version(self.version)

    def covering(
        self, finding: Finding, case: Case | None, config: oracle.MetadataConfig | None = None
    ) -> list[KnownFailure]:
        """The entries that cover a finding on a case, those of the case first.

        ``case`` None: a batch that has no id, of this configuration; None: of any.
        """
        if not self.entries:
            return []
        of = config if case is None else case.config
        keys = (*(() if case is None else (case_id(case),)), *keys_of(finding.identity))
        return [
            entry
            for key in keys
            for entry in self.entries.values()
            if entry.key == key
            and covers(entry, finding)
            and self.applies(entry)
            and (of is None or entry.when.takes_config(of))
        ]

    def match(
        self, finding: Finding, case: Case | None, config: oracle.MetadataConfig | None = None
    ) -> KnownFailure | None:
        """The entry that covers a finding, as :meth:`covering` has them, noted as met; None if it is new."""
        found = self.covering(finding, case, config)
        self.matched.update(entry.name for entry in found)
        self.shown.update((entry.key, str(finding.identity)) for entry in found if entry.is_case)
        if not found and self.entries:
            self.beside.update((*(() if case is None else (case_id(case),)), *keys_of(finding.identity)))
        return found[0] if found else None

    def gone(self, entry: KnownFailure) -> list[str]:
        """Signatures of an entry that its case, which ran, did not show, ascending."""
        if entry.key not in self.ran:
            return []
        return sorted(text for text in entry.signatures if (entry.key, text) not in self.shown)

    def unused(self) -> list[KnownFailure]:
        """Entries that a whole run did not meet, or not in full, in file order; those of cases that it left out, and of
        other versions of the subject, do not count.
        """
        return [entry for entry in self.entries.values() if self.applies(entry) and self.is_stale(entry)]

    def is_stale(self, entry: KnownFailure) -> bool:
        """Whether a run that had the entry's cases did not meet it, or not in full."""
        return (entry.name not in self.matched and entry.key not in self.left_out) or bool(self.gone(entry))

    def passing(self) -> list[KnownFailure]:
        """Entries of cases that ran and did not fail as they say: wrong whatever else was run."""
        return [entry for entry in self.unused() if entry.key in self.ran]

    def complaint(self, entry: KnownFailure) -> str:
        """One line on an unused entry: file, place, key, what is wrong with it."""
        about = f"({entry.reason} – {entry.issue})"
        where = f"{self.path}{entry.place}: {entry.name}"
        if entry.name in self.matched:
            return f"{where}: does not show {', '.join(self.gone(entry))}; remove it {about}"
        what = "the case passes" if entry.key in self.ran else "no case of this run" if entry.is_case else "not seen"
        return f"{where}: {what}; remove the entry {about}"

    def grown(self) -> list[str]:
        """One line on each reason, of what this run did not build, that has grown or is not recorded."""
        if not self.recorded:
            return []
        return [f"{self.path}: not built, {line}" for seen in self.seen for line in grown(seen, self.recorded)]

    def write(self, failing: Mapping[str, Collection[str]], path: Path) -> None:
        """Write the present failures, sorted, and what is not built; ``path`` is TOML afterwards, whatever it was.

        ``failing``: keys, those of cases with the signatures that they showed.

        Reason and issue are those that stand in ``path``, or else here, also at a short signature that covers the
        present one. Entries of cases that this run left out stay, and those of other versions of the subject, and what
        is recorded of parts that this run did not have.

        Raises:
            KnownFailuresError: ``path`` cannot be written, or is a file that holds no known failures.
        """
        standing = KnownFailures.load(path) if path.exists() else KnownFailures()
        told = {**self.entries, **standing.entries}
        left = {key: told[key].signatures for key in self.left_out if key in told}
        parts = {seen.part for seen in self.seen}
        recorded = {each.key: each for each in (*self.recorded, *standing.recorded) if each.part not in parts}
        recorded |= {each.key: each for seen in self.seen for each in seen.recorded()}
        write(self._rewritten(told, {**left, **failing}), path, (recorded[key] for key in sorted(recorded)))

    def _rewritten(self, told: dict[str, KnownFailure], failing: Mapping[str, Collection[str]]) -> list[KnownFailure]:
        """The entries of ``failing``, signatures first, with what is ``told`` of them, and those with conditions that
        were met, or that are about other versions.
        """
        conditional = [
            entry
            for name, entry in told.items()
            if entry.when and (name in self.matched or not self.applies(entry) or entry.key in self.left_out)
        ]
        met = {entry.key for entry in conditional if self.applies(entry)}
        plain = {entry.key: entry for entry in told.values() if not entry.when}
        kept = {key: signatures for key, signatures in failing.items() if key not in met or key in self.beside}
        entries = [*rewritten(plain, kept), *conditional]
        return sorted(entries, key=lambda entry: (entry.is_case, entry.key, str(entry.when)))


def keys_of(signature: Signature) -> tuple[str, str]:
    """The keys under which an entry may cover a signature: as it is, and as lines of text have it."""
    return str(signature), signature.short


def covers(entry: KnownFailure, finding: Finding) -> bool:
    """Whether an entry with the key of the finding, or of its case, is about it."""
    return not entry.signatures or str(finding.identity) in entry.signatures


def rewritten(told: dict[str, KnownFailure], failing: Mapping[str, Collection[str]]) -> Iterator[KnownFailure]:
    """The entries of ``failing``, with what is ``told`` of them by key."""
    for key in failing:
        keys = (key,) if CASE_ID.fullmatch(key) else keys_of(Signature.parse(key))
        known = next((told[each] for each in keys if each in told), None)
        reason, issue = UNKNOWN if known is None else (known.reason, known.issue)
        yield KnownFailure(key, reason, issue, frozenset(failing[key]))
