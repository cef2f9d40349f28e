"""Every form draws valid batches within the claims, the same for seed and index, and reaches its sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.check.audit import readable
from inputmeta.conformance.subjects.base import Capabilities
from inputmeta.conformance.subjects.reference import ReferenceSubject, reference_of
from inputmeta.conformance.wide.forms import FORMS, LONGEST, Batch, Claims, draw_batch, forms_of

SEED = 5
ABLE = ReferenceSubject().capabilities
ALL = Claims(ABLE, oracle.PATHS)
SAMPLED = {"counts of rows": 60, "many segments": 24, "many short": 20}
"""Batches of a form; 12 of the others."""


@cache
def batches(name: str) -> tuple[Batch, ...]:
    place = [form.name for form in FORMS].index(name)
    return tuple(draw_batch(ALL, SEED, place + len(FORMS) * index) for index in range(SAMPLED.get(name, 12)))


def sizes(batch: Batch) -> dict[str, int]:
    """The largest sizes of a batch over its steps."""
    largest: dict[str, int] = {}
    for request in batch.steps:
        fields = reference_of(request).fields
        arrays = {key: value for key, value in fields.items() if isinstance(value, np.ndarray)}
        segments = [len(value) for key, value in arrays.items() if key.startswith("load_segments_ca.")]
        dense = [value for key, value in arrays.items() if key.startswith("kv_ca_index.")]
        here = {
            "sequences": len(request.sequences),
            "rows": int(fields["total_q"]),
            "longest chunk": max(sequence.seqlen_q for sequence in request.sequences),
            "context": max(sequence.seqlen_k for sequence in request.sequences),
            "columns": int(fields.get("max_num_blocks", 0)),
            "segments": max(segments, default=0),
            "expanded columns": max((value.shape[1] for value in dense), default=0),
            "expanded cells": max((value.size for value in dense), default=0),
        }
        largest = {what: max(size, largest.get(what, 0)) for what, size in here.items()}
    return largest


REACHES = {
    "many short": {"sequences": 4_095},
    "few deep": {"context": LONGEST + 1},
    "wide tables": {"columns": 100_000},
    "long chunks": {"longest chunk": 4_095, "rows": 2**13},
    "wide expansions": {"expanded columns": 2**15 + 1, "expanded cells": 2**16 + 1},
    "many segments": {"segments": 65_536},
    "captured": {"sequences": 1_024},
    "counts of rows": {"rows": 2**16 - 1},
    "gathers": {"longest chunk": 64, "sequences": 255},
    "several steps": {"sequences": 511},
}


@pytest.mark.parametrize("name", [form.name for form in FORMS])
def test_a_form_is_valid_and_reaches_its_sizes(name: str) -> None:
    largest: dict[str, int] = {}
    for batch in batches(name):
        assert batch.form == name
        for what, size in sizes(batch).items():
            largest[what] = max(size, largest.get(what, 0))
    assert {what: largest[what] >= least for what, least in REACHES[name].items()} == dict.fromkeys(REACHES[name], True)
    for batch in batches(name)[:8]:
        for request in batch.steps:
            assert readable(request).violations() == []


def test_segments_lie_on_both_sides_of_the_bound() -> None:
    seen = {sizes(batch)["segments"] for batch in batches("many segments")}
    assert {65_534, 65_535, 65_536} <= seen


def test_windows_of_more_than_65535_rows_are_expanded_on_every_path() -> None:
    """As a kernel of a block a row has them, whose grid ends there."""
    seen = set()
    for batch in batches("counts of rows"):
        for request in batch.steps:
            rows = sum(sequence.seqlen_q for sequence in request.sequences)
            if rows > 65_535 and request.config.cp_size == 1 and "kv_swa_index" in request.expand:
                seen.add(request.path)
    assert seen == set(oracle.PATHS)


def test_ids_reach_the_int32_bound() -> None:
    highest = {"slot_mapping_store_swa": 0, "slot_mapping_store_ca": 0}
    for batch in batches("many short"):
        for key, value in reference_of(batch.steps[0]).fields.items():
            name = key.partition(".")[0]
            if name in highest and isinstance(value, np.ndarray):
                highest[name] = max(highest[name], int(value.max()))
    assert all(slot > 2**31 - 2**14 for slot in highest.values()), highest


def test_options_and_stand_ins_occur() -> None:
    every = [request for form in FORMS for batch in batches(form.name) for request in batch.steps]
    configs = [request.config for request in every]
    assert {config.window_size for config in configs} == {64, 128, 512, 4_096}
    assert {config.block_size for config in configs} == {16, 64, 128, 256}
    assert {r for config in configs for r in (*config.dense_ratios, *config.sparse_ratios)} == {1, 2, 4, 8, 128}
    assert {config.yoco_mode for config in configs} == {"off", "mask", "compact"}
    assert {config.cp_size for config in configs} == {1, 2, 3, 8, 33, 64}
    assert {config.max_model_len % 128 for config in configs} >= {127, 0, 1}
    assert any(request.gather for request in every)
    assert any(request.max_num_blocks for request in every)
    prompts = [sequence for request in every if request.path == "prompt" for sequence in request.sequences]
    assert any(sequence.seqlen_q == 0 for sequence in prompts)
    assert any(sequence.is_placeholder for sequence in prompts)


def test_a_batch_depends_on_seed_and_index_alone() -> None:
    once, again, other = draw_batch(ALL, 3, 17), draw_batch(ALL, 3, 17), draw_batch(ALL, 4, 17)
    first, second, third = (
        {key: np.asarray(value) for key, value in reference_of(batch.steps[0]).fields.items()}
        for batch in (once, again, other)
    )
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[key], second[key]) for key in first)
    assert first["total_q"] != third["total_q"]


def test_arrays_are_views_that_nobody_can_write_to() -> None:
    sequence = draw_batch(ALL, 3, 0).steps[0].sequences[0]
    for name in ("token_ids", "block_table"):
        values = getattr(sequence, name)
        assert isinstance(values, np.ndarray)
        assert values.base is not None
        assert not values.flags.writeable


LIMITS = {"max_total_q": 300, "max_num_reqs": 20, "max_table_columns": 64, "max_cp_size": 1, "in_place": False}


@pytest.mark.parametrize("claims", [LIMITS, {"max_total_q": 1, "max_num_reqs": 1, "max_table_columns": 3}])
def test_batches_stay_within_the_claims(claims: dict[str, int]) -> None:
    able = replace(ABLE, yoco_modes=frozenset({"off"}), **claims)  # type: ignore[arg-type]
    for index in range(60):
        for request in draw_batch(Claims(able, oracle.PATHS), SEED, index).steps:
            assert able.lacks(request) is None
            assert readable(request).violations() == []


def test_forms_of_other_paths_are_not_drawn() -> None:
    able = Capabilities(paths=frozenset({"decode"}), fields=frozenset(oracle.FIELDS))
    claims = Claims(able, ("decode",))
    assert "long chunks" not in {form.name for form in forms_of(claims)}
    assert {draw_batch(claims, SEED, index).steps[0].path for index in range(20)} == {"decode"}
    with pytest.raises(ValueError, match="no path to draw"):
        draw_batch(Claims(able, ()), SEED, 0)
