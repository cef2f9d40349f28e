"""The stages of a run on a GPU. Each is a function from the run's settings to a :class:`Stage`."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from inputmeta.conformance import exits
from inputmeta.conformance.gpu import wide
from inputmeta.conformance.gpu.builds import build_engine
from inputmeta.conformance.gpu.plants import PLANTS, Plant, catch_all, failing_controls
from inputmeta.conformance.gpu.processes import Python, Ran, run
from inputmeta.conformance.gpu.sanitizers import COMMAND, TOOLS, Tool, available, sanitize
from inputmeta.conformance.gpu.summary import FAILED, NO_GPU, PASSED, SKIPPED, Stage, counted_tests

SUBJECT = ("--subject", "engine-cuda")
WIDE_SEEDS = 5
LIMIT = 1500.0
"""Seconds after which a process is stopped: far more than any stage takes."""
TEST_FOLDERS = ("csrc/tests", "inputmeta/conformance/gpu/tests/device")
"""The engine's tests and those of the suite that need a GPU. The suite's other tests are the same everywhere (ci/test),
and a GPU does them harm: each worker process would open it."""


@dataclass(frozen=True)
class Settings:
    """What a run does. ``out``: where its files go; ``work``: where builds go, which the next run uses again."""

    out: Path
    work: Path
    python: Python = field(default_factory=Python)
    architecture: str = ""
    """Of the GPU, in CMake's notation."""
    jobs: int = 8
    tests: tuple[str, ...] = TEST_FOLDERS
    examples: int = 1000
    fuzz_seconds: float = 60.0
    batches: int = 500
    trace: Path | None = None
    trace_limit: int = 300
    tools: tuple[Tool, ...] = TOOLS
    plants: tuple[Plant, ...] = PLANTS

    def log(self, stage: str) -> Path:
        """Where a stage's output goes."""
        return self.out / f"{stage}.log"


def from_exit(name: str, ran: Ran, details: object = None) -> Stage:
    """A stage whose process says by its exit code how it went."""
    reasons = {exits.NOTHING_RAN: "nothing was checked", exits.NO_SUBJECT: ran.last_line}
    reason = reasons.get(ran.code, f"exit code {ran.code}: {ran.last_line}") if ran.code else ""
    return Stage(
        name=name,
        verdict=FAILED if ran.code else PASSED,
        reason=reason,
        seconds=round(ran.seconds, 1),
        command=ran.line,
        details=details,
    )


def command_stage(settings: Settings, name: str, command: list[str], details: Callable[[Ran], object]) -> Stage:
    """Run one command as a stage; ``details`` takes what is worth keeping from its output."""
    ran = run(command, settings.log(name), settings.python.environment(), LIMIT, settings.python.folder)
    return from_exit(name, ran, details(ran))


def counts_in(ran: Ran) -> list[str]:
    """The lines of a campaign's output that count cases."""
    words = ("passed", " cases in ", "coverage:", "verdict", "compared")
    return [line.strip() for line in ran.output.splitlines() if any(word in line for word in words)]


def run_tests(settings: Settings) -> Stage:
    """The engine's tests, and the suite's that need a GPU; a run in which one of these did not run has failed."""
    junit = settings.out / "junit.xml"
    junit.unlink(missing_ok=True)
    command = settings.python.module(
        "pytest", "-n", str(settings.jobs), "--dist", "worksteal", f"--junit-xml={junit}", *settings.tests
    )
    ran = run(command, settings.log("tests"), settings.python.environment(), LIMIT, settings.python.folder)
    counted = counted_tests(junit)
    stage = from_exit("tests", ran, counted)
    if counted is None:
        problem = f"no JUnit file, exit code {ran.code}: {ran.last_line}"
    elif counted.failed or ran.code:
        problem = f"{counted.failed} tests failed, exit code {ran.code}"
    elif not counted.gpu_passed:
        problem = "no test ran on the GPU"
    elif counted.skipped.get(NO_GPU):
        problem = f"{counted.skipped[NO_GPU]} tests were skipped: {NO_GPU}"
    else:
        return stage
    return msgspec.structs.replace(stage, verdict=FAILED, reason=problem)


def run_check(settings: Settings) -> Stage:
    """The corpus and the generated cases of `inputmeta check`."""
    command = settings.python.inputmeta(
        "check", *SUBJECT, "--examples", str(settings.examples), "--save-dir", str(settings.out / "failures")
    )
    return command_stage(settings, "check", command, counts_in)


def run_fuzz(settings: Settings) -> Stage:
    """Fresh cases for a while, from a seed that is printed."""
    command = settings.python.inputmeta(
        "fuzz", *SUBJECT, "--seconds", f"{settings.fuzz_seconds:g}", "--save-dir", str(settings.out / "failures")
    )
    return command_stage(settings, "fuzz", command, lambda ran: [*ran.output.splitlines()[:1], *counts_in(ran)])


def run_trace(settings: Settings) -> Stage:
    """A request trace, its decode steps by the ZOS path."""
    if settings.trace is None:
        return Stage(name="trace", verdict=SKIPPED, reason="no trace was given")
    command = settings.python.inputmeta(
        *("trace", str(settings.trace), *SUBJECT, "--zos", "--limit", str(settings.trace_limit)),
        *("--save-dir", str(settings.out / "failures")),
    )
    return command_stage(settings, "trace", command, lambda ran: ran.output.splitlines())


def run_sanitizers(settings: Settings) -> Stage:
    """Every tool of compute-sanitizer, all at once: each is one process that mostly waits."""
    if not available():
        return Stage(name="sanitizers", verdict=SKIPPED, reason=f"{COMMAND} is not on the PATH")
    folder = settings.out / "sanitizers"
    with ThreadPoolExecutor(max(1, min(len(settings.tools), settings.jobs))) as pool:
        each = [pool.submit(sanitize, t, settings.python, folder, count=settings.batches) for t in settings.tools]
        results = [future.result() for future in each]
    bad = [f"{result.tool} {result.verdict}: {result.detail}" for result in results if result.verdict != "clean"]
    unavailable = all(result.verdict == "unavailable" for result in results)
    return Stage(
        name="sanitizers",
        verdict=SKIPPED if unavailable else FAILED if bad else PASSED,
        reason="; ".join(bad),
        seconds=max(result.seconds for result in results),
        details=results,
    )


def run_plants(settings: Settings) -> Stage:
    """Every planted fault, each in a build of its own, must be caught, by what passes without one."""
    folder, count = settings.work / "plants", settings.batches
    with ThreadPoolExecutor(1) as pool:
        control = pool.submit(failing_controls, settings.plants, settings.python, folder / "control", count=count)
        caught = catch_all(settings.plants, folder, architecture=settings.architecture, jobs=settings.jobs, count=count)
    problems = control.result() + [f"{one.plant}: {one.detail}" for one in caught if one.caught_by is None]
    return Stage(
        name="plants",
        verdict=FAILED if problems or not caught else PASSED,
        reason="; ".join(problems),
        seconds=max((one.seconds for one in caught), default=0.0),
        details=caught,
    )


def run_benchmark(settings: Settings) -> Stage:
    """The benchmark on the GPU; its times are nobody's verdict."""
    target = settings.out / "benchmark.json"
    command = settings.python.module("inputmeta.conformance.benchmarks", "--device", "cuda", "--json", str(target))
    return command_stage(settings, "benchmark", command, lambda _: target.name)


def run_wide(settings: Settings) -> Stage:
    """Faults of size in the kernels, found by the wide tier over five seeds and reduced; and its speed."""
    begin, out = time.monotonic(), settings.out
    cores, files = settings.jobs, {"engine-cuda": "wide_speed_cuda.json", "engine": "wide_speed_cpu.json"}
    _, slow = wide.measure(settings.python, out, "engine-cuda", files["engine-cuda"], sorted({4, cores}))
    _, wrong = wide.measure(settings.python, out, "engine", files["engine"], [cores])
    faults = wide.find_faults(
        settings.python, settings.work / "wide", out, architecture=settings.architecture, jobs=cores, seeds=WIDE_SEEDS
    )
    problems = [*slow, *wrong, *faults.problems]
    speeds = [line for file in files.values() for line in wide.speed_lines(out, file)]
    return Stage(
        name="wide",
        verdict=FAILED if problems or faults.found < faults.looked_for else PASSED,
        reason="; ".join(problems),
        seconds=round(time.monotonic() - begin, 1),
        details=[f"{faults.found} of {faults.looked_for} faults and seeds found as declared and reduced", *speeds],
    )


def run_build(settings: Settings) -> tuple[Stage, Settings]:
    """Build the engine for this interpreter; the settings that use it."""
    begin = time.monotonic()
    build = build_engine(settings.work / "engine", architecture=settings.architecture, jobs=settings.jobs)
    if build.failed is not None:
        return from_exit("build", build.failed), settings
    built = Stage(name="build", verdict=PASSED, seconds=round(time.monotonic() - begin, 1))
    return built, replace(settings, python=Python(build.site))


STAGES: dict[str, Callable[[Settings], Stage]] = {
    "tests": run_tests,
    "check": run_check,
    "fuzz": run_fuzz,
    "trace": run_trace,
    "sanitizers": run_sanitizers,
    "plants": run_plants,
    "wide": run_wide,
    "benchmark": run_benchmark,
}
"""In the order in which they run."""
OPTIONAL = ("wide", "benchmark")
"""Run only when asked for by name."""
SIDE_BY_SIDE = ("check", "fuzz", "trace", "sanitizers", "plants")
"""Stages of few processes each, which are run at once; the others want the machine to themselves."""
