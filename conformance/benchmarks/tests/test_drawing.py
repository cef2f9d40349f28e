"""The benchmark of the generator runs and reports; the times themselves are nobody's test."""

from __future__ import annotations

import json

import typer
from typer.testing import CliRunner

from inputmeta.conformance.benchmarks.drawing import drawing


def test_a_short_run_measures_every_tier(tmp_path):
    app = typer.Typer()
    app.command()(drawing)
    target = tmp_path / "drawing.json"
    result = CliRunner().invoke(app, ["--cases", "3", "--json", str(target)])
    assert result.exit_code == 0, result.output
    report = json.loads(target.read_bytes())
    assert [(drawn["tier"], drawn["cases"]) for drawn in report["drawn"]] == [("small", 3), ("real", 3), ("many", 3)]
    for drawn in report["drawn"]:
        assert f"{drawn['tier']}: 3 cases" in result.output
        assert drawn["microseconds"].keys() == {"draw", "features", "expected"}
        assert all(spread["median"] > 0 for kind in ("microseconds", "ratios") for spread in drawn[kind].values())
