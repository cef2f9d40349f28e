"""Drafts of variable length on a GPU: only the device knows how many rows a step has; the host waits for nothing."""

import dataclasses
import random

import engine_cases as cases
import pytest
import torch
from gpu_cases import GPU, CapturedOnGpu, assert_hidden_untouched, assert_same, captured_graph, without_sync
from varlen_cases import assert_tail, shorter_inputs

from inputmeta import engine

pytestmark = pytest.mark.gpu

HOSTILE = [0, -1, 1, 7, 2**31 - 1, -(2**31), 2**30, -(2**30)]


def on_host(step, config, columns):
    """The step as the host makes it, with block tables of so many columns; and the shorter step."""
    shorter = engine.prepare_decode_inputs_zos_varlen(step)
    narrow = engine.prepare_decode_v4_zos(shorter, config)
    tables = torch.empty((narrow.total_q, columns), dtype=torch.int32)
    out = {key: tensor for key, tensor in cases.tensors(narrow).items() if key != "block_tables"}
    metadata = engine.prepare_decode_v4_zos(shorter, config, {**out, "block_tables": tables})
    metadata.compute_attn_info(config)
    return metadata, shorter


@pytest.mark.parametrize("seed", range(30))
def test_a_shorter_step_is_that_of_the_host(seed):
    draw = random.Random(seed)
    _, config, step = shorter_inputs(draw, count=draw.choice([1, 5, 40, 700]))
    sent = step.to(GPU)
    with without_sync():
        shorter = engine.prepare_decode_inputs_zos_varlen(sent)
        ours = engine.prepare_decode_v4_zos(shorter, config, device=GPU)
        tokens = engine.prepare_token_ids_zos(shorter)
        ours.compute_attn_info(config)
    theirs, host = on_host(step, config, ours.max_num_blocks)
    assert torch.equal(shorter.seqlens_k.cpu(), host.seqlens_k)
    assert torch.equal(shorter.cu_seqlens_q.cpu(), host.cu_seqlens_q)
    assert torch.equal(tokens.cpu(), theirs.input_ids)
    assert_same(ours, theirs, host, config)
    assert_tail(ours, config, int(host.cu_seqlens_q[-1]))


@pytest.mark.parametrize("seed", range(8))
def test_one_graph_serves_every_number_of_accepted_drafts(seed):
    """Lengths, tokens, fields and expansions in one graph; each replay finds other lengths in the sampler's arrays."""
    draw = random.Random(seed)
    sequences, config, step = shorter_inputs(draw, count=20)
    sent = step.to(GPU)
    captured = CapturedOnGpu(sequences, config, more_columns=4, more_rows=9)
    buffers = engine.ZosBuffers(captured.out, config)
    lengths = {name: torch.empty(23, dtype=torch.int32, device=GPU) for name in ("seqlens_k", "cu_seqlens_q")}
    tokens = {"input_ids": torch.empty(step.total_q + 3, dtype=torch.int32, device=GPU)}

    def body():
        shorter = engine.prepare_decode_inputs_zos_varlen(sent, lengths)
        gathered = engine.prepare_token_ids_zos(shorter, tokens)
        metadata = engine.prepare_decode_v4_zos(shorter, config, buffers, GPU)
        metadata.compute_attn_info(config)
        return shorter, gathered, metadata

    graph, (_, gathered, built) = captured_graph(body)
    keys = step.seqlens_k.clone()
    for _ in range(6):
        lengths_before = step.prev_seqlens_q.tolist()
        accepted = [draw.randint(0, rows - 1) for rows in lengths_before]
        rejected = [rows - 1 - more for rows, more in zip(lengths_before, accepted, strict=True)]
        remap = []
        for sequence in sequences:
            place = draw.randrange(len(accepted))
            fits = rejected[place] <= sequence.seqlen_k - sequence.seqlen_q
            remap.append(place if fits and draw.random() < 0.7 else -1)
        rows = [draw.randint(1, sequence.seqlen_q) for sequence in sequences]
        step = dataclasses.replace(
            step,
            seqlens_q=torch.tensor(rows, dtype=torch.int32),
            remap=torch.tensor(remap, dtype=torch.int32),
            prev_num_accepted_tokens=torch.tensor(accepted, dtype=torch.int32),
        )
        for name in ("seqlens_q", "remap", "prev_num_accepted_tokens"):
            getattr(sent, name).copy_(getattr(step, name))
        captured.poison()
        graph.replay()
        theirs, host = on_host(step, config, built.max_num_blocks)
        assert_same(built, theirs, host, config)
        assert torch.equal(gathered.cpu(), theirs.input_ids)
        assert_tail(built, config, sum(rows))
        assert_hidden_untouched(captured, built)
        assert torch.equal(sent.seqlens_k.cpu(), keys)  # a replay finds K, not what the one before made of it


@pytest.mark.parametrize("seed", range(40))
def test_hostile_values_stay_inside(seed):
    """Whatever the sampler left: compute-sanitizer watches what is outside, the fences what lies beside the views."""
    draw = random.Random(seed)
    sequences, config, step = shorter_inputs(draw, count=12)
    sent = step.to(GPU)
    captured = CapturedOnGpu(sequences, config, more_columns=3, more_rows=7)
    names = ("seqlens_q", "remap", "prev_seqlens_q", "prev_num_accepted_tokens", "prev_sampled_token_ids")
    for name in names:
        array = getattr(sent, name)
        for _ in range(3):
            array[draw.randrange(array.numel())] = draw.choice(HOSTILE)
    lengths = {
        name: torch.full((15,), cases.POISON, dtype=torch.int32, device=GPU) for name in ("seqlens_k", "cu_seqlens_q")
    }
    tokens = {"input_ids": torch.full((step.total_q + 3,), cases.POISON, dtype=torch.int32, device=GPU)}
    shorter = engine.prepare_decode_inputs_zos_varlen(sent, lengths)
    if seed % 2:  # the sums too, as they lie in the result and in the extracted layout
        for array in (lengths["cu_seqlens_q"], sent.cu_seqlens_q):
            array[draw.randrange(12)] = draw.choice(HOSTILE)
    engine.prepare_token_ids_zos(shorter, tokens)
    ours = engine.prepare_decode_v4_zos(shorter, config, captured.out, GPU)
    torch.cuda.synchronize()
    assert_hidden_untouched(captured, ours)
    assert all(bool((tensor[12:] == cases.POISON).all()) for tensor in lengths.values())
    assert bool((tokens["input_ids"][step.total_q :] == cases.POISON).all())
    # the next step in the same buffers is right again
    again = engine.prepare_decode_v4_zos(
        engine.prepare_decode_inputs_zos_varlen(step.to(GPU)), config, captured.out, GPU
    )
    again.compute_attn_info(config)
    theirs, host = on_host(step, config, again.max_num_blocks)
    assert_same(again, theirs, host, config)


def test_arrays_that_lie_elsewhere_are_refused():
    _, config, step = shorter_inputs(random.Random(1), count=4)
    sent = step.to(GPU)
    out = {
        name: torch.full((9,), cases.POISON, dtype=torch.int32, device=GPU) for name in ("seqlens_k", "cu_seqlens_q")
    }
    for name in ("remap", "prev_seqlens_q", "prev_num_accepted_tokens", "prev_sampled_token_ids", "seqlens_k"):
        mixed = dataclasses.replace(sent, **{name: getattr(step, name)})
        with pytest.raises(ValueError, match=name):
            engine.prepare_decode_inputs_zos_varlen(mixed, out)
    with pytest.raises(engine.OutError, match="cu_seqlens_q"):
        engine.prepare_decode_inputs_zos_varlen(sent, {**out, "cu_seqlens_q": out["cu_seqlens_q"].cpu()})
    shorter = engine.prepare_decode_inputs_zos_varlen(sent)
    with pytest.raises(ValueError, match="remap"):
        engine.prepare_decode_v4_zos(dataclasses.replace(shorter, remap=step.remap), config, device=GPU)
    torch.cuda.synchronize()
    assert cases.is_untouched(out)


def test_a_step_whose_lengths_the_host_has_goes_over_whole():
    _, config, step = shorter_inputs(random.Random(2), count=9)
    shorter = engine.prepare_decode_inputs_zos_varlen(step)
    ours = engine.prepare_decode_v4_zos(shorter, config, device=GPU)
    ours.compute_attn_info(config)
    theirs, host = on_host(step, config, ours.max_num_blocks)
    assert_same(ours, theirs, host, config)


def test_lengths_are_summed_past_one_round_of_the_scan():
    count = 10_001
    sequence = cases.decode_sequence()
    config = cases.config()
    step = engine.prepare_decode_zos_inputs([sequence] * count, config).to(GPU)
    rows = torch.randint(1, 4, (count,), dtype=torch.int32, device=GPU)
    shorter = engine.prepare_decode_inputs_zos_varlen(dataclasses.replace(step, seqlens_q=rows))
    assert torch.equal(shorter.cu_seqlens_q.long(), rows.long().cumsum(0))
    assert torch.equal(shorter.seqlens_k, step.seqlens_k - 3 + rows)
    tokens = engine.prepare_token_ids_zos(shorter)
    assert int((tokens != 0).sum()) == int(rows.sum())
