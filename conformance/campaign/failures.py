"""Failures by signature: how each was seen first, and on the smallest case since."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inputmeta.conformance.campaign.session import NO_MARK, Mark
from inputmeta.conformance.cases.files import case_size
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

    @classmethod
    def seen(cls, finding: Finding, case: Case, mark: Mark = NO_MARK, seconds: float = 0.0) -> Failure:
        """A failure at its first sight."""
        return cls(finding, case, mark, case, mark, seconds)

    @property
    def size(self) -> tuple[int, int]:
        """Order of cases: fewer sequences, then shorter JSON."""
        return case_size(self.case)


class Failures(dict[str, Failure]):
    """Failures by signature."""

    def note(self, finding: Finding, case: Case, mark: Mark = NO_MARK, seconds: float = 0.0) -> None:
        """Keep the finding if it is the first of its signature, or on the smallest case."""
        known = self.get(finding.signature)
        if known is None:
            self[finding.signature] = Failure.seen(finding, case, mark, seconds)
        elif case_size(case) < known.size:
            self[finding.signature] = replace(known, finding=finding, case=case, mark=mark)

    def by_size(self) -> list[Failure]:
        """The smallest case first."""
        return sorted(self.values(), key=lambda failure: failure.size)
