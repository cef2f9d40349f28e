"""Features: the border conditions of the formulas, each with the profiles that can reach it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from inputmeta import oracle

from ..profile import PATHS, TIERS, Profile
from .outside import GIVEN_TABLES, outside

PROMPT = frozenset({"prompt"})
DECODE = frozenset({"decode", "decode_zos"})
ZOS = frozenset({"decode_zos"})
ANY_PATH = frozenset(PATHS)
ANY_TIER = frozenset(TIERS)
SMALL = frozenset({"small"})
REAL = frozenset({"real"})
MANY = frozenset({"many"})
MASK_OR_COMPACT = frozenset({"mask", "compact"})
COMPACT = frozenset({"compact"})
OF_SEQUENCES = frozenset({"P-LEN", "P-TABLE", "P-STATE", "P-NGRAM", "P-INT32"})
"""Preconditions that one sequence can break while others keep them."""

HOLDERS: dict[str, frozenset[str]] = {
    formula: frozenset(
        name
        for name, field in oracle.FIELDS.items()
        if formula in field.formulas or formula in dict(field.other_formulas).values()
    )
    for formula in oracle.FORMULAS
}
"""Declared names of the fields that have a formula."""

Conditions = Mapping[str, bool]
"""Whether what a feature is about holds, by the feature's id."""


@dataclass(frozen=True)
class Feature:
    """One border condition of one formula.

    ``classes`` are the classes of bug reports in which just this condition made the difference. The other fields say
    what a profile must allow for the feature to be reachable.

    """

    id: str
    """Formula (or precondition, or part of the batch), colon, condition: ``F-RING:wrapped``."""
    text: str
    classes: tuple[str, ...] = ()
    paths: frozenset[str] = ANY_PATH
    tiers: frozenset[str] = ANY_TIER
    min_cp_size: int = 1
    yoco_modes: frozenset[str] = frozenset()
    """Empty: whatever the mode."""
    conditions: frozenset[str] = frozenset()
    """Preconditions one of which a batch with the feature breaks; empty: a valid batch can have it."""
    varlen: bool = False
    read_only: bool = False
    multi_step: bool = False
    wide_window: bool = False
    allocates: bool = False
    """Of a history whose tables the subject gives."""
    formulas: frozenset[str] = frozenset()
    """Formulas of the fields that show it; empty: the one that it is named after, or any field if none has that."""

    def seen_in(self, fields: Collection[str]) -> bool:
        """Whether comparing these fields, by declared name, can show it."""
        formulas = self.formulas or {self.id.partition(":")[0]}
        holders = frozenset().union(*(HOLDERS.get(formula, frozenset()) for formula in formulas))
        return not holders.isdisjoint(fields) if holders else bool(fields) or bool(self.conditions)

    def reachable(self, profile: Profile) -> bool:
        """Whether the profile is sure to have batches with the feature.

        A profile of invalid cases only promises refusals; valid steps before and after a refused one are a bonus.
        """
        return (
            bool(self.paths.intersection(profile.paths))
            and bool(self.tiers.intersection(profile.tiers))
            and profile.max_cp_size >= self.min_cp_size
            and (not self.yoco_modes or bool(self.yoco_modes.intersection(profile.yoco_modes)))
            and (self._breakable(profile) if self.conditions else profile.invalid < 1)
            and (not self.varlen or profile.varlen)
            and (not self.read_only or profile.read_only)
            and (not self.multi_step or profile.multi_step)
            and (not self.wide_window or profile.wide_windows)
            and (profile.allocates is not None if self.allocates else self._tabled(profile))
            and self.id not in outside(profile.conditions)
            and (bool(self.conditions) or self._compared(profile))
        )

    def _tabled(self, profile: Profile) -> bool:
        """Whether it does not hang on tables that are given, or these are."""
        return profile.allocates is None or self.id not in GIVEN_TABLES

    def _compared(self, profile: Profile) -> bool:
        if profile.fields is None:
            return True
        return self.seen_in({name for path, name in profile.fields if path in self.paths})

    def _breakable(self, profile: Profile) -> bool:
        return profile.invalid > 0 and not self.conditions.isdisjoint(profile.refusals)


@dataclass(frozen=True)
class BugClass(Feature):
    """A class of bug reports: visited by a case that visits one of the conditions that made the difference."""

    members: tuple[Feature, ...] = ()

    @staticmethod
    def of(name: str, text: str, features: Iterable[Feature]) -> BugClass:
        """The class with the features that name it."""
        members = tuple(feature for feature in features if name in feature.classes)
        return BugClass(f"BUG:{name}", f"a batch that can show: {text}", members=members)

    def reachable(self, profile: Profile) -> bool:
        """Whether one of its conditions is reachable."""
        return any(feature.reachable(profile) for feature in self.members)


def holding(*groups: Conditions) -> set[str]:
    """The features whose condition holds."""
    return {name for conditions in groups for name, holds in conditions.items() if holds}


def hits(first: int, end: int, modulus: int, residue: int) -> bool:
    """Whether some x in [first, end) has x % modulus == residue, without a loop.

    >>> hits(3, 5, 4, 0), hits(3, 4, 4, 0), hits(5, 5, 4, 1)
    (True, False, False)
    """
    return first < end and (end - 1 - residue) // modulus > (first - 1 - residue) // modulus
