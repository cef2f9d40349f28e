"""`prepare_for_mirror_cp` and `prepare_cp_mirror` (section 7), by hand: 12 positions, of which 5 … 11 are queries."""

import engine_cases as cases
import pytest
import torch

from inputmeta import engine

NO_QUERY = 998244353


def cp_config(rank=0, size=2, **changes):
    fields = {"max_ngram_size": 2, "lookup_table": list(range(500, 600)), "pad_token": -9, "force_load_balance": True}
    return cases.config(cp_size=size, cp_rank=rank, **(fields | changes))


def batch():
    """Seven rows at 5 … 11, and a placeholder's row at 1, which has no full group of 4."""
    return [cases.chunk(7, 12, state_id=2), cases.chunk(1, 2, is_placeholder=True)]


def mirrored(config, sequences=None, expand=True):
    metadata = engine.prepare_prompt_v4(sequences or batch(), config)
    metadata.prepare_for_mirror_cp(config)
    if expand:
        metadata.compute_attn_info(config)
    return metadata


# --- the rows of a rank ----------------------------------------------------------------------------------------------


def test_the_rows_of_rank_0():
    metadata = mirrored(cp_config(0))
    assert metadata.cp_mirror_len == 6
    assert metadata.mirror_cp_index.tolist() == [0, 1, 6, -1, 7, -1]
    assert metadata.mirror_cp_reverse_index.tolist() == [0, 1, 6, 7, 8, 9, 2, 4]
    assert metadata.positions.tolist() == [5, 6, 11, 0, 1, 0]
    assert metadata.ngram_token_ids.tolist() == [[505, 504], [506, 505], [511, 510], [-9, -9], [501, 500], [-9, -9]]
    assert metadata.valid_token_mask.tolist() == [True, True, True, False, False, False]
    assert metadata.query_indices.tolist() == [0, 0, 0, NO_QUERY, NO_QUERY, NO_QUERY]
    assert metadata.gate_force_random_cp.tolist() == [True, True, True, False, True, False]
    assert metadata.ks["4"].tolist() == [0, 0, 0, 0, 3, 0]
    assert metadata.ke["4"].tolist() == [1, 1, 3, 0, 3, 0]
    assert metadata.klen["4"].tolist() == [1, 1, 3, 0, 0, 0]
    assert metadata.kv_ca_index_len["1"].tolist() == [6, 7, 12, 0, 2, 0]
    assert metadata.kv_ca_index["1"][4].tolist() == [12, 13] + [-1] * 126
    assert metadata.kv_ca_index["1"][5].tolist() == [-1] * 128
    # History rows 0 … 3 are positions 1 … 4, new rows begin at 8: row 0 sees positions 2 … 5.
    assert metadata.kv_swa_full_index.tolist() == [
        [1, 2, 3, 8],
        [2, 3, 8, 9],
        [11, 12, 13, 14],
        [-1] * 4,
        [7, 15, -1, -1],
        [-1] * 4,
    ]


def test_the_rows_of_rank_1():
    metadata = mirrored(cp_config(1))
    assert metadata.mirror_cp_index.tolist() == [2, 3, 4, 5, -1, -1]
    assert metadata.mirror_cp_reverse_index.tolist() == [0, 1, 6, 7, 8, 9, 2, 4]
    assert metadata.positions.tolist() == [7, 8, 9, 10, 0, 0]
    assert metadata.ke["4"].tolist() == [2, 2, 2, 2, 0, 0]


def test_what_describes_whole_sequences_stays():
    config = cp_config(1)
    metadata = engine.prepare_prompt_v4(batch(), config)
    before = metadata.to_flatten_dict()
    metadata.prepare_for_mirror_cp(config)
    after = metadata.to_flatten_dict()
    moved = {"positions", "ngram_token_ids", "valid_token_mask", "query_indices", "ks.4", "ke.4"}
    assert {key for key in before if after[key] is not before[key]} == moved
    made = {"mirror_cp_index", "mirror_cp_reverse_index", "positions_cp", "gate_force_random_cp"}
    assert after.keys() - before.keys() == made
    assert after["positions_cp"] is before["positions"]
    assert before["positions"].tolist() == [5, 6, 7, 8, 9, 10, 11, 1]


@pytest.mark.parametrize("size", [2, 3, 8])
def test_all_ranks_together_are_one_rank(size):
    full = engine.prepare_prompt_v4(batch(), cp_config(0, 1))
    full.compute_attn_info(cp_config(0, 1))
    ranks = [mirrored(cp_config(rank, size)) for rank in range(size)]
    reverse = ranks[0].mirror_cp_reverse_index
    keys = ["positions", "ngram_token_ids", "valid_token_mask", "query_indices", "ks.4", "ke.4", "klen.4"]
    for key in [*keys, "kv_swa_full_index", "kv_ca_index.1", "kv_ca_index_len.1"]:
        gathered = torch.cat([rank.to_flatten_dict()[key] for rank in ranks])
        assert torch.equal(gathered[reverse], full.to_flatten_dict()[key]), key
    assert all(torch.equal(rank.mirror_cp_reverse_index, reverse) for rank in ranks)


def test_expanding_before_or_after_gives_the_same():
    config = cp_config(0)
    before = engine.prepare_prompt_v4(batch(), config)
    before.compute_attn_info(config)
    before.prepare_for_mirror_cp(config)
    assert cases.same(before, mirrored(config))


def test_without_sparse_ratios_there_are_no_key_ranges():
    metadata = mirrored(cp_config(0, sparse_ratios=[]))
    assert (metadata.ks, metadata.ke, metadata.klen) == ({}, {}, {})
    metadata = mirrored(cp_config(0, dense_ratios=[], max_ngram_size=0))
    assert metadata.kv_ca_index == {}
    assert metadata.ngram_token_ids is None


def test_a_step_without_rows():
    metadata = mirrored(cp_config(1), [cases.chunk(0, 5)])
    assert metadata.cp_mirror_len == 0
    assert metadata.mirror_cp_index.tolist() == metadata.mirror_cp_reverse_index.tolist() == [-1]
    assert metadata.positions.tolist() == metadata.positions_cp.tolist() == [0]
    assert metadata.ngram_token_ids.tolist() == [[-9, -9]]
    assert metadata.query_indices.tolist() == [NO_QUERY]
    assert metadata.valid_token_mask.tolist() == metadata.gate_force_random_cp.tolist() == [False]
    assert metadata.ks["4"].tolist() == metadata.ke["4"].tolist() == [0]
    assert metadata.kv_swa_full_index.tolist() == [[-1] * 4]


def test_again_changes_nothing():
    config = cp_config(0)
    metadata = mirrored(config)
    before = metadata.to_flatten_dict()
    metadata.prepare_for_mirror_cp(config, {})
    assert all(value is before[key] for key, value in metadata.to_flatten_dict().items())


def test_a_decode_step_and_a_group_of_one_keep_their_layout():
    decode = engine.prepare_decode_v4([cases.decode_sequence()], cases.config(cp_size=2))
    decode.prepare_for_mirror_cp(cases.config(cp_size=2))
    assert decode.positions.tolist() == [7, 8, 9]
    assert decode.mirror_cp_index is None
    prompt = mirrored(cp_config(0, 1))
    assert prompt.positions.tolist() == [5, 6, 7, 8, 9, 10, 11, 1]
    assert prompt.mirror_cp_index is None


def test_a_group_of_another_size_is_refused():
    metadata = engine.prepare_prompt_v4(batch(), cp_config(0))
    before = metadata.to_flatten_dict()
    with pytest.raises(ValueError, match="6 rows, the boundaries make it 4"):
        metadata.prepare_for_mirror_cp(cp_config(0, 4))
    assert all(value is before[key] for key, value in metadata.to_flatten_dict().items())


# --- out -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def step():
    """A step, its configuration, and poisoned tensors for all that mirroring makes."""
    config = cp_config(0)
    metadata = engine.prepare_prompt_v4(batch(), config)
    before = metadata.to_flatten_dict()
    twin = mirrored(config, expand=False)
    made = {
        key for key, value in twin.to_flatten_dict().items() if key not in before or _rows(value) != _rows(before[key])
    }
    out = {key: tensor for key, tensor in cases.poisoned(twin).items() if key in made - {"positions_cp"}}
    return metadata, config, out


def _rows(value):
    return value.shape[0] if isinstance(value, torch.Tensor) else None


def test_out_is_filled_in_place(step):
    metadata, config, out = step
    assert {"mirror_cp_index", "mirror_cp_reverse_index", "positions", "gate_force_random_cp", "ke.4"} <= out.keys()
    metadata.prepare_for_mirror_cp(config, {**out, "not_a_field": None})
    assert cases.same(metadata, mirrored(config, expand=False))
    assert all(metadata.to_flatten_dict()[key] is tensor for key, tensor in out.items())


def test_every_field_is_required(step):
    metadata, config, complete = step
    before = metadata.to_flatten_dict()
    for key in complete:
        with pytest.raises(engine.OutError) as refusal:
            metadata.prepare_for_mirror_cp(config, {name: value for name, value in complete.items() if name != key})
        assert refusal.value.field == key
    with pytest.raises(engine.OutError, match="shape"):
        metadata.prepare_for_mirror_cp(config, {**complete, "positions": torch.zeros(8, dtype=torch.int32)})
    assert cases.is_untouched(complete)
    assert all(value is before[key] for key, value in metadata.to_flatten_dict().items())


@pytest.mark.parametrize("key", ["positions", "ks.4", "ke.4", "mirror_cp_index"])
def test_the_buffers_of_the_full_layout_are_refused(key):
    config = cp_config(0)
    metadata = engine.prepare_prompt_v4([cases.chunk(8, 8)], config)  # a rank has 4 of the 8 rows
    buffers = torch.full((2, 4), cases.POISON, dtype=torch.int32)
    twin = mirrored(config, [cases.chunk(8, 8)], expand=False)
    out = cases.poisoned(twin)
    out["query_indices"], out[key] = buffers[0], metadata.positions[2:6]
    with pytest.raises(engine.OutError, match=f"{key} is memory of the full layout"):
        metadata.prepare_for_mirror_cp(config, out)
    assert metadata.positions.tolist() == list(range(8))
    assert (buffers == cases.POISON).all()


def test_mirrored_expansions_are_filled_in_place():
    config = cp_config(0)
    metadata, twin = mirrored(config, expand=False), mirrored(config)
    before = metadata.to_flatten_dict()
    out = {key: tensor for key, tensor in cases.poisoned(twin).items() if key not in before}
    metadata.compute_attn_info(config, out)
    assert cases.same(metadata, twin)
    assert all(metadata.to_flatten_dict()[key] is tensor for key, tensor in out.items())


# --- prepare_cp_mirror -----------------------------------------------------------------------------------------------


def boundaries(*ends):
    return torch.tensor([0, *ends], dtype=torch.int32)


def test_the_mirror_of_kept_rows_has_the_keys_of_whole_sequences():
    share = engine.prepare_cp_mirror(boundaries(4), boundaries(12), 2, 0, [1, 4], 4, 2)
    assert share.mirror_cp_index.tolist() == [0, 3]
    assert share.mirror_cp_reverse_index.tolist() == [0, 2, 3, 1]
    assert {ratio: ke.tolist() for ratio, ke in share.ke.items()} == {"1": [9, 12], "4": [2, 3]}
    assert {ratio: ks.tolist() for ratio, ks in share.ks.items()} == {"1": [0, 0], "4": [0, 0]}


def test_the_mirror_without_ratios_has_no_key_ranges():
    share = engine.prepare_cp_mirror(boundaries(4), boundaries(12), 2, 1, (), 4, 2)
    assert share.mirror_cp_index.tolist() == [1, 2]
    assert (share.ks, share.ke) == ({}, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_q": 5}, "mirror_cp_reverse_index has 5 rows, the boundaries make it 4"),
        ({"mirror_len": 4}, "mirror_cp_index has 4 rows, the boundaries make it 2"),
        ({"cp_rank": 2}, "cp_rank"),
        ({"cp_rank": -1}, "cp_rank"),
        ({"ratios": [0]}, "every ratio >= 1"),
        ({"cu_seqlens_q": boundaries(4).long()}, "int32"),
        ({"cu_seqlens_q": boundaries(4).reshape(1, 2)}, "one dimension"),
        ({"cu_seqlens_q": boundaries(2, 4)}, "n \\+ 1 boundaries"),
        ({"cu_seqlens_q": torch.tensor([4, 8], dtype=torch.int32)}, "begin with 0"),
        ({"cu_seqlens_q": boundaries(13)}, "seqlen_q <= seqlen_k"),
    ],
)
def test_boundaries_of_another_plan_are_refused(changes, message):
    good = {
        "cu_seqlens_q": boundaries(4),
        "cu_seqlens_k": boundaries(12),
        "cp_size": 2,
        "cp_rank": 0,
        "ratios": [4],
        "total_q": 4,
        "mirror_len": 2,
    }
    rows = {"mirror_cp_index": changes.get("mirror_len", 2), "mirror_cp_reverse_index": changes.get("total_q", 4)}
    out = {key: torch.full((count,), cases.POISON, dtype=torch.int32) for key, count in rows.items()}
    out |= {
        f"{name}.{ratio}": torch.full_like(out["mirror_cp_index"], cases.POISON)
        for name in ("ks", "ke")
        for ratio in (0, 4)
    }
    with pytest.raises(ValueError, match=message):
        engine.prepare_cp_mirror(**(good | changes), out=out)
    assert cases.is_untouched(out)
