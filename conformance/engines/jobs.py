"""One call of ``inputmeta`` on an engine, what is expected of it, and what it gave."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from inputmeta.conformance import exits
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.forks import LATE, Asked, Ended, Engine, environment
from inputmeta.conformance.engines.plants import Plant

MOST_SECONDS = 300.0
"""Of one call; it is ended then, and has failed."""
COMMAND = "from inputmeta.conformance.commands.main import main; main()"
CASES = re.compile(r"(\d[\d,]* (?:passed|cases in [\d.]+ s|cases, \d+ answers))")
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
    saves: bool = True
    """Whether the command has ``--save-dir``."""
    plant: Plant | None = None
    """A fault in the engine's sources; without words it is looked for in generated cases."""
    isolated: bool = False
    """In processes of its own: it compares engines."""

    def run(self, engine: Engine) -> Told:
        """The call, a fork of the engine's process unless it is isolated; ended after :data:`MOST_SECONDS`."""
        with tempfile.TemporaryDirectory(prefix="inputmeta-engines-") as folder:
            words = (*self.words, "--save-dir", folder) if self.saves and self.words else self.words
            if self.isolated:
                ended = run_alone(words)
            else:
                words = (*words, "--in-process") if words else ()
                ended = engine.ask(Asked(words, self.plant, MOST_SECONDS))
        if ended.code == LATE:
            return Told(self.name, f"no end within {MOST_SECONDS:g} s", "", ended.seconds, ended.output)
        return self.told(ended.code, ended.output, ended.seconds)

    def told(self, code: int, output: str, seconds: float) -> Told:
        """What an exit code and an output mean."""
        wrong = [*dict.fromkeys(FORMULA.findall(output)), *dict.fromkeys(SIGNED.findall(output))]
        counted = ", ".join(CASES.findall(output))
        says = "; ".join(part for part in (counted, " ".join(wrong)) if part)
        problem = ""
        missing = [name for name in self.formulas if name not in wrong]
        if code != self.code:
            problem = f"exit code {code}, want {self.code}"
        elif missing:
            problem = f"did not show: {', '.join(missing)}"
        return Told(self.name, problem, says, seconds, output)


def run_alone(words: Sequence[str]) -> Ended:
    """A command line of ``inputmeta`` in a process of its own."""
    begin = time.monotonic()
    argv = [sys.executable, "-c", COMMAND, *words]
    try:
        ended = subprocess.run(
            argv, env=environment(), capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Ended(LATE, "", time.monotonic() - begin)
    return Ended(ended.returncode, ended.stdout + ended.stderr, time.monotonic() - begin)


WIDE_SECONDS = 25.0
"""Of a fuzz run that has a share for the wide tier."""


def planted_job(plant: Plant) -> Job:
    """A subject whose engine has a fault: it must differ."""
    words: tuple[str, ...] = ()
    if plant.wide:
        words = ("fuzz", "--subject", plant.subject, "--seconds", f"{WIDE_SECONDS:g}", "--seed", "1")
    return Job(f"{plant.subject}: {plant.name}", words, code=exits.DIFFERS, plant=plant)


def chosen(names: Sequence[str], subject: str) -> bool:
    """Whether a subject is meant: by its name, with or without a version, or by its engine's; all without names."""
    bare = subject.partition("==")[0]
    engines = [each.name for each in packages.PACKAGES.values() if each.gives(bare)]
    return not names or any(name in (subject, bare, *engines) for name in names)
