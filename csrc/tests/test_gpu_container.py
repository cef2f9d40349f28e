"""The container on a GPU: copies, expansions of both paths, the mirror, the views, and a GPU that is out of memory."""

import random

import engine_cases as cases
import pytest
import torch
from gpu_cases import GPU, assert_same, extracted, without_sync
from zos_cases import batch

from inputmeta import engine
from inputmeta.engine import device
from inputmeta.engine.tensors import view_of

pytestmark = pytest.mark.gpu


def prompt(count=5, **changes):
    config = cases.config(max_ngram_size=2, lookup_table=[1] * 200, **changes)
    sequences = [
        cases.chunk(3 + 5 * k, 9 + 7 * k, state_id=k, is_placeholder=k == 1, swa_valid_start=2 * k)
        for k in range(count)
    ]
    return config, engine.prepare_prompt_v4(sequences, config)


PROMPTS = [
    {},
    {"dense_ratios": [1, 2], "sparse_ratios": [4, 8], "window_size": 7, "swa_block_size": 9},
    {"yoco_mode": "mask", "yoco_prefill_keep_tokens": 6},
    {"yoco_mode": "compact", "yoco_prefill_keep_tokens": 6},
    {"yoco_mode": "compact", "yoco_prefill_keep_tokens": 6, "cp_size": 2, "cp_rank": 1},
    {"cp_size": 3, "cp_rank": 2},
]


@pytest.mark.parametrize("changes", PROMPTS)
def test_a_prompt_is_sent_and_expands_as_on_the_host(changes):
    config, host = prompt(**changes)
    with without_sync():
        sent = host.to(GPU)
        sent.compute_attn_info(config)
    host.compute_attn_info(config)
    assert all(tensor.is_cuda for tensor in cases.tensors(sent).values())
    assert_same(sent, host)


def test_what_comes_back_is_there_when_the_call_returns():
    _, host = prompt()
    sent = host.to(GPU)
    _, _, step = extracted(4)
    sent_step = step.to(GPU)
    into = {key: torch.full_like(tensor, 1).pin_memory() for key, tensor in cases.tensors(host).items()}
    for back in (lambda: sent.to("cpu"), lambda: sent.to("cpu", out=into)):
        torch.cuda._sleep(500_000_000)
        assert cases.same(back(), host)
    torch.cuda._sleep(500_000_000)
    assert torch.equal(sent_step.to("cpu").pack, step.pack)


def test_a_refused_launch_is_an_error_that_nobody_else_finds():
    cells = torch.arange(6, dtype=torch.int32, device=GPU)
    view = view_of(cells, cells.device)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        device.kernels().gather_rows(torch.cuda.device_count(), 0, view, view, 0, view)
    assert int(cells.sum()) == 15  # torch asks CUDA for errors after its own launches


def test_one_copy_brings_a_step_over():
    _, host = prompt()
    assert len({tensor.untyped_storage().data_ptr() for tensor in cases.tensors(host).values()}) == 1
    sent = host.to(GPU)
    assert len({tensor.untyped_storage().data_ptr() for tensor in cases.tensors(sent).values()}) == 1
    assert sent.to(GPU).positions is sent.positions


def test_a_tensor_that_is_referenced_twice_stays_one():
    _, host = prompt()
    host.context_lens = host.positions
    sent = host.to(GPU)
    assert sent.context_lens is sent.positions


def test_buffers_are_filled_in_place():
    config = cases.config()
    host = engine.prepare_decode_v4([cases.decode_sequence()], config)
    out = {
        key: torch.full((value.shape[0] + 3, *value.shape[1:]), 1, dtype=value.dtype, device=GPU)
        for key, value in cases.tensors(host).items()
    }
    with without_sync():
        sent = host.to(GPU, out)
    assert_same(sent, host)
    for key, tensor in cases.tensors(sent).items():
        assert tensor.data_ptr() == out[key].data_ptr()
        assert bool((out[key][tensor.shape[0] :] == 1).all())
    with pytest.raises(engine.OutError, match="positions"):
        host.to(GPU, {**out, "positions": out["positions"].cpu()})


@pytest.mark.parametrize("seed", range(20))
def test_a_decode_step_of_the_host_expands_on_the_gpu(seed):
    sequences, config, _ = extracted(seed)
    host = engine.prepare_decode_v4(sequences, config)
    sent = host.to(GPU)
    sent.compute_attn_info(config)
    host.compute_attn_info(config)
    assert_same(sent, host, engine.prepare_decode_zos_inputs(sequences, config), config)


def test_wide_expansions():
    """Contexts of 100,000 tokens; windows and blocks of sizes that are no powers of two."""
    draw = random.Random(1)
    config = cases.config(
        block_size=60,
        dense_ratios=[1, 3, 60],
        sparse_ratios=[4],
        window_size=131,
        swa_block_size=150,
        max_model_len=110_000,
    )
    keys = [draw.randint(1, 100_000) for _ in range(7)]
    sequences = [
        engine.SequenceMetadata(
            seqlen_q=1,
            seqlen_k=length,
            block_table=[draw.randint(0, 10**6) for _ in range(length // 60 + 1)],
            state_id=draw.randint(0, 10**6),
            token_ids=[1] * length,
        )
        for length in keys
    ]
    host = engine.prepare_decode_v4(sequences, config)
    sent = host.to(GPU)
    sent.compute_attn_info(config)
    host.compute_attn_info(config)
    assert_same(sent, host, engine.prepare_decode_zos_inputs(sequences, config), config)


# --- Mirror and views ------------------------------------------------------------------------------------------------


def share_of(host, config):
    ratios = [int(key) for key in host.ks]
    return engine.prepare_cp_mirror(
        host.cu_seqlens_q, host.cu_seqlens_k, config.cp_size, config.cp_rank, ratios, host.total_q, host.cp_mirror_len
    )


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("with_out", [False, True])
def test_the_mirror_is_that_of_the_host(rank, with_out):
    config, host = prompt(cp_size=3, cp_rank=rank)
    share = share_of(host, config)
    sent = host.to(GPU)
    sent.compute_attn_info(config, expansions=["kv_swa_full_index"])
    host.compute_attn_info(config, expansions=["kv_swa_full_index"])
    host.prepare_for_mirror_cp(config)
    out = {key: value.to(GPU) for key, value in cases.poisoned(host).items()} if with_out else None
    with without_sync():
        sent.prepare_for_mirror_cp(config, out, share=share.to(GPU))
        sent.compute_attn_info(config)
    host.compute_attn_info(config)
    assert_same(sent, host)
    if out is not None:
        assert sent.positions.data_ptr() == out["positions"].data_ptr()


def test_a_share_is_needed_and_must_be_the_steps():
    config, host = prompt(cp_size=3)
    share = share_of(host, config).to(GPU)
    sent = host.to(GPU)
    for bad in (
        None,
        share_of(host, config),
        share._replace(ks={}),
        share._replace(mirror_cp_index=share.mirror_cp_index[1:]),
    ):
        with pytest.raises(ValueError, match=r"share|device|cuda"):
            sent.prepare_for_mirror_cp(config, share=bad)
    assert sent.mirror_cp_index is None


@pytest.mark.parametrize("changes", PROMPTS[2:5])
def test_views_are_those_of_the_host(changes):
    config, host = prompt(**changes)
    sent = host.to(GPU)
    if config.cp_size > 1:
        sent.prepare_for_mirror_cp(config, share=share_of(host, config).to(GPU))
        host.prepare_for_mirror_cp(config)
    name = "get_mask_view" if config.yoco_mode == "mask" else "get_consumer_view"
    with without_sync():
        ours = getattr(sent, name)()
        ours.compute_attn_info(config)
    theirs = getattr(host, name)()
    theirs.compute_attn_info(config)
    assert_same(ours, theirs)


def test_a_container_of_images():
    _, host = prompt(yoco_mode="compact", yoco_prefill_keep_tokens=6)
    host = engine.InputMetadataV4VL.from_flatten_dict(host.to_flatten_dict())
    host.images_seq_mask = torch.arange(host.total_q) % 3 == 0
    sent = host.to(GPU)
    assert isinstance(sent, engine.InputMetadataV4VL)
    assert_same(sent.get_consumer_view(), host.get_consumer_view())


# --- Out of memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2**31, 2**36, 2**50])
def test_an_expansion_past_the_memory_is_refused(length):
    sequences = batch(random.Random(1), 30)
    config = cases.config(max_model_len=length, block_size=12)
    step = engine.prepare_decode_zos_inputs(sequences, config)
    sent = engine.prepare_decode_v4_zos(step, config, device=GPU)
    before = sent.to_flatten_dict()
    with pytest.raises(engine.ExpansionTooLargeError) as refusal:
        sent.compute_attn_info(config)
    assert refusal.value.field == "kv_ca_index.1"
    assert refusal.value.needed == step.total_q * -(-length // 128) * 128 * 4
    assert 0 <= refusal.value.available < refusal.value.needed
    assert sent.to_flatten_dict().keys() == before.keys()
    assert_same(sent, engine.prepare_decode_v4_zos(step, config), step, config)


def test_the_share_of_this_process_counts():
    _, config, step = extracted(3, dense_ratios=[1], max_model_len=2**22)
    sent = engine.prepare_decode_v4_zos(step, config, device=GPU)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-4)
    try:
        with pytest.raises(engine.ExpansionTooLargeError, match=r"kv_ca_index\.1 needs"):
            sent.compute_attn_info(config)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert sent.kv_ca_index is None
    assert_same(sent, engine.prepare_decode_v4_zos(step, config), step, config)
    sent.compute_attn_info(config)
    assert sent.kv_ca_index["1"].shape == (step.total_q, 2**22)
