"""A run of cases on one subject: journalled, with the history of its worker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec

from inputmeta.conformance.campaign.journal import DrawnRange, Journal
from inputmeta.conformance.cases.files import CaseError, case_id, save_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import Outcome, run_case
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.exits import OutOfMemory
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.generate.rounds import random_round
from inputmeta.conformance.interrupts import at_once
from inputmeta.conformance.protocol.round_messages import DrawnCases, RanCases
from inputmeta.conformance.subjects.base import Subject, SubjectFailure
from inputmeta.conformance.workers.subject import IsolatedSubject

SHORTEST_TIMEOUT = 0.5
"""Seconds; a busy machine may hold up a quick answer for as long."""
TIMES_SLOWEST = 10
"""A batch that takes so many times as long as the slowest answered one is taken for a hang while shrinking."""

SUITE_SECONDS = 60.0
"""What the suite's own share of a case takes at most, however busy the machine is."""


@dataclass(frozen=True)
class Mark:
    """Where a case was run: journal indices of the cases that the same worker ran before it, in order."""

    earlier: range


NO_MARK = Mark(range(0))
"""Of a case that ran outside any session."""


@dataclass(frozen=True)
class Asked:
    """``count`` cases of a random round from place ``first`` on, for at most ``seconds``."""

    profile: Profile
    seed: int
    round: int
    first: int
    count: int
    seconds: float
    ids: tuple[str, ...] = ()
    """Ids of cases that something is known of."""

    def case(self, place: int) -> Case:
        """The case at a place of the round."""
        return random_round(self.profile, self.seed, self.round).case(place)


@dataclass(frozen=True)
class Drew:
    """What has come of cases that a worker drew and ran."""

    done: int
    """Cases that were begun."""
    ran: RanCases | None
    """Their counts; None: the worker gave no answer, and has them no more."""
    failure: SubjectFailure | None
    """How the worker ended at the last case; None where it is the suite that was late or had no memory."""
    mark: Mark
    """Where the last case was run."""


class Beat:
    """What changes as long as a worker that draws is at work: a build stands still after a time-out, the suite itself,
    which draws and compares in between, may take longer.
    """

    def __init__(self, written: DrawnRange) -> None:
        self._written = written
        self._at, self._since = (-1, 0), time.monotonic()

    def __call__(self) -> object:
        """A value that is another one as long as the worker is at work."""
        now, at = time.monotonic(), self._written.at()
        if at != self._at:
            self._at, self._since = at, now
        _, build = at
        return at if build or now - self._since > SUITE_SECONDS else (at, now)


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
        self.note_failed(outcome.findings)
        return outcome

    def note_failed(self, findings: Sequence[Finding]) -> None:
        """Journal findings on the case that was sent last."""
        if self.journal is not None:
            with suppress(CaseError):  # its device is full: the next case says so, and these findings are told
                for found in findings:
                    self.journal.failed(found.signature)
        self.failed |= bool(findings)

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

    def adopt(self, other: Session, mark: Mark) -> Mark:
        """The history of a case that another session's worker drew, as one of this session; a fresh worker here."""
        if self.journal is None or other.journal is None:
            return NO_MARK
        if self.isolated is not None:
            self.isolated.renew()
        return Mark(self.journal.adopt(other.journal, mark.earlier))

    @property
    def draws(self) -> bool:
        """Whether the worker draws cases itself: not without a journal, which has to have them."""
        return self.isolated is not None and self.isolated.draws and self.journal is not None

    def run_drawn(self, asked: Asked) -> Drew:
        """Have the worker draw cases of a random round, journalled, and run them to the first that shows something.

        Raises:
            Interrupted: the run is to end; nothing that an earlier call returned is lost.
            SubjectError: the subject cannot be started any more.
            CaseError: the journal cannot be written.
        """
        assert self.isolated is not None
        assert self.journal is not None
        with at_once():
            self._settle()
        written = self.journal.drawn(self._generation, asked.profile, asked.seed, asked.round)
        message = DrawnCases(
            profile=msgspec.to_builtins(asked.profile),
            seed=asked.seed,
            round=asked.round,
            first=asked.first,
            count=asked.count,
            seconds=asked.seconds,
            ids=asked.ids,
            refuses=tuple(sorted(self.isolated.capabilities.refuses)),
            journal=str(self.journal.path.absolute()),
            offset=written.offset,
        )
        failure: SubjectFailure | None = None
        ran = None
        try:
            with at_once():
                ran = self.isolated.run_drawn(message, Beat(written))
        except SubjectFailure as error:
            failure = error
        place, build = written.at()
        done = max(0, place - asked.first + 1) if ran is None else ran.done
        indices = self.journal.ran(written.drawn, range(asked.first, asked.first + done))
        late = failure is not None and failure.verdict == Verdict.HANG and build == 0
        return Drew(done, ran, None if late else failure, Mark(range(self._begin, indices.stop - 1)))

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
