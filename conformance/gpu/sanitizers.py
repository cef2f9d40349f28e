"""compute-sanitizer over :mod:`inputmeta.conformance.gpu.batches`: one process a tool."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from inputmeta.conformance.gpu.processes import Python, Ran, run

COMMAND = "compute-sanitizer"
FOUND_ERRORS = 99
"""Exit code that the sanitizer is told to end with when it has found something."""
TIMEOUT = 1500.0


@dataclass(frozen=True)
class Tool:
    """One tool of compute-sanitizer: its options, and how the batches run under it."""

    name: str
    options: tuple[str, ...] = ()
    uncached: bool = False
    """Every tensor is an allocation of its own: torch's cache would hide accesses past its end, and what it held."""
    own_buffers: bool = False


TOOLS = (
    Tool("memcheck", options=("--padding", "64"), uncached=True),
    Tool("racecheck"),
    Tool("initcheck", uncached=True, own_buffers=True),
    Tool("synccheck"),
)
BY_NAME = {tool.name: tool for tool in TOOLS}

_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
_COUNTS = re.compile(r"^(?:corpus|generated)[^\n]*?: (\d+) passed, (\d+) failed, (\d+) unsupported", re.MULTILINE)
_FINDING = re.compile(
    r"^=========\s+((?:Invalid|Uninitialized|Host API|Race|Error|Warning|Barrier|Program hit)[^\n]*)", re.M
)


class Sanitized(msgspec.Struct, frozen=True, kw_only=True):
    """What one tool said. ``verdict``: clean, errors (it found something), failed (it did not get through), unavailable
    (it does not work on this machine). ``cases``: cases that passed under it."""

    tool: str
    verdict: str
    errors: int
    cases: int
    seconds: float
    detail: str
    command: str


def available() -> bool:
    """Whether compute-sanitizer is on the PATH."""
    return shutil.which(COMMAND) is not None


def sanitize(tool: Tool, python: Python, folder: Path, *, count: int, timeout: float = TIMEOUT) -> Sanitized:
    """Run the corpus and ``count`` generated batches under one tool; its report is ``folder``/NAME.log."""
    batches = python.module(
        "inputmeta.conformance.gpu.batches",
        *("--count", str(count), "--save-dir", str(folder / f"{tool.name}-failures")),
        *(("--own-buffers",) if tool.own_buffers else ()),
    )
    command = [
        *(COMMAND, "--tool", tool.name, "--error-exitcode", str(FOUND_ERRORS), "--report-api-errors", "no"),
        *(*tool.options, *batches),
    ]
    more = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if tool.uncached else {}
    ran = run(command, folder / f"{tool.name}.log", python.environment(more), timeout, python.folder)
    return judged(tool.name, ran)


def judged(tool: str, ran: Ran) -> Sanitized:
    """The verdict on a run from its exit code and its report."""
    summary = _SUMMARY.search(ran.output)
    errors = int(summary[1]) if summary else 0
    passed, failed = (sum(int(count[part]) for count in _COUNTS.findall(ran.output)) for part in (0, 1))
    found = _FINDING.search(ran.output)
    verdict, detail = "clean", ""
    if "Device not supported" in ran.output:
        verdict, detail = "unavailable", f"{COMMAND} does not support the device"
    elif errors or ran.code == FOUND_ERRORS:
        verdict, detail = "errors", found[1].strip() if found else ran.last_line
    elif ran.code or failed or not passed or summary is None:
        verdict, detail = "failed", f"exit code {ran.code}, {passed} cases passed: {ran.last_line}"
    return Sanitized(
        tool=tool,
        verdict=verdict,
        errors=errors,
        cases=passed,
        seconds=round(ran.seconds, 1),
        detail=detail,
        command=ran.line,
    )
