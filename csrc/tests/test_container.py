"""The container beyond its fields: names, copying into captured buffers, cleaning, flattening of every prompt mode."""

from dataclasses import fields

import engine_cases as cases
import numpy as np
import pytest
import torch

from inputmeta import engine

FIELDS = {
    *("num_reqs", "total_q", "is_prompt", "positions", "input_ids", "gate_force_random", "valid_token_mask"),
    *("query_indices", "ngram_token_ids", "cu_seqlens_q", "cu_seqlens_k"),
    *("cu_compressed_seqlens_q", "positions_c", "slot_mapping_store_ca"),
    *("state_block_idx", "slot_mapping_store_swa", "load_segments_swa", "total_k_swa", "kv_swa_full_index_pivots"),
    *("kv_swa_full_index", "kv_swa_index_offset_len", "kv_swa_index"),
    *("load_segments_ca", "total_k_compressed", "ks", "ke", "kv_ca_index_offset_len", "kv_ca_index"),
    *("kv_ca_index_len", "klen", "block_tables", "max_num_blocks", "context_lens"),
    *("cp_mirror_len", "mirror_cp_index", "mirror_cp_reverse_index", "positions_cp", "gate_force_random_cp"),
    *("yoco_mask_swa_index_pivots", "yoco_consumer_total_q", "yoco_consumer_cu_seqlens_q"),
    *("yoco_consumer_query_indices", "yoco_consumer_positions", "yoco_consumer_slot_mapping_store_swa"),
    *("yoco_consumer_swa_index_pivots", "yoco_consumer_ks", "yoco_consumer_ke"),
    *("yoco_consumer_kv_ca_index_offset_len", "yoco_consumer_cp_mirror_len", "yoco_consumer_mirror_cp_index"),
    *("yoco_consumer_mirror_cp_reverse_index", "yoco_consumer_mirror_ks", "yoco_consumer_mirror_ke"),
    *("yoco_consumer_cp_contrib_pad_len", "yoco_cp_contrib_index", "yoco_cp_boundary_index"),
}
CACHES = {"mlp_relu_schedule_metadata", "flash_mla_sched_meta_dict"}

CONSUMER = {
    *("yoco_consumer_total_q", "yoco_consumer_cu_seqlens_q", "yoco_consumer_query_indices", "yoco_consumer_positions"),
    *("yoco_consumer_slot_mapping_store_swa", "yoco_consumer_swa_index_pivots"),
    *("yoco_consumer_ks.4", "yoco_consumer_ke.4", "yoco_consumer_kv_ca_index_offset_len.1"),
}
SECOND_MIRROR = {
    *("yoco_consumer_cp_mirror_len", "yoco_consumer_mirror_cp_index", "yoco_consumer_mirror_cp_reverse_index"),
    *("yoco_consumer_mirror_ks.4", "yoco_consumer_mirror_ke.4", "yoco_consumer_cp_contrib_pad_len"),
    *("yoco_cp_contrib_index", "yoco_cp_boundary_index"),
}


def prompt(**changes):
    return engine.prepare_prompt_v4([cases.prompt_sequence()], cases.config(**changes))


def decode():
    return engine.prepare_decode_v4([cases.decode_sequence()], cases.config())


def test_the_attributes_are_the_fields_and_the_caches_of_kernels():
    assert {field.name for field in fields(engine.InputMetadataV4)} == FIELDS | CACHES
    own = {field.name for field in fields(engine.InputMetadataV4VL)} - FIELDS - CACHES
    assert own == {"mm_token_type", "images_seq_mask", "images_seq_mask_full"}


@pytest.mark.parametrize(
    ("changes", "added"),
    [
        ({}, set()),
        ({"cp_size": 2}, set()),
        ({"yoco_mode": "mask"}, {"yoco_mask_swa_index_pivots"}),
        ({"yoco_mode": "mask", "cp_size": 2}, {"yoco_mask_swa_index_pivots"}),
        ({"yoco_mode": "compact"}, CONSUMER),
        ({"yoco_mode": "compact", "cp_size": 2}, CONSUMER | SECOND_MIRROR),
    ],
)
def test_what_a_mode_adds_to_a_prompt_step(changes, added):
    plain = prompt().to_flatten_dict()
    metadata = prompt(**changes)
    flat = metadata.to_flatten_dict()
    assert flat.keys() - plain.keys() == added
    assert plain.keys() <= flat.keys()
    assert all(torch.equal(flat[key], value) for key, value in plain.items() if isinstance(value, torch.Tensor))
    again = engine.InputMetadataV4.from_flatten_dict(flat)
    assert again.to_flatten_dict() == flat
    config = cases.config(**changes)
    out = cases.poisoned(metadata)
    assert cases.same(engine.prepare_prompt_v4([cases.prompt_sequence()], config, out), metadata)


def test_a_mode_is_no_matter_of_a_decode_step():
    config = cases.config(cp_size=2, yoco_mode="compact", yoco_prefill_keep_tokens=1)
    assert cases.same(engine.prepare_decode_v4([cases.decode_sequence()], config), decode())


def test_buckets_of_truncation_without_a_ratio_are_empty():
    metadata = prompt(yoco_mode="compact", cp_size=2, sparse_ratios=[])
    assert (metadata.yoco_consumer_ks, metadata.yoco_consumer_mirror_ke) == ({}, {})
    assert prompt(yoco_mode="compact", sparse_ratios=[]).yoco_consumer_mirror_ke is None
    assert prompt(yoco_mode="mask", sparse_ratios=[]).yoco_consumer_ks is None


def test_a_missing_tensor_of_truncation_is_refused():
    config = cases.config(yoco_mode="compact", cp_size=2)
    out = cases.poisoned(engine.prepare_prompt_v4([cases.prompt_sequence()], config))
    del out["yoco_cp_boundary_index"]
    with pytest.raises(engine.OutError, match="yoco_cp_boundary_index is missing"):
        engine.prepare_prompt_v4([cases.prompt_sequence()], config, out)
    assert cases.is_untouched(out)


# --- recursive_copy_ -------------------------------------------------------------------------------------------------


def other_step(**changes):
    sequence = cases.decode_sequence(state_id=4, block_table=[7, 8], token_ids=range(200, 208), **changes)
    return engine.prepare_decode_v4([sequence], cases.config())


def test_tensors_are_copied_and_addresses_stay():
    target, source = decode(), other_step()
    for metadata in (target, source):
        metadata.compute_attn_info(cases.config())
    before = target.to_flatten_dict()
    target.num_reqs, target.max_num_blocks = 77, 78
    target.recursive_copy_(source)
    after = target.to_flatten_dict()
    assert all(value is before[key] for key, value in after.items() if isinstance(value, torch.Tensor))
    assert (target.num_reqs, target.max_num_blocks) == (77, 78)
    target.num_reqs, target.max_num_blocks = source.num_reqs, source.max_num_blocks
    assert cases.same(target, source)


def test_scalars_in_a_dict_stay():
    target, source = prompt(), prompt()
    target.total_k_compressed = {"1": 0, "4": 0}
    target.flash_mla_sched_meta_dict = {"key": "a schedule"}
    target.recursive_copy_(source)
    assert target.total_k_compressed == {"1": 0, "4": 0}
    assert target.flash_mla_sched_meta_dict == {"key": "a schedule"}


def test_what_cannot_be_copied_is_refused_before_anything_is():
    target = decode()
    cells = {key: value.clone() for key, value in cases.tensors(target).items()}
    wider = engine.prepare_decode_v4([cases.decode_sequence(state_id=4)] * 2, cases.config())
    with pytest.raises(ValueError, match=r"\(6,\) cannot be copied into torch.int32 \(3,\)"):
        target.recursive_copy_(wider)
    other = other_step()
    other.context_lens = other.context_lens.long()
    with pytest.raises(ValueError, match=r"context_lens: torch.int64"):
        target.recursive_copy_(other)
    other = other_step()
    other.compute_attn_info(cases.config())
    with pytest.raises(ValueError, match=r"kv_ca_index\.1: only the other has this tensor"):
        target.recursive_copy_(other)
    with pytest.raises(ValueError, match="only this container"):
        target.recursive_copy_(prompt())
    assert all(torch.equal(value, cells[key]) for key, value in cases.tensors(target).items())


# --- what else a container may hold (I-39, I-40) ---------------------------------------------------------------------


def test_a_flat_dict_has_no_none_and_every_empty_dict():
    metadata = decode()
    metadata.klen, metadata.kv_ca_index, metadata.input_ids = {}, None, None
    flat = metadata.to_flatten_dict()
    assert flat["klen"] == {}
    assert not {"kv_ca_index", "input_ids", "klen.4"} & flat.keys()
    again = engine.InputMetadataV4.from_flatten_dict(flat)
    assert (again.klen, again.kv_ca_index, again.input_ids) == ({}, None, None)
    nothing = engine.InputMetadataV4.from_flatten_dict({})
    assert (nothing.num_reqs, nothing.total_q, nothing.is_prompt) == (0, 0, False)
    assert nothing.to_flatten_dict() == {"num_reqs": 0, "total_q": 0, "is_prompt": False}


OPAQUE = [[1, 2], (torch.zeros(1),), {4, 5}, np.zeros(3), object()]


@pytest.mark.parametrize("value", OPAQUE, ids=lambda value: type(value).__name__)
def test_what_only_its_maker_understands_is_one_value(value):
    target, source = decode(), other_step()
    target.mlp_relu_schedule_metadata = value
    target.flash_mla_sched_meta_dict = {"a": value, "b": {"c": torch.zeros(2)}}
    flat = target.to_flatten_dict()
    assert flat["mlp_relu_schedule_metadata"] is flat["flash_mla_sched_meta_dict.a"] is value
    assert flat["flash_mla_sched_meta_dict.b"] is target.flash_mla_sched_meta_dict["b"]  # one level, no deeper
    again = engine.InputMetadataV4.from_flatten_dict(flat)
    assert again.flash_mla_sched_meta_dict["a"] is again.mlp_relu_schedule_metadata is value
    inner = target.flash_mla_sched_meta_dict["b"]["c"]
    target.recursive_copy_(source)  # which has none of it
    assert target.mlp_relu_schedule_metadata is value
    assert target.flash_mla_sched_meta_dict["b"]["c"] is inner
    assert inner.tolist() == [0, 0]


def test_a_tensor_two_levels_deep_is_neither_copied_nor_compared():
    target, source = decode(), other_step()
    target.flash_mla_sched_meta_dict = {"a": {"b": torch.zeros(2)}}
    source.flash_mla_sched_meta_dict = {"a": {"b": torch.ones(3), "c": torch.ones(1)}}
    target.recursive_copy_(source)
    assert target.flash_mla_sched_meta_dict["a"]["b"].tolist() == [0, 0]


# --- buffers of another size (I-38) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["prompt", "decode"])
@pytest.mark.parametrize("change", [1, -1])
def test_eager_buffers_fit_exactly(path, change):
    made, sequence = (prompt(), cases.prompt_sequence()) if path == "prompt" else (decode(), cases.decode_sequence())
    build = engine.prepare_prompt_v4 if path == "prompt" else engine.prepare_decode_v4
    for key, tensor in cases.tensors(made).items():
        out = cases.poisoned(made)
        out[key] = torch.full((tensor.shape[0] + change, *tensor.shape[1:]), cases.POISON).to(tensor.dtype)
        with pytest.raises(engine.OutError, match=key):
            build([sequence], cases.config(), out)
        assert cases.is_untouched(out)
    # who keeps larger buffers gives their prefixes
    large = {
        key: torch.full((99, *tensor.shape[1:]), 0, dtype=tensor.dtype) for key, tensor in cases.tensors(made).items()
    }
    views = {key: buffer[: cases.tensors(made)[key].shape[0]] for key, buffer in large.items()}
    again = build([sequence], cases.config(), views)
    assert cases.same(again, made)
    assert all(tensor.data_ptr() == large[key].data_ptr() for key, tensor in cases.tensors(again).items())


# --- cleaning --------------------------------------------------------------------------------------------------------


def test_the_clean_list():
    assert engine.InputMetadataV4.get_clean_list() == [
        "kv_ca_index_len",
        "kv_swa_index",
        "kv_ca_index",
        "mlp_relu_schedule_metadata",
        "flash_mla_sched_meta_dict",
    ]


def test_a_cleaned_step_is_expanded_again():
    target, source = decode(), other_step()
    target.compute_attn_info(cases.config())
    target.mlp_relu_schedule_metadata, target.flash_mla_sched_meta_dict = object(), {"a": object()}
    target.clean()
    assert all(getattr(target, name) is None for name in target.get_clean_list())
    target.recursive_copy_(source)
    for metadata in (target, source):
        metadata.compute_attn_info(cases.config())
    assert cases.same(target, source)
