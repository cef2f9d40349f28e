"""One call of ``inputmeta`` on an engine, what is expected of it, and what it gave."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution
from pathlib import Path

from inputmeta.conformance import exits
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.plants import Plant, planted_folder

MOST_SECONDS = 300.0
"""Of one call; it is ended then, and has failed."""
COMMAND = "from inputmeta.conformance.commands.main import main; main()"
CASES = re.compile(r"(\d[\d,]*) cases in [\d.]+ s")
FORMULA = re.compile(r"^  formula  (\S+)", re.MULTILINE)
SIGNED = re.compile(r"^(?!PASS|UNSUPPORTED|KNOWN)([A-Z_]+): ", re.MULTILINE)


@dataclass(frozen=True)
class Told:
    """What a call gave."""

    name: str
    problem: str
    """Empty: as expected."""
    says: str
    """What it found, in words."""
    seconds: float
    output: str


@dataclass(frozen=True)
class Job:
    """A call. ``code``: the exit code that is right. ``formulas``: what has to be named among what fails."""

    name: str
    words: tuple[str, ...]
    """Behind ``inputmeta``; a folder for failing cases is added."""
    code: int = exits.CONFORMS
    formulas: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    saves: bool = True
    """Whether the command has ``--save-dir``."""

    def run(self) -> Told:
        """The call, ended after :data:`MOST_SECONDS`."""
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="inputmeta-engines-") as folder:
            argv = [sys.executable, "-c", COMMAND, *self.words]
            argv += ["--save-dir", folder] if self.saves else []
            try:
                ended = subprocess.run(
                    argv,
                    env={**os.environ, **QUIET, **self.env},
                    capture_output=True,
                    text=True,
                    timeout=MOST_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return Told(self.name, f"no end within {MOST_SECONDS:g} s", "", time.monotonic() - begin, "")
        return self.told(ended.returncode, ended.stdout + ended.stderr, time.monotonic() - begin)

    def told(self, code: int, output: str, seconds: float) -> Told:
        """What an exit code and an output mean."""
        wrong = [*dict.fromkeys(FORMULA.findall(output)), *dict.fromkeys(SIGNED.findall(output))]
        counted = ", ".join(f"{count} cases" for count in CASES.findall(output))
        says = "; ".join(part for part in (counted, " ".join(wrong)) if part)
        problem = ""
        missing = [name for name in self.formulas if name not in wrong]
        if code != self.code:
            problem = f"exit code {code}, want {self.code}"
        elif missing:
            problem = f"did not show: {', '.join(missing)}"
        return Told(self.name, problem, says, seconds, output)


WIDE_SECONDS = 25.0
"""Of a fuzz run that has a share for the wide tier."""
QUIET = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
"""Engines are judged on the CPU, on one thread each, and get nothing from a network."""


class Planted:
    """A fault in a copy of a release, as a context manager: the environment in which a subject finds it."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        self.package = next(each for each in packages.PACKAGES.values() if each.gives(plant.subject))
        self.root = Path(tempfile.mkdtemp(prefix="inputmeta-plant-"))

    def __enter__(self) -> dict[str, str]:
        """Raises PlantError if the release has not the place, SubjectError if it is not here."""
        name = self.package.name
        if self.package.bundled:
            release = Path(str(Distribution.from_name(name).locate_file("")))
            planted_folder(self.plant, release, self.root / "environment")
            path = os.pathsep.join(filter(None, [str(self.root / "environment"), os.environ.get("PYTHONPATH")]))
            return {"PYTHONPATH": path}
        release = packages.folder(name)
        planted_folder(self.plant, release, self.root / release.name)
        for other in self.package.beside:
            beside = packages.folder(other)
            (self.root / beside.name).symlink_to(beside)
        return {packages.FOLDER_VARIABLE: str(self.root)}

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def run_planted(plant: Plant, seconds: float) -> Told:
    """Fuzz a subject whose engine has a fault: it must differ."""
    name = f"{plant.subject}: {plant.name}"
    seconds = max(seconds, WIDE_SECONDS) if plant.wide else seconds
    begin = time.monotonic()
    try:
        with Planted(plant) as env:
            words = ("fuzz", "--subject", plant.subject, "--in-process", "--seconds", f"{seconds:g}", "--seed", "1")
            # Compiled files lie beside the sources, so that the copy finds those of all that is not changed.
            compiled = {"PYTHONPYCACHEPREFIX": "", "PYTHONDONTWRITEBYTECODE": ""}
            return Job(name, words, code=exits.DIFFERS, env={**compiled, **env}).run()
    except (ValueError, OSError) as error:
        return Told(name, str(error), "", time.monotonic() - begin, "")


def chosen(names: Sequence[str], subject: str) -> bool:
    """Whether a subject is meant: by its name, with or without a version, or by its engine's; all without names."""
    bare = subject.partition("==")[0]
    engines = [each.name for each in packages.PACKAGES.values() if each.gives(bare)]
    return not names or any(name in (subject, bare, *engines) for name in names)
