"""``python -m inputmeta.conformance.gpu``: see ``--help``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from inputmeta.conformance import exits
from inputmeta.conformance.console import fail, say
from inputmeta.conformance.gpu import summary
from inputmeta.conformance.gpu.processes import ROOT
from inputmeta.conformance.gpu.stages import OPTIONAL, SIDE_BY_SIDE, STAGES, Settings, run_build
from inputmeta.conformance.gpu.summary import FAILED, PASSED, SKIPPED, Stage, machine, verdict_of

COMMIT = ("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
"""Says the commit, and whether files differ from it."""


class StageName(StrEnum):
    """The stages, as choices of the command line."""

    TESTS = "tests"
    CHECK = "check"
    FUZZ = "fuzz"
    TRACE = "trace"
    SANITIZERS = "sanitizers"
    PLANTS = "plants"
    WIDE = "wide"
    BENCHMARK = "benchmark"


def chosen_stages(names: Sequence[str] | None) -> list[str]:
    """The stages to run, in their order; without names all but the optional ones."""
    wanted = set(names) if names else set(STAGES) - set(OPTIONAL)
    return [name for name in STAGES if name in wanted]


def run_stages(names: Sequence[str], settings: Settings) -> Iterator[Stage]:
    """Run the stages; those that may go side by side do, as one group where the first of them stands."""
    group = [name for name in names if name in SIDE_BY_SIDE]
    for name in names:
        if name not in SIDE_BY_SIDE:
            yield STAGES[name](settings)
        elif name == group[0]:
            with ThreadPoolExecutor(len(group)) as pool:
                for future in [pool.submit(STAGES[member], settings) for member in group]:
                    yield future.result()


def required(stage: Stage, named: bool) -> Stage:
    """A stage that was asked for by name and was skipped has failed."""
    return msgspec.structs.replace(stage, verdict=FAILED) if stage.verdict == SKIPPED and named else stage


def main(  # noqa: PLR0917 - a command has as many options as it has
    stage: Annotated[list[StageName] | None, typer.Option(help="stage to run; may be repeated")] = None,
    out: Annotated[Path, typer.Option(help="folder for the summary, JUnit XML and logs")] = ROOT / "build" / "gpu",
    build: Annotated[bool, typer.Option("--build", help="build the engine here, for this interpreter")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="processes at once")] = min(16, os.cpu_count() or 1),
    fuzz_seconds: Annotated[float, typer.Option(min=1, help="length of the stage fuzz")] = 60.0,
    batches: Annotated[int, typer.Option(min=1, help="generated batches under sanitizers and planted faults")] = 500,
    trace: Annotated[Path | None, typer.Option(help="request trace to replay")] = None,
    trace_limit: Annotated[int, typer.Option(min=1, help="its requests to replay")] = 300,
) -> None:
    """Test the engine on a GPU: every stage a process of its own, its output in OUT/STAGE.log.

    Stages: tests (pytest: the engine's, and all that need a GPU), check, fuzz, trace (if one is given), sanitizers
    (compute-sanitizer, if it is there), plants (kernel faults, each of which must be caught); only if named: wide
    (faults of size in the kernels, found and reduced; speed of the wide tier), benchmark. A stage that is
    named must not be skipped. OUT/summary.json has counts, verdicts and versions, OUT/junit.xml the tests. Exit
    codes: 0 all passed, 1 something failed, 4 there is no GPU.
    """
    begin = time.monotonic()
    names = chosen_stages(stage)
    here = machine()
    settings = Settings(
        out=out.absolute(),
        work=ROOT / "build" / "gpu-work",
        architecture=(here.compute_capability or "").replace(".", ""),
        jobs=jobs,
        fuzz_seconds=fuzz_seconds,
        batches=batches,
        trace=None if trace is None else trace.absolute(),
        trace_limit=trace_limit,
    )
    stages: list[Stage] = []

    def keep(new: Stage) -> None:
        stages.append(new)
        say(summary.stage_line(new))
        summary.write_json(
            summary.Summary(
                command=" ".join(["python -m inputmeta.conformance.gpu", *sys.argv[1:]]),
                commit=summary.tool_output(*COMMIT).strip(),
                machine=here,
                verdict=verdict_of(stages),
                seconds=round(time.monotonic() - begin, 1),
                stages=stages,
            ),
            settings.out / "summary.json",
        )

    if here.gpu is None:
        keep(Stage(name="machine", verdict=FAILED, reason="there is no GPU: no test can run on it"))
        raise fail("there is no GPU here", exits.NOTHING_RAN)
    say(f"{here.gpu}, {jobs} jobs, stages {', '.join(names)}")
    if build:
        built, settings = run_build(settings)
        keep(built)
        if built.verdict != PASSED:
            raise typer.Exit(exits.DIFFERS)
    for done in run_stages(names, settings):
        keep(required(done, named=bool(stage)))
    raise typer.Exit(exits.CONFORMS if verdict_of(stages) == PASSED else exits.DIFFERS)


if __name__ == "__main__":
    typer.run(main)
