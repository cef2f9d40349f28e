"""The fuzzing campaign: generated batches against a subject until the time is up or something differs.

Rounds of cases with seeds derived from one seed. A round that finds failures shrinks each signature apart
(each raises an exception class of its own) and ends the campaign. The smallest case seen of every signature is kept
by us, so that a shrink that runs out of time still reports the best so far. A subject that dies or hangs is shrunk like
any other: its worker is replaced, and hangs are taken for such after a shorter time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, field

from hypothesis.errors import HypothesisException

from inputmeta.conformance.campaign.failures import Failures, seen_on
from inputmeta.conformance.campaign.generated import on_containers, run_round
from inputmeta.conformance.campaign.known import KnownFailure, KnownFailures
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.check.verdicts import Finding, NonConformanceError, Verdict, exception_class
from inputmeta.conformance.generate import Coverage, Profile, features
from inputmeta.conformance.interrupts import Interrupted
from inputmeta.conformance.subjects.base import Subject, SubjectError

MAX_ROUNDS = 10**9
SHRINK_SECONDS = 45.0
SHRINK_SHARE = 0.6
"""Of the time that is left when something fails."""
LATE_SHARE, LATE_SECONDS = 0.2, 9.0
"""What a failure in the last moments may add to the time of a campaign: this share of it, at most these seconds."""


@dataclass
class Campaign:
    """State and result of a campaign."""

    session: Session
    profile: Profile
    seed: int
    known: KnownFailures = field(default_factory=KnownFailures)
    passed_over: AbstractSet[str] = frozenset()
    """Signatures that do not count as failures."""
    shrink_seconds: float = SHRINK_SECONDS
    coverage: Coverage = field(default_factory=Coverage)
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    not_built: Counter[str] = field(default_factory=Counter)
    """The same, of the cases that were drawn until something failed: ``coverage.cases`` of them."""
    failures: Failures = field(default_factory=Failures)
    cases: int = 0
    cells: int = 0
    containers: int = 0
    """Cases of which a container was held to its promises."""
    seconds: float = 0.0
    known_seen: dict[str, KnownFailure] = field(default_factory=dict)
    """Entries of the known failures by the signature of what they covered."""
    lost: SubjectError | None = None
    """Why the subject could not be started any more."""
    broke: BaseException | None = None
    """A failure of the suite's own after something had failed: to be raised when that is told."""
    interrupted: Interrupted | None = None
    deadline: float | None = None
    """When what failed is to be told, by the monotonic clock; None: whenever that is."""
    cut_short: bool = False
    """Whether time was up before all that failed was shrunk."""

    @property
    def subject(self) -> Subject:
        """What is tested."""
        return self.session.subject

    @property
    def ran(self) -> int:
        """Cases that said something about the subject."""
        return self.cases - self.verdicts[Verdict.UNSUPPORTED]

    def record(self, case: Case, outcome: Outcome, seconds: float) -> list[Finding]:
        """Count one case and keep its findings if they are the first or the smallest of their signature.

        Returns those that are not known failures.
        """
        self.cases += 1
        self.cells += outcome.cells
        self.containers += outcome.container
        self.unsupported.update(outcome.unsupported)
        if not outcome.ran:
            self.verdicts[Verdict.UNSUPPORTED] += 1
        elif not outcome.findings:
            self.verdicts[Verdict.PASS] += 1
        self.known.saw(case, ran=outcome.ran)
        new = []
        for failure in seen_on(case, outcome.findings, self.session.mark(), seconds):
            finding = failure.finding
            entry = self.known.match(finding, case)
            self.verdicts[Verdict.KNOWN if entry else finding.verdict] += 1
            if entry:
                self.known_seen[finding.signature] = entry
            elif finding.signature not in self.passed_over:
                new.append(finding)
                self.failures.note(failure)
        return new

    def reduce_from(self, now: float, begin: float, end: float | None) -> float:
        """Something failed: when shrinking has to end. Of the time that is left the rest is for labelling."""
        if end is None:
            return now + self.shrink_seconds
        self.deadline = max(end, now + min(LATE_SHARE * (end - begin), LATE_SECONDS))
        return now + min(self.shrink_seconds, SHRINK_SHARE * (self.deadline - now))


class _Stop(BaseException):
    """Ends a round from inside: not an Exception, so that it is no failing example."""


def fuzz(
    tested: Subject | Session,
    profile: Profile,
    *,
    seed_value: int,
    seconds: float | None = None,
    rounds: int = MAX_ROUNDS,
    shrink_seconds: float = SHRINK_SECONDS,
    known: KnownFailures | None = None,
    passed_over: AbstractSet[str] = frozenset(),
    on_case: Callable[[Campaign], None] = lambda _: None,
) -> Campaign:
    """Run a campaign for ``seconds`` (None: until ``rounds`` rounds of ``ROUND_EXAMPLES`` cases are done).

    After the first failure the round goes on, looking for others and shrinking: for at most ``shrink_seconds``, and for
    :data:`SHRINK_SHARE` of what is left of ``seconds``, or of what a late failure adds to them.
    With ``rounds`` alone the same seed gives the same cases, whatever the machine's speed. Failures that are ``known``
    are counted, and the campaign goes on; so it does at the signatures that are ``passed_over``.

    What was found is never lost: a campaign that is interrupted, or that fails itself after something has failed, is
    returned with it.

    Raises:
        SubjectError: the subject cannot be started any more, and nothing had failed yet.
    """
    session = tested if isinstance(tested, Session) else Session(tested)
    campaign = Campaign(session, profile, seed_value, known or KnownFailures(), passed_over, shrink_seconds)
    begin = time.monotonic()
    end = None if seconds is None else begin + seconds
    for index in range(rounds):
        _run_round(campaign, index, begin, end, on_case)
        campaign.seconds = time.monotonic() - begin
        if campaign.failures or campaign.interrupted or (end is not None and time.monotonic() >= end):
            break
    return campaign


def _run_round(
    campaign: Campaign, index: int, begin: float, end: float | None, on_case: Callable[[Campaign], None]
) -> None:
    """One round; failures end up in the campaign."""
    shrink_end: float | None = None
    hurry = ExitStack()

    def check(case: Case) -> None:
        nonlocal shrink_end
        now = time.monotonic()
        limit = end if shrink_end is None else shrink_end
        if limit is not None and now >= limit:
            campaign.cut_short = shrink_end is not None
            raise _Stop
        try:
            containers = shrink_end is not None or on_containers(campaign.cases)
            outcome = campaign.session.run(case, containers=containers)
        except SubjectError as error:
            campaign.lost = error
            raise _Stop from error
        except Interrupted as error:
            campaign.interrupted = error
            campaign.cut_short = shrink_end is not None
            raise _Stop from error
        new = campaign.record(case, outcome, time.monotonic() - begin)
        if shrink_end is None:
            campaign.coverage.add(features(case, outcome.shown))
            campaign.not_built.update(outcome.unsupported)
        on_case(campaign)
        if new:
            shrink_end = shrink_end or campaign.reduce_from(time.monotonic(), begin, end)
            if any(finding.verdict is Verdict.HANG for finding in new):
                hurry.enter_context(campaign.session.hurried())
            raise exception_class(new[0].signature)(new[0])

    with hurry:
        try:
            run_round(campaign.profile, campaign.seed, index, check, shrink=True)
        except BaseException as error:
            campaign.broke = _fault_in(error, bool(campaign.failures))
            if campaign.broke is not None and not campaign.failures:
                raise
    if campaign.lost is not None and not campaign.failures:
        raise campaign.lost


def _fault_in(error: BaseException, failed: bool) -> BaseException | None:
    """What of an exception that ended a round is a failure of the suite itself, if anything.

    Hypothesis groups what is raised when it replays what failed, a stop for want of time among it. That a failure does
    not come back is its own word, and once something has ``failed`` ours: it is told as FLAKY.
    """
    if isinstance(error, BaseExceptionGroup):
        faults = (_fault_in(each, failed) for each in error.exceptions)
        return next((fault for fault in faults if fault is not None), None)
    expected = (_Stop, NonConformanceError, HypothesisException) if failed else (_Stop,)
    return None if isinstance(error, expected) else error
