"""Reducing the failure of a subject: which runs answer the reducer's question, and that its answer holds.

The search runs in one warm worker, which is quick. What it ends with has to fail in a fresh worker too; if it does
not, the subject remembers, and the search is made again, every case in a fresh worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import msgspec

from inputmeta.conformance.campaign.ahead import Ahead
from inputmeta.conformance.campaign.failures import Failure, roots
from inputmeta.conformance.campaign.reducer import Probe, Reduced, Reducer, reduce_case
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.files import CaseError
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.interrupts import Interrupted
from inputmeta.conformance.subjects.base import SubjectError

REDUCE_SECONDS = 20.0
"""For a failure, where a command does not say."""
REDUCER = "inputmeta reduce"
"""What minimised a case, as its origin says."""
OnTry = Callable[[Reducer], None]


IsKnown = Callable[[Finding, Case], bool]
"""Whether a finding on a case is a known failure."""


def never(finding: Finding, case: Case) -> bool:
    """Nothing is known."""
    return False


def reduce_roots(
    session: Session,
    failures: Sequence[Failure],
    seconds: float = REDUCE_SECONDS,
    *,
    is_known: IsKnown = never,
) -> list[Failure]:
    """The failures, in their order, those that follow from no other on the smallest case found.

    ``seconds``: of all of them. ``is_known``: a new failure is not made into one that is known.
    """
    end = time.monotonic() + seconds
    found = [root.failure for root in roots(failures)]
    reduced = {}
    for index, failure in enumerate(found):
        share = (end - time.monotonic()) / (len(found) - index)
        reduced[failure.finding.signature] = reduce_failure(session, failure, share, is_known=is_known)
    return [reduced.get(failure.finding.signature, failure) for failure in failures]


def reduce_failure(
    session: Session,
    failure: Failure,
    seconds: float = REDUCE_SECONDS,
    *,
    any_signature: bool = False,
    on_try: OnTry = lambda _: None,
    jobs: int = 1,
    is_known: IsKnown = never,
) -> Failure:
    """The failure on the smallest case found, and how it came to it; as it was if the case does not fail by itself.

    The cases that it needs before it are reduced behind it. ``any_signature``: a case on which anything at all fails
    will do. ``jobs``: workers that run cases of the search; it finds the same with any number. What was found so far is
    kept when the run is to end, or when the subject cannot be started any more.
    """
    if seconds <= 0:
        return failure
    end = time.monotonic() + seconds
    wanted = None if any_signature else failure.finding.signature
    beside = jobs - 1 if session.isolated is not None and session.journal is not None else 0
    try:
        with (
            session.hurried() if failure.finding.verdict is Verdict.HANG else nullcontext(),
            Ahead(session, beside) as ahead,
        ):
            return _Search(session, wanted, end, on_try, ahead, is_known).run(failure)
    except (
        Interrupted,
        SubjectError,
        CaseError,
    ):  # before it was known to fail; the next run of a case raises it again
        return failure


@dataclass(frozen=True)
class _Search:
    """One failure being reduced."""

    session: Session
    signature: str | None
    """None: any will do."""
    end: float
    on_try: OnTry
    ahead: Ahead
    is_known: IsKnown

    def run(self, failure: Failure) -> Failure:
        """The failure reduced; raises whatever ends the run before it is known to fail."""
        before = list(failure.before)
        fresh = self._after(before)
        first = Reducer(failure.case, failure.finding, fresh, self.end, on_try=self.on_try)
        found = first.finding if not before and first.run_alone() else fresh(failure.case)
        if found is None:
            return failure
        reduced = self._reduced(first.case, found, before)
        finding, texts, runs = reduced.finding, reduced, first.runs + reduced.tried
        for index in reversed(range(len(before))):

            def probe(earlier: Case, index: int = index, last: Case = reduced.case) -> Finding | None:
                return self._after([*before[:index], earlier, *before[index + 1 :]])(last)

            smaller = reduce_case(before[index], finding, probe, self.end, on_try=self.on_try)
            before[index], runs = smaller.case, runs + smaller.tried
            texts = replace(texts, ended=texts.ended or smaller.ended)
        told = str(replace(texts, tried=runs))
        same = reduced.case == failure.case
        if same and before == list(failure.before):
            return replace(failure, reduced=told)
        smaller_case = failure.case if same else _titled(reduced.case, failure.case)
        mark = self.session.mark()
        return replace(failure, finding=finding, case=smaller_case, mark=mark, reduced=told, before=tuple(before))

    def _reduced(self, case: Case, found: Finding, before: Sequence[Case]) -> Reduced:
        """The case reduced in a warm worker if what that ends with fails in a fresh one too; otherwise in fresh ones.

        A case that needs others before it is run in fresh workers alone.
        """
        fresh = self._after(before)
        if before:
            return reduce_case(case, found, fresh, self.end, on_try=self.on_try)
        reduced = reduce_case(case, found, self._likely, self.end, on_try=self.on_try, ahead=self.ahead)
        if self.session.isolated is None or reduced.case == case:
            return reduced
        try:
            alone = fresh(reduced.case)
        except (Interrupted, SubjectError):  # the best so far is told
            return reduced
        if alone is None:
            return reduce_case(case, found, fresh, self.end, on_try=self.on_try)
        return replace(reduced, finding=alone)

    def _after(self, before: Sequence[Case]) -> Probe:
        """Runs a case in a fresh worker, if there are workers, after others."""

        def probe(case: Case) -> Finding | None:
            if self.session.isolated is not None:
                self.session.isolated.renew()
            for each in before:
                self.session.run(each)
            return self._warm(case)

        return probe

    def _warm(self, case: Case) -> Finding | None:
        return self._found(case, self.session.run(case))

    def _likely(self, case: Case) -> Finding | None:
        return self._found(case, self.ahead.run(case))

    def _found(self, case: Case, outcome: Outcome) -> Finding | None:
        wanted = (found for found in outcome.findings if self.signature in (None, found.signature))
        return next((found for found in wanted if not self.is_known(found, case)), None)


def _titled(case: Case, first: Case) -> Case:
    """The case with what was reduced in its title: sequences and steps."""
    counts = [f"{sum(map(len, each.steps))} sequences in {len(each.steps)} steps" for each in (first, case)]
    title = f"{first.title}; reduced from {counts[0]} to {counts[1]}".removeprefix("; ")
    return msgspec.structs.replace(case, title=title, origin=msgspec.structs.replace(case.origin, minimised_by=REDUCER))
