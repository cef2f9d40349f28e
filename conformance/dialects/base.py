"""What a dialect is, and what its functions share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request

Value = np.ndarray | int | bool
"""A tensor, or a plain scalar."""
Fields = Mapping[str, Value]
"""The fields of one batch by flat key (``klen.4``)."""
Change = Callable[[Request, Fields], dict[str, Value]]
"""From the fields of a batch to new ones; neither the batch nor an array that is given is changed."""

FieldChange = Callable[[Request, str, np.ndarray], np.ndarray]
"""From one field of a batch, by its flat key, to a new array."""

INT32 = np.iinfo(np.int32)


class DialectError(ValueError):
    """An array that has no form in a dialect: names the field, the value and the rule."""


class Invisible(NamedTuple):
    """A fault that by nature cannot show through a dialect, and why."""

    mutant: str
    """Name of a mutant (:mod:`inputmeta.conformance.mutants`); empty: any."""
    field: str
    """Declared name of the field in which it does not show; empty: any."""
    reason: str

    def covers(self, mutant: str, field: str) -> bool:
        """Whether it speaks of a fault in a field."""
        return self.mutant in ("", mutant) and self.field in ("", field)


@dataclass(frozen=True)
class Dialect:
    """A difference by design between the specification's tensors and an engine's.

    ``translate(request, forward(request, x))`` is ``x`` for whatever the specification wants. Both leave fields alone
    that they do not know, that are missing, and whose dtype is no integer's: a wrong form stays one. They raise
    :class:`DialectError` for an array whose shape has no meaning in the dialect.
    """

    name: str
    says: str
    """One sentence: what the engine does in its own way."""
    fields: frozenset[str]
    """Declared names of the fields that it touches."""
    forward: Change | None = None
    """From the specification's fields to the engine's; None: a flavour that is held to relations."""
    translate: Change | None = None
    """From the engine's fields to the specification's; None: there is no inverse."""
    no_inverse: str = ""
    """Why there is no inverse, and what is checked in place of the values."""
    requires: tuple[str, ...] = ()
    """Dialects that stand before it: without them it would have no inverse."""
    invisible: tuple[Invisible, ...] = ()
    """Faults that do not show through it, each with a reason."""


def is_integers(value: Value | None) -> bool:
    """Whether a value is an array of integers, the only kind that is translated."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu"


def keys_in(fields: Fields, names: Iterable[str]) -> list[str]:
    """The flat keys of integer arrays among the fields, of these declared names."""
    wanted = frozenset(names)
    return [key for key, value in fields.items() if key.partition(".")[0] in wanted and is_integers(value)]


def each(names: Iterable[str], change: FieldChange) -> Change:
    """A change of each field with one of these declared names, by itself: ``change(request, key, array)``."""

    def run(request: Request, fields: Fields) -> dict[str, Value]:
        changed = {key: change(request, key, np.asarray(fields[key])) for key in keys_in(fields, names)}
        return {**fields, **changed}

    return run


def field_by_field(
    name: str,
    says: str,
    fields: Iterable[str],
    forward: FieldChange,
    translate: FieldChange,
    *,
    requires: tuple[str, ...] = (),
    invisible: tuple[Invisible, ...] = (),
) -> Dialect:
    """A dialect of fields that are changed each by itself; see the members of :class:`Dialect`."""
    names = frozenset(fields)
    return Dialect(
        name, says, names, each(names, forward), each(names, translate), requires=requires, invisible=invisible
    )


def ratio_of(key: str) -> int:
    """The ratio of a bucket's flat key.

    >>> ratio_of("klen.4")
    4
    """
    return int(key.partition(".")[2])


def per_block(request: Request, key: str) -> int:
    """``b_c``: compressed tokens that fit one physical block, for the ratio of a flat key."""
    return request.config.block_size // ratio_of(key)


def narrowed(values: np.ndarray, defined: np.ndarray | None = None) -> np.ndarray:
    """int64 as int32 if every value fits, and unchanged if one does not.

    A value outside int32 so never wraps into a right one: the array keeps its dtype, and the comparison says dtype and
    the first such value. ``defined``: a mask of the same shape; cells outside it may hold anything and become 0 if they
    do not fit.

    >>> narrowed(np.array([1, -1])).dtype.name, narrowed(np.array([1, 2**32 - 1])).dtype.name
    ('int32', 'int64')
    """
    if values.dtype == np.int32:
        return values
    outside = (values < INT32.min) | (values > INT32.max)
    if defined is not None:
        values = np.where(outside & ~defined, 0, values)
        outside = outside & defined
    return values if outside.any() else values.astype(np.int32)


def wide(values: np.ndarray) -> np.ndarray:
    """Any integers as int64: what is computed with them does not wrap."""
    return values.astype(np.int64)


def like(given: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What was computed of ``given`` in int64: int32 if that was and every value fits, else int64 as it is."""
    return narrowed(values) if given.dtype == np.int32 else values


def nowhere(values: np.ndarray) -> np.ndarray:
    """A value that has no counterpart, as one that is right nowhere: -2 - x of x >= 0, another for each x."""
    return np.where(values >= 0, -2 - values, values)


def require_shape(dialect: str, key: str, array: np.ndarray, shape: Sequence[int | None], rule: str) -> None:
    """Raise :class:`DialectError` unless an array has a shape; None stands for any length."""
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise DialectError(f"{dialect}: {key}: shape {list(array.shape)}, want [{wanted}]: {rule}")


def integer_fields() -> frozenset[str]:
    """Declared names of all tensors of integers."""
    return frozenset(name for name, field in oracle.FIELDS.items() if field.dtype == "int32")
