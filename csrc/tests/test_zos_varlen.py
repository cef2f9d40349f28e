"""Drafts of variable length on the host: F-REMAP, F-VARLEN, F-TAIL, and what is refused (I-37)."""

import dataclasses
import random

import engine_cases as cases
import pytest
import torch
from varlen_cases import assert_tail, decided, expected_ngrams, expected_tokens, ids, rejected_of, shorter_inputs
from zos_cases import Captured, build

from inputmeta import engine


def by_hand(**changes):
    """Two sequences, extracted with rows at 7 … 9 each. The first goes on from place 2 of the last step, where one
    draft was rejected, with two rows; the second is new and has one.
    """
    config = cases.config(max_ngram_size=2, lookup_table=range(200), pad_token=3)
    sequence = cases.decode_sequence(recent_tokens=range(100, 110))
    step = engine.prepare_decode_zos_inputs([sequence, sequence], config)
    inputs = {
        "seqlens_q": ids(2, 1),
        "remap": ids(2, -1),
        "prev_seqlens_q": ids(1, 3, 3),
        "prev_num_accepted_tokens": ids(0, 2, 1),
        "prev_sampled_token_ids": ids(60, 61, 62),
        "prev_predict_token_ids": torch.arange(70, 76, dtype=torch.int32).view(3, 2),
    }
    return config, dataclasses.replace(step, **(inputs | changes))


def test_a_step_by_hand():
    config, step = by_hand()
    shorter = engine.prepare_decode_inputs_zos_varlen(step)
    assert shorter.seqlens_k.tolist() == [10 - 1 - 1, 10 - 2]
    assert shorter.cu_seqlens_q.tolist() == [2, 3]
    assert shorter.fresh_cu_seqlens_q.tolist() == [3, 6]
    assert (step.seqlens_k.tolist(), step.cu_seqlens_q.tolist()) == ([10, 10], [3, 6])
    assert engine.prepare_token_ids_zos(shorter).tolist() == [62, 74, 107, 0, 0, 0]
    zos = engine.prepare_decode_v4_zos(shorter, config)
    assert (zos.total_q, zos.num_reqs, zos.max_num_blocks) == (6, 2, 2)
    assert zos.cu_seqlens_q.tolist() == [2, 3]
    assert zos.positions.tolist() == [6, 7, 7, 0, 0, 0]
    assert zos.input_ids.tolist() == [62, 74, 107, 0, 0, 0]
    assert zos.context_lens.tolist() == [7, 8, 8, 0, 0, 0]
    assert zos.query_indices.tolist() == [0, 0, 1, 998244353, 998244353, 998244353]
    assert zos.valid_token_mask.tolist() == [True] * 3 + [False] * 3
    assert zos.state_block_idx.tolist() == [2, 2, 2, 0, 0, 0]
    assert zos.slot_mapping_store_swa.tolist() == [12, 13, 13, -1, -1, -1]
    assert zos.kv_swa_index_offset_len.tolist() == [[15, 4], [16, 4], [16, 4], [0, 0], [0, 0], [0, 0]]
    assert zos.slot_mapping_store_ca["1"].tolist() == [46, 47, 47, -1, -1, -1]
    assert zos.slot_mapping_store_ca["4"].tolist() == [-1, 11, 11, -1, -1, -1]
    assert zos.positions_c["4"].tolist() == [0, 4, 4, 0, 0, 0]
    assert zos.klen["4"].tolist() == [1, 2, 2, 0, 0, 0]
    assert zos.kv_ca_index_offset_len["1"].tolist() == [[0, 7], [16, 8], [32, 8], [0, 0], [0, 0], [0, 0]]
    # those of positions 7, 8 and 7, as extracted: the engine makes them itself where drafts were rejected (I-34)
    assert zos.ngram_token_ids.tolist() == [[107, 106], [108, 107], [107, 106], [3, 3], [3, 3], [3, 3]]
    zos.compute_attn_info(config)
    assert zos.kv_swa_index.tolist() == [[15, 16, 17, 12], [16, 17, 12, 13], [16, 17, 12, 13], *[[-1] * 4] * 3]
    assert zos.kv_ca_index_len["1"].tolist() == [7, 8, 8, 0, 0, 0]
    assert zos.kv_ca_index["1"][0, :8].tolist() == [*range(40, 47), -1]
    assert bool((zos.kv_ca_index["1"][3:] == -1).all())


@pytest.mark.parametrize("seed", range(60))
def test_a_shorter_step_is_that_of_the_sequences_it_leaves(seed):
    draw = random.Random(seed)
    sequences, config, step = shorter_inputs(draw)
    shorter = engine.prepare_decode_inputs_zos_varlen(step)
    zos = engine.prepare_decode_v4_zos(shorter, config)
    rows = int(shorter.cu_seqlens_q[-1])
    fewer = decided(sequences, step)
    known = engine.prepare_decode_zos_inputs(fewer, config)
    assert torch.equal(shorter.seqlens_k, known.seqlens_k)
    # I-36: the offsets are those of the extracted columns
    out = Captured(fewer, config, more_columns=zos.max_num_blocks - known.max_num_blocks).out
    theirs = engine.prepare_decode_v4_zos(known, config, out)
    for metadata in (zos, theirs):
        metadata.compute_attn_info(config)
    ours, wanted = cases.tensors(zos), cases.tensors(theirs)
    assert ours.keys() == wanted.keys()
    blocks = (known.block_tables_offsets.diff()).tolist()
    for row, index in enumerate(torch.repeat_interleave(torch.arange(len(fewer)), known.seqlens_q).tolist()):
        assert torch.equal(ours["block_tables"][row, : blocks[index]], wanted["block_tables"][row, : blocks[index]])
    for key in ours.keys() - {"block_tables", "input_ids", "ngram_token_ids", "cu_seqlens_q"}:
        assert torch.equal(ours[key][:rows], wanted[key]), key
    assert torch.equal(zos.cu_seqlens_q, theirs.cu_seqlens_q)
    assert zos.input_ids.tolist() == expected_tokens(shorter)
    assert torch.equal(engine.prepare_token_ids_zos(shorter), zos.input_ids)
    if config.max_ngram_size > 0:
        assert torch.equal(zos.ngram_token_ids[:rows], expected_ngrams(shorter))
    assert_tail(zos, config, rows)


@pytest.mark.parametrize("seed", range(12))
def test_without_rejected_drafts_and_with_all_rows_it_is_the_step_of_fixed_length(seed):
    sequences, config, step = shorter_inputs(random.Random(seed), rejects=False, full=True)
    zos = engine.prepare_decode_v4_zos(engine.prepare_decode_inputs_zos_varlen(step), config)
    fixed = build(sequences, config)
    for key, tensor in cases.tensors(fixed).items():
        if key not in {"input_ids", "block_tables"}:
            assert torch.equal(cases.tensors(zos)[key], tensor), key
    alone = dataclasses.replace(step, remap=None)
    again = engine.prepare_decode_v4_zos(engine.prepare_decode_inputs_zos_varlen(alone), config)
    assert torch.equal(again.input_ids, fixed.input_ids)
    assert torch.equal(engine.prepare_token_ids_zos(alone), fixed.input_ids)


def test_a_step_of_fixed_length_gathers_its_tokens_too():
    config, step = by_hand(seqlens_q=ids(3, 3))
    zos = engine.prepare_decode_v4_zos(step, config)
    assert zos.input_ids.tolist() == [62, 74, 75, 107, 91, 92]
    assert zos.positions.tolist() == [7, 8, 9] * 2
    assert engine.prepare_token_ids_zos(step).tolist() == zos.input_ids.tolist()


@pytest.mark.parametrize("seed", range(12))
def test_captured_buffers_at_many_numbers_of_rows(seed):
    draw = random.Random(seed)
    sequences, config, step = shorter_inputs(draw, count=7)
    captured = Captured(sequences, config, more_columns=2, more_rows=5)
    lengths = {name: torch.full((9,), cases.POISON, dtype=torch.int32) for name in ("seqlens_k", "cu_seqlens_q")}
    for _ in range(4):
        rows = [draw.randint(1, sequence.seqlen_q) for sequence in sequences]
        step = dataclasses.replace(step, seqlens_q=ids(*rows))
        captured.poison()
        shorter = engine.prepare_decode_inputs_zos_varlen(step, lengths)
        assert shorter.seqlens_k.data_ptr() == lengths["seqlens_k"].data_ptr()
        assert all(tensor[7:].tolist() == [cases.POISON] * 2 for tensor in lengths.values())
        zos = engine.prepare_decode_v4_zos(shorter, config, captured.out)
        assert all(bool((cells == (cells.dtype == torch.bool or cases.POISON)).all()) for cells in captured.hidden(zos))
        assert_tail(zos, config, sum(rows))
        fresh = engine.prepare_decode_v4_zos(engine.prepare_decode_inputs_zos_varlen(step), config)
        for key, tensor in cases.tensors(fresh).items():
            if key.partition(".")[0] not in {"block_tables", "kv_ca_index_offset_len"}:
                assert torch.equal(cases.tensors(zos)[key], tensor), key
        tokens = {"input_ids": torch.full((step.total_q + 3,), cases.POISON, dtype=torch.int32)}
        assert torch.equal(engine.prepare_token_ids_zos(shorter, tokens), zos.input_ids)
        assert tokens["input_ids"][step.total_q :].tolist() == [cases.POISON] * 3


# --- What is refused -------------------------------------------------------------------------------------------------

LENGTHS = [
    ({"seqlens_q": ids(0, 1)}, r"seqlens_q\[0\] is 0; rule: 1 to the 3 rows extracted"),
    ({"seqlens_q": ids(2, 4)}, r"seqlens_q\[1\] is 4; rule: 1 to the 3 rows extracted"),
    ({"seqlens_q": ids(2, -1)}, r"seqlens_q\[1\] is -1"),
    ({"seqlens_q": ids(2)}, r"seqlens_q is not .* \(2,\) on cpu"),
    ({"seqlens_q": torch.tensor([2, 1])}, r"seqlens_q is not a contiguous torch.int32"),
    ({"remap": ids(3, -1)}, r"remap\[0\] is 3; rule: a place below the 3 of the last step"),
    ({"remap": ids(2, 0, 1)}, r"remap is not .* \(2,\)"),
    ({"prev_num_accepted_tokens": ids(0, 2, 3)}, r"prev_num_accepted_tokens\[2\] is 3; rule: 0 to .* = 2"),
    ({"prev_num_accepted_tokens": ids(0, 3, 1)}, r"prev_num_accepted_tokens\[1\] is 3"),
    ({"prev_num_accepted_tokens": ids(0, 2, -1)}, r"prev_num_accepted_tokens\[2\] is -1"),
    ({"prev_num_accepted_tokens": ids(0, 2)}, r"prev_num_accepted_tokens is not .* \(3,\)"),
    ({"prev_num_accepted_tokens": None}, "prev_num_accepted_tokens of the step is missing"),
    ({"prev_seqlens_q": None}, "prev_seqlens_q of the step is missing"),
    ({"prev_seqlens_q": ids(1, 3, 10)}, r"prev_num_accepted_tokens\[2\] is 1; rule: rejects at most the 7 keys"),
    ({"prev_seqlens_q": ids(1, 3, 0)}, r"prev_num_accepted_tokens\[2\] is 1; rule: 0 to prev_seqlens_q - 1 = -1"),
    ({"prev_sampled_token_ids": None}, "prev_sampled_token_ids of the step is missing"),
    ({"prev_predict_token_ids": None}, "prev_predict_token_ids of the step is missing"),
    ({"prev_predict_token_ids": ids(70, 71, 72)}, "prev_predict_token_ids is not"),
    ({"prev_predict_token_ids": torch.empty((3, 0), dtype=torch.int32)}, r"seqlens_q\[0\] is 2; .* the 0 columns"),
    ({"fresh_cu_seqlens_q": ids(3, 7)}, r"fresh_cu_seqlens_q\[1\] is 7; .* total_q = 6"),
    ({"state_ids": ids(357913941, 2)}, r"state_ids\[0\] is 357913941"),
    ({"block_tables": ids(5, 2**28, 5, 6)}, r"block_tables\[1\] is 268435456"),
    ({"block_tables": ids(5)}, r"block_tables_offsets\[1\] is 2"),
]


@pytest.mark.parametrize(("change", "message"), LENGTHS, ids=lambda value: value if isinstance(value, str) else "")
def test_lengths_that_do_not_fit_write_nothing(change, message):
    _, step = by_hand(**change)
    out = {name: torch.full((4,), cases.POISON, dtype=torch.int32) for name in ("seqlens_k", "cu_seqlens_q")}
    with pytest.raises(ValueError, match=message) as refusal:
        engine.prepare_decode_inputs_zos_varlen(step, out)
    assert not isinstance(refusal.value, engine.PreconditionError)
    assert cases.is_untouched(out)


def test_an_int32_bound_of_a_sequence_that_rejected_nothing_is_not_looked_at():
    _, step = by_hand(state_ids=ids(2, 357913941), block_tables=ids(5, 6, 2**28, 6))
    assert engine.prepare_decode_inputs_zos_varlen(step).seqlens_k.tolist() == [8, 8]


@pytest.mark.parametrize("shared", ["seqlens_k", "cu_seqlens_q", "seqlens_q", "remap", "prev_num_accepted_tokens"])
def test_results_do_not_overwrite_what_a_replay_reads(shared):
    _, step = by_hand()
    out = {name: torch.full((4,), cases.POISON, dtype=torch.int32) for name in ("seqlens_k", "cu_seqlens_q")}
    array = getattr(step, shared)
    for name in out:
        with pytest.raises(engine.OutError, match=rf"{name} is in the memory of"):
            engine.prepare_decode_inputs_zos_varlen(step, {**out, name: array[:2]})
    with pytest.raises(engine.OutError, match="seqlens_k is missing"):
        engine.prepare_decode_inputs_zos_varlen(step, {"cu_seqlens_q": out["cu_seqlens_q"]})
    with pytest.raises(engine.OutError, match="cu_seqlens_q is in the memory of seqlens_k"):
        engine.prepare_decode_inputs_zos_varlen(step, {**out, "cu_seqlens_q": out["seqlens_k"]})
    assert cases.is_untouched(out)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prev_sampled_token_ids": None}, "prev_sampled_token_ids of the step is missing"),
        ({"prev_predict_token_ids": torch.empty((3, 0), dtype=torch.int32)}, r"seqlens_q\[0\] is 2; .* the 0 columns"),
        ({"remap": ids(3, -1)}, r"remap\[0\] is 3"),
        ({"cu_seqlens_q": ids(2, 4)}, "cu_seqlens_q"),
        ({"fresh_cu_seqlens_q": ids(1, 6)}, r"seqlens_q\[0\] is 2; rule: 0 or more, at most 1 rows"),
        ({"input_ids": ids(1, 2, 3)}, "input_ids"),
    ],
)
def test_a_shorter_step_that_was_changed_writes_nothing(change, message):
    config, step = by_hand()
    changed = dataclasses.replace(engine.prepare_decode_inputs_zos_varlen(step), **change)
    out = Captured([cases.decode_sequence(recent_tokens=range(100, 110))] * 2, config).out
    with pytest.raises(ValueError, match=message):
        engine.prepare_decode_v4_zos(changed, config, out)
    assert cases.is_untouched(out)
    if "fresh_cu_seqlens_q" not in change:
        tokens = {"input_ids": torch.full((9,), cases.POISON, dtype=torch.int32)}
        with pytest.raises(ValueError, match=r"fresh_input_ids|seqlens_q|remap|prev_sampled"):
            engine.prepare_token_ids_zos(changed, tokens)
        assert cases.is_untouched(tokens)


def test_the_row_of_a_sequence_is_one_at_least():
    config, step = by_hand()
    shorter = engine.prepare_decode_inputs_zos_varlen(step)
    empty = dataclasses.replace(shorter, seqlens_q=ids(0, 1), cu_seqlens_q=ids(0, 1))
    with pytest.raises(ValueError, match="sequence 0: 1 <= seqlens_q"):
        engine.prepare_decode_v4_zos(empty, config)


def test_token_ids_share_no_memory_with_what_is_read():
    _, step = by_hand()
    shorter = engine.prepare_decode_inputs_zos_varlen(step)
    for name in ("input_ids", "prev_sampled_token_ids", "seqlens_q"):
        array = getattr(shorter, name)
        room = torch.cat([array, torch.zeros(9, dtype=torch.int32)])
        own = dataclasses.replace(shorter, **{name: room[: array.numel()]})
        with pytest.raises(engine.OutError, match="input_ids is in the memory of"):
            engine.prepare_token_ids_zos(own, {"input_ids": room})


@pytest.mark.parametrize("name", ["input_ids", "ngram_token_ids", "cu_seqlens_q"])
def test_fields_are_not_written_over_what_is_read(name):
    config, step = by_hand()
    shorter = engine.prepare_decode_inputs_zos_varlen(step)
    out = Captured([cases.decode_sequence(recent_tokens=range(100, 110))] * 2, config).out
    read = {"cu_seqlens_q": "fresh_cu_seqlens_q"}.get(name, name)
    with pytest.raises(engine.OutError, match=f"{name} is in the memory of"):
        engine.prepare_decode_v4_zos(shorter, config, {**out, name: getattr(shorter, read)})
    assert cases.is_untouched(out)
    zos = engine.prepare_decode_v4_zos(shorter, config, {**out, "cu_seqlens_q": shorter.cu_seqlens_q})
    assert zos.cu_seqlens_q.tolist() == [2, 3]  # its own sums may be those of the step


def test_the_step_goes_to_another_device_with_all_that_follows_from_the_last_one():
    _, step = by_hand()
    there = engine.prepare_decode_inputs_zos_varlen(step).to("meta")
    names = ("remap", "prev_sampled_token_ids", "prev_predict_token_ids", "prev_seqlens_q", "prev_num_accepted_tokens")
    for name in (*names, "fresh_cu_seqlens_q", "seqlens_k", "cu_seqlens_q"):
        assert getattr(there, name).device.type == "meta"


def test_rejected_drafts_are_none_of_new_sequences():
    _, step = by_hand()
    assert rejected_of(step) == [1, 0]
    alone = dataclasses.replace(step, remap=None, prev_seqlens_q=None, prev_num_accepted_tokens=None)
    assert engine.prepare_decode_inputs_zos_varlen(alone).seqlens_k.tolist() == [9, 8]
