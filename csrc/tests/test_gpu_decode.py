"""ZOS decode on a GPU against the host: every path, buffers of all kinds, streams, sizes, and what is refused."""

import dataclasses
import random

import engine_cases as cases
import pytest
import torch
from gpu_cases import GPU, CapturedOnGpu, assert_hidden_untouched, assert_same, extracted, plain_step, without_sync
from zos_cases import batch, random_config

from inputmeta import engine

pytestmark = pytest.mark.gpu


def both(step, config):
    """The step built on the GPU and on the host."""
    return engine.prepare_decode_v4_zos(step, config, device=GPU), engine.prepare_decode_v4_zos(step, config)


# --- Agreement -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_a_step_is_that_of_the_host(seed):
    _, config, step = extracted(seed, count=1 + seed % 13)
    ours, theirs = both(step, config)
    assert ours.positions.is_cuda
    assert_same(ours, theirs, step, config)
    ours.compute_attn_info(config)
    theirs.compute_attn_info(config)
    assert_same(ours, theirs, step, config)


@pytest.mark.parametrize(
    ("count", "rows", "keys", "changes"),
    [
        (1, 1, 1, {}),
        (65_536, 1, 9, {}),
        (70_000, 2, 20, {"max_ngram_size": 3, "lookup_table": [4]}),
        (3, 40, 50, {}),
        (1, 5_000, 6_000, {"max_model_len": 10_000}),
        (300, 3, 100, {"block_size": 2**20, "max_model_len": 2**20, "swa_block_size": 100, "window_size": 77}),
        (64, 1, 9_000, {"max_model_len": 10_000}),
        (5, 2, 9_001, {"block_size": 4, "max_model_len": 10_000}),
        (40, 9, 5_041, {"block_size": 5040, "max_model_len": 6_000, "dense_ratios": [1, 2, 3, 5, 7, 9, 10],
                        "sparse_ratios": [4, 6, 8, 12, 14, 15, 16, 18, 20, 21, 24, 28, 30, 35]}),
    ],
)  # fmt: skip
def test_steps_of_every_size(count, rows, keys, changes):
    config, step = plain_step(count, rows, keys, **changes)
    assert_same(*both(step, config), step, config)


def test_a_step_without_rows_has_its_neutral_row():
    config, step = plain_step(3, max_ngram_size=2, pad_token=11, lookup_table=[4])
    empty = torch.zeros(3, dtype=torch.int32)
    step = dataclasses.replace(
        step,
        total_q=0,
        seqlens_q=empty,
        cu_seqlens_q=empty,
        input_ids=step.input_ids[:0],
        ngram_token_ids=step.ngram_token_ids[:0],
    )
    ours, theirs = both(step, config)
    assert ours.query_indices.tolist() == [998244353]
    assert ours.ngram_token_ids.tolist() == [[11, 11]]
    ours.block_tables.zero_()
    theirs.block_tables.zero_()
    assert_same(ours, theirs)


def test_tables_past_2_to_the_31_cells():
    """The last row's cells lie 8 GiB behind the first's."""
    config, step = plain_step(65_536, dense_ratios=[])
    if torch.cuda.mem_get_info()[0] < 12 * 2**30:
        pytest.skip("needs 12 GiB of device memory")
    buffers = engine.ZosBuffers.allocate(config, step.num_reqs, step.total_q, 33_000)
    buffers["block_tables"][:, :2] = cases.POISON
    tables = engine.prepare_decode_v4_zos(step, config, buffers, GPU).block_tables
    assert tables.numel() > 2**31
    assert tables[:, :2].unique(dim=0).tolist() == [[0, cases.POISON]]  # one block a sequence


# --- Buffers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checked_once", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_captured_buffers_keep_their_addresses_and_other_cells(seed, checked_once):
    draw = random.Random(seed)
    config = random_config(draw)
    steps = [batch(draw, count) for count in (9, 2, 9, 1, 5)]
    largest = max(steps, key=lambda sequences: sum(sequence.seqlen_q for sequence in sequences))
    captured = CapturedOnGpu(largest, config, more_columns=20, more_rows=30)
    out = engine.ZosBuffers(captured.out, config) if checked_once else {**captured.out, "not_a_field": None}
    for sequences in steps:
        captured.poison()
        step = engine.prepare_decode_zos_inputs(sequences, config)
        ours = engine.prepare_decode_v4_zos(step, config, out, GPU)
        wide = {"block_tables": torch.empty((step.total_q, ours.max_num_blocks), dtype=torch.int32)}
        theirs = engine.prepare_decode_v4_zos(step, config, {**host_buffers(step, config), **wide})
        assert_same(ours, theirs, step, config)
        for key, tensor in cases.tensors(ours).items():
            assert tensor.data_ptr() == captured.out[key].data_ptr(), key
        assert_hidden_untouched(captured, ours)


def host_buffers(step, config):
    return cases.tensors(engine.prepare_decode_v4_zos(step, config))


def test_a_container_is_the_callers_own():
    config, step = plain_step(4)
    buffers = engine.ZosBuffers.allocate(config, 8, 8, 4)
    first = engine.prepare_decode_v4_zos(step, config, buffers, GPU)
    first.klen["4"] = None
    first.positions = None
    second = engine.prepare_decode_v4_zos(step, config, buffers, GPU)
    assert second.klen["4"] is not None
    assert second.positions is not None


def test_a_step_may_be_sent_before():
    _, config, step = extracted(3)
    sent = step.to(GPU)
    assert sent.pack.is_cuda
    assert sent.to(GPU) is sent
    for name in ("seqlens_q", "block_tables_offsets", "is_placeholder", "input_ids"):
        assert torch.equal(getattr(sent, name).cpu(), getattr(step, name))
    assert_same(
        engine.prepare_decode_v4_zos(sent, config, device=GPU), engine.prepare_decode_v4_zos(step, config), step, config
    )


def test_arrays_that_lie_elsewhere_are_read_there():
    config, step = plain_step(5, rows=3, keys=9)
    sent = step.to(GPU)
    changed = dataclasses.replace(sent, state_ids=torch.arange(5, dtype=torch.int32, device=GPU))
    ours = engine.prepare_decode_v4_zos(changed, config, device=GPU)
    assert ours.state_block_idx.tolist() == [k for k in range(5) for _ in range(3)]
    host = dataclasses.replace(step, state_ids=torch.arange(5, dtype=torch.int32))
    assert_same(engine.prepare_decode_v4_zos(host, config, device=GPU), ours, step, config)


# --- Refusals --------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_and_nothing_written():
    config, step = plain_step(4, rows=2, keys=20)
    captured = CapturedOnGpu([cases.decode_sequence()], config)
    with pytest.raises(engine.OutError):
        engine.prepare_decode_v4_zos(step, config, captured.out, GPU)
    buffers = engine.ZosBuffers(captured.out, config)
    for changes, field in (({"total_q": 3, "num_reqs": 1}, "block_tables"), ({"num_reqs": 1}, "positions")):
        with pytest.raises(engine.OutError, match=field):
            engine.prepare_decode_v4_zos(dataclasses.replace(step, **changes), config, buffers, GPU)
    with pytest.raises(engine.OutError, match="cu_seqlens_q"):
        engine.prepare_decode_v4_zos(step, config, buffers, GPU)
    torch.cuda.synchronize()
    assert cases.is_untouched(captured.buffers)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.cpu(),
        lambda tensor: tensor.long(),
        lambda _: None,
        lambda tensor: tensor[:0],
        lambda tensor: torch.stack([tensor, tensor], dim=-1)[..., 0],
    ],
)
def test_a_buffer_of_another_kind_is_refused(change):
    config, step = plain_step(1, rows=3, keys=10)
    captured = CapturedOnGpu([cases.decode_sequence()], config)
    captured.out["context_lens"] = change(captured.out["context_lens"])
    for build in (
        lambda: engine.prepare_decode_v4_zos(step, config, captured.out, GPU),
        lambda: engine.ZosBuffers(captured.out, config),
    ):
        with pytest.raises(engine.OutError, match=r"context_lens"):
            build()
    torch.cuda.synchronize()
    assert cases.is_untouched(captured.buffers)


def test_another_engine_and_arrays_of_another_kind_are_refused():
    config, step = plain_step(2)
    other = cases.config(window_size=3)
    buffers = engine.ZosBuffers.allocate(config, 2, 2, 2)
    with pytest.raises(ValueError, match="window_size"):
        engine.prepare_decode_v4_zos(step, other, buffers, GPU)
    for changed in (
        {"state_ids": torch.zeros(3, dtype=torch.int32, device=GPU)},
        {"seqlens_q": torch.ones(2, dtype=torch.int64, device=GPU)},
        {"input_ids": torch.ones(4, dtype=torch.int32, device=GPU)[::2]},
    ):
        sent = dataclasses.replace(step.to(GPU), **changed)
        with pytest.raises(ValueError, match=next(iter(changed))):
            engine.prepare_decode_v4_zos(sent, config, buffers, GPU)
    with pytest.raises(engine.Int32Error, match="max_num_blocks"):
        engine.ZosBuffers.allocate(config, 2**20, 2**20, 2**10)


def test_columns_that_break_the_bound_are_refused():
    config, step = plain_step(9, keys=8)
    many = torch.empty((1, 2**25), dtype=torch.int32, device=GPU).expand(9, 2**25)
    out = {**cases.tensors(engine.prepare_decode_v4_zos(step, config, device=GPU)), "block_tables": many}
    with pytest.raises(engine.Int32Error, match="max_num_blocks"):
        engine.prepare_decode_v4_zos(step, config, out, GPU)


# --- Streams ---------------------------------------------------------------------------------------------------------


def test_the_host_never_waits():
    _, config, step = extracted(5)
    sent = step.to(GPU)
    buffers = engine.ZosBuffers.allocate(config, step.num_reqs, step.total_q, step.max_num_blocks)
    with without_sync():
        engine.prepare_decode_v4_zos(sent, config, buffers, GPU)
        engine.prepare_decode_v4_zos(step, config, buffers, GPU)
        fresh = engine.prepare_decode_v4_zos(sent, config, device=GPU)
        fresh.compute_attn_info(config)
    theirs = engine.prepare_decode_v4_zos(step, config)
    theirs.compute_attn_info(config)
    assert_same(fresh, theirs, step, config)


def test_a_second_stream_runs_while_the_first_is_busy():
    _, config, step = extracted(6)
    sent = step.to(GPU)
    buffers = engine.ZosBuffers.allocate(config, step.num_reqs, step.total_q, step.max_num_blocks)
    expected = engine.prepare_decode_v4_zos(step, config)
    busy, free = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(free):  # the first launch of a kernel loads it, and may wait for the GPU
        engine.prepare_decode_v4_zos(sent, config, buffers, GPU)
    torch.cuda.synchronize()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(2_000_000_000)
        still_busy = torch.cuda.Event()
        still_busy.record()
    with torch.cuda.stream(free):
        ours = engine.prepare_decode_v4_zos(sent, config, buffers, GPU)
        done = torch.cuda.Event()
        done.record()
    done.synchronize()
    assert not still_busy.query()
    assert_same(ours, expected, step, config)
    torch.cuda.synchronize()


def test_launches_are_ordered_with_their_stream():
    """A poison that is written before, on the same busy stream, is not what remains."""
    config, step = plain_step(100, rows=2, keys=30)
    sent = step.to(GPU)
    buffers = engine.ZosBuffers.allocate(config, 100, 200, 4)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for tensor in buffers.values():
            tensor.fill_(1)
        ours = engine.prepare_decode_v4_zos(sent, config, buffers, GPU)
        copies = {key: tensor.clone() for key, tensor in cases.tensors(ours).items()}
        for tensor in buffers.values():
            tensor.fill_(1)
    stream.synchronize()
    theirs = engine.prepare_decode_v4_zos(step, config)
    built = engine.InputMetadataV4.from_flatten_dict({**ours.to_flatten_dict(), **copies})
    assert_same(built, theirs, step, config)
