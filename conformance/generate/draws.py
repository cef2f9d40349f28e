"""Small draws, and the numbers at which input metadata breaks.

Everything is drawn as an index into a list that goes from simple to complex, so that Hypothesis, which lowers integers,
shrinks towards the first alternatives; and every list is clipped by arithmetic, so that nothing is ever filtered. A
part draws the same number of times whatever it draws, also where one alternative is left: Hypothesis shrinks by
replaying draws in order, and a draw that vanishes would shift all that follow it.

The numbers come from Hypothesis, or from a random generator in an eighth of the time; the same numbers are the same
case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from random import Random
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from hypothesis import strategies as st

from inputmeta.conformance.cases.model import Config

T = TypeVar("T")
P = ParamSpec("P")

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)

MULTIPLES = (1, 2, 3)
"""Of a block, a window and a ring: lengths that fill a second and a third one (table columns x block size)."""

DRAFT_ROOM = (1, 2, 3)
"""Drafts past the window: W + drafts is where a ring without room for them loses a key."""

DEPTHS = (4_096, 65_536)
"""Long histories: between the last multiple and a max_model_len far behind it there is no boundary of a formula."""

BETWEEN, FAR_BETWEEN = 8, 2
"""One length in so many lies between two marks; between marks that are over ``FAR`` apart."""
FAR = 1_000


@lru_cache(maxsize=512)
def _below(count: int) -> st.SearchStrategy[int]:
    """An index below ``count``; kept, because a case draws some eighty of them."""
    return st.integers(0, count - 1)


class Draw(Protocol):
    """Where the numbers of a case come from."""

    def below(self, count: int) -> int:
        """An index below ``count``, at least 1."""

    def part(self, make: Callable[Concatenate[Draw, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function makes of its own draws: a part that Hypothesis may leave out or move as one."""


class HypothesisDraw:
    """Numbers that Hypothesis chooses."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def below(self, count: int) -> int:
        """An index below ``count``."""
        return self._draw(_below(count))

    def part(self, make: Callable[Concatenate[Draw, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function makes of its own draws."""
        return self._draw(strategy_of(make)(*args, **kwargs))


class RandomDraw:
    """Numbers of a random generator, all equally likely; with them Hypothesis can draw the same case."""

    def __init__(self, random: Random) -> None:
        self.choices: list[int] = []
        """What was drawn so far."""
        self._share = random.random

    def below(self, count: int) -> int:
        """An index below ``count``, which is far below 2**53."""
        index = int(self._share() * count)
        self.choices.append(index)
        return index

    def part(self, make: Callable[Concatenate[Draw, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function makes of its own draws."""
        return make(self, *args, **kwargs)


def strategy_of(make: Callable[Concatenate[Draw, P], T]) -> Callable[P, st.SearchStrategy[T]]:
    """The strategy of what a function draws, made from the function's further arguments."""
    return _composite(make)


@cache
def _composite(make: Callable[..., Any]) -> Callable[..., st.SearchStrategy[Any]]:
    """Each function has a composite of its own: Hypothesis tries what came of one in another place of the same.

    It tells composites apart by their code and their defaults: by the function that is one here.
    """

    def composed(draw: st.DrawFn, /, *args: object, _make: Callable[..., Any] = make, **kwargs: object) -> object:
        return _make(HypothesisDraw(draw), *args, **kwargs)

    return st.composite(composed)


def pick(draw: Draw, values: Sequence[T]) -> T:
    """One of ``values``, equally likely; shrinks to the first."""
    return values[draw.below(len(values))]


def chance(draw: Draw, numerator: int, denominator: int) -> bool:
    """True with probability ``numerator / denominator``; shrinks to False."""
    return draw.below(denominator) >= denominator - numerator


def clipped(values: Iterable[int], low: int, high: int) -> list[int]:
    """The values inside [low, high] and both ends of it, ascending; ``low <= high``."""
    return sorted({low, high, *(value for value in values if low <= value <= high)})


def length_marks(config: Config, chunk: int) -> tuple[int, ...]:
    """Lengths, tokens, at the boundaries: {0, 1, m - 1, m, m + 1} for every m that the formulas step by, ascending.

    m: multiples of block size, W and B; W + drafts; every ratio; 2p; the longest chunk; max_model_len and depths below.
    """
    steps = (config.block_size, config.window_size, config.swa_block_size)
    middles = {step * multiple for step in steps for multiple in MULTIPLES}
    middles.update(config.window_size + drafts for drafts in DRAFT_ROOM)
    middles.update(config.dense_ratios)
    middles.update(config.sparse_ratios)
    middles.update((2 * config.cp_size, chunk, config.max_model_len))
    middles.update(depth for depth in DEPTHS if depth < config.max_model_len)
    near = {middle + side for middle in middles for side in (-1, 0, 1)}
    return tuple(sorted(near | {0, 1}))


def draw_length(draw: Draw, marks: Iterable[int], low: int, high: int) -> int:
    """A length in [low, high]: mostly one of the marks, sometimes one behind it; shrinks to the smallest.

    A length has one way to be drawn: as a mark and what lies behind it. Shrinking can lower each alone, and a mark of
    large constants is the mark in its place among small ones.
    """
    places = clipped(marks, low, high)
    number = draw.below(len(places))
    gap = (*places, high + 1)[number + 1] - places[number]
    share = FAR_BETWEEN if gap > FAR else BETWEEN
    behind = draw.below(share * gap) - (share - 1) * gap
    return places[number] + max(0, behind)
