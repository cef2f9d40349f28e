"""CUDA graphs: metadata written in place into what a graph captured, and captured itself; replays in any order."""

import random

import engine_cases as cases
import pytest
import torch
from gpu_cases import GPU, CapturedOnGpu, assert_hidden_untouched, assert_same, captured_graph, on_host, plain_step
from zos_cases import batch, random_config

from inputmeta import engine

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(6))
def test_a_captured_consumer_sees_each_step(seed):
    """The consumer, captured for the largest step, copies all fields; steps are written in front of its replays."""
    draw = random.Random(seed)
    config = random_config(draw)
    steps = [batch(draw, count) for count in (9, 2, 9, 1, 5)]
    largest = max(steps, key=lambda sequences: sum(sequence.seqlen_q for sequence in sequences))
    captured = CapturedOnGpu(largest, config, more_columns=20, more_rows=30)
    buffers = engine.ZosBuffers(captured.out, config)
    seen = {key: torch.empty_like(tensor) for key, tensor in captured.buffers.items()}

    def consume():
        for key, tensor in captured.buffers.items():
            seen[key].copy_(tensor)

    graph, _ = captured_graph(consume)
    for sequences in steps:
        captured.poison()
        step = engine.prepare_decode_zos_inputs(sequences, config)
        ours = engine.prepare_decode_v4_zos(step, config, buffers, GPU)
        graph.replay()
        torch.cuda.synchronize()
        for key, tensor in captured.buffers.items():
            assert torch.equal(seen[key], tensor), key
        assert_same(ours, on_host(step, config, ours.max_num_blocks), step, config)
        assert_hidden_untouched(captured, ours)


def test_the_step_itself_is_captured():
    """Both launches and the expansions in a graph; new contents of the same pack are what a replay builds."""
    config, first = plain_step(20, rows=3, keys=30, max_ngram_size=2, lookup_table=[4])
    pack = first.to(GPU)
    buffers = engine.ZosBuffers.allocate(config, 20, 60, 6)

    def step():
        metadata = engine.prepare_decode_v4_zos(pack, config, buffers, GPU)
        metadata.compute_attn_info(config)
        return metadata

    graph, built = captured_graph(step)
    for state, keys in ((7, 30), (9, 29), (3, 26)):
        sequence = engine.SequenceMetadata(
            seqlen_q=3,
            seqlen_k=keys,
            block_table=range(state, state + 4),
            state_id=state,
            token_ids=range(keys - 2),
            draft_tokens=[5, 6],
            recent_tokens=[0] * keys,
        )
        extracted = engine.prepare_decode_zos_inputs([sequence] * 20, config)
        assert extracted.pack.shape == pack.pack.shape
        pack.pack.copy_(extracted.pack)
        graph.replay()
        theirs = on_host(extracted, config, 6)
        theirs.compute_attn_info(config)
        assert_same(built, theirs, extracted, config)


def test_a_step_in_host_memory_is_not_captured():
    """A replay would read its memory, which is somebody else's by then; one that is brought over is told of."""
    config, step = plain_step(3, rows=2, keys=30)
    buffers = engine.ZosBuffers.allocate(config, 3, 6, 4)
    for tensor in buffers.values():
        tensor.fill_(True if tensor.dtype == torch.bool else cases.POISON)
    moved = step.to(GPU)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="host memory while a CUDA graph is captured"):
            engine.prepare_decode_v4_zos(step, config, buffers, GPU)
        ours = engine.prepare_decode_v4_zos(moved, config, buffers, GPU)
    assert int(buffers["positions"][0]) == cases.POISON  # captured, not run
    graph.replay()
    assert_same(ours, on_host(step, config, 4), step, config)


def test_expansions_in_captured_buffers_of_more_rows():
    config, step = plain_step(6, rows=2, keys=30)
    metadata = engine.prepare_decode_v4_zos(step, config, device=GPU)
    out = {
        "kv_swa_index": torch.full((20, 4), cases.POISON, dtype=torch.int32, device=GPU),
        "kv_ca_index.1": torch.full((20, 128), cases.POISON, dtype=torch.int32, device=GPU),
        "kv_ca_index_len.1": torch.full((20,), cases.POISON, dtype=torch.int32, device=GPU),
    }

    def expand():
        metadata.clean()
        metadata.compute_attn_info(config, out)

    graph, _ = captured_graph(expand)
    for tensor in out.values():
        tensor.fill_(cases.POISON)
    graph.replay()
    host = engine.prepare_decode_v4_zos(step, config)
    host.compute_attn_info(config)
    assert_same(metadata, host, step, config)
    assert metadata.kv_swa_index.data_ptr() == out["kv_swa_index"].data_ptr()
    assert all(bool((tensor[12:] == cases.POISON).all()) for tensor in out.values())
