"""F-LIMIT: the bounds by formula against every value that is written, built on unbounded integers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inputmeta.oracle import Int32Error, MetadataConfig, SequenceMetadata, expected_fields, violations
from inputmeta.oracle.batch import build
from inputmeta.oracle.limits import extremes
from inputmeta.oracle.units import INT32_MAX

from .batches import cells, config, configs, decode, prompt, rows_of, sequences_of

NEAR = st.integers(-3, 3)


def written_values(path: str, batch_config: MetadataConfig, batch: list[SequenceMetadata]):
    """Every value that any rank of the group writes, its expansions included."""
    ranks = range(batch_config.cp_size if path == "prompt" else 1)
    for rank in ranks:
        fields = build(path, replace(batch_config, cp_rank=rank), batch)
        for field in fields.values():
            if field.dtype != "bool":
                yield from (cell for cell in field.cells if cell is not None)


def product(batch_config: MetadataConfig, batch: list[SequenceMetadata]) -> int:
    """The dense product bound of F-LIMIT, written out a second time."""
    smallest = min(batch_config.dense_ratios + batch_config.sparse_ratios)
    per_block = batch_config.block_size // smallest
    blocks = [-(-(one.seqlen_k // smallest) // per_block) for one in batch]
    total_q = sum(one.seqlen_q for one in batch)
    return total_q * max(1, *blocks) * (batch_config.block_size // min(batch_config.dense_ratios))


@st.composite
def batches_near_the_bound(draw):
    """Blocks, states and windows that put some slot within a few cells of 2^31."""
    path = draw(st.sampled_from(("prompt", "decode", "decode_zos")))
    ring = draw(st.integers(4, 7))
    batch_config = config(
        block_size=draw(st.sampled_from((8, 16))),
        dense_ratios=draw(st.sampled_from(((), (2,), (1,), (4,)))),
        sparse_ratios=draw(st.sampled_from(((4,), (2, 8)))),
        swa_block_size=ring,
        cp_size=draw(st.sampled_from((1, 2))),
        yoco_mode=draw(st.sampled_from(("off", "mask", "compact"))),
        yoco_prefill_keep_tokens=draw(st.integers(0, 8)),
    )
    batch = []
    for index in range(draw(st.integers(1, 3))):
        context = draw(st.integers(0, 18))
        added = draw(st.integers(0, 9)) if path == "prompt" else draw(st.integers(0, 3))
        per_block = batch_config.block_size // draw(st.sampled_from(batch_config.ca_ratios))
        blocks = [draw(st.sampled_from((7, 2**31 // per_block + draw(NEAR)))) for _ in range(5)]
        changes = {
            "block_table": tuple(min(block, INT32_MAX) for block in blocks),
            "state_id": draw(st.sampled_from((index, 2**31 // ring + draw(NEAR)))),
            "is_placeholder": draw(st.booleans()),
            "swa_valid_start": draw(st.sampled_from((0, context, context + added + 1))),
            "data_len": draw(st.sampled_from((0, context + added, 40))),
        }
        batch.append(prompt(context, added, **changes) if path == "prompt" else decode(context, added, **changes))
    return path, batch_config, batch


@settings(max_examples=150, deadline=None)
@given(batches_near_the_bound())
def test_refused_exactly_when_a_written_value_leaves_int32(drawn):
    """I-11."""
    path, batch_config, batch = drawn
    highest = max(written_values(path, batch_config, batch))
    dense_decode = path != "prompt" and bool(batch_config.dense_ratios)
    leaves = highest > INT32_MAX or (dense_decode and product(batch_config, batch) > INT32_MAX)
    found = violations(path, batch_config, batch)
    assert bool(found) == leaves
    assert all(type(one) is Int32Error for one in found)


@settings(max_examples=60, deadline=None)
@given(batches_near_the_bound())
def test_each_extreme_is_a_value_that_its_field_holds(drawn):
    """An extreme is the largest cell of its field, or of the expansion of it."""
    path, batch_config, batch = drawn
    fields = build(path, batch_config, batch)
    highest: dict[str, int] = {}
    for extreme in extremes(path, batch_config, batch, None):
        highest[extreme.field] = max(extreme.value, highest.get(extreme.field, -1))
    for name in ("slot_mapping_store_swa", "kv_swa_index", "state_block_idx", "load_segments_swa"):
        if name in highest and name in fields:
            assert highest[name] == max(cells(fields, name)), name
    for key in fields:
        if key.startswith(("slot_mapping_store_ca.", "kv_ca_index.")) and key in highest:
            assert highest[key] == max(cells(fields, key)), key


def run_ends(fields, key):
    """The largest rows that pivots name: where the runs begin, and where the new rows' run ends."""
    return [max(first, new, new + length - 1) for first, _, new, length in rows_of(fields[key])]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_extremes_of_indices_that_small_batches_cannot_bring_near_the_bound(data):
    """Totals, pivots and mirror indices: the formula against all ranks' cells."""
    batch_config = data.draw(configs(cp_size=data.draw(st.sampled_from((1, 2, 3, 8)))))
    batch = data.draw(sequences_of("prompt"))
    assume(sum(one.seqlen_q for one in batch) > 0)
    ranks = [
        build("prompt", replace(batch_config, cp_rank=rank), batch, expand=()) for rank in range(batch_config.cp_size)
    ]
    highest: dict[str, int] = {}
    for extreme in extremes("prompt", batch_config, batch, None):
        highest[extreme.field] = max(extreme.value, highest.get(extreme.field, -1))
    for key, value in highest.items():
        if key.endswith("_pivots"):
            assert value == max(run_ends(ranks[0], key)), key
        elif key != "cu_seqlens_k":
            assert value == max(cell for fields in ranks for cell in cells(fields, key)), key
    dense_total = {f"total_k_compressed.{ratio}" for ratio in batch_config.ca_ratios}
    assert {"cp_mirror_len", "total_k_swa", "kv_swa_full_index_pivots", *dense_total} <= highest.keys()
    if batch_config.cp_size > 1:
        assert "mirror_cp_reverse_index" in highest
        assert ("yoco_cp_boundary_index" in highest) == (batch_config.yoco_mode == "compact")


def test_state_slot_at_the_bound_and_one_past():
    """F-RING: state 357913941 of a ring of 6 ends at 2147483651; position 1 is the last that fits."""
    state = 357913941
    assert state * 6 + 1 == INT32_MAX
    assert cells(expected_fields("decode", config(), [decode(1, state_id=state)]), "slot_mapping_store_swa") == [
        INT32_MAX
    ]
    with pytest.raises(Int32Error, match=r"slot_mapping_store_swa = 2147483648"):
        expected_fields("decode", config(), [decode(2, state_id=state)])


def test_window_read_at_the_bound():
    """F-SWADEC: positions 6, 7 lie at ring offsets 0, 1, the last two that fit; a window of 3 reads offset 5 too."""
    state = 357913941
    assert not violations("decode", config(window_size=2), [decode(7, state_id=state)])
    found = violations("decode", config(window_size=3), [decode(7, state_id=state)])
    assert [(one.field, one.value) for one in found] == [("kv_swa_index", 2147483651)]
    ghost = decode(0, state_id=state + 1, is_placeholder=True)
    assert [(one.field, one.value) for one in violations("decode", config(), [ghost])] == [("kv_swa_index", 2147483652)]


def test_placeholder_stores_nothing_but_reads():
    """I-11: a decode placeholder's window and dense keys must fit; a prompt placeholder's slots need not."""
    state = 357913941
    with pytest.raises(Int32Error, match="kv_swa_index = 2147483648"):
        expected_fields("decode", config(), [decode(2, state_id=state, is_placeholder=True)])
    expected_fields("prompt", config(), [prompt(0, 3, state_id=state, is_placeholder=True)])
    with pytest.raises(Int32Error, match="slot_mapping_store_swa = 2147483648"):
        expected_fields("prompt", config(), [prompt(0, 3, state_id=state)])
    big_block = (2**29,)  # block of 4 compressed tokens of ratio 2: slot 2^31
    with pytest.raises(Int32Error, match=r"kv_ca_index\.2 = 2147483648"):
        expected_fields("decode", config(), [decode(1, block_table=big_block, is_placeholder=True)])
    assert not violations("decode", config(dense_ratios=()), [decode(1, block_table=big_block, is_placeholder=True)])


def test_ring_segments_hold_the_state_itself():
    """I-11: a chunk too long ago in no ring slot, or of no query, may use any int32 state."""
    expected_fields("prompt", config(), [prompt(5, 0, state_id=INT32_MAX)])
    with pytest.raises(Int32Error, match="state_block_idx = 2147483648"):
        expected_fields("prompt", config(), [prompt(5, 0, state_id=INT32_MAX + 1)])


def test_dense_product_at_the_bound():
    """F-LIMIT: total_q * max_num_blocks * b_c over 2^31 - 1, by the width of a caller's table; decode only."""
    fits = config(block_size=4, dense_ratios=(4,))
    assert not violations("decode", fits, [decode(1)], max_num_blocks=INT32_MAX)
    found = violations("decode", config(), [decode(1)], max_num_blocks=2**29)  # b_c = 4 at ratio 2
    assert [(one.field, one.value) for one in found] == [("kv_ca_index_offset_len", 2**31)]
    assert not violations("decode", config(), [decode(1)], max_num_blocks=2**29 - 1)
    assert not violations("decode", config(dense_ratios=()), [decode(1)], max_num_blocks=2**29)


def test_window_rows_at_the_bound():
    """total_k_swa = W for one sequence; the new keys behind it must fit too, expansions included."""
    window = INT32_MAX - 3
    wide = config(window_size=window, swa_block_size=window)
    assert not violations("prompt", wide, [prompt(0, 4)])
    found = violations("prompt", wide, [prompt(0, 5)])
    assert [(one.field, one.value) for one in found] == [("kv_swa_full_index_pivots", 2**31)]
    assert violations("prompt", config(window_size=2**30, swa_block_size=2**30), [prompt(0, 1), prompt(0, 1)])


def test_one_row_that_sees_nothing_names_one_past_the_last_new_row():
    """F-PIVOT, F-VIS, F-COMPACT: P2 is sec2 + 1 for a row that sees nothing; here sec2 is 2^31 - 1 itself."""
    wide = config(window_size=INT32_MAX, swa_block_size=INT32_MAX)
    assert not violations("prompt", wide, [prompt(0, 1)])
    blind = violations("prompt", wide, [prompt(0, 1, swa_valid_start=1)])
    assert [(one.field, one.value) for one in blind] == [("kv_swa_full_index_pivots", 2**31)]
    for mode, field in (("mask", "yoco_mask_swa_index_pivots"), ("compact", "yoco_consumer_swa_index_pivots")):
        truncated = replace(wide, yoco_mode=mode, yoco_prefill_keep_tokens=1)
        assert not violations("prompt", truncated, [prompt(0, 1, data_len=1)])
        found = violations("prompt", truncated, [prompt(0, 1, data_len=2)])
        assert [(one.field, one.value) for one in found] == [(field, 2**31)]


def test_sum_of_key_lengths():
    """F-CU, I-26: cu_seqlens_k ends beyond int32 in prompt and eager decode; ZOS decode does not write it."""
    long = config(block_size=2**30, dense_ratios=(), sparse_ratios=(2**30,), max_model_len=2**30)
    batch = [SequenceMetadata(seqlen_q=1, seqlen_k=2**30, block_table=(0,), token_ids=range(2**30))] * 2
    for path, leaves in (("prompt", True), ("decode", True), ("decode_zos", False)):
        found = {one.field: one.value for one in extremes(path, long, batch, None) if one.value > INT32_MAX}
        assert found == ({"cu_seqlens_k": 2**31} if leaves else {})
