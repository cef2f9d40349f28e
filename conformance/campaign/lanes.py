"""Random rounds run beside the main thread: a worker to each further core, a thread to each worker.

The main thread hands out rounds and counts what comes back; it has the rounds of Hypothesis to itself. Where several
rounds fail the first one of the seed is told: those before it are run to their end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue

from inputmeta.conformance.campaign.drawn import Range, drawn_ranges
from inputmeta.conformance.campaign.journal import Journal
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.files import CaseError
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.generate.rounds import HYPOTHESIS_EVERY, is_random
from inputmeta.conformance.subjects.base import SubjectError
from inputmeta.conformance.workers.subject import IsolatedSubject


@dataclass(frozen=True)
class Failing:
    """A range of a random round that showed something new."""

    range: Range
    session: Session
    """Where it was run."""

    @property
    def index(self) -> int:
        """Of the round."""
        return self.range.asked.round


@dataclass
class Lanes:
    """The rounds of a seed, handed out: random ones to any thread, those of Hypothesis to the main one."""

    session: Session
    """The main thread's."""
    profile: Profile
    seed: int
    ids: tuple[str, ...]
    """Ids of cases that something is known of."""
    rounds: int
    end: float | None
    is_new: Callable[[Range], bool]
    """Whether what a range shows ends the run."""
    failing: Failing | None = None
    """The first of the seed so far."""
    came: SimpleQueue[Range] = field(default_factory=SimpleQueue)
    """What lanes have run, for the main thread to count; not what showed something new."""
    _left: list[tuple[int, int]] = field(default_factory=list)
    """Rounds, and places in them, from which on they are to be run batch by batch."""
    _random: int = 1
    """The next random round."""
    _hypothesis: int = 0
    """The next round of Hypothesis."""
    _stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: dict[int, tuple[IsolatedSubject, int]] = field(default_factory=dict)
    """By lane its subject and the round that it is at."""

    def take(self) -> tuple[int, int] | None:
        """The next round for the main thread, and the place at which it begins; None if there is none any more."""
        with self._lock:
            if self._left:
                return self._left.pop()
            if self._hypothesis > self._random:
                index = self._take_random()
                return None if index is None else (index, 0)
            index = self._hypothesis
            self._hypothesis += HYPOTHESIS_EVERY
            return (index, 0) if index < self._last else None

    def _take_random(self) -> int | None:
        index = self._random
        late = self.end is not None and time.monotonic() >= self.end
        if self._stopped or late or index >= self._last:
            return None
        self._random += 1 if is_random(index + 1) else 2
        return index

    @property
    def _last(self) -> int:
        """The first round that is not to be run any more."""
        return self.rounds if self.failing is None else min(self.rounds, self.failing.index)

    @contextmanager
    def running(self, count: int) -> Iterator[None]:
        """Within, so many lanes run rounds."""
        threads = [threading.Thread(target=self._work, args=(lane,), daemon=True) for lane in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped = True
            for subject, _ in list(self._running.values()):
                subject.strike()
            for thread in threads:
                thread.join()

    def settled(self) -> bool:
        """Whether no lane is at a round before the failing one any more."""
        with self._lock:
            return all(index > self._last for _, index in self._running.values())

    def _work(self, lane: int) -> None:
        """Run rounds until there are none. What a lane cannot do, the main thread will, or say why not."""
        main = self.session.isolated
        assert main is not None
        assert self.session.journal is not None
        with (
            suppress(SubjectError, CaseError),
            main.beside() as subject,
            Journal(self.session.journal.folder) as journal,
        ):
            session = Session(subject, journal)
            try:
                while (index := self._begin(lane, subject)) is not None:
                    self._run(session, index)
            finally:
                self._running.pop(lane, None)

    def _begin(self, lane: int, subject: IsolatedSubject) -> int | None:
        with self._lock:
            index = self._take_random()
            if index is not None:
                self._running[lane] = subject, index
            return index

    def _run(self, session: Session, index: int) -> None:
        """One round, to what it shows that is new."""
        for ran in drawn_ranges(session, self.profile, self.seed, index, end=self.end, ids=self.ids):
            if self._stopped:  # a worker that was struck shows nothing
                return
            if ran.is_clean or (ran.drew.ran is not None and not self.is_new(ran)):
                self.came.put(ran)
                continue
            with self._lock:
                if not ran.shown().findings:
                    self._left.append((index, ran.place))
                elif self.failing is None or index < self.failing.index:
                    self.failing = Failing(ran, session)
            return
