"""The dialects by name, and several of them one behind the other."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import (
    bases,
    compressed,
    expansions,
    fillers,
    numbers,
    packed,
    rings,
    windows,
)
from inputmeta.conformance.dialects.base import Dialect, DialectError, Fields, Value
from inputmeta.conformance.dialects.flavours import FLAVOURED

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        numbers.INT64,
        compressed.TOKEN_ROWS,
        fillers.ROPE_POSITIONS,
        fillers.WINDOW_OF_1,
        expansions.WIDTH_BY_TABLE,
        expansions.STARTS_WITHOUT_END,
        rings.OVERWRITTEN_ROWS,
        rings.CYCLIC_TABLE,
        rings.BY_PLACE,
        windows.BY_REQUEST,
        windows.BY_WORKSPACE,
        bases.FLOOR_STEPS,
        bases.BY_REQUEST,
        expansions.BEHIND_WINDOWS,
        numbers.NULL_BLOCKS,
        numbers.NULL_STATES,
        numbers.SENTINEL_0,
        fillers.LOW_RATIO_SLOTS,
        fillers.NULL_RING,
        numbers.AT_LEAST_1,
        numbers.NO_QUERY_SENTINEL,
        windows.NEWEST_FIRST,
        windows.PADDED_WIDTH,
        packed.PACKED,
        *FLAVOURED,
    )
}
"""Every dialect by name, in the order in which several lead from the specification to the engine: what renumbers a
sequence's own cells knows them by the specification's numbers, so it comes before all cells are shifted."""


class UnknownDialectError(ValueError):
    """A name that no dialect has, or one that lacks another; ``str()`` is one line."""


def dialects_of(names: Sequence[str]) -> tuple[Dialect, ...]:
    """The dialects with these names, in the order in which they lead from the specification to the engine.

    Raises:
        UnknownDialectError: there is none of a name, or one of them requires another that is not named.

    >>> [dialect.name for dialect in dialects_of(["newest-first", "int64"])]
    ['int64', 'newest-first']
    """
    for name in names:
        if name not in DIALECTS:
            near = difflib.get_close_matches(name, DIALECTS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(DIALECTS)}"
            raise UnknownDialectError(f"there is no dialect {name!r}{hint}")
        lacking = [other for other in DIALECTS[name].requires if other not in names]
        if lacking:
            raise UnknownDialectError(f"dialect {name} has no inverse without {', '.join(lacking)}")
    return tuple(dialect for name, dialect in DIALECTS.items() if name in names)


def forward(dialects: Sequence[Dialect], request: Request, fields: Fields) -> dict[str, Value]:
    """The specification's fields as an engine of these dialects would give them.

    Raises:
        DialectError: an array has a shape that has no meaning in a dialect, a value that leaves int32 there, or a
            dialect is held to relations.
    """
    found = dict(fields)
    for dialect in dialects:
        if dialect.forward is None:
            raise DialectError(f"{dialect.name}: {dialect.no_inverse}")
        before, found = found, dialect.forward(request, found)
        if dialect.name != numbers.INT64.name:
            require_int32(dialect.name, before, found)
    return found


def require_int32(dialect: str, before: Fields, after: Fields) -> None:
    """Raise DialectError where an array was int32, and in the dialect no longer fits."""
    for key, value in after.items():
        given = before.get(key)
        if isinstance(value, np.ndarray) and isinstance(given, np.ndarray) and given.dtype == np.int32 != value.dtype:
            largest = int(np.abs(value).max())
            raise DialectError(f"{dialect}: {key}: {largest} leaves int32, so it has no form but with int64")


def translate(dialects: Sequence[Dialect], request: Request, fields: Fields) -> dict[str, Value]:
    """An engine's fields as the specification's: the inverse of :func:`forward`.

    Raises:
        DialectError: an array has a shape that has no meaning in a dialect, or a dialect has no inverse.
    """
    found = dict(fields)
    for dialect in reversed(dialects):
        if dialect.translate is None:
            raise DialectError(f"{dialect.name}: {dialect.no_inverse}")
        found = dialect.translate(request, found)
    return found
