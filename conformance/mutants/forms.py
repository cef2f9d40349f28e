"""Answers of the wrong form: dtype, shape, kind. None fills the caller's buffers, whose form is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Fields, Mutant, Wrong, add, wrong_class
from inputmeta.conformance.subjects.base import Result

DECODE = ("decode", "decode_zos")


class WrongForm(Wrong):
    """An answer in arrays of its own."""

    in_place = False


def wrong_form(
    name: str,
    cell: str,
    stands_for: str,
    change: Callable[[Any], Any],
    paths: tuple[str, ...] = oracle.PATHS,
) -> None:
    """Enter a mutant that puts ``change(value)`` in the place of one field, or leaves it out if that is None.

    ``cell``: formula and field, ``F-POS:positions``; of a field with a bucket per ratio, the last bucket is meant.
    """
    field = cell.partition(":")[2]

    def spoil(_: Request, fields: Fields) -> None:
        key = max((key for key in fields if key.partition(".")[0] == field), default=None)
        if key is not None:
            fields[key] = change(fields[key])
            if fields[key] is None:
                del fields[key]

    add(Mutant(name, "FORM", f"MISMATCH:{cell}", stands_for, lambda: WrongForm(name, spoil), paths=paths))


wrong_form(
    "returns-int64", "F-POS:positions", "the default integer type of the array library", lambda a: a.astype(np.int64)
)
wrong_form(
    "returns-int64-with-a-stale-upper-half",
    "F-POS:positions",
    "32-bit stores into 64-bit cells: the upper half is what stood there",
    lambda a: a.astype(np.int64) + 2**32,
)
wrong_form(
    "returns-uint32",
    "F-RING:slot_mapping_store_swa",
    "an unsigned slot: -1 is the largest of all",
    lambda a: a.astype(np.uint32),
)
wrong_form("returns-float", "F-POS:positions", "a division that left the integers", lambda a: a / np.float32(1))
wrong_form(
    "returns-a-mask-of-int32", "F-MASK:valid_token_mask", "flags as integers", lambda mask: mask.astype(np.int32)
)
wrong_form(
    "returns-one-row-too-many",
    "F-POS:positions",
    "rows padded to the graph's bucket",
    lambda a: np.append(a, np.int32(0)),
)
wrong_form("returns-one-row-too-few", "F-QIDX:query_indices", "an end taken for a last index", lambda a: a[:-1])
wrong_form(
    "returns-extra-cells",
    "F-SWADEC:kv_swa_index",
    "an index padded to the kernel's tile, one more column than said",
    lambda a: np.pad(a, ((0, 0), (0, 1)), constant_values=-1),
    DECODE,
)
wrong_form(
    "returns-columns-first",
    "F-PIVOT:kv_swa_full_index_pivots",
    "a structure of arrays where an array of structures is read",
    lambda a: a.T.copy(),
    ("prompt",),
)
wrong_form("returns-a-column-vector", "F-IDS:input_ids", "a dimension kept by a gather", lambda a: a.reshape(-1, 1))
wrong_form("leaves-a-field-out", "F-CU:cu_seqlens_q", "a field that only one branch fills", lambda _: None)
wrong_form("leaves-a-bucket-out", "F-KLEN:klen", "a loop over ratios that ends one early", lambda _: None, DECODE)
wrong_form(
    "returns-a-scalar-as-an-array",
    "F-COUNT:num_reqs",
    "a count left on the device",
    lambda count: np.array([count], dtype=np.int32),
)
wrong_form("returns-a-flag-as-an-int", "F-COUNT:is_prompt", "1 for true", int)
wrong_form(
    "returns-lists-of-python-ints", "F-POS:positions", "an adapter that calls tolist()", lambda array: array.tolist()
)


class ReturnsSomethingElse(Wrong):
    """Returns ``answer`` in place of fields."""

    answer: Any = None

    def build(self, request: Request) -> Result:
        super().build(request)
        return self.answer  # type: ignore[no-any-return]


@wrong_class("FORM", "CRASH:raised", "an out-parameter that the adapter forgot to return")
class ReturnsNone(ReturnsSomethingElse):
    pass


@wrong_class("FORM", "CRASH:raised", "fields by place, not by name")
class ReturnsAList(ReturnsSomethingElse):
    answer = (1, 2, 3)
