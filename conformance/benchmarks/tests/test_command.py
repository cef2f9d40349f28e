"""The benchmark command runs and reports; the times themselves are nobody's test."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from inputmeta.conformance.benchmarks.__main__ import RATIOS, benchmark, run_benchmark
from inputmeta.conformance.benchmarks.contenders import EngineSide, NumpySide, operations, tensors_of, window_expansion
from inputmeta.conformance.benchmarks.measure import interleaved
from inputmeta.conformance.benchmarks.workloads import TINY, workloads

TINY_WORKLOADS = workloads(TINY)


def test_a_tiny_run_measures_every_operation_and_constructs_every_workload():
    report = run_benchmark("tiny", 2)
    assert len(report.constructed) == len(TINY_WORKLOADS)
    assert [line.operation for line in report.measured] == [
        *["prepare", "prepare + kv_swa_full_index"] * len(TINY.prompt_sequences),
        *["prepare", "prepare + kv_swa_index"] * len(TINY.decode_sequences),
        "kv_ca_index alone",
    ]
    assert all(line.ratios.keys() == RATIOS.keys() and line.written > 0 for line in report.measured)


def test_the_command_prints_plain_columns_and_writes_json(tmp_path, monkeypatch):
    app = typer.Typer()
    app.command()(benchmark)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--scale", "tiny", "--repeat", "1"])
    target = tmp_path / "report.json"
    result = CliRunner().invoke(app, ["--scale", "tiny", "--repeat", "1", "--json", str(target)])
    assert result.exit_code == 0, result.output
    assert "engine / memset" in result.output
    report = json.loads(target.read_bytes())
    assert report["command"] == "python -m inputmeta.conformance.benchmarks --scale tiny --repeat 1"
    assert report["machine"]["versions"].keys() >= {"inputmeta-conformance", "python", "numpy", "torch"}
    assert report["measured"][0]["ratios"]["numpy / engine"].keys() >= {"median", "lower_quartile", "upper_quartile"}


def test_an_unknown_scale_is_a_usage_error():
    app = typer.Typer()
    app.command()(benchmark)
    assert CliRunner().invoke(app, ["--scale", "huge"]).exit_code == 2


@pytest.mark.parametrize("workload", TINY_WORKLOADS, ids=lambda workload: workload.name)
def test_contenders_build_the_same_fields(workload):
    engine_side, numpy_side = EngineSide(workload), NumpySide(workload)
    window = window_expansion(workload)
    ours = tensors_of(engine_side.prepare_expanded(window, None))
    theirs = numpy_side.prepare_with_window()
    assert ours.keys() == {key for key, value in theirs.items() if isinstance(value, np.ndarray)}
    for key in ours.keys() - {"block_tables"}:
        np.testing.assert_array_equal(ours[key].numpy(), theirs[key], err_msg=key)


@pytest.mark.parametrize("workload", TINY_WORKLOADS, ids=lambda workload: workload.name)
def test_reused_buffers_are_written_and_rotate(workload):
    for operation in operations(workload):
        results = [operation.runs["engine"]() for _ in range(4)]
        addresses = [next(iter(tensors_of(result).values())).data_ptr() for result in results]
        if operation.name.startswith("prepare"):
            assert len(set(addresses)) == 3
            assert addresses[0] == addresses[3]


def test_every_contender_is_timed_in_every_round():
    calls = []
    samples = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert {name: len(values) for name, values in samples.items()} == {"a": 3, "b": 3}
    assert set(calls) == {"a", "b"}
