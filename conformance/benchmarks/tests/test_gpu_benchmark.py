"""The benchmark on a GPU, all of it but the GPU: workloads, what is called, ratios, aims, the report."""

from __future__ import annotations

import msgspec
import pytest
import torch
import typer
from typer.testing import CliRunner

from inputmeta.conformance.benchmarks import gpu_contenders
from inputmeta.conformance.benchmarks.__main__ import benchmark
from inputmeta.conformance.benchmarks.contenders import Operation, defined_bytes, measured, tensors_of
from inputmeta.conformance.benchmarks.gpu import (
    EXPANSION_RATIOS,
    GRAPH_RATIOS,
    HOST_RATIOS,
    NOTES,
    GpuReport,
    aims,
)
from inputmeta.conformance.benchmarks.gpu_contenders import DecodeSide, expansion_operations
from inputmeta.conformance.benchmarks.measure import interleaved
from inputmeta.conformance.benchmarks.report import publish
from inputmeta.conformance.benchmarks.workloads import FULL, TINY, Workload, gpu_workloads
from inputmeta.conformance.gpu.summary import Machine

CPU = torch.device("cpu")
WORKLOADS = gpu_workloads(TINY)
DECODES = [workload for workload in WORKLOADS if workload.path == "decode" and workload.expansion != "kv_ca_index"]
EXPANDED = [workload for workload in WORKLOADS if workload not in DECODES]


def name_of(workload: Workload) -> str:
    return workload.name


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch):
    monkeypatch.setattr(gpu_contenders, "empty_kernels", lambda count, device: lambda: None)


def test_the_full_workloads_are_those_of_the_task():
    full = gpu_workloads(FULL)
    decodes = {(len(one.sequences), one.total_q) for one in full[:-2]}
    assert decodes == {(count, count * rows) for count in (64, 256, 1024) for rows in (1, 4)}
    assert all((one.config.dense_ratios, one.config.sparse_ratios) == ((1, 128), (4,)) for one in full[:-2])
    assert full[0].config.max_model_len // full[0].config.block_size == 1024
    dense, prompt = full[-2:]
    assert (dense.total_q, dense.config.max_model_len, dense.config.dense_ratios) == (64, 131_072, (1,))
    assert (prompt.total_q, prompt.config.window_size) == (32_768, 128)


@pytest.mark.parametrize("workload", DECODES, ids=name_of)
def test_zos_and_eager_build_the_same_step(workload):
    side = DecodeSide(workload, CPU)
    zos, extracted, eager, fresh = (
        tensors_of(build()) for build in (side.metadata, side.extracted, side.eager_in_place, side.eager_fresh)
    )
    assert zos["block_tables"].shape == (workload.total_q, workload.config.max_model_len // workload.config.block_size)
    assert zos["block_tables"].data_ptr() == side.fields["block_tables"].data_ptr()
    assert eager["klen.4"].data_ptr() == side.eager["klen.4"].data_ptr()
    compared = zos.keys() - {"block_tables", "cu_seqlens_q"}
    assert compared == fresh.keys() - {"block_tables", "cu_seqlens_q", "cu_seqlens_k"}
    for key in compared:
        assert torch.equal(zos[key], eager[key]), key
        assert torch.equal(zos[key], extracted[key]), key
    assert side.written == sum(defined_bytes(workload, key, tensor) for key, tensor in zos.items())


@pytest.mark.parametrize("workload", DECODES[:1], ids=name_of)
def test_a_decode_step_is_measured_by_graph_and_by_host_time(workload):
    side = DecodeSide(workload, CPU)
    graph = measured(side.graph_operation(), GRAPH_RATIOS, 2, interleaved)
    host = measured(side.host_operation(), HOST_RATIOS, 2, interleaved)
    assert graph.microseconds.keys() == {"metadata", "empty", "fill", "memset"}
    assert host.microseconds.keys() == {"zos", "zos + extraction", "eager", "eager fresh"}
    assert graph.written == host.written == side.written


@pytest.mark.parametrize("workload", EXPANDED, ids=name_of)
def test_an_expansion_goes_to_one_buffer_and_to_several(workload):
    one, several = expansion_operations(workload, CPU, buffers=3)
    assert (one.repeated, several.repeated, one.tensors) == (3, 3, 1)
    width = 128 if workload.path == "prompt" else workload.config.max_model_len
    assert one.written == several.written == workload.total_q * width * 4
    line = measured(several, EXPANSION_RATIOS, 2, interleaved)
    assert line.ratios.keys() == {"fill / engine", "memset / engine"}


def test_times_are_of_one_of_the_repeated_calls_and_ratios_of_times():
    operation = Operation(DECODES[0], "x", 1, 8, {"engine": int, "fill": int, "memset": int}, repeated=4)
    samples = {"engine": [8000.0, 8000.0], "fill": [4000.0, 8000.0], "memset": [16000.0, 16000.0]}
    line = measured(operation, EXPANSION_RATIOS, 2, lambda runs, rounds: samples)
    assert line.microseconds["engine"].median == 2.0
    assert (line.ratios["fill / engine"].median, line.ratios["memset / engine"].median) == (0.75, 2.0)
    (aim,) = aims([line])
    assert (aim.value, aim.is_met) == (0.75, False)


def line_of(names, times, sequences=256):
    workload = DECODES[0]
    operation = Operation(workload, "x", 1, 8, dict.fromkeys(times, int))
    line = measured(operation, names, 1, lambda runs, rounds: {name: [value * 1e3] for name, value in times.items()})
    return msgspec.structs.replace(line, sequences=sequences)


def test_aims_are_held_against_the_stricter_ratio():
    graph = line_of(GRAPH_RATIOS, {"metadata": 6.0, "empty": 5.0, "fill": 1.0, "memset": 1.0})
    times = {"zos": 10.0, "zos + extraction": 60.0, "eager": 90.0, "eager fresh": 40.0}
    found = aims([graph, line_of(HOST_RATIOS, times), line_of(HOST_RATIOS, times, sequences=64)])
    assert [(aim.value, aim.is_met) for aim in found] == [(1.2, True), (4.0, False), (1.5, False)]


def test_the_report_has_a_table_for_each_kind_and_the_aims(capsys):
    lines = [
        line_of(GRAPH_RATIOS, {"metadata": 6.0, "empty": 5.0, "fill": 1.0, "memset": 1.0}),
        line_of(HOST_RATIOS, {"zos": 10.0, "zos + extraction": 60.0, "eager": 90.0, "eager fresh": 40.0}),
        line_of(EXPANSION_RATIOS, {"engine": 10.0, "fill": 9.0, "memset": 8.0}),
    ]
    machine = Machine(gpu="a GPU", compute_capability="9.0", driver="1", processor="x", versions={"torch": "2"})
    report = GpuReport(command="c", repeat=1, machine=machine, notes=NOTES, measured=lines, aims=aims(lines))
    publish(report, None)
    text = capsys.readouterr().out
    for part in ("a GPU; x; torch 2; 1 rounds", "metadata / empty", "1.20 [1.20-1.20]", "eager / zos", "missed", "met"):
        assert part in text
    assert msgspec.json.decode(msgspec.json.encode(report), type=GpuReport) == report


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_so():
    app = typer.Typer()
    app.command()(benchmark)
    result = CliRunner().invoke(app, ["--device", "cuda", "--scale", "tiny"])
    assert (result.exit_code, result.stderr.count("\n")) == (125, 1)
    assert CliRunner().invoke(app, ["--device", "tpu"]).exit_code == 2
