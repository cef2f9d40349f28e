"""Random rounds that a worker draws and runs itself: range by range, and what the last case of one showed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from inputmeta.conformance.campaign.session import Asked, Drew, Mark, Session
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import broken_by
from inputmeta.conformance.check.refusals import failure_finding
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.generate.rounds import ROUND_EXAMPLES

RANGE_SECONDS = 0.5
"""Of the cases that a worker draws at a time."""


@dataclass(frozen=True)
class Shown:
    """What a case showed where its worker drew it."""

    findings: Sequence[Finding]
    mark: Mark


@dataclass(frozen=True)
class Range:
    """What has come of some cases of a random round."""

    asked: Asked
    drew: Drew

    @property
    def place(self) -> int:
        """Place in the round of the last case; of the first one if none was begun."""
        return self.asked.first + max(0, self.drew.done - 1)

    @property
    def case(self) -> Case:
        """The case at that place."""
        return self.asked.case(self.place)

    @property
    def is_clean(self) -> bool:
        """Whether every case was run and showed nothing."""
        return self.drew.ran is not None and self.drew.ran.failing is None

    def shown(self) -> Shown:
        """What the last case showed: nothing where the suite had no time or memory for it.

        Of a worker that died it is not known in which step: with one that is to be refused it is taken to be that one.
        """
        ran, failure = self.drew.ran, self.drew.failure
        findings: Sequence[Finding] = ()
        if ran is not None:
            findings = () if ran.failing is None else ran.failing.findings
        elif failure is not None and self.drew.done:
            found = failure_finding(failure, 0).on_path(self.case.path)
            broken = {error.condition for _, error in broken_by(self.case)}
            findings = [replace(found, formula=min(broken - {"P-OUT"} or broken)) if broken else found]
        return Shown(findings, self.drew.mark)


def drawn_ranges(
    session: Session, profile: Profile, seed: int, index: int, *, end: float | None, ids: tuple[str, ...] = ()
) -> Iterator[Range]:
    """Run a random round to ``end``, or to its own; whoever cares for what a range shows stops.

    Raises:
        Interrupted: the run is to end.
        SubjectError: the subject cannot be started any more.
        CaseError: the journal cannot be written.
    """
    first = 0
    while first < ROUND_EXAMPLES:
        left = RANGE_SECONDS if end is None else min(RANGE_SECONDS, end - time.monotonic())
        if left <= 0:
            return
        asked = Asked(profile, seed, index, first, ROUND_EXAMPLES - first, left, ids)
        ran = Range(asked, session.run_drawn(asked))
        first += ran.drew.done
        yield ran
