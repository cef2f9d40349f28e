"""Zigzag of the specification's blocks without padding between them: a rank's rows are packed, their end is padded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.base import (
    Dialect,
    DialectError,
    Fields,
    Value,
    is_integers,
    like,
    nowhere,
    require_shape,
    wide,
)
from inputmeta.conformance.dialects.zigzag import CEIL, rank_rows

NAME = "zigzag-packed"
BLANKS = {"mirror_cp_index": -1, "positions": 0}
"""Field with a row a mirrored row -> what a padding row holds (I-8)."""
LENGTH, REVERSE = "cp_mirror_len", "mirror_cp_reverse_index"


@dataclass(frozen=True)
class Ranks:
    """Where the rows of each rank stand among its padded ones."""

    padded: int
    """Rows of a rank, padding between blocks included: ``cp_mirror_len``."""
    places: list[np.ndarray]
    """Of each rank: the places, ascending, that hold a row."""

    @property
    def packed(self) -> int:
        """Rows of a rank in the dialect: those of the rank with the most."""
        return max(map(len, self.places))

    def global_places(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows, rank by rank: their places in the padded ranks laid end to end, and in the packed ones."""
        pairs = [
            (rank * self.padded + held, rank * self.packed + np.arange(len(held)))
            for rank, held in enumerate(self.places)
        ]
        padded, packed = zip(*pairs, strict=True)
        return np.concatenate(padded), np.concatenate(packed)


def ranks_of(request: Request) -> Ranks:
    """The ranks of a prompt's group."""
    held = rank_rows([sequence.seqlen_q for sequence in request.sequences], request.config.cp_size, CEIL)
    return Ranks(len(held[0]), [np.flatnonzero(rows >= 0) for rows in held])


def pack(key: str, values: np.ndarray, own: np.ndarray, packed: int, blank: int) -> np.ndarray:
    """A rank's rows without the padding between them. What is not blank in the padding stands behind them."""
    kept = np.zeros(len(values), dtype=np.bool_)
    kept[own] = True
    rest = values[~kept]
    laid = np.concatenate([values[kept], rest[rest != blank]])
    if len(laid) > packed:
        raise DialectError(f"{NAME}: {key}: {rest[rest != blank][0]} in a padding row, for which there is no place")
    return np.pad(laid, (0, packed - len(laid)), constant_values=blank)


def unpack(values: np.ndarray, own: np.ndarray, padded: int, blank: int) -> np.ndarray:
    """The inverse of :func:`pack`: what stands behind a rank's rows and is not blank comes into the padding."""
    found = np.full(max(padded, 1), blank, dtype=values.dtype)
    found[own] = values[: len(own)]
    rest = values[len(own) :]
    places = np.setdiff1d(np.arange(len(found)), own)
    rest = rest[rest != blank][: len(places)]
    found[places[: len(rest)]] = rest
    return found


def renumber(key: str, index: np.ndarray, here: np.ndarray, there: np.ndarray, rows: int) -> np.ndarray:
    """Places among all ranks' rows in the other layout; a place that holds no row is right nowhere."""
    require_shape(NAME, key, index, (rows,), "a row a query row (I-3: at least one)")
    if not len(here):
        return index
    at = np.minimum(np.searchsorted(here, index), len(here) - 1)
    return like(index, np.where(here[at] == index, there[at], nowhere(wide(index))))


def change(request: Request, fields: Fields, *, packing: bool) -> dict[str, Value]:
    """See :data:`PACKED`."""
    changed = dict(fields)
    if request.path != "prompt" or request.config.cp_size == 1:
        return changed
    ranks = ranks_of(request)
    own, total = ranks.places[request.config.cp_rank], sum(map(len, ranks.places))
    if not total:
        return changed
    for key, blank in BLANKS.items():
        values = fields.get(key)
        if not is_integers(values):
            continue
        values = np.asarray(values)
        size = ranks.padded if packing else ranks.packed
        require_shape(NAME, key, values, (size,), "a row a mirrored row")
        changed[key] = (
            pack(key, values, own, ranks.packed, blank) if packing else unpack(values, own, ranks.padded, blank)
        )
    padded, packed = ranks.global_places()
    if is_integers(fields.get(REVERSE)):
        here, there = (padded, packed) if packing else (packed, padded)
        changed[REVERSE] = renumber(REVERSE, np.asarray(fields[REVERSE]), here, there, total)
    if isinstance(fields.get(LENGTH), int):
        longer = ranks.padded - ranks.packed
        changed[LENGTH] = int(fields[LENGTH]) + (-longer if packing else longer)
    return changed


def forward(request: Request, fields: Fields) -> dict[str, Value]:
    """The specification's mirrored rows, packed."""
    return change(request, fields, packing=True)


def translate(request: Request, fields: Fields) -> dict[str, Value]:
    """Packed rows as the specification's."""
    return change(request, fields, packing=False)


PACKED = Dialect(
    name=NAME,
    says="a rank's rows stand without padding between blocks, and all ranks are padded to the one with the most rows",
    fields=frozenset({*BLANKS, LENGTH, REVERSE}),
    forward=forward,
    translate=translate,
)
