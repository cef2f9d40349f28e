"""The fuzzing campaign: generated batches against a subject until the time is up or something differs.

Rounds of Hypothesis runs with seeds derived from one seed. A round that finds failures shrinks each signature apart
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

from hypothesis import event

from inputmeta.conformance.campaign.failures import Failures
from inputmeta.conformance.campaign.generated import run_round
from inputmeta.conformance.campaign.known import KnownFailure, KnownFailures
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.check.verdicts import Finding, Verdict, exception_class
from inputmeta.conformance.generate import Coverage, Profile, features
from inputmeta.conformance.subjects.base import Subject, SubjectError

MAX_ROUNDS = 10**9
SHRINK_SECONDS = 45.0


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
    failures: Failures = field(default_factory=Failures)
    cases: int = 0
    cells: int = 0
    seconds: float = 0.0
    known_seen: dict[str, KnownFailure] = field(default_factory=dict)
    """Entries of the known failures by the signature of what they covered."""
    lost: SubjectError | None = None
    """Why the subject could not be started any more."""

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
        self.unsupported.update(outcome.unsupported)
        if not outcome.ran:
            self.verdicts[Verdict.UNSUPPORTED] += 1
        elif not outcome.findings:
            self.verdicts[Verdict.PASS] += 1
        self.known.saw(case, ran=outcome.ran)
        new = []
        beside = frozenset(finding.signature for finding in outcome.findings)
        for finding in outcome.findings:
            entry = self.known.match(finding, case)
            self.verdicts[Verdict.KNOWN if entry else finding.verdict] += 1
            if entry:
                self.known_seen[finding.signature] = entry
            elif finding.signature not in self.passed_over:
                new.append(finding)
                self.failures.note(finding, case, self.session.mark(), seconds, beside)
        return new


class _Stop(BaseException):
    """Ends a Hypothesis run from inside: not an Exception, so that it is no failing example."""


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

    After the first failure the round goes on for at most ``shrink_seconds``, looking for others and shrinking.
    With ``rounds`` alone the same seed gives the same cases, whatever the machine's speed. Failures that are ``known``
    are counted, and the campaign goes on; so it does at the signatures that are ``passed_over``.

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
        if campaign.failures or (end is not None and time.monotonic() >= end):
            break
    return campaign


def _run_round(
    campaign: Campaign, index: int, begin: float, end: float | None, on_case: Callable[[Campaign], None]
) -> None:
    """One Hypothesis run; failures end up in the campaign."""
    shrink_end: float | None = None
    hurry = ExitStack()

    def check(case: Case) -> None:
        nonlocal shrink_end
        now = time.monotonic()
        limit = end if shrink_end is None else shrink_end
        if limit is not None and now >= limit:
            raise _Stop
        try:
            outcome = campaign.session.run(case)
        except SubjectError as error:
            campaign.lost = error
            raise _Stop from error
        new = campaign.record(case, outcome, time.monotonic() - begin)
        if shrink_end is None:
            seen = features(case)
            campaign.coverage.add(seen)
            for name in sorted(seen):
                event(name)
        on_case(campaign)
        if new:
            shrink_end = shrink_end or time.monotonic() + campaign.shrink_seconds
            if any(finding.verdict is Verdict.HANG for finding in new):
                hurry.enter_context(campaign.session.hurried())
            raise exception_class(new[0].signature)(new[0])

    with hurry:
        try:
            run_round(campaign.profile, campaign.seed, index, check, shrink=True)
        except _Stop:
            pass
        except Exception:  # the failures themselves, grouped by Hypothesis; anything else is ours
            if not campaign.failures:
                raise
    if campaign.lost is not None and not campaign.failures:
        raise campaign.lost
