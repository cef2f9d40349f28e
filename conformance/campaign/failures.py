"""Failures by signature: how each was seen first, on the smallest case since, and which follow from which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inputmeta.conformance.campaign.session import NO_MARK, Mark
from inputmeta.conformance.cases.files import case_size
from inputmeta.conformance.cases.model import Case, oracle_config
from inputmeta.conformance.check.verdicts import Finding, declared


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
    beside: frozenset[str] = frozenset()
    """Signatures of all findings on the case."""
    reduced: str = ""
    """How the case was made smaller, and from which sizes on it fails; empty where it was not reduced."""
    before: tuple[Case, ...] = ()
    """Cases to run before in the same worker, in order."""

    @classmethod
    def seen(
        cls,
        finding: Finding,
        case: Case,
        mark: Mark = NO_MARK,
        seconds: float = 0.0,
        beside: frozenset[str] = frozenset(),
    ) -> Failure:
        """A failure at its first sight."""
        return cls(finding, case, mark, case, mark, seconds, beside)

    @property
    def size(self) -> tuple[int, int]:
        """Order of cases: fewer sequences, then shorter JSON."""
        return case_size(self.case)


def seen_on(case: Case, findings: Sequence[Finding], mark: Mark = NO_MARK, seconds: float = 0.0) -> list[Failure]:
    """The failures that a case shows together, at their first sight."""
    beside = frozenset(finding.signature for finding in findings)
    return [Failure.seen(finding, case, mark, seconds, beside) for finding in findings]


class Failures(dict[str, Failure]):
    """Failures by signature."""

    def note(self, seen: Failure) -> None:
        """Keep a failure if it is the first of its signature; of a later one the smallest case."""
        signature = seen.finding.signature
        known = self.get(signature)
        if known is None:
            self[signature] = seen
        elif seen.size < known.size:
            changes = {name: getattr(seen, name) for name in ("finding", "case", "mark", "beside")}
            self[signature] = replace(known, **changes)

    def by_size(self) -> list[Failure]:
        """The smallest case first."""
        return sorted(self.values(), key=lambda failure: failure.size)


@dataclass(frozen=True)
class Root:
    """A failure that follows from none of the others."""

    failure: Failure
    follow: tuple[Failure, ...]
    """Those that may follow from it: their formulas read its formula, and their cases show it too."""


def roots(failures: Sequence[Failure]) -> list[Root]:
    """The failures that follow from no other, in their order, each with those that may follow from it."""
    root_of: dict[str, str] = {}

    def find(failure: Failure) -> str:
        """Signature of the root of a failure. Formulas read each other in no circle."""
        signature = failure.finding.signature
        if signature not in root_of:
            root_of[signature] = signature
            cause = next((other for other in failures if follows(failure, other)), None)
            if cause is not None:
                root_of[signature] = find(cause)
        return root_of[signature]

    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(find(failure), []).append(failure)
    found = [failure for failure in failures if root_of[failure.finding.signature] == failure.finding.signature]
    return [Root(each, tuple(f for f in groups[each.finding.signature] if f is not each)) for each in found]


def follows(failure: Failure, other: Failure) -> bool:
    """Whether the cells of one finding are computed from what another finding says is wrong, on the same case."""
    finding, cause = failure.finding, other.finding
    if not finding.speaks_of_values or not cause.speaks_of_values or cause.signature not in failure.beside:
        return False
    reads = declared(finding.key or "").reads(failure.case.path, oracle_config(failure.case.config))
    return cause.formula in reads
