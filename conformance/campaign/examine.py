"""How a failure comes back: always, sometimes, or only after earlier cases; asked before it is reported.

Each failing case is run several times in fresh workers and as often in a single one. If it fails in no fresh worker,
the cases that its worker had run before are searched for the shortest sequence that provokes it: the case's own steps
repeated, then the earlier cases, made fewer by delta debugging. The sequence becomes one case of several steps where
path and configuration allow it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import msgspec

from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.campaign.reduce import shortest, suffixes
from inputmeta.conformance.campaign.reducer import reduce_case
from inputmeta.conformance.campaign.session import Mark, Session
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.verdicts import Finding, Verdict

TIMES = 5
SEARCH_SECONDS = 60.0
REPEATS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
"""How often a case's own steps are repeated in the search."""

DETERMINISTIC = "deterministic"
AFTER_EARLIER = "only after earlier cases"
NOT_REPLAYED = "not replayed"


@dataclass(frozen=True)
class Examined:
    """What is to be reported of a failure."""

    finding: Finding
    """As it was seen; with the verdict FLAKY if it does not come back each time."""
    case: Case
    """To be saved; of several steps if earlier ones are needed."""
    label: str
    """``deterministic``, ``k of n``, ``only after earlier cases``, or that it was not replayed."""
    note: str
    """What was done to find out, one line."""
    before: tuple[Case, ...] = ()
    """Cases to run before in the same worker, in order, where they could not become steps of the case."""


@dataclass(frozen=True)
class Replays:
    """How often a signature came back. ``times``, ``warm_times``: of how many; fewer than asked for if time was up."""

    fresh: int
    warm: int
    times: int
    warm_times: int

    def __str__(self) -> str:
        """``5 of 5 in fresh workers, 5 of 5 in a warm one``."""
        return f"{self.fresh} of {self.times} in fresh workers, {self.warm} of {self.warm_times} in a warm one"


class Examiner:
    """Examines the failures of one session."""

    def __init__(
        self, session: Session, *, times: int = TIMES, seconds: float = SEARCH_SECONDS, total: float | None = None
    ) -> None:
        """``times``: replays of each kind. ``seconds``: bound of a search for earlier cases; ``total``: of it all."""
        self.session = session
        self.times = times
        self.seconds = seconds
        self._end = 0.0
        self._last = math.inf if total is None else time.monotonic() + total

    def examine(self, failure: Failure) -> Examined:
        """Label a failure; SubjectError if the subject cannot be started any more."""
        if time.monotonic() >= self._last:
            return Examined(failure.finding, failure.case, NOT_REPLAYED, "time was up")
        if self.session.isolated is None:
            return self._in_process(failure)
        signature = failure.finding.signature
        replays, found = self.replays(failure.case, signature)
        if found is not None and replays.fresh == replays.times:
            return Examined(found, failure.case, DETERMINISTIC, str(replays))
        if replays.fresh == 0 and time.monotonic() < self._last:
            again = self._first_again(failure) or self._after_earlier(failure, replays)
            if again is not None:
                return again
        return flaky(found or failure.finding, failure.case, replays.fresh, replays.times, str(replays))

    def replays(self, case: Case, signature: str) -> tuple[Replays, Finding | None]:
        """Run a case several times in fresh workers and in one; counts, and the first finding of the signature.

        The first run of a hang has the full time-out, the others the short one: they only repeat what it found.
        """
        fresh, fresh_times, found = 0, 0, None
        for index in self._turns(at_least=1):
            fresh_times += 1
            again = self._fails([], case, signature, hurry=index > 0)
            fresh += again is not None
            found = found or again
            if again is None and index == 0 and signature.startswith(Verdict.HANG):
                fresh_times = self.times
                break  # slow, not hanging
        warm = warm_times = 0
        self._renew()
        with self._haste(signature):
            for _ in self._turns():
                warm_times += 1
                outcome = self.session.run(case)
                warm += any(seen.signature == signature for seen in outcome.findings)
        return Replays(fresh, warm, fresh_times, warm_times), found

    def _turns(self, at_least: int = 0) -> Iterator[int]:
        """The numbers of so many replays as were asked for, while there is time."""
        for index in range(self.times):
            if index >= at_least and time.monotonic() >= self._last:
                return
            yield index

    def _in_process(self, failure: Failure) -> Examined:
        """Without workers there is one process, and it is warm."""
        signature = failure.finding.signature
        count = times = 0
        for _ in self._turns(at_least=1):
            times += 1
            count += any(seen.signature == signature for seen in self.session.run(failure.case).findings)
        note = f"{count} of {times} in this process"
        if count == times:
            return Examined(failure.finding, failure.case, DETERMINISTIC, note)
        return flaky(failure.finding, failure.case, count, times, note)

    def _first_again(self, failure: Failure) -> Examined | None:
        """The case as it failed first, if that comes back each time: the smaller one was no true reduction."""
        if failure.first == failure.case:
            return None
        signature = failure.finding.signature
        found = self._steady([], failure.first, signature)
        if found is None:
            return None
        case, found = self._fewer(failure.first, found, signature)
        note = f"{self.times} of {self.times} in fresh workers, as first seen: what it was shrunk to did not come back"
        return Examined(found, case, DETERMINISTIC, note)

    def _after_earlier(self, failure: Failure, replays: Replays) -> Examined | None:
        """The shortest sequence of earlier cases that provokes a failure; None if none was found in time."""
        signature = failure.finding.signature
        self._end = min(self._last, time.monotonic() + self.seconds)
        for times in REPEATS if replays.warm else REPEATS[-1:]:
            repeated = with_steps([failure.case] * (times - 1), failure.case)
            if repeated is not None and self._in_time([], repeated, signature):
                told = self._told([], repeated, signature)
                if told is not None:
                    return told
                break  # by chance
        for case, mark in ((failure.case, failure.mark), (failure.first, failure.first_mark)):
            earlier = self._earlier(case, failure.first, mark, signature)
            if earlier:
                merged = with_steps(earlier, case)
                told = None if merged is None else self._told([], merged, signature)
                if told is None:
                    return self._told(earlier, case, signature)
                case, found = self._fewer(told.case, told.finding, signature)
                return replace(told, case=case, finding=found)
        return None

    def _fewer(self, case: Case, found: Finding, signature: str) -> tuple[Case, Finding]:
        """The case with fewer steps and sequences, and the finding there; as it was if that is not as steady."""
        end = min(self._last, time.monotonic() + self.seconds)

        def probe(smaller: Case) -> Finding | None:
            return self._fails([], smaller, signature, hurry=True)

        smaller = reduce_case(case, found, probe, end, sequences_only=True)
        again = self._steady([], smaller.case, signature)
        return (case, found) if again is None else (smaller.case, again)

    def _earlier(self, case: Case, first: Case, mark: Mark, signature: str) -> list[Case]:
        """The fewest earlier cases after which ``case`` fails; empty if none were found in time."""

        def provokes(before: Sequence[Case]) -> bool:
            return self._in_time(before, case, signature)

        if first != case and provokes([first]):
            return [first]
        if case.allocation is not None and provokes([case]):  # behind a reset
            return [case]
        history = self.session.earlier(mark)
        for chosen in suffixes(history):
            if provokes(chosen):
                return shortest(chosen, provokes)
        return []

    def _in_time(self, before: Sequence[Case], case: Case, signature: str) -> bool:
        """Whether the case fails after the earlier ones; False when the search has had its time."""
        if time.monotonic() >= self._end:
            return False
        return self._fails(before, case, signature, hurry=True) is not None

    def _told(self, before: Sequence[Case], case: Case, signature: str) -> Examined | None:
        """The failure as one that comes only after earlier cases, if it does so each time at the same call."""
        found = self._steady(before, case, signature)
        if found is None:
            return None
        what = f"{len(before)} earlier cases" if before else f"{len(case.steps)} steps"
        note = f"0 of {self.times} alone in fresh workers, {self.times} of {self.times} with {what}"
        return Examined(found, case, AFTER_EARLIER, note, tuple(before))

    def _steady(self, before: Sequence[Case], case: Case, signature: str) -> Finding | None:
        """The finding, if it comes in each of several fresh workers, at the same call.

        A failure by chance comes sooner or later as well, but not at the same call.
        """
        found: Finding | None = None
        places = set()
        for index in range(self.times):
            found = self._fails(before, case, signature, hurry=index > 0)
            if found is None:
                return None
            assert self.session.isolated is not None
            places.add((found.step, found.cell, self.session.isolated.calls))
            if len(places) > 1:
                return None
        return found

    def _fails(self, before: Sequence[Case], case: Case, signature: str, *, hurry: bool) -> Finding | None:
        """Run cases in a fresh worker; the finding of the signature on the last one."""
        self._renew()
        with self._haste(signature) if hurry else nullcontext():
            findings = [self.session.run(one).findings for one in (*before, case)][-1]
        return next((found for found in findings if found.signature == signature), None)

    def _haste(self, signature: str) -> AbstractContextManager[None]:
        """The short time-out for hangs; a crash may take its time."""
        return self.session.hurried() if signature.startswith(Verdict.HANG) else nullcontext()

    def _renew(self) -> None:
        if self.session.isolated is not None:
            self.session.isolated.renew()


def flaky(finding: Finding, case: Case, count: int, times: int, note: str) -> Examined:
    """A failure that comes back ``count`` of ``times`` times."""
    detail = f"{finding.verdict} came back {count} of {times} times: {finding.detail}"
    return Examined(replace(finding, verdict=Verdict.FLAKY, detail=detail), case, f"{count} of {times}", note)


def with_steps(before: Sequence[Case], case: Case) -> Case | None:
    """The steps of several cases as those of one; None if path, configuration or table width differ, or if one is a
    history of requests: it begins with a reset, which the steps of one case have not between them.
    """
    if any(one.allocation is not None for one in (*before, case)) or any(
        (one.path, one.config, one.max_num_blocks, one.out_fault)
        != (case.path, case.config, case.max_num_blocks, case.out_fault)
        for one in before
    ):
        return None
    cases = (*before, case)
    steps = tuple(step for one in cases for step in one.steps)
    gather = tuple(entry for one in cases for entry in one.gather or (None,) * len(one.steps))
    return msgspec.structs.replace(case, steps=steps, gather=gather if any(gather) else (), expected=())
