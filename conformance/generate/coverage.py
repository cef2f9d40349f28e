"""Counts of visited features: plain data, printed by others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .features import FEATURES
from .profile import Profile


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """One line of a coverage table."""

    id: str
    text: str
    count: int
    """Cases that visited the feature."""


class Coverage:
    """How many cases visited each feature."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.cases = 0

    def add(self, visited: Iterable[str]) -> frozenset[str]:
        """Count one case by the ids of its features, each once; returns those never seen before.

        Raises:
            KeyError: an id that is not declared.

        """
        ids = frozenset(visited)
        unknown = ids.difference(FEATURES)
        if unknown:
            raise KeyError(f"undeclared features: {', '.join(sorted(unknown))}")
        new = frozenset(name for name in ids if not self.counts[name])
        self.counts.update(ids)
        self.cases += 1
        return new

    def count(self, visited: Mapping[str, int], cases: int) -> None:
        """Count several cases together: how many of them visited each feature. Raises KeyError as :meth:`add`."""
        unknown = visited.keys() - FEATURES.keys()
        if unknown:
            raise KeyError(f"undeclared features: {', '.join(sorted(unknown))}")
        self.counts.update(visited)
        self.cases += cases

    def rows(self, profile: Profile | None = None) -> list[CoverageRow]:
        """Every feature with its count, in declared order; with a profile, those it can reach or has visited."""
        return [
            CoverageRow(feature.id, feature.text, self.counts[feature.id])
            for feature in FEATURES.values()
            if profile is None or feature.reachable(profile) or self.counts[feature.id]
        ]

    def outside(self, profile: Profile) -> list[CoverageRow]:
        """Features outside the claims, which the profile cannot reach and no case visited, in declared order."""
        inside = {row.id for row in self.rows(profile)}
        return [row for row in self.rows() if row.id not in inside]

    def unvisited(self, profile: Profile) -> list[CoverageRow]:
        """Features that the profile can reach and no case visited, in declared order."""
        return [row for row in self.rows(profile) if row.count == 0]
