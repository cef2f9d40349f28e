"""Answers of the wrong form: dtype, shape, kind. None fills the caller's buffers, whose form is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Fields, Wrong, wrong_answer, wrong_class
from inputmeta.conformance.subjects.base import Result


@wrong_answer(
    "returns-int64", "FORM", "MISMATCH:F-POS:positions", "the default integer type of the array library", in_place=False
)
def returns_int64(_: Request, fields: Fields) -> None:
    fields["positions"] = fields["positions"].astype(np.int64)


@wrong_answer(
    "returns-uint32",
    "FORM",
    "MISMATCH:F-RING:slot_mapping_store_swa",
    "an unsigned slot: -1 is the largest of all",
    in_place=False,
)
def returns_uint32(_: Request, fields: Fields) -> None:
    fields["slot_mapping_store_swa"] = fields["slot_mapping_store_swa"].astype(np.uint32)


@wrong_answer("returns-float", "FORM", "MISMATCH:F-POS:positions", "a division that left the integers", in_place=False)
def returns_float(_: Request, fields: Fields) -> None:
    fields["positions"] = fields["positions"] / np.float32(1)


@wrong_answer(
    "returns-a-mask-of-int32", "FORM", "MISMATCH:F-MASK:valid_token_mask", "flags as integers", in_place=False
)
def returns_a_mask_of_int32(_: Request, fields: Fields) -> None:
    fields["valid_token_mask"] = fields["valid_token_mask"].astype(np.int32)


@wrong_answer(
    "returns-one-row-too-many", "FORM", "MISMATCH:F-POS:positions", "rows padded to the graph's bucket", in_place=False
)
def returns_one_row_too_many(_: Request, fields: Fields) -> None:
    fields["positions"] = np.append(fields["positions"], np.int32(0))


@wrong_answer(
    "returns-one-row-too-few", "FORM", "MISMATCH:F-QIDX:query_indices", "an end taken for a last index", in_place=False
)
def returns_one_row_too_few(_: Request, fields: Fields) -> None:
    fields["query_indices"] = fields["query_indices"][:-1]


@wrong_answer(
    "returns-extra-cells",
    "FORM",
    "MISMATCH:F-SWADEC:kv_swa_index",
    "an index padded to the kernel's tile, one more column than said",
    in_place=False,
    paths=("decode", "decode_zos"),
)
def returns_extra_cells(_: Request, fields: Fields) -> None:
    if "kv_swa_index" in fields:
        fields["kv_swa_index"] = np.pad(fields["kv_swa_index"], ((0, 0), (0, 1)), constant_values=-1)


@wrong_answer(
    "returns-columns-first",
    "FORM",
    "MISMATCH:F-PIVOT:kv_swa_full_index_pivots",
    "a structure of arrays where an array of structures is read",
    in_place=False,
    paths=("prompt",),
)
def returns_columns_first(_: Request, fields: Fields) -> None:
    fields["kv_swa_full_index_pivots"] = fields["kv_swa_full_index_pivots"].T.copy()


@wrong_answer(
    "returns-a-column-vector", "FORM", "MISMATCH:F-IDS:input_ids", "a dimension kept by a gather", in_place=False
)
def returns_a_column_vector(_: Request, fields: Fields) -> None:
    fields["input_ids"] = fields["input_ids"].reshape(-1, 1)


@wrong_answer(
    "leaves-a-field-out", "FORM", "MISMATCH:F-CU:cu_seqlens_q", "a field that only one branch fills", in_place=False
)
def leaves_a_field_out(_: Request, fields: Fields) -> None:
    del fields["cu_seqlens_q"]


@wrong_answer(
    "leaves-a-bucket-out",
    "FORM",
    "MISMATCH:F-KLEN:klen",
    "a loop over ratios that ends one early",
    in_place=False,
    paths=("decode", "decode_zos"),
)
def leaves_a_bucket_out(_: Request, fields: Fields) -> None:
    fields.pop(max((key for key in fields if key.startswith("klen.")), default=""), None)


@wrong_answer(
    "returns-a-scalar-as-an-array", "FORM", "MISMATCH:F-COUNT:num_reqs", "a count left on the device", in_place=False
)
def returns_a_scalar_as_an_array(_: Request, fields: Fields) -> None:
    fields["num_reqs"] = np.array([fields["num_reqs"]], dtype=np.int32)


@wrong_answer("returns-a-flag-as-an-int", "FORM", "MISMATCH:F-COUNT:is_prompt", "1 for true", in_place=False)
def returns_a_flag_as_an_int(_: Request, fields: Fields) -> None:
    fields["is_prompt"] = int(fields["is_prompt"])


class ReturnsSomethingElse(Wrong):
    """Returns ``answer`` in place of fields."""

    answer: Any = None

    def build(self, request: Request) -> Result:
        super().build(request)
        return self.answer  # type: ignore[no-any-return]


@wrong_class("returns-none", "FORM", "CRASH:raised", "an out-parameter that the adapter forgot to return")
class ReturnsNone(ReturnsSomethingElse):
    pass


@wrong_class("returns-a-list", "FORM", "CRASH:raised", "fields by place, not by name")
class ReturnsAList(ReturnsSomethingElse):
    answer = (1, 2, 3)


@wrong_answer(
    "returns-lists-of-python-ints", "FORM", "MISMATCH:F-POS:positions", "an adapter that calls tolist()", in_place=False
)
def returns_lists(_: Request, fields: Fields) -> None:
    fields["positions"] = fields["positions"].tolist()
