"""Token values: a function of sequence and position, so that every token differs and names its place."""

from __future__ import annotations

from functools import lru_cache

from .configs import LOOKUP_SIZE, RAW_SENTINEL, SENTINEL_ENTRY

SMALL_STRIDE = 1_000
REAL_STRIDE = 300_000
"""Distance between the tokens of one sequence and the next: longer than twice the longest context of the tier."""

LONG_RUN = 4_096
"""Runs from here on are sliced from a cached one: a tuple of 131,072 new integers costs milliseconds."""


def stride(max_model_len: int) -> int:
    """Distance in token values between neighbouring sequences."""
    return SMALL_STRIDE if 2 * max_model_len < SMALL_STRIDE else REAL_STRIDE


def raw_tokens(index: int, count: int, max_model_len: int, first: int = 0) -> tuple[int, ...]:
    """Raw tokens of sequence ``index`` at positions [first, first + count).

    >>> raw_tokens(2, 3, 16, first=4)
    (2005, 2006, 2007)
    """
    return _run(1 + index * stride(max_model_len) + first, count)


def compressed_history(index: int, count: int, max_model_len: int) -> tuple[int, ...]:
    """Compressed tokens of sequence ``index`` at positions [0, count): values that no raw token has.

    >>> compressed_history(2, 3, 16)
    (2500, 2501, 2502)
    """
    distance = stride(max_model_len)
    return _run(index * distance + distance // 2, count)


def recent_history(index: int, first: int, count: int) -> tuple[int, ...]:
    """Raw tokens of sequence ``index`` at positions [first, first + count) that index the lookup table.

    They repeat after more positions than any look-back reaches, and avoid the two entries with a special meaning.

    >>> recent_history(0, 0, 3), recent_history(0, 21, 3), recent_history(1, 0, 2)
    ((2, 3, 4), (23, 2, 3), (9, 10))
    """
    special = max(SENTINEL_ENTRY, RAW_SENTINEL) + 1
    usual = range(special, LOOKUP_SIZE)
    shift = (first + 7 * index) % len(usual)
    rounds = -(-(shift + count) // len(usual))
    return (tuple(usual) * rounds)[shift : shift + count]


def _run(first: int, count: int) -> tuple[int, ...]:
    """``count`` ascending integers from ``first``."""
    if count < LONG_RUN:
        return tuple(range(first, first + count))
    offset = first - first % LONG_RUN
    return _cached_run(offset)[first - offset : first - offset + count]


@lru_cache(maxsize=16)
def _cached_run(first: int) -> tuple[int, ...]:
    """Room for the longest context and a run that does not begin at ``first``."""
    return tuple(range(first, first + 131_072 + 4 * LONG_RUN))
