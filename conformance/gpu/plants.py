"""Faults that the kernels can be compiled with, and what must catch each.

``csrc`` compiles one of them in with the CMake variable INPUTMETA_PLANT. A fault that nothing catches fails the run.
"""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from inputmeta.conformance import exits
from inputmeta.conformance.gpu.builds import build_engine
from inputmeta.conformance.gpu.processes import Python, Ran, run
from inputmeta.conformance.gpu.sanitizers import BY_NAME, sanitize

TIMEOUT = 600.0
SUITE, LAUNCHES = "suite", "launches"
"""What may catch a fault, beside the sanitizers' names: corpus and generated batches, or the tests of launches."""
LAUNCH_TESTS = (
    "inputmeta/conformance/gpu/tests/device/test_launches.py",
    "inputmeta/conformance/gpu/tests/device/test_graph.py",
)


@dataclass(frozen=True)
class Plant:
    """A planted fault: its value of INPUTMETA_PLANT, what it does, and what catches it, the cheapest first."""

    name: str
    text: str
    caught_by: tuple[str, ...]


PLANTS = (
    Plant("missing_bound", "block tables: the columns of a table are not bounded", (SUITE, "memcheck")),
    Plant("launch_race", "block tables: read what other blocks of their launch are still writing", (LAUNCHES,)),
    Plant("stale_tail", "expansions: cells right of a row's length keep what the last step left", (SUITE,)),
    Plant("stack_stride", "the buckets of a stack lie as far apart as this step is long", (SUITE,)),
    Plant("int_product", "the flat cell of a row is an int product, which wraps past 2^31 cells", (LAUNCHES,)),
    Plant("lost_carry", "cumsum: a round of the scan forgets the sum of the rounds before", (LAUNCHES,)),
    Plant("early_begin", "gathers: read sums that the kernel in front of them is still writing", (LAUNCHES,)),
    Plant("stale_rows", "rows past a shorter sum keep what the last step left there", (SUITE,)),
    Plant("moved_rows", "fresh tokens and n-grams are read at the shorter step's rows", (SUITE,)),
)
"""Those of ``csrc/cuda/plant.h``."""


class Caught(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one fault: ``caught_by`` is None if nothing caught it, ``detail`` how it showed."""

    plant: str
    text: str
    caught_by: str | None
    detail: str
    seconds: float


def catch(plant: Plant, folder: Path, *, architecture: str, jobs: int, count: int) -> Caught:
    """Build the engine with one fault and run what must catch it until something has."""
    build = build_engine(folder, plant=plant.name, architecture=architecture, jobs=jobs)
    if build.failed is not None:
        detail = f"the build failed: {build.failed.last_line}"
        return Caught(plant=plant.name, text=plant.text, caught_by=None, detail=detail, seconds=build.failed.seconds)
    seconds, seen = 0.0, ""
    for catcher in plant.caught_by:
        caught, took, seen = tried(catcher, Python(build.site), folder, count)
        seconds += took
        if caught:
            return Caught(plant=plant.name, text=plant.text, caught_by=catcher, detail=seen, seconds=round(seconds, 1))
    detail = f"passed {', '.join(plant.caught_by)}; last: {seen}"
    return Caught(plant=plant.name, text=plant.text, caught_by=None, detail=detail, seconds=round(seconds, 1))


def tried(catcher: str, python: Python, folder: Path, count: int) -> tuple[bool, float, str]:
    """Whether one part of the suite, or one sanitizer, caught the engine of ``python``; seconds; how it showed."""
    if catcher in BY_NAME:
        result = sanitize(BY_NAME[catcher], python, folder, count=count, timeout=TIMEOUT)
        return result.verdict == "errors", result.seconds, result.detail
    ran = run_catcher(catcher, python, folder, count)
    died = ran.code < 0 and ran.code != -signal.SIGKILL  # that one comes from outside: the machine's memory was short
    return died or ran.code == exits.DIFFERS, ran.seconds, ran.last_line


def run_catcher(catcher: str, python: Python, folder: Path, count: int) -> Ran:
    """One part of the suite with the engine of ``python``."""
    if catcher == LAUNCHES:
        command = python.module("pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", *LAUNCH_TESTS)
    else:
        command = python.module(
            "inputmeta.conformance.gpu.batches", "--count", str(count), "--save-dir", str(folder / "failures")
        )
    return run(command, folder / f"{catcher}.log", python.environment(), TIMEOUT, python.folder)


def failing_controls(plants: tuple[Plant, ...], python: Python, folder: Path, *, count: int) -> list[str]:
    """What of the suite does not pass with the engine of ``python``, which has no fault: it would catch anything."""
    catchers = [name for name in (SUITE, LAUNCHES) if any(name in plant.caught_by for plant in plants)]
    controls = {name: run_catcher(name, python, folder, count) for name in catchers}
    return [
        f"{name} fails without a fault: exit code {ran.code}: {ran.last_line}"
        for name, ran in controls.items()
        if ran.code != exits.CONFORMS
    ]


def catch_all(plants: tuple[Plant, ...], folder: Path, *, architecture: str, jobs: int, count: int) -> list[Caught]:
    """Every fault, as many at once as ``jobs`` allows for."""
    at_once = max(1, min(len(plants), jobs // 2))
    with ThreadPoolExecutor(at_once) as pool:
        share = max(1, jobs // at_once)
        each = [
            pool.submit(catch, plant, folder / plant.name, architecture=architecture, jobs=share, count=count)
            for plant in plants
        ]
        return [future.result() for future in each]
