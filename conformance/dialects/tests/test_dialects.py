"""Every dialect leads back to what the oracle says, says what does not fit, and makes no wrong value a right one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.campaign.generated import generated_cases
from inputmeta.conformance.cases.request import Request, step_request
from inputmeta.conformance.check.compare import Wanted, compare_field
from inputmeta.conformance.dialects import (
    DIALECTS,
    Dialect,
    DialectError,
    UnknownDialectError,
    dialects_of,
    forward,
    narrowed,
    query_rows,
    reversed_windows,
    to_compact_rows,
    to_token_rows,
    translate,
)
from inputmeta.conformance.dialects.base import Fields
from inputmeta.conformance.dialects.flavours import FLAVOURS
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.subjects.oracle import OracleSubject

TRANSLATED = [name for name, dialect in DIALECTS.items() if dialect.translate is not None]
RARE, RARELY = 3, ("floor-steps",)
"""Of these dialects few batches show anything: a sequence without a compressed token must stand before another one."""
IN_PLACE_OF = {"workspaces-by-request": "buffers-by-request"}
"""Dialects that number the same rows in two ways: no engine has both."""
NO_FORM_AT_MOST = 0.3
"""Share of the batches whose ids may be too large to be one higher."""


@pytest.fixture(scope="module")
def built() -> list[tuple[Request, Fields]]:
    """Valid batches with the oracle's fields."""
    cases = generated_cases(Profile(invalid=0.0), seed_value=7, count=50)
    requests = [step_request(case, index) for case in cases for index in range(len(case.steps))]
    return [(request, OracleSubject().build(request)) for request in requests]


def differing(left: Fields, right: Fields) -> list[str]:
    """Keys whose values differ, in form too."""
    return [
        key
        for key in left.keys() | right.keys()
        if key not in left
        or key not in right
        or np.asarray(left[key]).dtype != np.asarray(right[key]).dtype
        or not np.array_equal(left[key], right[key])
    ]


@pytest.mark.parametrize("name", TRANSLATED)
@pytest.mark.parametrize("widened", [False, True], ids=["int32", "int64"])
def test_translated_back_it_is_what_the_oracle_says(
    built: list[tuple[Request, Fields]], name: str, widened: bool
) -> None:
    chain = dialects_of([name, *DIALECTS[name].requires, *(["int64"] if widened else [])])
    touched = frozenset().union(*(dialect.fields for dialect in chain))
    changed = without_form = 0
    for request, fields in built:
        before = {key: np.copy(value) for key, value in fields.items()}
        try:
            spoken = forward(chain, request, fields)
        except DialectError as error:
            if widened or "leaves int32" not in str(error):
                raise
            without_form += 1
            continue
        wrong = differing(fields, translate(chain, request, spoken))
        assert not wrong, f"{name}: {wrong} of {request}"
        assert not [key for key in fields if not np.array_equal(before[key], fields[key])], "changed what it was given"
        new = differing(fields, spoken)
        assert {key.partition(".")[0] for key in new} <= touched
        changed += bool(new)
    assert changed > (RARE if name in RARELY else 10), "the dialect changes nothing"
    assert without_form <= NO_FORM_AT_MOST * len(built)


def test_several_at_once(built: list[tuple[Request, Fields]]) -> None:
    chain = dialects_of([name for name in TRANSLATED if name not in IN_PLACE_OF])
    for request, fields in built:
        assert not differing(fields, translate(chain, request, forward(chain, request, fields)))


def test_every_dialect_says_what_it_is_and_touches() -> None:
    for name, dialect in DIALECTS.items():
        assert dialect.name == name
        assert dialect.says.strip()
        assert dialect.fields <= oracle.FIELDS.keys()
        assert (dialect.forward is None) == (dialect.translate is None) == bool(dialect.no_inverse)
        assert set(dialect.requires) <= DIALECTS.keys()
        assert (name in FLAVOURS) == bool(dialect.no_inverse)
        assert all(told.reason for told in dialect.invisible)


def test_what_has_no_inverse_says_why() -> None:
    for name in FLAVOURS:
        with pytest.raises(DialectError, match=f"{name}: a rank holds other rows"):
            translate(dialects_of([name]), EIGHT, {})


def test_names() -> None:
    with pytest.raises(UnknownDialectError, match="no dialect 'newest_first'; did you mean newest-first"):
        dialects_of(["newest_first"])
    with pytest.raises(UnknownDialectError, match="there are int64, token-rows"):
        dialects_of(["x"])
    with pytest.raises(UnknownDialectError, match="sentinel-0 has no inverse without null-block-0, null-state-0"):
        dialects_of(["sentinel-0"])


CONFIG = oracle.MetadataConfig(
    block_size=8, window_size=3, swa_block_size=4, max_model_len=64, dense_ratios=(2,), sparse_ratios=(4,)
)
TOKENS = tuple(range(16))
EIGHT = Request(
    "prompt",
    CONFIG,
    [
        oracle.SequenceMetadata(seqlen_q=6, seqlen_k=9, block_table=(3, 1), state_id=2, token_ids=TOKENS),
        oracle.SequenceMetadata(seqlen_q=2, seqlen_k=3, block_table=(4,), state_id=1, token_ids=TOKENS),
    ],
)
"""Rows 3 … 8 and 1, 2: of ratio 4 the first completes tokens 0 and 1, the second none."""
STEP = Request(
    "decode",
    CONFIG,
    [oracle.SequenceMetadata(seqlen_q=1, seqlen_k=3, block_table=(3,), state_id=2, token_ids=(5, 6, 7))],
)


def test_compact_rows_and_token_rows() -> None:
    rows = query_rows(EIGHT)
    tokens = to_token_rows("slot_mapping_store_ca.4", np.array([6, 7, -1]), rows, blank=-1)
    assert tokens.tolist() == [6, -1, -1, -1, 7, -1, -1, -1]
    compact, counts = to_compact_rows("slot_mapping_store_ca.4", tokens, rows, blank=-1)
    assert (compact.tolist(), counts.tolist()) == ([6, 7, -1], [2, 1])


@pytest.mark.parametrize(("row", "value", "compact"), [(1, 5, [6, 5, 7, -1]), (6, 5, [6, 7, 5]), (4, -1, [6, -1, -1])])
def test_a_token_row_that_stores_where_it_should_not_or_the_reverse_shows(
    row: int, value: int, compact: list[int]
) -> None:
    tokens = np.array([6, -1, -1, -1, 7, -1, -1, -1])
    tokens[row] = value
    found, _ = to_compact_rows("slot_mapping_store_ca.4", tokens, query_rows(EIGHT), blank=-1)
    assert found.tolist() == compact != [6, 7, -1]


def test_windows_are_turned_and_a_wrong_one_does_not_become_right() -> None:
    index = np.array([[5, 6, 7, -1], [-1, -1, -1, -1], [-1, 5, -1, -1], [5, -1, 6, -1]])
    turned = reversed_windows("kv_swa_index", index)
    assert turned.tolist() == [[7, 6, 5, -1], [-1, -1, -1, -1], [-1, 5, -1, -1], [6, -1, 5, -1]]
    assert np.array_equal(reversed_windows("kv_swa_index", turned), index)


def test_a_value_outside_int32_never_becomes_a_right_one() -> None:
    right = np.array([7, -1, 0])
    assert narrowed(right).dtype == np.int32
    for wrong in (right + 2**32, right - 2**32, right.astype(np.uint32).astype(np.int64)):
        assert narrowed(wrong).dtype == np.int64
    want = Wanted.of(STEP.expected()["positions"])
    found = compare_field("positions", want, narrowed(np.array([2 + 2**32])), 0)
    assert found is not None
    assert found.detail == "dtype int64, want int32; [0] holds 4294967298, outside int32"


def test_cells_that_are_not_defined_may_hold_anything() -> None:
    tables = np.array([[3, 2**40]])
    (chain,) = dialects_of(["int64"])
    assert translate([chain], STEP, {"block_tables": tables})["block_tables"].tolist() == [[3, 0]]
    tables[0, 0] = 2**40
    assert np.asarray(translate([chain], STEP, {"block_tables": tables})["block_tables"]).dtype == np.int64


WRONG_SHAPES = {
    "int64": (
        STEP,
        {"block_tables": np.zeros((3, 1), dtype=np.int64)},
        r"block_tables: shape \[3, 1\], want \[1, any\]",
    ),
    "token-rows": (EIGHT, {"positions_c.4": np.zeros(3, dtype=np.int32)}, r"positions_c.4: shape \[3\], want \[8\]"),
    "null-block-0": (
        EIGHT,
        {"load_segments_ca.4": np.zeros((2, 3), dtype=np.int32)},
        r"load_segments_ca.4: shape \[2, 3\], want \[any, 4\]: segments are",
    ),
    "null-state-0": (
        STEP,
        {"kv_swa_index_offset_len": np.zeros(2, dtype=np.int32)},
        r"kv_swa_index_offset_len: shape \[2\], want \[1, 2\]: a row a query row",
    ),
    "lengths-at-least-1": (STEP, {"klen.4": np.zeros((1, 1), dtype=np.int32)}, r"klen.4: shape \[1, 1\], want \[1\]"),
    "cyclic-table": (
        STEP,
        {"kv_swa_index": np.zeros(3, dtype=np.int32)},
        r"kv_swa_index: shape \[3\], want \[1, any\]",
    ),
    "rings-by-place": (
        EIGHT,
        {"state_block_idx": np.zeros(8, dtype=np.int32)},
        r"state_block_idx: shape \[8\], want \[2\]: one a sequence",
    ),
    "buffers-by-request": (
        EIGHT,
        {"kv_swa_full_index": np.zeros((2, 3), dtype=np.int32)},
        r"kv_swa_full_index: shape \[2, 3\], want \[8, any\]",
    ),
    "workspaces-by-request": (
        EIGHT,
        {"kv_swa_full_index": np.zeros((2, 3), dtype=np.int32)},
        r"kv_swa_full_index: shape \[2, 3\], want \[8, any\]",
    ),
    "overwritten-rows-stored": (
        STEP,
        {"slot_mapping_store_swa": np.zeros(3, dtype=np.int32)},
        r"slot_mapping_store_swa: shape \[3\], want \[1\]",
    ),
    "no-query-sentinel": (
        STEP,
        {"query_indices": np.zeros(3, dtype=np.int32)},
        r"query_indices: shape \[3\], want \[1\]",
    ),
    "floor-steps": (EIGHT, {"ks.4": np.zeros(2, dtype=np.int32)}, r"ks.4: shape \[2\], want \[8\]"),
    "zigzag-packed": (
        replace(EIGHT, config=replace(CONFIG, cp_size=2)),
        {"mirror_cp_index": np.zeros(8, dtype=np.int32)},
        r"mirror_cp_index: shape \[8\], want \[5\]: a row a mirrored row",
    ),
    "compressed-by-request": (
        EIGHT,
        {"kv_ca_index.2": np.zeros((2, 3), dtype=np.int32)},
        r"kv_ca_index.2: shape \[2, 3\], want \[8, any\]",
    ),
    "newest-first": (
        STEP,
        {"kv_swa_index": np.zeros(3, dtype=np.int32)},
        r"kv_swa_index: shape \[3\], want \[any, any\]",
    ),
    "padded-width": (
        STEP,
        {"kv_swa_index": np.zeros((1, 3), dtype=np.int32)},
        r"kv_swa_index: shape \[1, 3\], want \[any, 128\]: window_size 3 rounded up to a multiple of 128",
    ),
    "rope-positions": (
        EIGHT,
        {"positions_c.4": np.zeros(3, dtype=np.int32)},
        r"positions_c.4: shape \[3\], want \[8\]",
    ),
    "low-ratio-sentinel": (
        EIGHT,
        {"slot_mapping_store_ca.2": np.zeros(3, dtype=np.int32)},
        r"slot_mapping_store_ca.2: shape \[3\], want \[8\]",
    ),
    "padding-in-null-state": (
        EIGHT,
        {"slot_mapping_store_swa": np.zeros(3, dtype=np.int32)},
        r"slot_mapping_store_swa: shape \[3\], want \[8\]",
    ),
    "padding-window-1": (
        STEP,
        {"kv_swa_index_offset_len": np.zeros(2, dtype=np.int32)},
        r"kv_swa_index_offset_len: shape \[2\], want \[1, 2\]: a row a query row",
    ),
    "width-by-table": (
        STEP,
        {"kv_ca_index.2": np.zeros(3, dtype=np.int32)},
        r"kv_ca_index.2: shape \[3\], want \[any, any\]",
    ),
    "keys-behind-windows": (
        EIGHT,
        {"kv_ca_index.2": np.zeros((3, 4), dtype=np.int32)},
        r"kv_ca_index.2: shape \[3, 4\], want \[8, any\]",
    ),
    "starts-without-end": (
        EIGHT,
        {"cu_seqlens_q": np.zeros(3, dtype=np.int32)},
        r"cu_seqlens_q: shape \[3\], want \[2\]: a start a sequence",
    ),
}
"""Of each dialect that reads shapes: a batch, fields that do not fit, and what is said."""


def test_a_shape_without_a_meaning_is_an_error_that_names_field_value_and_rule() -> None:
    assert set(TRANSLATED) - WRONG_SHAPES.keys() == {"sentinel-0"}  # cell by cell: any shape has a meaning
    for name, (request, fields, text) in WRONG_SHAPES.items():
        with pytest.raises(DialectError, match=f"^{name}: {text}"):
            translate(dialects_of([name, *DIALECTS[name].requires]), request, fields)


def test_a_wrong_form_stays_one() -> None:
    for dialect in map(DIALECTS.get, TRANSLATED):
        assert isinstance(dialect, Dialect)
        given: Fields = {"positions_c.4": np.ones(8, dtype=np.float32), "num_reqs": 2}
        assert dialect.translate is not None
        assert differing(dialect.translate(EIGHT, given), given) in ([], ["cu_compressed_seqlens_q.4"])
