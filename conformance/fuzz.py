"""The fuzzing campaign: generated batches against a subject until the time is up or something differs.

Rounds of Hypothesis runs with seeds derived from one seed. A round that finds failures shrinks each signature apart
(each raises an exception class of its own) and ends the campaign. The smallest case seen of every signature is kept
by us, so that a shrink that runs out of time still reports the best so far.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from hypothesis import HealthCheck, Phase, Verbosity, event, given, seed, settings

from conformance.cases import Case, Origin
from conformance.generate import Coverage, Profile, batches, features
from conformance.runner import Outcome, run_case
from conformance.subjects.base import Subject
from conformance.verdicts import Finding, Verdict, exception_class
from conformance.version import VERSION

ROUND_EXAMPLES = 100
MAX_ROUNDS = 10**9
SHRINK_SECONDS = 45.0


@dataclass(frozen=True)
class Failure:
    """The smallest case seen of one signature."""

    finding: Finding
    case: Case
    seconds: float
    """Seconds from the start of the campaign to the first sight of this signature."""

    @property
    def size(self) -> tuple[int, int]:
        """Order of cases: fewer sequences, then shorter JSON."""
        return case_size(self.case)


def case_size(case: Case) -> tuple[int, int]:
    """Sequences over all steps, and bytes of compact JSON."""
    return sum(len(step) for step in case.steps), len(msgspec.json.encode(case))


@dataclass
class Campaign:
    """State and result of a campaign."""

    subject: Subject
    profile: Profile
    seed: int
    shrink_seconds: float = SHRINK_SECONDS
    coverage: Coverage = field(default_factory=Coverage)
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Failure] = field(default_factory=dict)
    cases: int = 0
    cells: int = 0
    seconds: float = 0.0

    def record(self, case: Case, outcome: Outcome, seconds: float) -> None:
        """Count one case and keep its findings if they are the first or the smallest of their signature."""
        self.cases += 1
        self.cells += outcome.cells
        self.unsupported.update(outcome.unsupported)
        if not outcome.ran:
            self.verdicts[Verdict.UNSUPPORTED] += 1
        elif not outcome.findings:
            self.verdicts[Verdict.PASS] += 1
        for finding in outcome.findings:
            self.verdicts[finding.verdict] += 1
            known = self.failures.get(finding.signature)
            if known is None or case_size(case) < known.size:
                first = seconds if known is None else known.seconds
                self.failures[finding.signature] = Failure(finding, case, first)


class _Stop(BaseException):
    """Ends a Hypothesis run from inside: not an Exception, so that it is no failing example."""


def fuzz(
    subject: Subject,
    profile: Profile,
    *,
    seed_value: int,
    seconds: float | None = None,
    rounds: int = MAX_ROUNDS,
    shrink_seconds: float = SHRINK_SECONDS,
    on_case: Callable[[Campaign], None] = lambda _: None,
) -> Campaign:
    """Run a campaign for ``seconds`` (None: until ``rounds`` rounds of ``ROUND_EXAMPLES`` cases are done).

    After the first failure the round goes on for at most ``shrink_seconds``, looking for others and shrinking.
    With ``rounds`` alone the same seed gives the same cases, whatever the machine's speed.
    """
    campaign = Campaign(subject, profile, seed_value, shrink_seconds=shrink_seconds)
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

    def check(case: Case) -> None:
        nonlocal shrink_end
        now = time.monotonic()
        limit = end if shrink_end is None else shrink_end
        if limit is not None and now >= limit:
            raise _Stop
        outcome = run_case(case, campaign.subject)
        campaign.record(case, outcome, time.monotonic() - begin)
        if shrink_end is None:
            seen = features(case)
            campaign.coverage.add(seen)
            for name in sorted(seen):
                event(name)
        on_case(campaign)
        if outcome.findings:
            shrink_end = shrink_end or time.monotonic() + campaign.shrink_seconds
            raise exception_class(outcome.findings[0].signature)(outcome.findings[0])

    test = seed(campaign.seed * 1_000_003 + index)(_settings()(given(batches(campaign.profile))(check)))
    try:
        test()
    except _Stop:
        pass
    except Exception:  # the failures themselves, grouped by Hypothesis; anything else is ours
        if not campaign.failures:
            raise


def _settings() -> settings:
    return settings(
        max_examples=ROUND_EXAMPLES,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=True,
        verbosity=Verbosity.quiet,
    )


def reported_case(failure: Failure, campaign: Campaign) -> Case:
    """The failing case as it is saved: title, tags and origin say what found it."""
    finding = failure.finding
    title = f"{finding.verdict} {finding.formula}" + (f" {finding.key}" if finding.key else "")
    found_by = f"fuzz {campaign.subject.name}"
    origin = Origin(found_by=found_by, version=VERSION, seed=campaign.seed, minimised_by="hypothesis")
    return msgspec.structs.replace(failure.case, title=title, origin=origin)
