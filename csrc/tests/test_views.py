"""`get_mask_view` and `get_consumer_view` (section 8): what they replace, clear and share; that they agree (M-5)."""

import engine_cases as cases
import pytest
import torch

from inputmeta import engine

NO_QUERY = 998244353
KEEP = 4


def yoco_config(mode, rank=0, size=1, **changes):
    fields = {"yoco_mode": mode, "yoco_prefill_keep_tokens": KEEP, "cp_size": size, "cp_rank": rank}
    return cases.config(**(fields | {"force_load_balance": True} | changes))


def batch():
    """Rows at 5 … 11, of which 8 … 11 are kept; no rows; a placeholder's at 0 … 5, of which 2 … 5 are; a row at 0."""
    return [
        cases.chunk(7, 12, state_id=1),
        cases.chunk(0, 3),
        cases.chunk(6, 6, state_id=2, is_placeholder=True),
        cases.chunk(1, 1, state_id=3),
    ]


def step(config, sequences=None, mirrored=True):
    metadata = engine.prepare_prompt_v4(sequences or batch(), config)
    if mirrored:
        metadata.prepare_for_mirror_cp(config)
    return metadata


# --- mask ------------------------------------------------------------------------------------------------------------


def test_the_mask_view_has_other_pivots_and_shares_the_rest():
    config = yoco_config("mask")
    metadata = step(config)
    metadata.compute_attn_info(config)
    before = metadata.to_flatten_dict()
    view = metadata.get_mask_view()
    assert view.kv_swa_full_index_pivots is metadata.yoco_mask_swa_index_pivots
    assert view.kv_swa_full_index is None
    replaced = {"kv_swa_full_index_pivots", "kv_swa_full_index"}
    after = view.to_flatten_dict()
    assert all(after[key] is value for key, value in before.items() if key not in replaced)
    view.compute_attn_info(config)
    assert view.kv_swa_full_index[:4].tolist() == [[-1] * 4, [-1] * 4, [-1] * 4, [19, -1, -1, -1]]
    assert all(value is before[key] for key, value in metadata.to_flatten_dict().items())


def test_the_mask_view_of_a_rank_is_expanded_in_its_layout():
    whole = step(yoco_config("mask")).get_mask_view()
    whole.compute_attn_info(yoco_config("mask"))
    for rank in range(2):
        config = yoco_config("mask", rank, 2)
        view = step(config).get_mask_view()
        view.compute_attn_info(config)
        rows = view.mirror_cp_index
        assert torch.equal(view.kv_swa_full_index[rows >= 0], whole.kv_swa_full_index[rows[rows >= 0]])
        assert (view.kv_swa_full_index[rows < 0] == -1).all()


# --- compact ---------------------------------------------------------------------------------------------------------


def test_the_consumer_view_has_the_kept_rows():
    config = yoco_config("compact")
    metadata = step(config)
    view = metadata.get_consumer_view()
    assert (view.total_q, view.num_reqs) == (9, 4)
    assert view.cu_seqlens_q.tolist() == [0, 4, 4, 8, 9]
    assert view.positions.tolist() == [8, 9, 10, 11, 2, 3, 4, 5, 0]
    assert view.query_indices.tolist() == [3, 4, 5, 6, 9, 10, 11, 12, 13]
    assert view.valid_token_mask.tolist() == [True] * 4 + [False] * 4 + [True]
    assert view.gate_force_random.tolist() == [True] * 9
    assert view.slot_mapping_store_swa.tolist() == [8, 9, 10, 11, -1, -1, -1, -1, 18]
    assert view.ks["4"].tolist() == [0, 0, 0, 0, 4, 4, 4, 4, 5]
    assert view.ke["4"].tolist() == [2, 2, 2, 3, 4, 5, 5, 5, 5]
    assert view.kv_ca_index_offset_len["1"][4:].tolist() == [[15, 3], [15, 4], [15, 5], [15, 6], [21, 1]]
    view.compute_attn_info(config)
    assert view.klen["4"].tolist() == [2, 2, 2, 3, 0, 1, 1, 1, 0]
    assert view.kv_ca_index_len["1"].tolist() == [9, 10, 11, 12, 3, 4, 5, 6, 1]
    assert view.kv_swa_full_index[3].tolist() == [16, 17, 18, 19]
    assert view.kv_swa_full_index[5].tolist() == [20, 21, -1, -1]
    assert view.kv_swa_full_index.shape == (9, 4)


REPLACED = {
    *("total_q", "cu_seqlens_q", "positions", "query_indices", "slot_mapping_store_swa", "kv_swa_full_index_pivots"),
    *("ks.4", "ke.4", "kv_ca_index_offset_len.1", "valid_token_mask", "gate_force_random"),
}
CACHES = {"mlp_relu_schedule_metadata", "flash_mla_sched_meta_dict.a"}
CLEARED = {"kv_ca_index.1", "kv_ca_index_len.1", "klen.4", "kv_swa_full_index", *CACHES}
MIRRORED = {
    *("positions_cp", "gate_force_random_cp", "mirror_cp_index", "mirror_cp_reverse_index", "cp_mirror_len"),
}


@pytest.mark.parametrize("size", [1, 2])
def test_what_the_consumer_view_does_not_replace_it_shares(size):
    config = yoco_config("compact", 0, size)
    metadata = step(config)
    metadata.compute_attn_info(config)
    metadata.mlp_relu_schedule_metadata, metadata.flash_mla_sched_meta_dict = object(), {"a": object()}
    before = metadata.to_flatten_dict()
    cells = {key: value.clone() for key, value in cases.tensors(metadata).items()}
    view = metadata.get_consumer_view()
    flat = view.to_flatten_dict()
    assert before.keys() - flat.keys() == CLEARED
    assert {key for key in flat if flat[key] is not before[key]} == REPLACED | (MIRRORED if size > 1 else set())
    view.compute_attn_info(config)
    view.prepare_for_mirror_cp(config)
    assert all(value is before[key] for key, value in metadata.to_flatten_dict().items())
    assert all(torch.equal(value, cells[key]) for key, value in cases.tensors(metadata).items())


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("mirrored", [True, False])
def test_the_second_mirror_is_that_of_the_kept_rows(size, mirrored):
    whole = step(yoco_config("compact")).get_consumer_view()
    whole.compute_attn_info(yoco_config("compact"))
    ranks = []
    for rank in range(size):
        config = yoco_config("compact", rank, size)
        view = step(config, mirrored=mirrored).get_consumer_view()
        view.compute_attn_info(config)
        ranks.append(view)
    for view in ranks:
        assert view.cp_mirror_len == view.mirror_cp_index.shape[0] == view.positions.shape[0]
        assert torch.equal(view.positions_cp, whole.positions)
        assert torch.equal(view.gate_force_random, whole.gate_force_random)
        padding = view.mirror_cp_index < 0
        assert not view.valid_token_mask[padding].any()
        assert not view.gate_force_random_cp[padding].any()
        assert (view.query_indices[padding] == NO_QUERY).all()
    keys = ["positions", "query_indices", "valid_token_mask", "ks.4", "ke.4", "klen.4", "kv_swa_full_index"]
    for key in [*keys, "kv_ca_index.1", "kv_ca_index_len.1"]:
        gathered = torch.cat([view.to_flatten_dict()[key] for view in ranks])
        assert torch.equal(gathered[ranks[0].mirror_cp_reverse_index], whole.to_flatten_dict()[key]), key


def test_kept_rows_travel_to_the_second_mirror():
    steps = [step(yoco_config("compact", rank, 2)) for rank in range(2)]
    hidden = torch.arange(steps[0].total_q)
    contributed = []
    for metadata in steps:
        own = hidden[metadata.mirror_cp_index]
        assert metadata.yoco_cp_contrib_index.shape == (metadata.yoco_consumer_cp_contrib_pad_len,)
        contributed.append(own[metadata.yoco_cp_contrib_index])
    gathered = torch.cat(contributed)
    for metadata in steps:
        rows = metadata.get_consumer_view().query_indices
        arrived = gathered[metadata.yoco_cp_boundary_index]
        assert torch.equal(arrived[rows != NO_QUERY], rows[rows != NO_QUERY].long())
        assert torch.equal(metadata.yoco_cp_boundary_index < 0, rows == NO_QUERY)


def test_a_step_without_rows():
    for size in (1, 2):
        config = yoco_config("compact", size - 1, size)
        view = step(config, [cases.chunk(0, 5)]).get_consumer_view()
        view.compute_attn_info(config)
        assert view.total_q == 0
        assert view.query_indices.tolist() == [NO_QUERY]
        assert view.positions.tolist() == [0]
        assert view.valid_token_mask.tolist() == view.gate_force_random.tolist() == [False]
        assert view.kv_swa_full_index.tolist() == [[-1] * 4]
        assert view.klen["4"].tolist() == [0]


# --- both ------------------------------------------------------------------------------------------------------------


def positions_of(metadata, sequences, kept):
    """Absolute position of each row of the window's buffer: W history rows a sequence, then the new rows."""
    history = [seq.seqlen_k - seq.seqlen_q - 4 + row for seq in sequences for row in range(4)]
    return history + (metadata.yoco_consumer_positions if kept else metadata.positions).tolist()


@pytest.mark.parametrize("keep", [0, 1, 3, 4, 7, 12])
@pytest.mark.parametrize("data_len", [0, 5, 11, 12, 20])
def test_mask_and_compact_show_kept_rows_the_same_keys(keep, data_len):
    sequences = [cases.chunk(7, 12, data_len=data_len, swa_valid_start=2), cases.chunk(6, 6), cases.chunk(3, 14)]
    configs = [yoco_config(mode, yoco_prefill_keep_tokens=keep) for mode in ("mask", "compact")]
    mask, compact = (step(config, sequences) for config in configs)
    views = [mask.get_mask_view(), compact.get_consumer_view()]
    for view, config in zip(views, configs, strict=True):
        view.compute_attn_info(config)
    seen_by_mask, seen_by_compact = (
        [[where[cell] for cell in row if cell >= 0] for row in view.kv_swa_full_index.tolist()]
        for view, where in zip(
            views, (positions_of(mask, sequences, False), positions_of(compact, sequences, True)), strict=True
        )
    )
    kept = compact.yoco_consumer_query_indices.tolist()
    assert [seen_by_mask[row] for row in kept] == seen_by_compact
    for name in ("kv_ca_index", "kv_ca_index_len"):
        assert torch.equal(getattr(views[0], name)["1"][kept], getattr(views[1], name)["1"])


def test_a_view_needs_its_mode():
    for mode in ("off", "compact"):
        with pytest.raises(ValueError, match="mask"):
            step(yoco_config(mode)).get_mask_view()
    for mode in ("off", "mask"):
        with pytest.raises(ValueError, match="compact"):
            step(yoco_config(mode)).get_consumer_view()
    for size in (1, 2):
        with pytest.raises(ValueError, match="already"):
            step(yoco_config("compact", 0, size)).get_consumer_view().get_consumer_view()


# --- images ----------------------------------------------------------------------------------------------------------

IMAGES = [True, False, False, True, False, False, True, False, False, True, False, False, False, True]


def vision_step(config):
    flat = engine.prepare_prompt_v4(batch(), config).to_flatten_dict()
    metadata = engine.InputMetadataV4VL.from_flatten_dict({**flat, "images_seq_mask": torch.tensor(IMAGES)})
    metadata.prepare_for_mirror_cp(config)
    return metadata


def test_the_image_mask_is_mirrored_and_kept():
    metadata = vision_step(yoco_config("compact", 1, 2))
    rows = metadata.mirror_cp_index.tolist()
    assert metadata.images_seq_mask.tolist() == [row >= 0 and IMAGES[row] for row in rows]
    assert metadata.images_seq_mask_full.tolist() == IMAGES


def test_the_consumer_view_has_the_image_mask_of_the_kept_rows():
    kept = [True, False, False, True, True, False, False, False, True]
    view = vision_step(yoco_config("compact")).get_consumer_view()
    assert isinstance(view, engine.InputMetadataV4VL)
    assert view.images_seq_mask.tolist() == kept
    assert view.images_seq_mask_full is None
    for rank in range(2):
        metadata = vision_step(yoco_config("compact", rank, 2))
        view = metadata.get_consumer_view()
        assert view.images_seq_mask_full is metadata.images_seq_mask_full
        assert view.images_seq_mask_full.tolist() == IMAGES
        assert view.images_seq_mask.tolist() == [row >= 0 and kept[row] for row in view.mirror_cp_index.tolist()]


@pytest.mark.parametrize(("rank", "size"), [(0, 1), (0, 2), (1, 2)])
def test_token_types_stay_those_of_the_full_layout(rank, size):
    config = yoco_config("compact", rank, size)
    flat = engine.prepare_prompt_v4(batch(), config).to_flatten_dict()
    types = torch.arange(len(IMAGES))
    metadata = engine.InputMetadataV4VL.from_flatten_dict({**flat, "mm_token_type": types})
    assert metadata.to_flatten_dict()["mm_token_type"] is types
    for _ in range(2):
        metadata.prepare_for_mirror_cp(config)
        assert metadata.mm_token_type is types
        assert metadata.get_consumer_view().mm_token_type is types
    assert types.tolist() == list(range(len(IMAGES)))


def test_mirroring_an_image_mask_again_changes_nothing():
    metadata = vision_step(yoco_config("compact", 1, 2))
    mask, full = metadata.images_seq_mask, metadata.images_seq_mask_full
    metadata.prepare_for_mirror_cp(yoco_config("compact", 1, 2))
    assert metadata.images_seq_mask is mask
    assert metadata.images_seq_mask_full is full


def test_without_an_image_mask_there_is_none():
    config = yoco_config("compact", 0, 2)
    metadata = engine.InputMetadataV4VL.from_flatten_dict(engine.prepare_prompt_v4(batch(), config).to_flatten_dict())
    metadata.prepare_for_mirror_cp(config)
    assert metadata.get_consumer_view().images_seq_mask is None
    assert metadata.images_seq_mask_full is None
