"""The wide tier on a GPU: faults of size in the kernels, found and reduced; and how fast it is there and on the cores.

Results: ``wide_faults_cuda.json`` (a line a fault and seed), ``wide_speed_cuda.json``, ``wide_speed_cpu.json``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from inputmeta.conformance import exits
from inputmeta.conformance.gpu.builds import lay_out
from inputmeta.conformance.gpu.processes import ROOT, Python, Ran, run
from inputmeta.conformance.gpu.summary import Machine, machine, write_json
from inputmeta.conformance.mutants.wide_cuda import PLANTS, build_all
from inputmeta.conformance.subjects.base import SubjectError

TIMEOUT = 240.0
AT_ONCE = 12
"""Faults that are looked for at once: they share the GPU."""
SPEED_SECONDS = 5.0


class FaultsFound(msgspec.Struct, frozen=True, kw_only=True):
    """The table: what :class:`inputmeta.conformance.mutants.wide_table.Sized` has, of every fault and seed."""

    command: str
    machine: Machine
    at_once: int
    faults: list[dict[str, Any]]


@dataclass(frozen=True)
class WideRun:
    """What the stage has come to: how many faults and seeds were found and reduced of how many; what went wrong."""

    found: int
    looked_for: int
    problems: list[str]


def site_with(module: Path, engine: Path, site: Path) -> Python:
    """An interpreter whose engine is that of the folder ``engine``, but for the kernels of ``module``."""
    shutil.rmtree(site, ignore_errors=True)
    folder = lay_out(site) / "engine"
    shutil.copytree(engine, folder, ignore=shutil.ignore_patterns("__pycache__", "_cuda*.so"))
    shutil.copy(module, folder / module.name)
    return Python(site)


def look_for(name: str, python: Python, folder: Path, seeds: int) -> Ran:
    """The wide tier on the engine with one fault; its table is ``folder``/NAME.json."""
    command = python.module(
        *("inputmeta.conformance.mutants.wide_table", name, "--cuda", "--seeds", str(seeds)),
        *("--json", str(folder / f"{name}.json")),
    )
    return run(command, folder / f"{name}.log", python.environment(), TIMEOUT, python.folder)


def find_faults(python: Python, work: Path, out: Path, *, architecture: str, jobs: int, seeds: int) -> WideRun:
    """Every fault of size in a build of its own; the table goes to ``out``."""
    tables = work / "tables"
    shutil.rmtree(tables, ignore_errors=True)
    try:
        modules = build_all(work, architecture=architecture, jobs=jobs)
    except (SubjectError, OSError) as error:
        return WideRun(0, seeds * len(PLANTS), [str(error)])
    engine = (python.site or ROOT) / "inputmeta" / "engine"
    sites = {name: site_with(module, engine, work / name / "site") for name, module in modules.items()}
    with ThreadPoolExecutor(max(1, min(AT_ONCE, jobs))) as pool:
        ran = dict(zip(sites, pool.map(lambda name: look_for(name, sites[name], tables, seeds), sites), strict=True))
    rows = [row for name in sites for row in table_rows(tables / f"{name}.json")]
    report = FaultsFound(
        command="python -m inputmeta.conformance.gpu --stage wide",
        machine=machine(),
        at_once=min(AT_ONCE, jobs),
        faults=rows,
    )
    write_json(report, out / "wide_faults_cuda.json")
    return WideRun(sum(is_right(row) for row in rows), seeds * len(sites), problems_of(ran))


def table_rows(file: Path) -> list[dict[str, Any]]:
    """The lines of a table; none if it was not written."""
    if not file.exists():
        return []
    rows: list[dict[str, Any]] = msgspec.json.decode(file.read_bytes())["faults"]
    return rows


def is_right(row: Mapping[str, Any]) -> bool:
    """Whether a fault was found as declared and reduced to an ordinary case."""
    return bool(row["right"] and row["size"])


def problems_of(ran: Mapping[str, Ran]) -> list[str]:
    """A line for each fault that was not found, or not reduced, with some seed."""
    return [f"{name}: exit code {each.code}: {each.last_line}" for name, each in ran.items() if each.code]


def measure(python: Python, out: Path, subject: str, file: str, processes: Sequence[int]) -> tuple[Ran, list[str]]:
    """Sequences a second of the wide tier; a batch that fails is a problem: the engine has no fault here."""
    options = [option for number in processes for option in ("--processes", str(number))]
    command = python.module(
        *("inputmeta.conformance.benchmarks.wide_speed", "--subject", subject, *options),
        *("--seconds", f"{SPEED_SECONDS:g}", "--json", str(out / file)),
    )
    ran = run(command, out / f"{Path(file).stem}.log", python.environment(), TIMEOUT, python.folder)
    if ran.code != exits.CONFORMS:
        return ran, [f"{subject}: exit code {ran.code}: {ran.last_line}"]
    speeds = msgspec.json.decode((out / file).read_bytes())["speeds"]
    return ran, [f"{subject}: {each['failed']} wide batches failed" for each in speeds if each["failed"]]


def speed_lines(out: Path, file: str) -> list[str]:
    """Processes and sequences a second of a report; none if it was not written."""
    if not (out / file).exists():
        return []
    report = msgspec.json.decode((out / file).read_bytes())
    return [
        f"{report['subject']}, {each['processes']} processes: {each['sequences_a_second']} sequences/s"
        for each in report["speeds"]
    ]
