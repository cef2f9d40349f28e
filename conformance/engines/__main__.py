"""``python -m inputmeta.conformance.engines``: every public engine held to what is expected of it; see ``--help``."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated

import typer

from inputmeta.conformance import engines, exits
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.console import fail, say
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.expectations import GROUPS, Expectation, expectations
from inputmeta.conformance.engines.jobs import Job, Told, chosen, run_planted
from inputmeta.conformance.engines.plants import Plant
from inputmeta.conformance.subjects import SubjectError

Task = Callable[[], Told]
PLANT_SECONDS = 10.0
"""Of a fuzz run on a planted fault, shrinking included."""
BATCH_SECONDS = 60.0
"""For a batch: Triton's interpreter takes its time for a long one."""
LEAST_FUZZ = 15.0
"""Seconds of fuzzing a subject that a run still starts with."""


def plants() -> list[Plant]:
    """Every planted fault: the ``PLANTS`` of each ``plants_NAME.py``."""
    names = [module.name for module in pkgutil.iter_modules(engines.__path__) if module.name.startswith("plants_")]
    modules = [importlib.import_module(f"{engines.__name__}.{name}") for name in sorted(names)]
    return [plant for module in modules for plant in module.PLANTS]


def fetched(names: Sequence[str]) -> Iterator[str]:
    """Get every release that is meant; what went wrong, a line each."""
    for subject in {each.subject: None for each in expectations() if chosen(names, each.subject)}:
        bare, _, version = subject.partition("==")
        package = next(each for each in packages.PACKAGES.values() if each.gives(bare))
        if package.bundled:
            continue
        try:
            packages.fetch(package.name, version or None)
        except (SubjectError, OSError) as error:
            yield str(error)


def judged(expected: Expectation, seconds: float) -> Iterator[Job]:
    """The calls of one subject: corpus and generated cases; a wrong release is fuzzed alone, and fails its cases."""
    known = () if expected.known is None else ("--known-failures", str(expected.known))
    subject = ("--subject", expected.subject, "--timeout", f"{BATCH_SECONDS:g}")
    fuzz = ("fuzz", *subject, "--seconds", f"{seconds:g}", "--seed", "15", *known)
    if expected.fails:
        yield Job(f"{expected.subject}: fuzz, {expected.says}", fuzz, exits.DIFFERS, expected.fails)
    else:
        yield Job(f"{expected.subject}: check, passes", ("check", *subject, "--examples", "100", *known))
        yield Job(f"{expected.subject}: fuzz {seconds:g} s, passes", fuzz)
    corpus = sorted(bundled_corpus().glob("*.json"))
    for beginning in expected.cases:
        files = [str(file) for file in corpus if file.name.startswith(beginning)]
        right = ("--subject", expected.subject.partition("==")[0], *subject[2:])
        yield Job(f"{expected.subject}: {beginning}, fails", ("replay", *files, *subject), exits.DIFFERS, saves=False)
        if right != subject:
            yield Job(f"{right[1]}: {beginning}, passes", ("replay", *files, *right), saves=False)


def tasks(names: Sequence[str], seconds: float, planted: bool) -> Iterator[Task]:
    """All that is run, in its order."""
    for expected in expectations():
        if chosen(names, expected.subject):
            for job in judged(expected, seconds):
                yield job.run
    for title, group in GROUPS.items():
        members = [subject for subject in group if chosen(names, subject)]
        if len(members) > 1:
            words = [word for subject in members for word in ("--subject", subject)]
            yield Job(f"compare {title}: {', '.join(members)}", ("compare", *words, "--cases", "100")).run
    for plant in plants() if planted else []:
        if chosen(names, plant.subject):
            yield lambda plant=plant: run_planted(plant, PLANT_SECONDS)  # type: ignore[misc]


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="subjects or engines; all without")] = None,
    seconds: Annotated[float, typer.Option(min=5, help="of fuzzing each subject")] = LEAST_FUZZ,
    limit: Annotated[float, typer.Option(min=1, help="seconds after which nothing more is begun: the run fails")] = 540,
    jobs: Annotated[int, typer.Option(min=1, help="calls at once")] = 2,
    planted: Annotated[bool, typer.Option("--plants/--no-plants", help="plant faults in the engines' sources")] = True,
) -> None:
    """Hold public engines to what is expected of them: corpus, fuzzing, wrong releases, each other, planted faults.

    Example: `python -m inputmeta.conformance.engines vllm-decode --seconds 60`
    """
    begin = time.monotonic()
    names = names or []
    if not any(chosen(names, each.subject) for each in expectations()):
        raise fail(f"there is no engine or subject {names[0]!r}")
    failed = [f"fetch: {problem}" for problem in fetched(names)]
    for problem in failed:
        say(f"FAILED  {problem}")
    say(f"{'':8}{'seconds':>8}  what was expected, and what it gave")

    def within(task: Task) -> Told | None:
        return task() if time.monotonic() - begin < limit else None

    left = 0
    with ThreadPoolExecutor(jobs) as pool:
        futures: list[Future[Told | None]] = [pool.submit(within, task) for task in tasks(names, seconds, planted)]
        for future in futures:
            told = future.result()
            if told is None:
                left += 1
                continue
            say(f"{'FAILED' if told.problem else 'ok':8}{told.seconds:8.1f}  {told.name}: {told.says}")
            if told.problem:
                say(f"{'':18}{told.problem}\n" + "".join(f"    {line}\n" for line in told.output.splitlines()[:25]))
                failed.append(told.name)
    if left:
        say(f"FAILED  time was up after {limit:g} s: {left} of {len(futures)} calls were not made")
    say(f"{len(futures) - left} calls in {time.monotonic() - begin:.0f} s, {len(failed)} failed")
    raise typer.Exit(exits.DIFFERS if failed or left else exits.CONFORMS)


if __name__ == "__main__":
    sys.argv[0] = "python -m inputmeta.conformance.engines"
    typer.run(main)
