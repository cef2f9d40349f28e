"""Fewer elements of a sequence that still do it: suffixes of growing length, then delta debugging."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Element = TypeVar("Element")


def suffixes(items: Sequence[Element]) -> Iterator[list[Element]]:
    """The last element, the last two, four, eight …, then all of them.

    >>> list(suffixes("abcdef"))
    [['f'], ['e', 'f'], ['c', 'd', 'e', 'f'], ['a', 'b', 'c', 'd', 'e', 'f']]

    """
    length = 1
    while length < len(items):
        yield list(items[-length:])
        length *= 2
    if items:
        yield list(items)


def shortest(
    items: Sequence[Element],
    holds: Callable[[Sequence[Element]], bool],
    ahead: Callable[[Iterator[list[Element]]], None] = lambda _: None,
) -> list[Element]:
    """A part of ``items``, in order, that still ``holds`` and from which no single element can be left out.

    Takes away chunks, halving their size (ddmin). ``holds(items)`` is taken for granted; a ``holds`` that turns False
    for good, because time is up, leaves the best part so far. ``ahead``: told before each question what will be asked
    from it on, should none of it hold.

    >>> shortest(range(100), lambda part: 3 in part and 77 in part)
    [3, 77]
    """
    kept = list(items)
    size = max(1, len(kept) // 2)
    while True:
        before, start = len(kept), 0
        while start < len(kept) and len(kept) > 1:
            ahead(kept[:begin] + kept[begin + size :] for begin in range(start, len(kept), size))
            fewer = kept[:start] + kept[start + size :]
            if fewer and holds(fewer):
                kept = fewer
            else:
                start += size
        if size == 1 and len(kept) == before:
            return kept
        size = max(1, size // 2)
