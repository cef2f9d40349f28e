"""`python -m inputmeta.conformance.benchmarks.drawing`: what a generated case costs: to draw, to visit and to have
expected.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time_ns
from typing import Annotated

import msgspec
import typer

from inputmeta.conformance.benchmarks.measure import Spread, collector_off, ratios, spread_of
from inputmeta.conformance.benchmarks.report import cpu_model, write_json
from inputmeta.conformance.campaign.generated import for_each_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.generate import Profile, features
from inputmeta.conformance.generate.profile import TIERS
from inputmeta.conformance.version import VERSION

NOTES = (
    "Processor time a case, median over the cases; ratios are taken case by case; the same cases in every run.",
    "draw: the strategy and what hypothesis adds. features: what the case visits. expected: the oracle's fields.",
)
SEED = 1
RATIOS = {"features / draw": ("features", "draw"), "draw / expected": ("draw", "expected")}


class Drawn(msgspec.Struct, frozen=True):
    """The cases of one tier; microseconds a case."""

    tier: str
    cases: int
    microseconds: dict[str, Spread]
    ratios: dict[str, Spread]


class DrawingReport(msgspec.Struct, frozen=True):
    """A whole run."""

    command: str
    version: str
    python: str
    cpu: str
    notes: tuple[str, ...]
    drawn: tuple[Drawn, ...]


def measured(tier: str, cases: int) -> Drawn:
    """Draws that many cases of one tier."""
    samples: dict[str, list[float]] = {"draw": [], "features": [], "expected": []}
    begin = process_time_ns()

    def lap(name: str) -> None:
        nonlocal begin
        end = process_time_ns()
        samples[name].append((end - begin) / 1e3)
        begin = process_time_ns()

    def measure(case: Case) -> None:
        lap("draw")
        features(case)
        lap("features")
        for index in range(len(case.steps)):
            step_request(case, index).expected()
        lap("expected")

    with collector_off():
        for_each_case(Profile(tiers=(tier,), invalid=0), SEED, cases, measure)
    return Drawn(
        tier=tier,
        cases=len(samples["draw"]),
        microseconds={name: spread_of(values) for name, values in samples.items()},
        ratios={name: spread_of(ratios(samples[above], samples[below])) for name, (above, below) in RATIOS.items()},
    )


def lines(report: DrawingReport) -> Iterator[str]:
    """The report as text."""
    for drawn in report.drawn:
        yield f"{drawn.tier}: {drawn.cases} cases"
        for name, spread in drawn.microseconds.items():
            yield f"  {spread.median:>10,.0f} µs [{spread.lower_quartile:,.0f} {spread.upper_quartile:,.0f}] {name}"
        for name, spread in drawn.ratios.items():
            yield f"  {spread.median:>10.3f}    [{spread.lower_quartile:.3f} {spread.upper_quartile:.3f}] {name}"


def drawing(
    json: Annotated[Path | None, typer.Option(help="Also write the report as JSON to this file.")] = None,
    cases: Annotated[int, typer.Option(min=1, help="Cases of each tier.")] = 500,
) -> None:
    """Measures what a generated case costs, by tier: to draw, to visit, to have expected."""
    report = DrawingReport(
        command=" ".join(["python -m inputmeta.conformance.benchmarks.drawing", *sys.argv[1:]]),
        version=VERSION,
        python=platform.python_version(),
        cpu=cpu_model(),
        notes=NOTES,
        drawn=tuple(measured(tier, cases) for tier in TIERS),
    )
    for line in lines(report):
        typer.echo(line)
    if json is not None:
        write_json(report, json)


if __name__ == "__main__":
    typer.run(drawing)
