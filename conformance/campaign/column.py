"""A number that a case has once, or at every step or sequence: its values, and how they are cut to a cap.

A cut leaves a valid case valid as far as the parts know (:mod:`inputmeta.conformance.campaign.parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from inputmeta.conformance.campaign.parts import Part, Parts, Place, Step
from inputmeta.conformance.cases.model import Case

ALL = -1
"""In place of a sequence: of the whole step."""
WHOLE: Place = (-1, ALL)
"""Place of a value of the configuration."""
TOLD = "{name}{where}: {value} fails, {less} passes"


@dataclass(frozen=True)
class Column:
    """A number that a case has once, or at every step or sequence."""

    name: str
    """As a report says it."""
    values: Callable[[Parts], dict[Place, int]]
    cut: Callable[[Parts, Mapping[Place, int]], Parts]
    """The parts with lower values at some places."""
    least: int = 0
    told: str = TOLD
    """How its value in the end is told if one less passes; empty: it is not."""

    def above(self, parts: Parts) -> dict[Place, int]:
        """The values above the least one."""
        return {place: value for place, value in self.values(parts).items() if value > self.least}

    def capped(self, parts: Parts, cap: int) -> Parts:
        """The parts with no value above ``cap``."""
        return self.cut(parts, {place: cap for place, value in self.values(parts).items() if value > cap})


def of_sequences(
    name: str,
    value: Callable[[Case, Part], int],
    cut: Callable[[Case, Part, int], Part],
    *,
    least: int = 0,
    told: str = TOLD,
) -> Column:
    """A column with a value for every sequence."""
    return Column(
        name,
        lambda parts: {place: value(parts.head, parts.part(place)) for place in parts.places},
        lambda parts, caps: parts.with_parts(
            {place: cut(parts.head, parts.part(place), cap) for place, cap in caps.items()}
        ),
        least,
        told,
    )


def of_field(name: str) -> Column:
    """A scalar of every sequence, by its size; its sign stays."""
    return of_sequences(
        name,
        lambda _, part: abs(int(getattr(part.sequence, name))),
        lambda _, part, cap: part.changed(**{name: toward_zero(getattr(part.sequence, name), cap)}),
    )


def of_ids(name: str) -> Column:
    """The largest entry of an array of every sequence, by its size; a cap cuts each entry."""
    return of_sequences(
        f"entries of {name}",
        lambda _, part: largest(getattr(part.sequence, name)),
        lambda _, part, cap: part.changed(**{name: clipped(getattr(part.sequence, name), cap)}),
    )


def of_length(name: str) -> Column:
    """The length of an array of every sequence, whatever the others have. For batches that are to be refused."""
    return of_sequences(
        f"length of {name}",
        lambda _, part: len(getattr(part.sequence, name)),
        lambda _, part, cap: part.changed(**{name: getattr(part.sequence, name)[:cap]}),
    )


def of_config(
    name: str, value: Callable[[Parts], int], cut: Callable[[Parts, int], Parts], *, least: int = 0, told: str = TOLD
) -> Column:
    """A column with one value, of the configuration."""
    return Column(
        name,
        lambda parts: {WHOLE: value(parts)},
        lambda parts, caps: cut(parts, caps[WHOLE]) if caps else parts,
        least,
        told,
    )


def of_option(name: str, *, least: int = 0) -> Column:
    """An integer of the configuration, by its size."""
    return of_config(
        name,
        lambda parts: abs(int(getattr(parts.head.config, name))),
        lambda parts, cap: parts.configured(**{name: toward_zero(getattr(parts.head.config, name), cap)}),
        least=least,
    )


def of_previous(
    name: str, value: Callable[[Step], int], cut: Callable[[Step, int], Step], *, told: str = TOLD
) -> Column:
    """A column of the inputs of F-GATHER of every step that has any."""

    def capped(parts: Parts, caps: Mapping[Place, int]) -> Parts:
        steps = (cut(s, caps[i, ALL]) if (i, ALL) in caps else s for i, s in enumerate(parts.steps))
        return replace(parts, steps=tuple(steps))

    return Column(
        name,
        lambda parts: {(i, ALL): value(step) for i, step in enumerate(parts.steps) if step.previous is not None},
        capped,
        told=told,
    )


def largest(values: tuple[int, ...]) -> int:
    """The largest size of an entry; 0 of none."""
    return max(map(abs, values), default=0)


def toward_zero(value: Any, cap: int) -> Any:  # noqa: ANN401 - an int or a bool
    """``value`` of at most the size ``cap``, its sign kept."""
    if isinstance(value, bool):
        return value and cap > 0
    return max(-cap, min(cap, value))


def clipped(values: tuple[int, ...], cap: int) -> tuple[int, ...]:
    """Every entry of at most the size ``cap``."""
    return tuple(toward_zero(value, cap) for value in values)
