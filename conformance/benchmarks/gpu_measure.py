"""Timing on a GPU: replays of captured graphs by CUDA events, and the host time of asynchronous calls by the clock."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any

import torch

from inputmeta.conformance.benchmarks.measure import Run, interleaved

REPLAYS = 20
"""Replays of a sample."""
CALLS = 20
"""Calls of a sample of host time: few enough that no queue of launches fills up."""
HEAD_START_CYCLES = 2_000_000
"""About a millisecond in which the device waits, so that every replay of a sample is queued before the first begins."""


def captured(run: Run) -> torch.cuda.CUDAGraph:
    """A graph of what `run` launches; it runs twice before, so that nothing is compiled or allocated in the capture."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def device_time(run: Run, calls: int) -> float:
    """Mean nanoseconds of device time of one call over `calls` calls, back to back.

    The device is kept waiting while they are queued: the host's speed does not show. A sample for which that was too
    short is taken again with twice the head start.
    """
    cuda: Any = torch.cuda  # of which torch types a part
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    cycles = HEAD_START_CYCLES
    while True:
        torch.cuda.synchronize()
        cuda._sleep(cycles)
        begin.record()
        for _ in range(calls):
            run()
        was_ahead = not begin.query()
        end.record()
        end.synchronize()
        if was_ahead or cycles >= 64 * HEAD_START_CYCLES:
            return float(begin.elapsed_time(end)) * 1e6 / calls
        cycles *= 2


def host_time(run: Run, calls: int) -> float:
    """Mean nanoseconds by the clock from call to return over `calls` calls; the device is idle at the first."""
    torch.cuda.synchronize()
    begin = perf_counter_ns()
    for _ in range(calls):
        run()
    taken = perf_counter_ns() - begin
    torch.cuda.synchronize()
    return taken / calls


def replay_times(runs: Mapping[str, Run], rounds: int) -> dict[str, list[float]]:
    """Nanoseconds of one replay of each run's graph, one value a round."""
    graphs = {name: captured(run) for name, run in runs.items()}
    replays: dict[str, Run] = {name: graph.replay for name, graph in graphs.items()}
    return interleaved(replays, rounds, device_time, REPLAYS)


def host_times(runs: Mapping[str, Run], rounds: int) -> dict[str, list[float]]:
    """Nanoseconds of host time of one call of each, one value a round."""
    return interleaved(runs, rounds, host_time, CALLS)
