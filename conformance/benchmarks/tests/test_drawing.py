"""The benchmark of the generator runs and reports; the times themselves are nobody's test."""

from __future__ import annotations

import json
import re

import typer
from typer.testing import CliRunner

from inputmeta.conformance.benchmarks.drawing import drawing


def test_a_short_run_measures_every_tier(tmp_path):
    app = typer.Typer()
    app.command()(drawing)
    target = tmp_path / "drawing.json"
    result = CliRunner().invoke(app, ["--repeat", "3", "--json", str(target)])
    assert result.exit_code == 0, result.output
    report = json.loads(target.read_bytes())
    assert [(one["tier"], one["cases"]) for one in report["tiers"]] == [("small", 3), ("real", 3), ("many", 3)]
    for one in report["tiers"]:
        assert re.search(rf"^{one['tier']} +3 ", result.output, re.MULTILINE)
        assert one["microseconds"].keys() == {"draw", "features", "expected"}
        assert all(spread["median"] > 0 for kind in ("microseconds", "ratios") for spread in one[kind].values())
