"""CUDA graphs: metadata written into the inputs of a captured consumer, and captured itself."""

from importlib import import_module
from random import Random

import pytest
import torch

from inputmeta.conformance.gpu.tests.device.steps import (
    CONFIGS,
    Captured,
    decode_batch,
    extracted,
    lengths,
    request_of,
    row_counts,
)

ROWS = {"small": 24, "odd": 24, "real": 10}


@pytest.fixture
def make_consumer():
    pytest.importorskip("triton")
    return import_module("inputmeta.conformance.gpu.tests.device.consumer").Consumer


def captured_graph(work):
    """The graph of some launches, which ran once before so that nothing is compiled in the capture."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


@pytest.mark.parametrize("checked", [False, True], ids=["mapping", "checked"])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_captured_consumer_sees_every_step_in_any_order(gpu, make_consumer, name, seed, checked):
    draw, config, rows = Random(seed), CONFIGS[name], ROWS[name]
    captured = Captured(config, rows, gpu, checked=checked)
    consumer = make_consumer(config, captured, rows)
    graph = captured_graph(consumer.launch)
    every = list(range(1, rows + 1))
    draw.shuffle(every)
    for total_q in [rows, 1, rows, *every]:
        request = request_of(config, decode_batch(draw, config, lengths(draw, config, row_counts(draw, total_q))))
        captured.expect(request)
        metadata = captured.prepare(extracted(request).to(gpu))
        consumer.mark(draw, total_q)
        graph.replay()
        assert captured.differences() == []
        assert consumer.differences(request.expected()) == []
        assert captured.moved(metadata) == []


@pytest.mark.parametrize("checked", [False, True], ids=["mapping", "checked"])
@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("name", list(CONFIGS))
def test_captured_metadata_follows_the_contents_of_its_pack(gpu, make_consumer, name, seed, checked):
    draw, config, rows = Random(seed), CONFIGS[name], ROWS[name]
    captured = Captured(config, rows, gpu, checked=checked)
    consumer = make_consumer(config, captured, rows)
    sizes = lengths(draw, config, row_counts(draw, rows - 1))
    static = extracted(request_of(config, decode_batch(draw, config, sizes))).to(gpu)

    def step():
        captured.prepare(static)
        consumer.launch()

    graph = captured_graph(step)
    for _ in range(6):
        draw.shuffle(sizes)  # of the same lengths in another order: the arrays lie in the pack as they did
        request = request_of(config, decode_batch(draw, config, sizes))
        new = extracted(request)
        assert new.layout == static.layout
        captured.copies.download()
        captured.expect(request)
        static.pack.copy_(new.pack)
        consumer.mark(draw, rows - 1)
        graph.replay()
        assert captured.differences() == []
        assert consumer.differences(request.expected()) == []


def test_a_consumer_that_is_given_another_step_is_caught(gpu, make_consumer):
    draw, config, rows = Random(5), CONFIGS["small"], ROWS["small"]
    captured = Captured(config, rows, gpu)
    consumer = make_consumer(config, captured, rows)
    graph = captured_graph(consumer.launch)
    sizes = lengths(draw, config, row_counts(draw, rows))
    requests = [request_of(config, decode_batch(draw, config, sizes)) for _ in range(2)]
    captured.expect(requests[0])
    captured.prepare(extracted(requests[1]).to(gpu))
    consumer.mark(draw, rows)
    graph.replay()
    assert captured.differences()
    assert consumer.differences(requests[0].expected())
