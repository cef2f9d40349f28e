"""Launches at the limits: many sequences, long ones, none; buffers past 2^31 cells; a busy device, a full one."""

import dataclasses
from random import Random

import numpy as np
import pytest
import torch

from inputmeta import engine
from inputmeta.conformance.gpu.tests.device.steps import (
    SMALL,
    Captured,
    decode_batch,
    extracted,
    lengths,
    request_of,
    row_counts,
)

WINDOWS = {"kv_swa_index"}
GIB = 2**30


def config(**changes):
    fields = {
        "block_size": 8,
        "dense_ratios": [1, 4],
        "sparse_ratios": [2],
        "window_size": 5,
        "swa_block_size": 9,
        "max_model_len": 2**20,
    }
    return engine.MetadataConfig(**(fields | changes))


def sequence(rows, keys, state=0, block_size=8, first_block=0):
    known = keys - rows + 1
    return engine.SequenceMetadata(
        seqlen_q=rows,
        seqlen_k=keys,
        block_table=np.arange(first_block, first_block - (-keys // block_size), dtype=np.int32),
        state_id=state,
        is_placeholder=False,
        swa_valid_start=0,
        token_ids=np.arange(known, dtype=np.int32),
        draft_tokens=np.arange(rows - 1, dtype=np.int32),
        compressed_tokens=np.empty(0, np.int32),
        recent_tokens=np.empty(0, np.int32),
        data_len=0,
    )


def cells(metadata):
    return {key: value for key, value in metadata.to_flatten_dict().items() if isinstance(value, torch.Tensor)}


def used_columns(metadata, block_size=8, smallest=1):
    """Columns of every row of a host step's tables that are defined (F-BLOCKS); `smallest`: ratio."""
    ends = metadata.cu_seqlens_q.long()
    rows = torch.diff(ends, prepend=torch.zeros(1, dtype=torch.int64))
    tokens = metadata.context_lens[ends - 1] // smallest
    return -(-tokens // (block_size // smallest)).repeat_interleave(rows)


def assert_same(on_device, on_host, block_size=8):
    """Every field of a step on the device is that of the same step on the host, which the suite checks."""
    got, want = cells(on_device), cells(on_host)
    assert got.keys() == want.keys()
    for key, tensor in got.items():
        differs = tensor.cpu() != want[key]
        if key == "block_tables":
            differs &= torch.arange(tensor.shape[1]) < used_columns(on_host, block_size)[:, None]
        assert not bool(differs.any()), f"{key}: {int(differs.sum())} cells differ"


def both(sequences, engine_config, expansions=WINDOWS):
    inputs = engine.prepare_decode_zos_inputs(sequences, engine_config)
    steps = [engine.prepare_decode_v4_zos(inputs, engine_config, device=device) for device in ("cuda", "cpu")]
    for step in steps:
        step.compute_attn_info(engine_config, expansions=expansions)
    return steps


@pytest.mark.parametrize(
    ("count", "rows"),
    [(1, 1), (1, 33), (2, 1000), (1023, 3), (65_536, 1), (70_001, 2), (1, 70_000), (2, 140_000)],
)
def test_sequences_and_rows_past_the_limits_of_a_grid(gpu, count, rows):
    block_size = 4096 if rows > 1000 else 8  # F-LIMIT, and memory, allow long rows few columns
    dense = [] if rows > 1000 else [1, 4]
    several = config(block_size=block_size, dense_ratios=dense, sparse_ratios=[1, 2])
    batch = [sequence(rows, rows + index % 7, state=index, block_size=block_size) for index in range(count)]
    assert_same(*both(batch, several), block_size)


def test_sequences_of_very_different_length(gpu):
    draw = Random(1)
    sizes = [draw.choice((1, 1, 1, 2, 5, 33, 1025)) for _ in range(3000)]
    batch = [sequence(rows, rows + draw.randrange(500), state=index) for index, rows in enumerate(sizes)]
    assert_same(*both(batch, config()))


def test_tables_of_one_column(gpu):
    batch = [sequence(2, 2 + index % 5, state=index, first_block=index) for index in range(300)]
    on_device, on_host = both(batch, config(max_model_len=8), {"kv_swa_index", "kv_ca_index"})
    assert on_device.block_tables.shape == (600, 1)
    assert_same(on_device, on_host)


@pytest.mark.parametrize("ratios", [range(1, 13), [60, 420], [1]], ids=["twelve", "odd", "one"])
def test_many_ratios_and_none_of_a_kind(gpu, ratios):
    block_size = 27_720
    for dense, sparse in ((list(ratios), []), ([], list(ratios)), (list(ratios), list(ratios))):
        several = config(block_size=block_size, dense_ratios=dense, sparse_ratios=sparse, max_model_len=100_000)
        batch = [sequence(3, 3 + 977 * index, state=index, block_size=block_size) for index in range(60)]
        on_device, on_host = both(batch, several)
        on_device.block_tables = on_host.block_tables = None
        assert_same(on_device, on_host)


def test_a_prompt_without_rows(gpu):
    empty = [sequence(1, 1)] * 3
    for one in empty:
        one.seqlen_q = 0
    step = engine.prepare_prompt_v4(empty, config())
    on_device = step.to("cuda")
    for each in (step, on_device):
        each.compute_attn_info(config(), expansions=("kv_swa_full_index",))
    got, want = cells(on_device), cells(step)
    assert {key for key, tensor in got.items() if not torch.equal(tensor.cpu(), want[key])} == set()


LENGTHS = ("seqlens_k", "cu_seqlens_q")
"""What a step of variable length is given anew."""


def varying(count, extracted, on, *, seed=0):
    """A step of ``count`` sequences of ``extracted`` rows, of which the device leaves some: on the host, and ``on``."""
    numbers = np.random.default_rng(seed)
    plain = config(dense_ratios=[], sparse_ratios=[2])
    sequence = engine.SequenceMetadata(
        seqlen_q=extracted,
        seqlen_k=20,
        block_table=range(20),
        token_ids=range(21 - extracted),
        draft_tokens=range(extracted - 1),
    )
    previous = numbers.integers(1, 4, count, dtype=np.int32)
    arrays = {
        "seqlens_q": numbers.integers(1, extracted + 1, count, dtype=np.int32),
        "remap": np.where(numbers.random(count) < 0.3, -1, numbers.permutation(count)).astype(np.int32),
        "prev_seqlens_q": previous,
        "prev_num_accepted_tokens": numbers.integers(0, previous, dtype=np.int32),
        "prev_sampled_token_ids": numbers.integers(0, 2**31, count, dtype=np.int32),
        "prev_predict_token_ids": numbers.integers(0, 2**31, (count, extracted - 1), dtype=np.int32),
    }
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    step = dataclasses.replace(engine.prepare_decode_zos_inputs([sequence] * count, plain), **tensors)
    return plain, step, step.to(on)


@pytest.mark.parametrize("count", [1, 31, 1024, 65_536, 100_003, 1_000_001])
def test_lengths_summed_on_the_device(gpu, count):
    _, host, sent = varying(count, 4, gpu, seed=count)
    want = engine.prepare_decode_inputs_zos_varlen(host)
    out = {name: torch.zeros(host.total_q, dtype=torch.int32, device=gpu) for name in (*LENGTHS, "input_ids")}
    torch.cuda._sleep(20_000_000)  # so that the kernels lie behind each other, as in a graph
    got = engine.prepare_decode_inputs_zos_varlen(sent, {name: out[name] for name in LENGTHS})
    tokens = engine.prepare_token_ids_zos(got, {"input_ids": out["input_ids"]})
    assert torch.equal(got.cu_seqlens_q.cpu(), want.cu_seqlens_q)
    assert torch.equal(got.seqlens_k.cpu(), want.seqlens_k)
    assert torch.equal(tokens.cpu(), engine.prepare_token_ids_zos(want))


def test_no_sequence_has_a_row(gpu):
    """The device may leave none, which no step of the host's has (I-33): nothing but neutral rows."""
    plain, _, sent = varying(1000, 3, gpu)
    empty = engine.prepare_decode_inputs_zos_varlen(dataclasses.replace(sent, seqlens_q=torch.zeros_like(sent.remap)))
    step = engine.prepare_decode_v4_zos(empty, plain, device=gpu)
    assert int(empty.cu_seqlens_q.sum()) == int(step.input_ids.sum()) == int(step.context_lens.sum()) == 0
    assert bool((step.query_indices == 998244353).all())


def test_two_steps_in_turn_without_a_pause(gpu):
    """What the second launch reads must not be what the first one of the same step is about to write."""
    plain, count = config(dense_ratios=[], sparse_ratios=[2]), 20_000
    steps = []
    for shift in (0, 1):
        batch = [sequence(1 + (index + shift) % 3, 40 + index % 50, index, first_block=index) for index in range(count)]
        inputs = engine.prepare_decode_zos_inputs(batch, plain)
        want = engine.prepare_decode_v4_zos(inputs, plain)
        defined = torch.arange(want.block_tables.shape[1]) < used_columns(want, smallest=2)[:, None]
        steps.append((inputs.to("cuda"), want.block_tables.cuda(), defined.cuda()))
    largest = max(steps, key=lambda step: step[0].total_q)[0]
    flat = engine.prepare_decode_v4_zos(largest, plain, device="cuda").to_flatten_dict()
    captured = {key: value for key, value in flat.items() if isinstance(value, torch.Tensor)}
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for turn in range(100):
        inputs, want, defined = steps[turn % 2]
        tables = engine.prepare_decode_v4_zos(inputs, plain, out=captured, device="cuda").block_tables
        wrong += ((tables != want) & defined).sum()
    assert int(wrong) == 0


def test_steps_with_expansions_in_turn_without_a_pause(gpu):
    """An expansion may be launched early, but must read what the kernels in front of it have written."""
    plain = config(sparse_ratios=[], max_model_len=2**10)
    steps = []
    for shift in (0, 1):
        batch = [sequence(1 + (index + shift) % 2, 40 + index % 50 + shift, index % 97) for index in range(3000)]
        inputs, (step, _) = engine.prepare_decode_zos_inputs(batch, plain), both(batch, plain, engine.EXPANSIONS)
        names = ("kv_swa_index", "kv_ca_index.1", "kv_ca_index.4", "kv_ca_index_len.1", "kv_ca_index_len.4")
        steps.append((inputs.to("cuda"), {name: cells(step)[name] for name in names}))
    largest = max(steps, key=lambda step: step[0].total_q)[0]
    captured = cells(engine.prepare_decode_v4_zos(largest, plain, device="cuda"))
    out = {name: torch.empty_like(tensor) for name, tensor in steps[1][1].items()}
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for turn in range(60):
        inputs, want = steps[turn % 2]
        step = engine.prepare_decode_v4_zos(inputs, plain, out=captured, device="cuda")
        step.compute_attn_info(plain, out)
        wrong += sum((cells(step)[name] != tensor).sum() for name, tensor in want.items())
    assert int(wrong) == 0


def large(bytes_needed):
    free = torch.cuda.mem_get_info()[0]
    if free < 2 * bytes_needed:
        pytest.skip(f"less than {2 * bytes_needed // GIB} GiB of GPU memory are free")


def test_a_dense_expansion_past_2_31_cells(gpu):
    large(9 * GIB)
    wide, rows = config(dense_ratios=[1], sparse_ratios=[], max_model_len=2**17), 16_512
    batch = [sequence(1, 3 + index % 9, index, first_block=index) for index in range(rows)]
    inputs = engine.prepare_decode_zos_inputs(batch, wide)
    step = engine.prepare_decode_v4_zos(inputs, wide, device="cuda")
    step.compute_attn_info(wide, expansions=("kv_ca_index",))
    index = step.kv_ca_index["1"]
    assert index.numel() > 2**31
    lens = step.kv_ca_index_len["1"].cpu()
    tables = engine.prepare_decode_v4_zos(inputs, wide).block_tables
    for row in (0, 1, rows // 2, *range(rows - 200, rows)):
        got, keys = index[row].cpu(), torch.arange(int(lens[row]))
        assert torch.equal(got[: len(keys)], tables[row, keys // 8] * 8 + keys % 8)
        assert bool((got[len(keys) :] == -1).all())


def test_a_window_index_past_2_31_cells(gpu):
    large(9 * GIB)
    rows, window = 32_800, 65_536
    wide = config(block_size=128, window_size=window, swa_block_size=window, max_model_len=2**17)
    prompt = sequence(1, rows, block_size=128)
    prompt.token_ids, prompt.seqlen_q = np.arange(rows, dtype=np.int32), rows
    step = engine.prepare_prompt_v4([prompt], wide).to("cuda")
    step.compute_attn_info(wide, expansions=("kv_swa_full_index",))
    index = step.kv_swa_full_index
    assert index.numel() > 2**31
    for row in (0, 1, rows // 2, *range(rows - 100, rows)):
        got = index[row].cpu()
        assert torch.equal(got[: row + 1], window + torch.arange(row + 1, dtype=torch.int32))
        assert bool((got[row + 1 :] == -1).all())


def test_block_tables_past_2_31_cells(gpu):
    large(9 * GIB)
    columns, rows = 2**15, 65_600
    wide = config(dense_ratios=[], max_model_len=2**18)
    batch = [sequence(1, 9 + index % 30, index, first_block=index) for index in range(rows)]
    inputs = engine.prepare_decode_zos_inputs(batch, wide)
    host = engine.prepare_decode_v4_zos(inputs, wide)
    flat = engine.prepare_decode_v4_zos(inputs, wide, device="cuda").to_flatten_dict()
    out = {key: value for key, value in flat.items() if isinstance(value, torch.Tensor)}
    out["block_tables"] = torch.full((rows, columns), -5, dtype=torch.int32, device="cuda")
    step = engine.prepare_decode_v4_zos(inputs, wide, out=out, device="cuda")
    got = step.block_tables[:, : host.block_tables.shape[1]].cpu()
    defined = torch.arange(got.shape[1]) < used_columns(host, smallest=2)[:, None]
    assert torch.equal(got[defined], host.block_tables[defined])
    assert int((step.block_tables[:, host.block_tables.shape[1] :] != -5).sum()) == 0


def test_an_expansion_that_does_not_fit_is_refused_with_its_size(gpu):
    endless = config(dense_ratios=[1], sparse_ratios=[], max_model_len=2**30)
    batch = [sequence(1, 9, index) for index in range(200)]
    step, _ = both(batch, endless)
    before = {key: tensor.clone() for key, tensor in cells(step).items()}
    with pytest.raises(engine.ExpansionTooLargeError) as refusal:
        step.compute_attn_info(endless, expansions=("kv_ca_index",))
    assert refusal.value.field == "kv_ca_index.1"
    assert refusal.value.needed == 200 * 2**30 * 4 > refusal.value.available > 0
    assert (step.kv_ca_index, step.kv_ca_index_len) == (None, None)
    assert all(torch.equal(tensor, before[key]) for key, tensor in cells(step).items())


def test_a_device_without_memory_is_a_clear_error_and_buffers_are_intact(gpu):
    wide = config(dense_ratios=[1], sparse_ratios=[], max_model_len=2**20)
    step, _ = both([sequence(1, 9, index) for index in range(512)], wide)  # 2 GiB of kv_ca_index
    before = {key: tensor.clone() for key, tensor in cells(step).items()}
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + GIB // 2) / total)
    try:
        with pytest.raises(engine.ExpansionTooLargeError, match=r"kv_ca_index\.1 needs 2147483648 bytes"):
            step.compute_attn_info(wide, expansions=("kv_ca_index", "kv_swa_index"))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert step.kv_ca_index is None
    assert all(torch.equal(tensor, before[key]) for key, tensor in cells(step).items())


def busy(stream, milliseconds=1000):
    """Keep a stream busy; the event is not over while it is. Long: other processes may share the GPU."""
    event = torch.cuda.Event()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(int(milliseconds * 1.5e6))
        event.record()
    return event


def test_a_step_runs_on_its_stream_while_another_is_busy(gpu):
    draw = Random(7)
    captured = Captured(SMALL, 20, gpu, checked=True)
    request = request_of(SMALL, decode_batch(draw, SMALL, lengths(draw, SMALL, row_counts(draw, 20))))
    inputs = extracted(request).to(gpu)
    mine, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(mine):
        captured.prepare(inputs)  # whatever is loaded or made once
    torch.cuda.synchronize()
    captured.copies.upload()
    captured.expect(request)
    event = busy(other, milliseconds=1500)  # long: other processes' tests take turns on this GPU
    with torch.cuda.stream(mine):
        captured.prepare(inputs)
    mine.synchronize()
    assert not event.query(), "the step waited for another stream"
    assert captured.differences() == []


def test_nothing_waits_for_the_device(gpu):
    draw = Random(8)
    captured = Captured(SMALL, 20, gpu, checked=True)
    request = request_of(SMALL, decode_batch(draw, SMALL, lengths(draw, SMALL, row_counts(draw, 20))))
    inputs = extracted(request).to(gpu)
    ids = torch.arange(inputs.num_reqs, dtype=torch.int32, device=gpu)
    last = {"prev_seqlens_q": ids + 1, "prev_num_accepted_tokens": ids, "prev_sampled_token_ids": ids}
    predicted = ids.view(-1, 1).expand(-1, 4).contiguous()
    following = dataclasses.replace(inputs, remap=ids, prev_predict_token_ids=predicted, **last)

    def step():
        captured.prepare(inputs)
        shorter = engine.prepare_decode_inputs_zos_varlen(following)
        engine.prepare_token_ids_zos(shorter)
        captured.prepare(shorter)

    step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        event = busy(torch.cuda.current_stream())
        step()
        assert not event.query(), "the host waited for the device"
    finally:
        torch.cuda.set_sync_debug_mode("default")
