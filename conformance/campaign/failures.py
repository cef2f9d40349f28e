"""A failure of a campaign: the smallest case seen of one signature, and the one that came first."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from inputmeta.conformance.campaign.session import Mark
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.verdicts import Finding


@dataclass(frozen=True)
class Failure:
    """The smallest case seen of one signature."""

    finding: Finding
    case: Case
    mark: Mark
    """Where the case was run."""
    first: Case
    """The case that failed first, not shrunk."""
    first_mark: Mark
    seconds: float = 0.0
    """Seconds from the start of the campaign to the first sight of this signature."""

    @property
    def size(self) -> tuple[int, int]:
        """Order of cases: fewer sequences, then shorter JSON."""
        return case_size(self.case)


def case_size(case: Case) -> tuple[int, int]:
    """Sequences over all steps, and bytes of compact JSON."""
    return sum(len(step) for step in case.steps), len(msgspec.json.encode(case))
