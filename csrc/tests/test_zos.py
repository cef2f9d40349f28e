"""ZOS decode: the same fields as eager decode, in captured buffers that are replayed at any number of rows (M-4)."""

import dataclasses
import random

import engine_cases as cases
import pytest
import torch
from zos_cases import Captured, batch, build, random_config

from inputmeta import engine


def defined_blocks(sequences, config, tables):
    """The defined cells of block tables, row by row (F-BLOCKS)."""
    smallest = min(config.ca_ratios)
    rows = iter(tables.tolist())
    defined = []
    for sequence in sequences:
        blocks = -(-(sequence.seqlen_k // smallest) // (config.block_size // smallest))
        defined += [next(rows)[:blocks] for _ in range(sequence.seqlen_q)]
    return defined


def assert_agrees(zos, sequences, config):
    """All that eager decode has, with its meaning; the two conventions of cu_seqlens_q."""
    out = None
    if zos.max_num_blocks > engine.prepare_decode_v4(sequences, config).max_num_blocks:
        out = cases.poisoned(engine.prepare_decode_v4(sequences, config))
        out["block_tables"] = torch.full((zos.total_q, zos.max_num_blocks), cases.POISON, dtype=torch.int32)
    eager = engine.prepare_decode_v4(sequences, config, out).to_flatten_dict()
    flat = zos.to_flatten_dict()
    assert flat.keys() == eager.keys() - {"cu_seqlens_k"}
    tables = [defined_blocks(sequences, config, fields.pop("block_tables")) for fields in (flat, eager)]
    assert tables[0] == tables[1]
    assert torch.equal(flat.pop("cu_seqlens_q"), eager["cu_seqlens_q"][1:])
    for key, value in flat.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == eager[key].dtype, key
            assert torch.equal(value, eager[key]), key
        else:
            assert value == eager[key], key


# --- Agreement with eager decode -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_expansions_with_the_step_are_those_made_afterwards(seed):
    draw = random.Random(seed)
    config, sequences = random_config(draw), batch(draw, draw.randint(1, 9))
    step = engine.prepare_decode_zos_inputs(sequences, config)
    later = engine.prepare_decode_v4_zos(step, config)
    later.compute_attn_info(config)
    out = {**cases.poisoned(later), **Captured(sequences, config).out}
    ours = engine.prepare_decode_v4_zos(step, config, expansions=engine.EXPANSIONS)
    captured = engine.prepare_decode_v4_zos(step, config, out, expansions=engine.EXPANSIONS)
    for key, tensor in cases.tensors(later).items():
        if key == "block_tables":
            continue
        assert torch.equal(cases.tensors(ours)[key], tensor), key
        assert torch.equal(out[key], tensor), key
        assert cases.tensors(captured)[key].data_ptr() == out[key].data_ptr(), key
    assert ours.to_flatten_dict().keys() == later.to_flatten_dict().keys()
    assert engine.prepare_decode_v4_zos(step, config, expansions=("kv_swa_index",)).kv_ca_index is None


def test_an_expansion_without_a_buffer_is_refused_before_anything_is_written():
    config, sequences = cases.config(), [cases.decode_sequence()]
    step = engine.prepare_decode_zos_inputs(sequences, config)
    later = engine.prepare_decode_v4_zos(step, config)
    later.compute_attn_info(config)
    out = {**cases.poisoned(later), **Captured(sequences, config).out}
    del out["kv_ca_index_len.1"]
    with pytest.raises(engine.OutError, match=r"kv_ca_index_len\.1"):
        engine.prepare_decode_v4_zos(step, config, out, expansions=engine.EXPANSIONS)
    assert all(bool((tensor == cases.POISON).all()) for tensor in out.values() if tensor.dtype == torch.int32)
    with pytest.raises(ValueError, match="not an expansion: kv_index"):
        engine.prepare_decode_v4_zos(step, config, expansions=("kv_index",))


@pytest.mark.parametrize("seed", range(60))
def test_zos_is_eager_decode(seed):
    draw = random.Random(seed)
    config, sequences = random_config(draw), batch(draw, draw.randint(1, 9))
    zos = build(sequences, config)
    assert_agrees(zos, sequences, config)
    zos.compute_attn_info(config)
    eager = engine.prepare_decode_v4(sequences, config)
    eager.compute_attn_info(config)
    assert torch.equal(zos.kv_swa_index, eager.kv_swa_index)
    for name in ("kv_ca_index", "kv_ca_index_len"):
        ours, theirs = getattr(zos, name), getattr(eager, name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[bucket], theirs[bucket]) for bucket in ours)


def test_thousands_of_rows():
    draw = random.Random(1)
    config = random_config(draw, dense_ratios=[1], max_ngram_size=3)
    sequences = batch(draw, 1200)
    zos = build(sequences, config)
    assert 2000 < zos.total_q < 5000
    assert_agrees(zos, sequences, config)


def test_a_step_by_hand():
    config = cases.config()
    sequences = [cases.decode_sequence(), cases.decode_sequence(is_placeholder=True, state_id=4)]
    extracted = engine.prepare_decode_zos_inputs(sequences, config)
    assert extracted.seqlens_q.tolist() == [3, 3]
    assert extracted.seqlens_k.tolist() == [10, 10]
    assert extracted.cu_seqlens_q.tolist() == [3, 6]
    assert extracted.block_tables.tolist() == [5, 6, 5, 6]
    assert extracted.block_tables_offsets.tolist() == [0, 2, 4]
    assert extracted.state_ids.tolist() == [2, 4]
    assert extracted.is_placeholder.tolist() == [False, True]
    assert extracted.input_ids.tolist() == [107, 91, 92] * 2
    assert extracted.ngram_token_ids is None
    assert (extracted.num_reqs, extracted.total_q) == (2, 6)
    assert (extracted.max_seqlen_q, extracted.max_num_blocks) == (3, 2)
    zos = engine.prepare_decode_v4_zos(extracted, config)
    assert zos.cu_seqlens_q.tolist() == [3, 6]
    assert zos.cu_seqlens_k is None
    assert zos.valid_token_mask.tolist() == [True] * 3 + [False] * 3
    assert zos.query_indices.tolist() == [0] * 3 + [998244353] * 3
    assert zos.slot_mapping_store_swa.tolist() == [13, 14, 15, -1, -1, -1]
    assert zos.slot_mapping_store_ca["1"].tolist() == [47, 48, 49, -1, -1, -1]


def test_without_ratios_of_a_kind_the_bucket_is_empty():
    config = cases.config(dense_ratios=[])
    zos = build([cases.decode_sequence()], config)
    assert zos.kv_ca_index_offset_len == {}
    zos.compute_attn_info(config)
    assert zos.kv_ca_index == {}


# --- Extraction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "change", "field"),
    [
        (engine.LengthError, {"seqlen_q": 2}, "seqlen_q"),
        (engine.TableError, {"block_table": [1]}, "block_table"),
        (engine.StateError, {"state_id": -1}, "state_id"),
        (engine.Int32Error, {"state_id": 2**31}, "state_block_idx"),
        (engine.Int32Error, {"token_ids": [2**31] * 8}, "token_ids"),
        (engine.Int32Error, {"block_table": [2**31 - 1] * 2}, "slot_mapping_store_ca.1"),
    ],
)
def test_preconditions_are_those_of_decode(error, change, field):
    sequences = [cases.decode_sequence(), cases.decode_sequence(**change)]
    with pytest.raises(error) as refusal:
        engine.prepare_decode_zos_inputs(sequences, cases.config())
    assert (refusal.value.sequence, refusal.value.field) == (1, field)
    with pytest.raises(error) as eager:
        engine.prepare_decode_v4(sequences, cases.config())
    assert str(eager.value) == str(refusal.value)


def test_refusals_that_name_no_sequence():
    with pytest.raises(engine.LengthError, match="at least one sequence"):
        engine.prepare_decode_zos_inputs([], cases.config())
    with pytest.raises(engine.RatioError):
        engine.prepare_decode_zos_inputs([cases.decode_sequence()], cases.config(dense_ratios=[3]))
    with pytest.raises(TypeError, match="item 1"):
        engine.prepare_decode_zos_inputs([cases.decode_sequence(), None], cases.config())
    with pytest.raises(TypeError):
        engine.prepare_decode_zos_inputs([cases.decode_sequence()], None)


def test_what_happens_to_the_sequences_later_is_not_seen():
    config = cases.config(max_ngram_size=2, lookup_table=range(200))
    sequence = cases.decode_sequence(recent_tokens=range(100, 110))
    extracted = engine.prepare_decode_zos_inputs([sequence], config)
    expected = cases.tensors(engine.prepare_decode_v4_zos(extracted, config))
    sequence.append_tokens([1])
    sequence.block_table = [3]
    sequence.recent_tokens = [0]
    sequence.seqlen_k = 3
    again = engine.prepare_decode_v4_zos(extracted, config)
    assert all(torch.equal(value, expected[key]) for key, value in cases.tensors(again).items())
    extracted.pack.fill_(-1)
    assert all(torch.equal(value, expected[key]) for key, value in cases.tensors(again).items())


def test_one_pack_holds_all_arrays_on_any_device():
    config = cases.config(max_ngram_size=2, lookup_table=range(200))
    extracted = engine.prepare_decode_zos_inputs([cases.decode_sequence(recent_tokens=range(100, 110))], config)
    assert extracted.to("cpu") is extracted
    there = extracted.to("meta")
    names = ("seqlens_q", "seqlens_k", "cu_seqlens_q", "state_ids", "is_placeholder", "block_tables_offsets")
    for name in (*names, "block_tables", "input_ids", "ngram_token_ids"):
        here, view = getattr(extracted, name), getattr(there, name)
        assert here.untyped_storage().data_ptr() == extracted.pack.untyped_storage().data_ptr()
        assert (view.device.type, view.dtype, view.shape) == ("meta", here.dtype, here.shape)
        assert view.storage_offset() == here.storage_offset()


def test_a_step_is_built_with_the_config_it_was_extracted_with():
    extracted = engine.prepare_decode_zos_inputs([cases.decode_sequence()], cases.config())
    engine.prepare_decode_v4_zos(extracted, cases.config())
    with pytest.raises(ValueError, match="swa_block_size"):
        engine.prepare_decode_v4_zos(extracted, cases.config(swa_block_size=7))
    with pytest.raises(NotImplementedError, match="meta"):
        engine.prepare_decode_v4_zos(extracted, cases.config(), device="meta")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda step: {"seqlens_k": step.seqlens_k + 1}, None),
        (lambda step: {"seqlens_k": step.seqlens_k + 8}, "block_tables"),
        (lambda step: {"cu_seqlens_q": step.cu_seqlens_q + 1}, "inclusive sum"),
        (lambda step: {"seqlens_q": step.seqlens_q.long()}, "int32"),
        (lambda step: {"seqlens_q": step.seqlens_q[:0]}, "not the tensor that was planned"),
        (lambda step: {"block_tables": step.block_tables[:1]}, "end inside block_tables"),
        (lambda step: {"block_tables_offsets": step.block_tables_offsets.int()}, "int64"),
        (lambda step: {"input_ids": step.input_ids[:1]}, "input_ids"),
        (lambda step: {"input_ids": step.input_ids.long()}, "input_ids"),
        (lambda step: {"total_q": 2}, "input_ids"),
    ],
)
def test_arrays_that_were_changed_and_do_not_agree_write_nothing(change, message):
    config = cases.config()
    step = engine.prepare_decode_zos_inputs([cases.decode_sequence()], config)
    out = Captured([cases.decode_sequence()], config).out
    changed = dataclasses.replace(step, **change(step))
    if message is None:  # the control: what agrees is written
        engine.prepare_decode_v4_zos(changed, config, out)
        assert not cases.is_untouched(out)
        return
    with pytest.raises(ValueError, match=message):
        engine.prepare_decode_v4_zos(changed, config, out)
    assert cases.is_untouched(out)


# --- Captured buffers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_replays_move_no_address_and_leave_other_cells_alone(seed):
    draw = random.Random(seed)
    config = random_config(draw)
    steps = [batch(draw, count) for count in (9, 2, 9, 1, 5)]
    largest = max(steps, key=lambda sequences: sum(sequence.seqlen_q for sequence in sequences))
    captured = Captured(largest, config, more_columns=20, more_rows=30)
    for sequences in steps:
        captured.poison()
        zos = build(sequences, config, {**captured.out, "not_a_field": None})
        assert zos.max_num_blocks == captured.out["block_tables"].shape[1]
        assert_agrees(zos, sequences, config)
        for key, tensor in cases.tensors(zos).items():
            assert tensor.data_ptr() == captured.out[key].data_ptr(), key
            assert tensor.untyped_storage().data_ptr() == captured.out[key].untyped_storage().data_ptr()
        assert all(bool((cells == (cells.dtype == torch.bool or cases.POISON)).all()) for cells in captured.hidden(zos))
        first = {key: tensor.clone() for key, tensor in cases.tensors(zos).items()}
        again = cases.tensors(build(sequences, config, captured.out))
        assert all(torch.equal(tensor, first[key]) for key, tensor in again.items())
        zos.compute_attn_info(config)
        fresh = build(sequences, config)
        fresh.compute_attn_info(config)
        assert torch.equal(zos.kv_swa_index, fresh.kv_swa_index)
        assert all(torch.equal(zos.kv_ca_index[bucket], index) for bucket, index in fresh.kv_ca_index.items())


def test_rows_behind_a_smaller_step_keep_the_last_steps_values():
    config = cases.config()
    captured = Captured([cases.decode_sequence()] * 3, config)
    large = build([cases.decode_sequence()] * 3, config, captured.out)
    before = large.positions.clone()
    small = build([cases.decode_sequence(seqlen_q=1, seqlen_k=8, draft_tokens=[])], config, captured.out)
    assert small.positions.tolist() == [7]
    assert torch.equal(captured.out["positions"][1:], before[1:])
