"""The benchmark of scaling runs and reports; the times themselves are nobody's test."""

from __future__ import annotations

import json

import typer
from typer.testing import CliRunner

from inputmeta.conformance.benchmarks.scaling import scaling


def test_a_tiny_run_measures_both_paths(tmp_path):
    app = typer.Typer()
    app.command()(scaling)
    target = tmp_path / "scaling.json"
    result = CliRunner().invoke(app, ["--scale", "tiny", "--repeat", "1", "--json", str(target)])
    assert result.exit_code == 0, result.output
    measured = json.loads(target.read_bytes())["measured"]
    sizes = [(one["sequences"], one["total_q"]) for one in measured]
    assert sizes == [
        (1, 4),
        (4, 16),
        (1, 8),
        (4, 32),
        (1, 8),
        (1, 32),
    ]
    assert all(one["microseconds"]["engine"]["median"] > 0 for one in measured)
