"""A run of cases on one subject: journalled, with the history of its worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec

from inputmeta.conformance.campaign.journal import Journal
from inputmeta.conformance.cases.files import CaseError, case_id, save_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import Outcome, run_case
from inputmeta.conformance.exits import OutOfMemory
from inputmeta.conformance.interrupts import at_once
from inputmeta.conformance.subjects.base import Subject
from inputmeta.conformance.workers.subject import IsolatedSubject

SHORTEST_TIMEOUT = 0.5
"""Seconds; a busy machine may hold up a quick answer for as long."""
TIMES_SLOWEST = 10
"""A batch that takes so many times as long as the slowest answered one is taken for a hang while shrinking."""


@dataclass(frozen=True)
class Mark:
    """Where a case was run: journal indices of the cases that the same worker ran before it, in order."""

    earlier: range


NO_MARK = Mark(range(0))
"""Of a case that ran outside any session."""


class Session:
    """Runs cases on a subject, in a worker or in process."""

    def __init__(self, subject: Subject, journal: Journal | None = None) -> None:
        self.subject = subject
        self.journal = journal
        self.isolated = subject if isinstance(subject, IsolatedSubject) else None
        self.failed = False
        """Whether a finding was seen: from then on the journal keeps everything."""
        self._generation = -1
        self._begin = 0

    def run(self, case: Case, *, containers: bool = True) -> Outcome:
        """Journal a case and run it, on ``containers`` too (:func:`run_case`).

        Raises:
            Interrupted: the run is to end; nothing that an earlier call returned is lost.
            SubjectError: the subject cannot be started any more.
            CaseError: the journal cannot be written.
            OutOfMemory: the suite has no memory left.
        """
        with at_once():
            self._settle()
        if self.journal is not None:
            self.journal.sent(self._generation, case)
        try:
            outcome = run_case(case, self.subject, containers=containers)
        except (MemoryError, OutOfMemory) as error:
            raise OutOfMemory(self._saved(case, str(error))) from error
        if self.journal is not None:
            with suppress(CaseError):  # its device is full: the next case says so, and these findings are told
                for found in outcome.findings:
                    self.journal.failed(found.signature)
        self.failed |= bool(outcome.findings)
        return outcome

    def _saved(self, case: Case, reason: str) -> str:
        """Save the case at which the suite ran out of memory, without its expectation; what is to be said."""
        text = f"out of memory{' ' * bool(reason)}{reason} at case {case_id(case)}"
        folder = None if self.journal is None else self.journal.folder
        if folder is None:
            return text
        path = folder / f"{case_id(case)}.json"
        try:
            save_case(msgspec.structs.replace(case, id=case_id(case), expected=()), path)
        except (CaseError, MemoryError) as error:
            return f"{text}, which is not saved: {error}"
        return f"{text}, saved as {path}"

    def mark(self) -> Mark:
        """Where the last case was run."""
        return Mark(range(self._begin, 0 if self.journal is None else len(self.journal) - 1))

    def earlier(self, mark: Mark) -> list[Case]:
        """The cases that the same worker had run before."""
        return [] if self.journal is None else self.journal.cases(mark.earlier)

    def _settle(self) -> None:
        """Have a worker, and know where its history begins."""
        generation = 0
        if self.journal is not None and self.journal.full and not self.failed:
            self.journal.clear()
            if self.isolated is not None:
                self.isolated.renew()
        if self.isolated is not None:
            self.isolated.ensure()
            generation = self.isolated.generation
        if generation != self._generation:
            self._generation = generation
            self._begin = 0 if self.journal is None else len(self.journal)

    @property
    def short_timeout(self) -> float:
        """Seconds after which a batch of this subject is taken for a hang, going by its answers so far."""
        if self.isolated is None:
            return 0.0
        return min(self.isolated.timeout, max(SHORTEST_TIMEOUT, TIMES_SLOWEST * self.isolated.slowest))

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """With the short time-out, which is never to be the last word."""
        if self.isolated is None:
            yield
            return
        full = self.isolated.timeout
        self.isolated.timeout = self.short_timeout
        try:
            yield
        finally:
            self.isolated.timeout = full
