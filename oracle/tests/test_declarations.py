"""Declarations: every built field is declared, every declared field is built, names are explained in SPEC.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inputmeta.oracle import EXPANSIONS, FIELDS, FORMULAS, PATHS, PRECONDITIONS, expected_fields, keys_of
from inputmeta.oracle.batch import build
from inputmeta.oracle.views import CONSUMER_MIRROR_VIEW, CONSUMER_VIEW, MASK_VIEW, consumer_view, mask_view

from .batches import config, configs, prompt, rows_of, sequences_of

SOURCES = Path(__file__).resolve().parents[1]
REPOSITORY = SOURCES.parent
CODE = ("oracle", "conformance", "corpus/tests", "csrc")
SUFFIXES = {".py", ".h", ".cpp", ".cu", ".cuh"}
SPECIFICATION = (SOURCES / "SPEC.md").read_text(encoding="utf-8")


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PATHS), st.sets(st.sampled_from(EXPANSIONS)), st.data())
def test_built_fields_are_the_declared_ones(path, expand, data):
    """A path has exactly the declared keys, whatever the configuration."""
    cp_size = data.draw(st.sampled_from((1, 2)))
    batch_config = data.draw(configs(cp_size=cp_size))
    fields = expected_fields(path, batch_config, data.draw(sequences_of(path)), expand=expand)
    assert sorted(fields) == sorted(keys_of(path, batch_config, expand))
    for key, field in fields.items():
        assert field.name == key
        assert field.field is FIELDS[key.partition(".")[0]]


def test_formulas_of_fields_exist():
    """Every field names formulas that have a text."""
    for field in FIELDS.values():
        assert field.formulas, field.name
        assert {*field.formulas, *dict(field.other_formulas).values()} <= set(FORMULAS), field.name


NOWHERE = """
    slot_mapping_store_swa slot_mapping_store_ca kv_ca_index kv_swa_full_index kv_swa_index mirror_cp_index
    mirror_cp_reverse_index yoco_consumer_slot_mapping_store_swa yoco_consumer_mirror_cp_index
    yoco_consumer_mirror_cp_reverse_index yoco_cp_contrib_index yoco_cp_boundary_index
"""
NEUTRAL = {
    **dict.fromkeys(NOWHERE.split(), -1),
    **dict.fromkeys(("gate_force_random", "gate_force_random_cp", "valid_token_mask"), False),
    **dict.fromkeys(("query_indices", "yoco_consumer_query_indices"), 998244353),
    "ngram_token_ids": -7,
    "block_tables": None,
}
"""I-3 and I-14 by hand, with the pad token -7; every other field of rows of queries is 0."""
ALIGNED = {"query", "mirror", "consumer", "consumer_mirror", "contribution"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("mode", "cp_size"), [("mask", 1), ("compact", 1), ("compact", 2)])
def test_a_batch_without_queries_has_the_declared_neutral_row(path, mode, cp_size):
    """I-3, I-14: declared is what I-3 says, and what a batch without queries gives (in decode P-LEN refuses it)."""
    batch_config = config(max_ngram_size=2, pad_token=-7, yoco_mode=mode, cp_size=cp_size)
    for field in build(path, batch_config, [prompt(3, 0)] if path == "prompt" else []).values():
        aligned = field.field.layout(path, batch_config).rows in ALIGNED
        if not aligned:
            continue
        neutral = NEUTRAL.get(field.field.name, 0)
        assert [(type(cell), cell) for cell in set(field.cells)] == [(type(neutral), neutral)], field.name
        assert field.field.neutral_cell(batch_config) == neutral
        assert field.shape[0] == 1


def test_only_rows_of_queries_have_a_neutral_cell():
    """Scalars, boundaries and load plans have no row without a query."""
    for field in FIELDS.values():
        kinds = {field.rows, *dict(field.other_rows).values()}
        assert kinds & ALIGNED or field.neutral is None, field.name


def test_columns_are_named_one_by_one():
    """The names of a row's columns are as many as the shape says, in every field that has a fixed number of them."""
    for field in FIELDS.values():
        fixed = [symbol for symbol in field.shape[1:] if symbol.isdecimal()]
        assert [str(len(field.columns))] == fixed or not (field.columns or fixed), field.name


def test_names_are_those_of_the_specification():
    """Every formula and precondition is in SPEC.md; every name that SPEC.md or a docstring uses exists."""
    known = {*FORMULAS, *PRECONDITIONS}
    in_text = set(re.findall(r"\b[FP]-[A-Z0-9]+\b", SPECIFICATION))
    assert known == in_text
    decisions = set(re.findall(r"\bI-\d+\b", SPECIFICATION))
    sources = [path for folder in CODE for path in (REPOSITORY / folder).rglob("*") if path.suffix in SUFFIXES]
    assert SOURCES / "fields.py" in sources
    for source in sources:
        if source.is_relative_to(REPOSITORY / "conformance") and "tests" in source.parts:
            continue  # these make up names that must be refused
        text = source.read_text(encoding="utf-8")
        assert set(re.findall(r"\b[FP]-[A-Z][A-Z0-9]+\b", text)) <= known, source
        assert set(re.findall(r"\bI-\d+\b", text)) <= decisions, source


def test_a_decision_has_one_number_and_a_line_in_the_index():
    """Each number is decided in one place ("I-n The ..."), and the index lists all of them, in order, by chapter."""
    index, text = SPECIFICATION.split("## Decisions", 1)[1].split("## 1. ", 1)
    listed = re.findall(r"^\| (I-\d+) \| .+ \| (\d+) \|$", index, re.MULTILINE)
    assert [number for number, _ in listed] == [f"I-{n + 1}" for n in range(len(listed))]
    decided: dict[str, list[str]] = {}
    for chapter in ("1. " + text).split("\n## "):
        # Where a decision is only referred to, its number ends a clause or stands in brackets.
        for number in re.findall(r"\b(I-\d+) [A-Za-z`Σ*\"]", re.sub(r"\bI-\d+ (says|does|asks)\b", "", chapter)):
            decided.setdefault(number, []).append(chapter.partition(".")[0])
    assert decided == {number: [chapter] for number, chapter in listed}


def test_every_field_is_named_in_the_specification():
    """Field names appear in SPEC.md."""
    assert [name for name in FIELDS if name not in SPECIFICATION] == []


def test_every_formula_is_a_functions():
    """Each formula is named in the docstring of the module that computes it (F-STACK is a buffer layout only)."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.glob("*.py") if path.name not in {"formulas.py"}]
    missing = [name for name in FORMULAS if not any(f"{name}" in text for text in texts)]
    assert missing in ([], ["F-STACK"])


def test_views_swap_declared_fields():
    """I-23: what a view puts in place exists in the same path and bucket kind."""
    for view in (MASK_VIEW, CONSUMER_VIEW, CONSUMER_MIRROR_VIEW):
        for name, source in view.swaps.items():
            assert FIELDS[name].bucket == FIELDS[source].bucket
            assert FIELDS[name].dtype == FIELDS[source].dtype
        assert set(view.cleared) <= set(FIELDS)


def test_mask_view_of_a_batch():
    """The pivots are the very object of the mask; the rest is shared; the expansion is gone."""
    masked = expected_fields("prompt", config(yoco_mode="mask", yoco_prefill_keep_tokens=2), [prompt(3, 4)])
    view = mask_view(masked)
    assert view["kv_swa_full_index_pivots"] is masked["yoco_mask_swa_index_pivots"]
    assert set(masked) - set(view) == {"kv_swa_full_index"}


def test_consumer_view_of_two_rows_of_which_one_is_kept():
    """The smallest batch whose mask differs: one row kept, one cell of the mask (and of the gate)."""
    compact = config(yoco_mode="compact", yoco_prefill_keep_tokens=1, force_load_balance=True)
    view = consumer_view(plain(expected_fields("prompt", compact, [prompt(0, 2)])), [True, True])
    assert (view["valid_token_mask"], view["gate_force_random"]) == ([True], [True])
    assert (view["total_q"], view["positions"], view["query_indices"]) == (1, [1], [1])


def test_consumer_view_takes_the_compact_fields_and_clears_the_expansions():
    """I-23, with and without CP; what is not named is shared."""
    for cp_size, source in ((1, "yoco_consumer_ks.4"), (2, "yoco_consumer_mirror_ks.4")):
        compact = config(yoco_mode="compact", yoco_prefill_keep_tokens=2, cp_size=cp_size)
        fields = plain(expected_fields("prompt", compact, [prompt(3, 4)]))
        view = consumer_view(fields, [True] * 4)
        assert view["ks.4"] is fields[source]
        assert view["input_ids"] is fields["input_ids"]
        assert set(fields) - set(view) == {"kv_ca_index.2", "kv_ca_index_len.2", "klen.4", "kv_swa_full_index"}


def test_consumer_view_of_a_rank_is_gathered():
    """Worked by hand, p = 2: of rows 0..4 of a request 2..4 are kept, of a placeholder's 5..6 both. Rank 0 owns the
    first of each sequence's kept rows, and padding. A placeholder's row is global too, and has no sentinel (I-24).
    """
    changes = {"yoco_mode": "compact", "yoco_prefill_keep_tokens": 3, "cp_size": 2, "force_load_balance": True}
    batch = [prompt(0, 5), prompt(0, 2, is_placeholder=True)]
    view = consumer_view(plain(expected_fields("prompt", config(**changes), batch)), [True] * 5 + [False] * 2)
    assert view["mirror_cp_index"] == [0, -1, 3, -1]
    assert view["positions_cp"] == [2, 3, 4, 0, 1]
    assert view["positions"] == [2, 0, 0, 0]
    assert view["query_indices"] == [2, 998244353, 5, 998244353]
    assert view["valid_token_mask"] == [True, False, False, False]
    assert view["gate_force_random"] == [True] * 5
    assert view["gate_force_random_cp"] == [True, False, True, False]


def test_consumer_view_of_no_rows_is_neutral():
    """I-3, I-14."""
    for cp_size in (1, 2):
        empty = config(yoco_mode="compact", yoco_prefill_keep_tokens=3, cp_size=cp_size)
        view = consumer_view(plain(expected_fields("prompt", empty, [prompt(3, 0)])), [False])
        assert (view["positions"], view["query_indices"], view["valid_token_mask"]) == ([0], [998244353], [False])


def plain(fields):
    """The fields as scalars and lists of rows."""
    return {key: field.cells[0] if not field.shape else rows_of(field) if field.shape[1:] else field.cells
            for key, field in fields.items()}  # fmt: skip
