"""A valid case with exactly one precondition broken."""

from __future__ import annotations

from msgspec.structs import replace

from inputmeta.conformance.cases.model import Case

from . import broken_int32, broken_out, broken_shapes
from .breaking import BREAKERS
from .draws import Draw, pick
from .profile import Profile

REGISTERED = (broken_shapes, broken_int32, broken_out)
"""Modules that fill ``BREAKERS`` when imported, in the order of the conditions."""
FEW_PLACES = frozenset(
    {"P-INT32:draft", "P-INT32:pivot", "P-INT32:window-total", "P-OUT:mis-spaced", "P-OUT:overlapping"}
)
"""Ways that few cases offer a place for: drawn four times as often."""


def draw_breaker(draw: Draw) -> int:
    """The number of a way to break a case."""
    rare = [number for number, breaker in enumerate(BREAKERS) if breaker.id in FEW_PLACES]
    numbers: tuple[int, ...] = (*range(len(BREAKERS)), *rare * 3)
    return pick(draw, numbers)


def broken(draw: Draw, case: Case, number: int, profile: Profile) -> Case:
    """The case broken in way ``number``, or in the next one that the case offers a place for.

    The case as it is, if it offers no place for any that the profile allows, or the profile does not take it broken.
    """
    candidates = [
        one
        for one in (*BREAKERS[number:], *BREAKERS[:number])
        if one.condition in profile.refusals and (profile.read_only or one.id != "P-OUT:read-only")
    ]
    found = next(((breaker, places) for breaker in candidates if (places := breaker.places(case))), None)
    if found is None:
        return case
    breaker, places = found
    changed = breaker.edit(draw, case, pick(draw, places))
    if not profile.takes(changed):
        return case
    return replace(changed, tags=(*case.tags, f"invalid:{breaker.condition}", breaker.id))
