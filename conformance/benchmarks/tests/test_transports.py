"""The benchmark of the doors runs and reports; the times themselves are nobody's test."""

from __future__ import annotations

import json
import shutil

import typer
from typer.testing import CliRunner

from inputmeta.conformance.benchmarks.transports import doors


def test_a_tiny_run_measures_every_door(tmp_path):
    app = typer.Typer()
    app.command()(doors)
    target = tmp_path / "doors.json"
    result = CliRunner().invoke(app, ["--scale", "tiny", "--rounds", "1", "--json", str(target)])
    assert result.exit_code == 0, result.output
    assert "round trips a second: decode, 2 sequences, 11 tokens each" in result.output
    report = json.loads(target.read_bytes())
    names = {"in process", "worker", "command, lines of JSON"} | ({"command, C++"} if shutil.which("c++") else set())
    assert {door["name"] for door in report["doors"]} == names
    assert all(rate > 0 for door in report["doors"] for rate in door["per_second"].values())


def test_an_unknown_scale_is_a_usage_error():
    app = typer.Typer()
    app.command()(doors)
    assert CliRunner().invoke(app, ["--scale", "huge"]).exit_code == 2
