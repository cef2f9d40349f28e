"""The fuzzing campaign: generated batches against a subject until the time is up or something differs.

Rounds of cases with seeds derived from one seed. A round that finds failures shrinks each signature apart
(each raises an exception class of its own) and ends the campaign. The smallest case seen of every signature is kept
by us, so that a shrink that runs out of time still reports the best so far. A subject that dies or hangs is shrunk like
any other: its worker is replaced, and hangs are taken for such after a shorter time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace

from hypothesis.errors import HypothesisException

from inputmeta.conformance.campaign.drawn import Range, Shown, drawn_ranges
from inputmeta.conformance.campaign.failures import Failures, seen_on
from inputmeta.conformance.campaign.generated import run_round
from inputmeta.conformance.campaign.known import KnownFailure, KnownFailures
from inputmeta.conformance.campaign.lanes import Lanes
from inputmeta.conformance.campaign.session import Mark, Session
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.check.verdicts import Finding, NonConformanceError, Verdict, exception_class
from inputmeta.conformance.generate import Coverage, Profile, features
from inputmeta.conformance.generate.rounds import is_random, on_containers
from inputmeta.conformance.interrupts import Interrupted, noted
from inputmeta.conformance.protocol.round_messages import RanCases
from inputmeta.conformance.subjects.base import Subject, SubjectError
from inputmeta.conformance.workers.process import cores

MAX_ROUNDS = 10**9
LEAST_SECONDS = 6.0
"""A shorter campaign has no lanes: they would go by in starting."""
LOOK_SECONDS = 0.02
SHRINK_SECONDS = 45.0
SHRINK_SHARE = 0.6
"""Of the time that is left when something fails."""
SLOW_CASE_SECONDS = 0.3
SLOW_CASES = 50
"""Hypothesis shrinks by hundreds of cases. Where a case takes so long, and there is no time for so many of them, all of
it is the reducer's, which begins with the likely sequence alone."""
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
    related: int = 0
    """Fields of steps that were held to relations in place of being compared."""
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
    unshrunk: bool = False
    """Whether nothing that failed was shrunk, the subject being too slow for it."""

    @property
    def subject(self) -> Subject:
        """What is tested."""
        return self.session.subject

    @property
    def ran(self) -> int:
        """Cases that said something about the subject."""
        return self.cases - self.verdicts[Verdict.UNSUPPORTED]

    def record(self, case: Case, outcome: Outcome, seconds: float, mark: Mark | None = None) -> list[Finding]:
        """Count one case and note its findings; those that are not known failures. ``mark``: the last case's."""
        self.cases += 1
        self.cells += outcome.cells
        self.related += outcome.related
        self.containers += outcome.container
        self.unsupported.update(outcome.unsupported)
        if not outcome.ran:
            self.verdicts[Verdict.UNSUPPORTED] += 1
        elif not outcome.findings:
            self.verdicts[Verdict.PASS] += 1
        self.known.saw(case, ran=outcome.ran)
        return self.note(case, outcome.findings, self.session.mark() if mark is None else mark, seconds)

    def note(self, case: Case, findings: Sequence[Finding], mark: Mark, seconds: float) -> list[Finding]:
        """Keep findings if they are the first or the smallest of their signature; those that are not known."""
        new = []
        for failure in seen_on(case, findings, mark, seconds):
            finding = failure.finding
            entry = self.known.match(finding, case)
            self.verdicts[Verdict.KNOWN if entry else finding.verdict] += 1
            if entry:
                self.known_seen[finding.signature] = entry
            elif finding.signature not in self.passed_over:
                new.append(finding)
                self.failures.note(failure)
        return new

    def note_shown(self, case: Case, shown: Shown | None, seconds: float) -> list[Finding]:
        """Keep what a case showed where its worker drew it, if it did; what of it is not known."""
        if shown is None:
            return []
        self.session.note_failed(shown.findings)
        return self.note(case, shown.findings, shown.mark, seconds)

    def count(self, ran: Range, seconds: float) -> None:
        """Count cases that a worker drew and ran, and what is known of the last one."""
        assert ran.drew.ran is not None
        self.count_clean(ran.drew.ran)
        if ran.drew.ran.failing is not None:
            self.record(ran.case, ran.drew.ran.failing, seconds, ran.drew.mark)
            self.coverage.add(features(ran.case))

    def count_clean(self, ran: RanCases) -> None:
        """Count the cases that a worker drew and ran, but the one that failed."""
        cases = ran.done - (ran.failing is not None)
        self.cases += cases
        self.cells += ran.cells
        self.related += ran.related
        self.containers += ran.containers
        self.unsupported.update(ran.unsupported)
        self.verdicts.update({Verdict.PASS: ran.passed, Verdict.UNSUPPORTED: cases - ran.passed})
        self.coverage.count(ran.visited, cases)
        for name, whether in ran.seen.items():
            self.known.saw_id(name, ran=whether)

    def is_new(self, ran: Range) -> bool:
        """Whether one of the findings on the last case is neither known nor passed over."""
        case = ran.case
        return any(
            each.signature not in self.passed_over and self.known.match(each, case) is None
            for each in ran.shown().findings
        )

    def reduce_from(self, now: float, begin: float, end: float | None) -> float:
        """Something failed: when shrinking has to end. Of the time that is left the rest is for labelling."""
        if end is None:
            return now + self.shrink_seconds
        self.deadline = max(end, now + min(LATE_SHARE * (end - begin), LATE_SECONDS))
        return now + min(self.shrink_seconds, SHRINK_SHARE * (self.deadline - now))

    def too_slow(self, took: float, left: float) -> bool:
        """Whether a case that ``took`` so many seconds is not to be shrunk by Hypothesis in those that are left."""
        self.unshrunk = took >= SLOW_CASE_SECONDS and SLOW_CASES * took > left
        return self.unshrunk


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
    lanes = Lanes(session, profile, seed_value, campaign.known.case_ids, rounds, end, campaign.is_new)
    _run_rounds(campaign, lanes, begin, end, on_case)
    if lanes.failing is not None:
        failing = lanes.failing.range
        shown = failing.shown()
        shown = replace(shown, mark=session.adopt(lanes.failing.session, shown.mark))
        if campaign.failures:  # the main thread had something as well
            campaign.note(failing.case, shown.findings, shown.mark, time.monotonic() - begin)
        else:
            _run_round(campaign, failing.asked.round, begin, end, on_case, first=failing.place, shown=shown)
    campaign.seconds = time.monotonic() - begin
    return campaign


def _run_rounds(
    campaign: Campaign, lanes: Lanes, begin: float, end: float | None, on_case: Callable[[Campaign], None]
) -> None:
    """Run rounds to the first that fails, here and, of a campaign with time for it, in lanes beside."""
    draws = campaign.session.draws
    beside = lanes_beside(campaign.subject) if draws and end is not None and end - begin >= LEAST_SECONDS else 0
    with ExitStack() as running:
        while (taken := lanes.take()) is not None:
            index, first = taken
            if draws and is_random(index) and not first:
                _drawn_round(campaign, index, begin, end, on_case)
            else:
                _run_round(campaign, index, begin, end, on_case, first=first)
            _count(campaign, lanes, begin)
            if campaign.failures or campaign.interrupted or (end is not None and time.monotonic() >= end):
                break
            if beside:  # after a first round: a subject that fails at once is told at once
                running.enter_context(lanes.running(beside))
                beside = 0
        while not (campaign.failures or campaign.interrupted or lanes.settled()):
            time.sleep(LOOK_SECONDS)
            campaign.interrupted = noted()
        _count(campaign, lanes, begin)


def lanes_beside(subject: Subject) -> int:
    """Lanes beside the main thread: a core each; none on a GPU, where a context takes long to make, and memory."""
    return 0 if "cuda" in subject.capabilities.devices else cores() - 1


def _count(campaign: Campaign, lanes: Lanes, begin: float) -> None:
    """Count what the lanes have run so far."""
    while not lanes.came.empty():
        campaign.count(lanes.came.get(), time.monotonic() - begin)
    campaign.seconds = time.monotonic() - begin


def _drawn_round(
    campaign: Campaign, index: int, begin: float, end: float | None, on_case: Callable[[Campaign], None]
) -> None:
    """One random round that the worker draws; from the first case on that shows something new it is drawn here."""
    try:
        for ran in drawn_ranges(
            campaign.session, campaign.profile, campaign.seed, index, end=end, ids=campaign.known.case_ids
        ):
            if ran.is_clean or (ran.drew.ran is not None and not campaign.is_new(ran)):
                campaign.count(ran, time.monotonic() - begin)
                on_case(campaign)
                continue
            if ran.drew.ran is not None:
                campaign.count_clean(ran.drew.ran)
            _run_round(campaign, index, begin, end, on_case, first=ran.place, shown=ran.shown())
            return
    except Interrupted as error:
        campaign.interrupted = error


def _run_round(
    campaign: Campaign,
    index: int,
    begin: float,
    end: float | None,
    on_case: Callable[[Campaign], None],
    *,
    first: int = 0,
    shown: Shown | None = None,
) -> None:
    """One round, from case ``first`` on; failures end up in the campaign.

    ``shown``: what the first case showed before. If it shows nothing now, that is kept: it came of earlier cases, or
    by chance.
    """
    shrink_end: float | None = None
    hurry = ExitStack()
    before = shown

    def check(case: Case) -> None:
        nonlocal shrink_end, before
        now = time.monotonic()
        limit = end if shrink_end is None else shrink_end
        if limit is not None and now >= limit and before is None:
            campaign.cut_short = shrink_end is not None
            raise _Stop
        try:
            containers = shrink_end is not None or before is not None or on_containers(campaign.cases)
            outcome = campaign.session.run(case, containers=containers)
        except (SubjectError, Interrupted) as error:
            if before is not None:  # it is told as it was seen
                campaign.note(case, before.findings, before.mark, now - begin)
            if isinstance(error, Interrupted):
                campaign.interrupted = error
                campaign.cut_short = shrink_end is not None
            else:
                campaign.lost = error
            raise _Stop from error
        new = campaign.record(case, outcome, time.monotonic() - begin)
        new, before = new or campaign.note_shown(case, before, time.monotonic() - begin), None
        if shrink_end is None:
            campaign.coverage.add(features(case, outcome.shown))
            campaign.not_built.update(outcome.unsupported)
        on_case(campaign)
        if new:
            after = time.monotonic()
            shrink_end = shrink_end or campaign.reduce_from(after, begin, end)
            hung = any(finding.verdict is Verdict.HANG for finding in new)
            if not hung and campaign.too_slow(after - now, shrink_end - after):
                raise _Stop
            hurry.enter_context(_haste(campaign, new))
            raise exception_class(new[0].signature)(new[0])

    with hurry:
        hurry.enter_context(_haste(campaign, () if shown is None else shown.findings))
        try:
            run_round(campaign.profile, campaign.seed, index, check, shrink=True, first=first)
        except BaseException as error:
            campaign.broke = _fault_in(error, bool(campaign.failures))
            if campaign.broke is not None and not campaign.failures:
                raise
    if campaign.lost is not None and not campaign.failures:
        raise campaign.lost


def _haste(campaign: Campaign, findings: Sequence[Finding]) -> AbstractContextManager[None]:
    """The short time-out, if one of the findings is a hang."""
    hangs = any(finding.verdict is Verdict.HANG for finding in findings)
    return campaign.session.hurried() if hangs else nullcontext()


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
