"""The summary of a run on a GPU: what ran, what it gave, on what; as JSON and as lines."""

from __future__ import annotations

import platform
import subprocess
from collections import Counter
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
NO_GPU = "no GPU"
"""Why a test that needs one was skipped."""
GPU_TESTS = "inputmeta.conformance.gpu.tests.device"
PACKAGES = ("inputmeta-conformance", "torch", "triton", "numpy", "hypothesis", "pytest")


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a JUnit file. ``skipped`` is by reason; ``gpu_passed`` counts the passed tests that need a GPU."""

    passed: int
    failed: int
    skipped: dict[str, int]
    gpu_passed: int
    gpu_failed: int
    gpu_skipped: int
    seconds: float


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: its verdict, the reason if that is not `passed`, its command, and what it counted."""

    name: str
    verdict: str
    reason: str = ""
    seconds: float = 0.0
    command: str = ""
    details: Any = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a run ran on; ``gpu`` is None where there is none."""

    gpu: str | None
    compute_capability: str | None
    driver: str | None
    processor: str
    versions: dict[str, str]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run; ``passed`` only if no stage failed and something ran on the GPU."""

    command: str
    commit: str
    machine: Machine
    verdict: str
    seconds: float
    stages: list[Stage]


def counted_tests(junit: Path) -> Counted | None:
    """The counts of a JUnit file; None if there is none, or it is not whole."""
    try:
        root = ElementTree.parse(junit).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    counts: Counter[tuple[str, bool]] = Counter()
    reasons: Counter[str] = Counter()
    for case in root.iter("testcase"):
        on_gpu = case.get("classname", "").startswith(GPU_TESTS)
        skipped = case.find("skipped")
        if skipped is not None:
            reasons[skipped.get("message") or "no reason given"] += 1
            counts[SKIPPED, on_gpu] += 1
        else:
            bad = case.find("failure") is not None or case.find("error") is not None
            counts[FAILED if bad else PASSED, on_gpu] += 1
    return Counted(
        passed=counts[PASSED, True] + counts[PASSED, False],
        failed=counts[FAILED, True] + counts[FAILED, False],
        skipped=dict(reasons.most_common()),
        gpu_passed=counts[PASSED, True],
        gpu_failed=counts[FAILED, True],
        gpu_skipped=counts[SKIPPED, True],
        seconds=round(sum(float(suite.get("time", 0)) for suite in root.iter("testsuite")), 1),
    )


def machine() -> Machine:
    """What this is, without failing for what is not there."""
    versions = {"python": platform.python_version(), "cuda of torch": "none"}
    gpu = capability = None
    with suppress(ModuleNotFoundError):
        import torch  # noqa: PLC0415 - takes seconds, and the rest of the module is read without it

        versions["cuda of torch"] = torch.version.cuda or "none"
        if torch.cuda.is_available():
            gpu, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    for tool in ("nvcc", "compute-sanitizer", "ncu"):
        versions[tool] = first_match(tool_output(tool, "--version"), ("release", "Version", "version"))
    return Machine(
        gpu=gpu,
        compute_capability=None if capability is None else ".".join(map(str, capability)),
        driver=tool_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").strip() or None,
        processor=cpu_model(),
        versions=versions,
    )


def cpu_model() -> str:
    """The processor's name, or what the platform calls it."""
    table = Path("/proc/cpuinfo")
    lines = table.read_text().splitlines() if table.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} CPUs" if names else platform.processor() or platform.machine()


def tool_output(*command: str) -> str:
    """What a tool prints; empty if it is not there or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def first_match(text: str, words: tuple[str, ...]) -> str:
    """The first line that holds one of the words.

    >>> first_match("Cuda compiler\\nrelease 13.0, V13.0.1", ("release",)), first_match("", ("release",))
    ('release 13.0, V13.0.1', 'not found')
    """
    return next((line.strip() for line in text.splitlines() if any(word in line for word in words)), "not found")


def verdict_of(stages: list[Stage]) -> str:
    """``failed`` if a stage did, or if none passed: a run that checked nothing proves nothing."""
    if any(stage.verdict == FAILED for stage in stages):
        return FAILED
    return PASSED if any(stage.verdict == PASSED for stage in stages) else FAILED


def write_json(report: msgspec.Struct, path: Path) -> None:
    """A summary, or any other report, as indented JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def stage_line(stage: Stage) -> str:
    """One line a stage."""
    reason = f": {stage.reason}" if stage.reason else ""
    return f"{stage.verdict:8}{stage.name:12}{stage.seconds:7.1f} s{reason}"
