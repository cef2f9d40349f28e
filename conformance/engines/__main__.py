"""``python -m inputmeta.conformance.engines``: every public engine held to what is expected of it; see ``--help``."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Annotated

import typer

from inputmeta.conformance import engines, exits
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.console import fail, say
from inputmeta.conformance.engines import found, packages
from inputmeta.conformance.engines.expectations import GROUPS, Expectation, expectations
from inputmeta.conformance.engines.forks import Engine
from inputmeta.conformance.engines.jobs import Job, Told, chosen, planted_job
from inputmeta.conformance.engines.packages import Package
from inputmeta.conformance.engines.plants import Plant
from inputmeta.conformance.engines.recorded import adapter_of
from inputmeta.conformance.subjects import SubjectError

FUZZ_SECONDS = 60.0
"""Of fuzzing a subject, if subjects or engines are named."""
ALL_SECONDS = 240.0
"""Of fuzzing, which all subjects share, if none is named: 60 each would take longer than the ten minutes there are."""
COMPARED = 60
"""Generated cases of a comparison."""


@dataclass(frozen=True)
class Unit:
    """Calls that are made one behind the other: those on one release, in its process; or a comparison."""

    package: str
    version: str | None
    jobs: tuple[Job, ...]
    compared: tuple[str, ...] = ()
    """Subjects that are compared."""

    @property
    def releases(self) -> list[tuple[Package, str | None]]:
        """What has to be here."""
        others = [each for each in packages.PACKAGES.values() if any(map(each.gives, self.compared))]
        return [(packages.PACKAGES[self.package], self.version), *((each, None) for each in others)]


def plants() -> list[Plant]:
    """Every planted fault: the ``PLANTS`` of each ``plants_NAME.py``."""
    names = [module.name for module in pkgutil.iter_modules(engines.__path__) if module.name.startswith("plants_")]
    modules = [importlib.import_module(f"{engines.__name__}.{name}") for name in sorted(names)]
    return [plant for module in modules for plant in module.PLANTS]


def fetch(package: Package, version: str | None, locks: Mapping[str, Lock]) -> str:
    """Get a release, and what lies beside it, each once at a time; what went wrong, empty if nothing did."""
    try:
        for other in () if package.bundled else (*map(packages.package_of, package.beside), package):
            which = version if other is package else None
            with locks[f"{other.name}=={which}"]:
                packages.fetch(other.name, which)
    except (SubjectError, OSError) as error:
        return f"fetch: {error}"
    return ""


def judged(expected: Expectation, seconds: float) -> Iterator[Job]:
    """The calls of one subject: corpus and fuzzing; what is known to be wrong is checked alone, and fails its cases."""
    known = () if expected.known is None else ("--known-failures", str(expected.known))
    subject = ("--subject", expected.subject)
    fuzz = ("fuzz", *subject, "--seconds", f"{seconds:g}", "--seed", "15", *known)
    if expected.fails:
        words = ("check", *subject, "--examples", "100")
        yield Job(f"{expected.subject}: {expected.says}", words, exits.DIFFERS, expected.fails)
    else:
        # The histories of the corpus are not within the conditions of a subject that allocates: it is given drawn ones.
        allocates = adapter_of(expected.subject.partition("==")[0]).capabilities.allocates is not None
        examples = ("--examples", "100" if allocates else "0")
        yield Job(f"{expected.subject}: corpus, passes", ("check", *subject, *examples, *known))
        yield Job(f"{expected.subject}: fuzz {seconds:g} s, passes", fuzz)
    for beginning in expected.cases:
        yield Job(
            f"{expected.subject}: {beginning}, fails",
            ("replay", *files(beginning), *subject),
            exits.DIFFERS,
            saves=False,
        )


def righted(name: str, version: str | None) -> Iterator[Job]:
    """Cases that another release of a subject's engine has wrong, on the release that has them right."""
    for expected in expectations():
        bare, _, other = expected.subject.partition("==")
        if version is None and other and packages.PACKAGES[name].gives(bare):
            for beginning in expected.cases:
                words = ("replay", *files(beginning), "--subject", bare)
                yield Job(f"{bare}: {beginning}, passes", words, saves=False)


def files(beginning: str) -> list[str]:
    """The files of the corpus whose names begin so."""
    return [str(file) for file in sorted(bundled_corpus().glob("*.json")) if file.name.startswith(beginning)]


def of_releases(names: Sequence[str], seconds: float, planted: Sequence[Plant]) -> Iterator[Unit]:
    """The calls on each release."""
    for package in packages.PACKAGES.values():
        for version in (None, *package.versions[1:]):
            meant = [each for each in expectations() if each.of(package, version) and chosen(names, each.subject)]
            jobs = [job for expected in meant for job in judged(expected, seconds)]
            jobs += [job for job in righted(package.name, version) if jobs]
            if version is None:
                jobs += [planted_job(p) for p in planted if package.gives(p.subject) and chosen(names, p.subject)]
            if jobs:
                yield Unit(package.name, version, tuple(jobs))


def units(names: Sequence[str], seconds: float, planted: Sequence[Plant]) -> Iterator[Unit]:
    """All that is run, what has most calls first."""
    yield from sorted(of_releases(names, seconds, planted), key=lambda unit: -len(unit.jobs))
    for title, group in GROUPS.items():
        members = [subject for subject in group if chosen(names, subject)]
        if len(members) > 1:
            words = [word for subject in members for word in ("--subject", subject)]
            name = f"compare {title}: {', '.join(members)}"
            words = ["compare", *words, "--cases", str(COMPARED)]
            yield Unit("torch", None, (Job(name, tuple(words), isolated=True),), tuple(members))


def seconds_each(names: Sequence[str]) -> float:
    """Of fuzzing a subject, if nothing is said of it."""
    return FUZZ_SECONDS if names else round(ALL_SECONDS / len(expectations()))


@dataclass
class Report:
    """What was told so far."""

    begin: float
    limit: float
    made: list[tuple[Job, Told]] = field(default_factory=list)
    unfetched: list[str] = field(default_factory=list)
    left: int = 0
    locks: Mapping[str, Lock] = field(default_factory=lambda: defaultdict(Lock))
    """Of the releases that are being fetched."""

    def run(self, unit: Unit, lock: Lock) -> None:
        """Fetch the release and make the calls that can be begun in time; each is told when it has ended."""
        problems = [fetch(package, version, self.locks) for package, version in unit.releases]
        with lock:
            self.unfetched += [problem for problem in problems if problem and problem not in self.unfetched]
        with Engine(unit.package, unit.version) as engine:
            for job in unit.jobs:
                if time.monotonic() - self.begin > self.limit:
                    with lock:
                        self.left += 1
                    continue
                told = job.run(engine)
                with lock:
                    self.made.append((job, told))
                    say(f"{'FAILED' if told.problem else 'ok':8}{told.seconds:8.1f}  {told.name}: {told.says}")
                    if told.problem:
                        say(f"{'':18}{told.problem}\n" + "".join(f"    {x}\n" for x in told.output.splitlines()[-25:]))


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="subjects or engines; all without")] = None,
    *,
    seconds: Annotated[
        float | None, typer.Option(min=5, help="of fuzzing each subject; 60 if one is named, or their share of 240")
    ] = None,
    limit: Annotated[float, typer.Option(min=1, help="seconds after which nothing more is begun: the run fails")] = 540,
    jobs: Annotated[int, typer.Option(min=1, help="engines at once")] = 2,
    planted: Annotated[bool, typer.Option("--plants/--no-plants", help="plant faults in the engines' sources")] = True,
    record: Annotated[bool, typer.Option("--record", help="write PLANTS.md: when each fault was seen")] = False,
) -> None:
    """Hold public engines to what is expected of them: corpus, fuzzing, wrong releases, each other, planted faults.

    All of it ends within ten minutes on two cores. For that all subjects share 240 seconds of fuzzing; an engine or a
    subject that is named gets 60 seconds for each of its subjects.

    Example: `python -m inputmeta.conformance.engines vllm-decode`
    """
    begin = time.monotonic()
    names = names or []
    for name in names:
        if not any(chosen([name], each.subject) for each in expectations()):
            raise fail(f"there is no engine or subject {name!r}")
    say(f"{'':8}{'seconds':>8}  what was expected, and what it gave")
    report, lock = Report(begin, limit), Lock()
    each = seconds_each(names) if seconds is None else seconds
    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(report.run, unit, lock) for unit in units(names, each, plants() if planted else [])]:
            done.result()
    for problem in report.unfetched:
        say(f"FAILED  {problem}")
    failed = [*report.unfetched, *(told.name for _, told in report.made if told.problem)]
    if record:
        seen = [(job.plant, told) for job, told in report.made if job.plant is not None]
        before = found.FILE.read_text(encoding="utf-8") if found.FILE.is_file() else ""
        found.FILE.write_text(found.record(seen, before), encoding="utf-8")
    if report.left:
        all_of_them = len(report.made) + report.left
        say(f"FAILED  time was up after {limit:g} s: {report.left} of {all_of_them} calls were not made")
    say(f"{len(report.made)} calls in {time.monotonic() - begin:.0f} s, {len(failed)} failed")
    raise typer.Exit(exits.DIFFERS if failed or report.left else exits.CONFORMS)


if __name__ == "__main__":
    sys.argv[0] = "python -m inputmeta.conformance.engines"
    typer.run(main)
