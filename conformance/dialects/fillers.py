"""What a row holds that stores nothing, or is a placeholder's: each engine has its own filler for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.base import Dialect, field_by_field, like, nowhere, ratio_of, require_shape, wide
from inputmeta.conformance.dialects.numbers import NULL_BLOCK, NULL_STATE, SENTINEL
from inputmeta.conformance.dialects.rows import Rows, rows_of

Fillers = tuple[np.ndarray, np.ndarray]
"""Of each row: what the specification says of a row that is filled, and what the engine says of it; where the two are
equal the row is not filled."""
FillersOf = Callable[[Request, str, Rows], Fillers]
"""The fillers of a field's rows: of a batch, by flat key."""


def exchanged(values: np.ndarray, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Each value that is ``here`` as ``there``; where ``there`` stood already, a value that is right nowhere.

    >>> exchanged(np.array([7, 0, 3]), np.array([0, 0, 0]), np.array([4, 4, 3])).tolist()
    [7, 4, -5]
    """
    wrong = np.where(values >= 0, nowhere(wide(values)), -2)
    taken = np.where((values == there) & (here != there), wrong, wide(values))
    return like(values, np.where(values == here, there, taken))


def change(request: Request, key: str, values: np.ndarray, *, name: str, fillers: FillersOf, back: bool) -> np.ndarray:
    """A field with a row a query, or the second column of a pair, with the other filler."""
    rows = rows_of(request, key)
    pair = key.partition(".")[0].endswith("offset_len")
    shape = (len(rows), 2) if pair else (len(rows),)
    require_shape(name, key, values, shape, "a row a query row (I-3: at least one)")
    here, there = fillers(request, key, rows)
    cells = values[:, 1] if pair else values
    changed = exchanged(cells, there, here) if back else exchanged(cells, here, there)
    return np.stack([values[:, 0], changed], axis=1) if pair else changed


def filled(
    name: str, says: str, fields: tuple[str, ...], fillers: FillersOf, *, requires: tuple[str, ...] = ()
) -> Dialect:
    """A dialect of fields whose rows have another filler."""
    return field_by_field(
        name,
        says,
        fields,
        forward=partial(change, name=name, fillers=fillers, back=False),
        translate=partial(change, name=name, fillers=fillers, back=True),
        requires=requires,
    )


def placeholders(request: Request, rows: Rows) -> np.ndarray:
    """Mask of the rows that are a placeholder's."""
    idle = rows.of([int(sequence.is_placeholder) for sequence in request.sequences])
    mask: np.ndarray = (idle == 1) & rows.queries
    return mask


def completing(rows: Rows, ratio: int) -> np.ndarray:
    """Mask of the rows that complete a compressed token (F-CDEC)."""
    mask: np.ndarray = rows.queries & ((rows.position + 1) % ratio == 0)
    return mask


def group_starts(request: Request, key: str, rows: Rows) -> Fillers:
    """Where the group starts that a row does not complete, or does not store."""
    ratio = ratio_of(key)
    mask = rows.queries & (~completing(rows, ratio) | placeholders(request, rows))
    return np.where(mask, 0, -1), np.where(mask, rows.position // ratio * ratio, -1)


LOW_RATIOS = (1, 2)
NULLS = (NULL_BLOCK, NULL_STATE, SENTINEL)


def low_ratio_slots(_: Request, key: str, rows: Rows) -> Fillers:
    """-1 where no compressed token of a low ratio is complete, 0 for any other row that stores nothing."""
    ratio = ratio_of(key)
    empty = rows.queries & ~completing(rows, ratio) if ratio in LOW_RATIOS else np.full(len(rows), False)
    return np.zeros(len(rows), dtype=np.int64), np.where(empty, -1, 0)


def null_ring(request: Request, _: str, rows: Rows) -> Fillers:
    """The cell of ring 0 in which a placeholder's row is stored as others are in theirs; -1 if it is overwritten."""
    ring = request.config.swa_block_size
    lasting = rows.of(rows.seqlen_k) - rows.position <= ring
    there = np.where(lasting, np.where(placeholders(request, rows), rows.position % ring, 0), -1)
    return np.zeros(len(rows), dtype=np.int64), np.where(rows.queries, there, 0)


def window_of_1(request: Request, _: str, rows: Rows) -> Fillers:
    """A window's length, and 1 for that of a placeholder."""
    lengths = np.minimum(rows.position + 1, request.config.window_size)
    return lengths, np.where(placeholders(request, rows), 1, lengths)


ROPE_POSITIONS = filled(
    "rope-positions",
    "positions of compressed tokens are one a query token: where its group starts, complete or not, stored or not",
    ("positions_c",),
    group_starts,
    requires=("token-rows",),
)
LOW_RATIO_SLOTS = filled(
    "low-ratio-sentinel",
    "at ratios 1 and 2 a row that completes no compressed token has slot -1, unlike others that store none",
    ("slot_mapping_store_ca",),
    low_ratio_slots,
    requires=("token-rows", *NULLS),
)
NULL_RING = filled(
    "padding-in-null-state",
    "a placeholder's rows are stored as others are, in the ring of state block 0, a null block; overwritten ones at -1",
    ("slot_mapping_store_swa",),
    null_ring,
    requires=NULLS,
)
WINDOW_OF_1 = filled(
    "padding-window-1",
    "the window of a placeholder's row has length 1",
    ("kv_swa_index_offset_len",),
    window_of_1,
)
