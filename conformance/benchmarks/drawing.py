"""`python -m inputmeta.conformance.benchmarks.drawing`: what a generated case costs: to draw, to visit and to have
expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time_ns

import msgspec
import typer
from rich.table import Table

from inputmeta.conformance.benchmarks import report
from inputmeta.conformance.benchmarks.measure import Spread, collector_off, spread_of, spreads_of_ratios
from inputmeta.conformance.campaign.generated import for_each_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.generate import Profile, features
from inputmeta.conformance.generate.profile import TIERS
from inputmeta.conformance.gpu.summary import machine

NOTES = (
    "Processor time a case, median over the cases; ratios are taken case by case; the same cases in every run.",
    "draw: by Hypothesis the first hundred cases, the others from a random generator. features: what the case visits. "
    "expected: the oracle's fields.",
)
SEED = 1
RATIOS = {"features / draw": ("features", "draw"), "draw / expected": ("draw", "expected")}


class TierCost(msgspec.Struct, frozen=True):
    """The generated cases of one tier; microseconds a case."""

    tier: str
    cases: int
    microseconds: dict[str, Spread]
    ratios: dict[str, Spread]


class GenerationReport(report.Report, frozen=True, kw_only=True):
    """A whole run; each case is a round."""

    tiers: tuple[TierCost, ...]

    def tables(self) -> Iterator[Table]:
        """A line a tier."""
        costs = list(self.tiers[0].microseconds)
        rows = [
            [
                one.tier,
                str(one.cases),
                *(report.spread(one.microseconds[name], 0) for name in costs),
                *(report.spread(one.ratios[name], 3) for name in RATIOS),
            ]
            for one in self.tiers
        ]
        yield report.table(["tier", "cases", *(f"{name} us" for name in costs), *RATIOS], rows)


def measured(tier: str, cases: int) -> TierCost:
    """Generates that many cases of one tier."""
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
    microseconds = {name: spread_of(values) for name, values in samples.items()}
    return TierCost(tier, len(samples["draw"]), microseconds, spreads_of_ratios(samples, RATIOS))


def drawing(json: report.Json = None, repeat: report.Repeat = 500) -> None:
    """Measures what a generated case costs, by tier: to draw, to visit, to have expected."""
    tiers = tuple(measured(tier, repeat) for tier in TIERS)
    command = report.command_line(".drawing")
    report.publish(GenerationReport(command=command, machine=machine(), repeat=repeat, notes=NOTES, tiers=tiers), json)


if __name__ == "__main__":
    typer.run(drawing)
