"""Cases of a random round, drawn and run where the subject is: for a Python subject in a worker of ours.

A round and a range of places in it come in, counts go out, or what the first case that fails shows. Nothing of a batch
crosses the pipe. What is found here accuses nobody yet: whoever asked runs that case again, batch by batch.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import numpy as np

from inputmeta.conformance.cases.files import case_id
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.containers import Inspected, inspector_of
from inputmeta.conformance.check.kept import NOTHING_KEPT, Kept, change_text
from inputmeta.conformance.check.runner import Outcome, run_case
from inputmeta.conformance.generate import Profile, features
from inputmeta.conformance.generate.rounds import ROUND_EXAMPLES, on_containers, random_round
from inputmeta.conformance.protocol.codec import MAX_FRAME
from inputmeta.conformance.protocol.convert import capabilities_of, claims_message, reject_message
from inputmeta.conformance.protocol.inputs import changed_input, inputs_of
from inputmeta.conformance.protocol.round_messages import AT, DrawnCases, RanCases
from inputmeta.conformance.subjects.base import AllocatingSubject, Rejection, Result, Subject, SubjectFailure


def run_drawn(subject: Subject, asked: DrawnCases) -> RanCases:
    """Run cases of a random round to the end of a range, or of its time, or to the first case that fails."""
    end = time.monotonic() + asked.seconds
    cases = random_round(msgspec.convert(asked.profile, Profile), asked.seed, asked.round)
    tally = Tally()
    failing: Outcome | None = None
    seen: dict[str, bool] = {}
    done = 0
    with open(asked.journal, "r+b", buffering=0) as journal:
        here = Here(subject, asked, journal.fileno())
        while done < asked.count and failing is None and (not done or time.monotonic() < end):
            place = asked.first + done
            here.begins(place)
            case = cases.case(place)
            outcome = run_case(case, here, containers=on_containers(asked.round * ROUND_EXAMPLES + place))
            done += 1
            if asked.ids and (name := case_id(case)) in asked.ids:
                seen[name] = outcome.ran
            if outcome.findings:
                failing = outcome
            else:
                tally.add(outcome, features(case))
    return tally.answer(done, failing, seen, here.slowest)


class Tally:
    """Counts of the cases that show nothing."""

    def __init__(self) -> None:
        self.passed = self.cells = self.related = self.containers = 0
        self.unsupported: Counter[str] = Counter()
        self.visited: Counter[str] = Counter()

    def add(self, outcome: Outcome, visited: frozenset[str]) -> None:
        """Count one."""
        self.passed += outcome.ran
        self.cells += outcome.cells
        self.related += outcome.related
        self.containers += outcome.container
        self.unsupported.update(outcome.unsupported)
        self.visited.update(visited)

    def answer(self, done: int, failing: Outcome | None, seen: dict[str, bool], slowest: float) -> RanCases:
        """The counts as a message."""
        return RanCases(
            done=done,
            passed=self.passed,
            cells=self.cells,
            related=self.related,
            containers=self.containers,
            unsupported=dict(self.unsupported),
            visited=dict(self.visited),
            seen=seen,
            slowest=slowest,
            failing=failing,
        )


class Here:
    """The subject of this process, held to what a worker is held to when it is asked batch by batch.

    It must leave its request as it is, and the arrays that it returned before; and each answer is as one that was sent.
    """

    def __init__(self, subject: Subject, asked: DrawnCases, journal: int) -> None:
        """``journal``: descriptor of the file into which places are written."""
        self.name = subject.name
        claims = capabilities_of(claims_message(subject.capabilities))
        self.capabilities = replace(claims, refuses=frozenset(asked.refuses))
        self.slowest = 0.0
        """Seconds of the slowest answer so far."""
        self._subject = subject
        self._journal, self._offset = journal, asked.offset
        self._place = self._builds = 0
        self._kept = NOTHING_KEPT
        self._inspect = inspector_of(subject)
        self.inspect_container = None if self._inspect is None else self._inspected

    def begins(self, place: int) -> None:
        """The case at this place is to be run."""
        self._place, self._builds = place, 0
        self._note(0)

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`. Raises SubjectFailure for a broken promise."""
        before, out = inputs_of(request), request.out
        try:
            with self._under_way():
                result = self._subject.build(request)
        except Rejection as rejection:
            reject_message(rejection, None, 0)  # TypeError, if it is none that can be sent
            raise
        changed = changed_input(before, inputs_of(request))
        if changed:
            raise SubjectFailure("OUT_OF_BOUNDS", f"wrote into its input: {changed}", "input")
        if not isinstance(result, Mapping):
            return result
        result = {key: value for key, value in result.items() if isinstance(key, str)}
        if out is None:
            earlier, self._kept = self._kept, kept_of(result)
            gone = earlier.changed()
            if gone:
                raise SubjectFailure("OUT_OF_BOUNDS", change_text(gone), "kept")
        return result

    def reset(self) -> None:
        """See :meth:`inputmeta.conformance.subjects.base.AllocatingSubject.reset`."""
        assert isinstance(self._subject, AllocatingSubject)
        with self._under_way():
            self._subject.reset()

    def _inspected(self, request: Request) -> Inspected:
        """The promises of the container of a valid batch."""
        assert self._inspect is not None
        with self._under_way():
            return self._inspect(request)

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """The subject is at work within."""
        self._builds += 1
        self._note(self._builds)
        begin = time.monotonic()
        try:
            yield
        finally:
            self.slowest = max(self.slowest, time.monotonic() - begin)
            self._note(0)

    def _note(self, build: int) -> None:
        os.pwrite(self._journal, (AT % (self._place, build)).encode(), self._offset)


def kept_of(result: Result) -> Kept:
    """The arrays of a result that have a field's dtype and are no larger than what can be sent."""
    arrays = {key: value for key, value in result.items() if isinstance(value, np.ndarray)}
    return Kept(result, [k for k, a in arrays.items() if a.dtype.name in {"int32", "bool"} and a.nbytes <= MAX_FRAME])
