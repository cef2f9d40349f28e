"""The benchmark of the transports runs and reports; the times themselves are nobody's test."""

from __future__ import annotations

import json
import shutil

import pytest
import typer
from typer.testing import CliRunner

from inputmeta.conformance.benchmarks.transports import FORMS, transports


@pytest.mark.slow
def test_a_tiny_run_measures_every_transport(tmp_path):
    app = typer.Typer()
    app.command()(transports)
    target = tmp_path / "transports.json"
    result = CliRunner().invoke(app, ["--scale", "tiny", "--repeat", "1", "--json", str(target)])
    assert result.exit_code == 0, result.output
    assert "decode, 2 sequences, 11 tokens each" in result.output
    report = json.loads(target.read_bytes())
    names = {"in process", "worker", "command, lines of JSON"} | ({"command, C++"} if shutil.which("c++") else set())
    assert {one["name"] for one in report["transports"]} == names
    assert {one["name"] for one in report["forms"]} == set(FORMS)
    assert all(
        rate > 0 for kind in ("transports", "forms") for one in report[kind] for rate in one["per_second"].values()
    )


def test_an_unknown_scale_is_a_usage_error():
    app = typer.Typer()
    app.command()(transports)
    assert CliRunner().invoke(app, ["--scale", "huge"]).exit_code == 2
