"""`compute_attn_info` and the container: lazy, idempotent, in place, refused when it cannot fit."""

import engine_cases as cases
import pytest
import torch

from inputmeta import engine


@pytest.fixture
def prompt():
    return engine.prepare_prompt_v4([cases.prompt_sequence()], cases.config())


@pytest.fixture
def decode():
    return engine.prepare_decode_v4([cases.decode_sequence()], cases.config())


def test_a_prompt_expands(prompt):
    prompt.compute_attn_info(cases.config())
    assert prompt.kv_swa_full_index.tolist() == [[1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]
    assert prompt.kv_ca_index["1"].shape == (3, 128)
    assert prompt.kv_ca_index["1"][0].tolist() == [0, 1, 2, 3, 4, 5] + [-1] * 122
    assert prompt.kv_ca_index_len["1"].tolist() == [6, 7, 8]
    assert prompt.klen["4"].tolist() == [1, 1, 2]
    assert prompt.kv_swa_index is None


def test_a_decode_step_expands(decode):
    decode.compute_attn_info(cases.config())
    assert decode.kv_swa_index.tolist() == [[16, 17, 12, 13], [17, 12, 13, 14], [12, 13, 14, 15]]
    assert decode.kv_ca_index["1"][2].tolist() == [40, 41, 42, 43, 44, 45, 46, 47, 48, 49] + [-1] * 118
    assert decode.kv_ca_index_len["1"].tolist() == [8, 9, 10]
    assert decode.kv_swa_full_index is None


def test_a_step_without_rows_expands_to_its_neutral_row():
    metadata = engine.prepare_prompt_v4([cases.prompt_sequence(seqlen_q=0)], cases.config())
    metadata.compute_attn_info(cases.config())
    assert metadata.kv_swa_full_index.tolist() == [[-1] * 4]
    assert metadata.kv_ca_index["1"].tolist() == [[-1] * 128]
    assert metadata.kv_ca_index_len["1"].tolist() == [0]
    assert metadata.klen["4"].tolist() == [0]


def test_again_changes_nothing(prompt, decode):
    for metadata in (prompt, decode):
        metadata.compute_attn_info(cases.config())
        first = metadata.to_flatten_dict()
        cells = {key: value.clone() for key, value in cases.tensors(metadata).items()}
        metadata.compute_attn_info(cases.config())
        metadata.compute_attn_info(cases.config(), {})
        assert all(value is first[key] for key, value in metadata.to_flatten_dict().items())
        assert all(torch.equal(value, cells[key]) for key, value in cases.tensors(metadata).items())


def test_only_what_is_asked_for(prompt):
    prompt.compute_attn_info(cases.config(), expansions=["kv_swa_full_index"])
    assert prompt.kv_swa_full_index is not None
    assert prompt.kv_ca_index is None
    assert prompt.kv_ca_index_len is None
    assert prompt.klen is not None
    prompt.compute_attn_info(cases.config())
    assert prompt.kv_ca_index is not None
    with pytest.raises(ValueError, match="klen"):
        prompt.compute_attn_info(cases.config(), expansions=["klen"])


def test_without_ratios_the_buckets_are_empty():
    metadata = engine.prepare_prompt_v4([cases.prompt_sequence()], cases.config(sparse_ratios=[]))
    metadata.compute_attn_info(cases.config(sparse_ratios=[]))
    assert metadata.klen == {}
    config = cases.config(dense_ratios=[])
    metadata = engine.prepare_decode_v4([cases.decode_sequence()], config)
    metadata.compute_attn_info(config)
    assert (metadata.kv_ca_index, metadata.kv_ca_index_len) == ({}, {})


def test_out_is_filled_in_place(prompt, decode):
    for metadata in (prompt, decode):
        before = metadata.to_flatten_dict().keys()
        twin = engine.InputMetadataV4.from_flatten_dict(metadata.to_flatten_dict())
        twin.compute_attn_info(cases.config())
        out = {key: tensor for key, tensor in cases.poisoned(twin).items() if key not in before}
        metadata.compute_attn_info(cases.config(), out)
        assert cases.same(metadata, twin)
        assert all(metadata.to_flatten_dict()[key] is tensor for key, tensor in out.items())


def test_a_refused_expansion_writes_and_sets_nothing(prompt):
    config = cases.config()
    out = {
        "kv_swa_full_index": torch.full((3, 4), cases.POISON, dtype=torch.int32),
        "kv_ca_index.1": torch.full((3, 128), cases.POISON, dtype=torch.int32),
        "klen.4": torch.full((3,), cases.POISON, dtype=torch.int32),
    }
    with pytest.raises(engine.OutError, match=r"kv_ca_index_len\.1 is missing"):
        prompt.compute_attn_info(config, out)
    assert cases.is_untouched(out)
    assert prompt.kv_swa_full_index is None
    assert prompt.klen is None


def test_an_expansion_that_cannot_fit_names_its_size(prompt):
    with pytest.raises(engine.ExpansionTooLargeError) as refusal:
        prompt.compute_attn_info(cases.config(max_model_len=2**50))
    assert refusal.value.needed == 3 * 2**50 * 4
    assert str(refusal.value).startswith(f"kv_ca_index.1 needs {3 * 2**50 * 4} bytes")
    assert isinstance(refusal.value, MemoryError)
    assert prompt.kv_swa_full_index is None


def test_a_field_of_another_plan_is_refused(decode):
    decode.kv_ca_index_offset_len["1"][1, 0] = 1000
    with pytest.raises(ValueError, match="row 1"):
        decode.compute_attn_info(cases.config())


@pytest.mark.parametrize("change", [lambda t: t.to("meta"), lambda t: t.long(), lambda t: t.t().contiguous().t()])
def test_a_field_that_the_core_cannot_read_is_refused(decode, change):
    decode.kv_swa_index_offset_len = change(decode.kv_swa_index_offset_len)
    with pytest.raises(ValueError, match="host memory"):
        decode.compute_attn_info(cases.config())


# --- the container ---------------------------------------------------------------------------------------------------


def test_flattening_opens_one_level(prompt):
    flat = prompt.to_flatten_dict()
    assert flat["ke.4"] is prompt.ke["4"]
    assert flat["total_k_compressed.1"] == 8
    assert (flat["num_reqs"], flat["is_prompt"]) == (1, True)
    assert "ke" not in flat
    assert "klen" not in flat
    prompt.klen = {}
    assert prompt.to_flatten_dict()["klen"] == {}


def test_folding_is_the_inverse(prompt, decode):
    for metadata in (prompt, decode):
        metadata.compute_attn_info(cases.config())
        flat = metadata.to_flatten_dict()
        again = engine.InputMetadataV4.from_flatten_dict(flat)
        assert again.to_flatten_dict() == flat
        assert again.positions is metadata.positions


def test_folding_refuses_an_unknown_name():
    with pytest.raises(TypeError, match="no_field"):
        engine.InputMetadataV4.from_flatten_dict({"no_field": 1})
