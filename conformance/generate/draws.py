"""Small draws, and the numbers at which input metadata breaks.

Everything is drawn as an index into a list that goes from simple to complex, so that Hypothesis, which lowers integers,
shrinks towards the first alternatives; and every list is clipped by arithmetic, so that nothing is ever filtered. A
part draws the same number of times whatever it draws, also where one alternative is left: Hypothesis shrinks by
replaying draws in order, and a draw that vanishes would shift all that follow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from hypothesis import strategies as st

from inputmeta.conformance.cases.model import Config

T = TypeVar("T")

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


def pick(draw: st.DrawFn, values: Sequence[T]) -> T:
    """One of ``values``, equally likely; shrinks to the first."""
    return values[draw(_below(len(values)))]


def chance(draw: st.DrawFn, numerator: int, denominator: int) -> bool:
    """True with probability ``numerator / denominator``; shrinks to False."""
    return draw(_below(denominator)) >= denominator - numerator


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


def draw_length(draw: st.DrawFn, marks: Iterable[int], low: int, high: int) -> int:
    """A length in [low, high]: mostly one of the marks, sometimes one behind it; shrinks to the smallest.

    A length has one way to be drawn: as a mark and what lies behind it. Shrinking can lower each alone, and a mark of
    large constants is the mark in its place among small ones.
    """
    places = clipped(marks, low, high)
    number = draw(_below(len(places)))
    gap = (*places, high + 1)[number + 1] - places[number]
    share = FAR_BETWEEN if gap > FAR else BETWEEN
    behind = draw(_below(share * gap)) - (share - 1) * gap
    return places[number] + max(0, behind)
