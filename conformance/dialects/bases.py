"""Where a sequence's compressed keys begin in the buffer of a prompt: other steps, or a buffer a request."""

from __future__ import annotations

from functools import partial

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.base import (
    Dialect,
    Fields,
    Value,
    field_by_field,
    keys_in,
    like,
    nowhere,
    ratio_of,
    require_shape,
    wide,
)
from inputmeta.conformance.dialects.rows import lengths_of, rows_of

STEPS = "floor-steps"
RANGES = ("ks", "ke", "yoco_consumer_ks", "yoco_consumer_ke")
TOTAL = "total_k_compressed"
LISTS = "compressed-by-request"


def empty_before(request: Request, key: str) -> np.ndarray:
    """How many sequences before each, and in all, have no full compressed token: int64 [n_seq + 1]."""
    _, keys = lengths_of(request)
    return np.append(0, np.cumsum(keys // ratio_of(key) == 0))


def change_ranges(request: Request, key: str, values: np.ndarray, *, by: int) -> np.ndarray:
    """Rows of queries moved by the empty sequences before their own, ``by`` times each."""
    rows = rows_of(request, key)
    require_shape(STEPS, key, values, (len(rows),), "a row a query row (I-3: at least one)")
    return like(values, wide(values) + by * rows.of(empty_before(request, key)[:-1]))


def change_steps(request: Request, fields: Fields, *, by: int) -> dict[str, Value]:
    """Ranges and totals with bases that step by ``seqlen_k // n``, or back."""
    changed = dict(fields)
    for key in keys_in(fields, RANGES):
        changed[key] = change_ranges(request, key, np.asarray(fields[key]), by=by)
    for key, value in fields.items():
        if key.partition(".")[0] == TOTAL and isinstance(value, int):
            changed[key] = value + by * int(empty_before(request, key)[-1])
    return changed


def change_lists(request: Request, key: str, index: np.ndarray, *, by_request: bool) -> np.ndarray:
    """Rows of the buffer of all sequences as rows of the sequence's own part, or back; -1 stays.

    What is no row of the sequence's own part is right nowhere.
    """
    if request.path != "prompt":
        return index
    rows = rows_of(request, key)
    require_shape(LISTS, key, index, (len(rows), None), "a row of keys a query row (I-3: at least one)")
    _, keys = lengths_of(request)
    counts = np.maximum(1, keys // ratio_of(key))  # F-KSTEP
    bases = rows.of(np.cumsum(counts) - counts)[:, None]
    place = wide(index) - (bases if by_request else 0)
    own = rows.queries[:, None] & (index >= 0) & (place >= 0) & (place < rows.of(counts)[:, None])
    return like(index, np.where(own, place + (0 if by_request else bases), nowhere(wide(index))))


FLOOR_STEPS = Dialect(
    name=STEPS,
    says="bases of compressed keys step by seqlen_k // n: a sequence without a full compressed token takes no row",
    fields=frozenset({*RANGES, TOTAL}),
    forward=partial(change_steps, by=-1),
    translate=partial(change_steps, by=1),
)
BY_REQUEST = field_by_field(
    name=LISTS,
    says="lists of a prompt's compressed keys count from the sequence's own first one",
    fields={"kv_ca_index"},
    forward=partial(change_lists, by_request=True),
    translate=partial(change_lists, by_request=False),
)
