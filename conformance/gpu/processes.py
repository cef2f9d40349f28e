"""Processes of the stages: their environment, their output in a file, their end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
TIMED_OUT = 124
NOT_STARTED = 127


@dataclass(frozen=True)
class Python:
    """The interpreter that the stages run, with the engine of ``site`` (None: the one that is installed)."""

    site: Path | None = None

    @property
    def folder(self) -> Path:
        """Where its processes run: Python looks there first."""
        return self.site or ROOT

    @property
    def command(self) -> list[str]:
        """The interpreter's call. An engine installed for editing would win over ``PYTHONPATH``; ``-S`` hides it."""
        hides = self.site is not None and any("editable" in finder_module(finder) for finder in sys.meta_path)
        return [sys.executable, "-S"] if hides else [sys.executable]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a stage's process: this one's, ``PYTHONPATH`` set for ``site``, and ``more``."""
        paths = [str(self.folder)] if self.site is None else [str(self.site), *(path for path in sys.path if path)]
        given = os.environ.get("PYTHONPATH")
        paths += [given] if given else []
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(more or {})}

    def module(self, name: str, *arguments: str) -> list[str]:
        """The command that runs a module."""
        return [*self.command, "-m", name, *arguments]

    def inputmeta(self, *arguments: str) -> list[str]:
        """The command ``inputmeta`` with this interpreter."""
        return [*self.command, "-c", "from inputmeta.conformance.commands.main import main; main()", *arguments]


def finder_module(finder: object) -> str:
    """Name of the module that an import finder comes from."""
    return (finder if isinstance(finder, type) else type(finder)).__module__


@dataclass(frozen=True)
class Ran:
    """How a process ended: exit code (124: stopped at its time limit), wall seconds, and what it printed."""

    command: Sequence[str]
    code: int
    seconds: float
    output: str = field(repr=False)

    @property
    def line(self) -> str:
        """The command as a result keeps it: no path of this machine, neither the interpreter's nor the checkout's."""
        return told(self.command)

    @property
    def last_line(self) -> str:
        """The last line that is not empty."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""


def told(command: Sequence[str]) -> str:
    """A command without paths of this machine.

    >>> told([sys.executable, "-m", "pytest", f"--junit-xml={ROOT / 'build/junit.xml'}", "csrc/tests"])
    'python -m pytest --junit-xml=build/junit.xml csrc/tests'
    """
    words = ["python" if word == sys.executable else word for word in command]
    return " ".join(words).replace(f"{ROOT}{os.sep}", "")


def run(command: Sequence[str], log: Path, environment: Mapping[str, str], timeout: float, folder: Path = ROOT) -> Ran:
    """Run a command in ``folder``; stdout and stderr go to ``log`` together. Never raises for what it does."""
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with log.open("wb") as file:
        try:
            ended = subprocess.run(
                command,
                cwd=folder,
                env=dict(environment),
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
            )
            code = ended.returncode
        except subprocess.TimeoutExpired:
            code = TIMED_OUT
        except OSError as error:
            code = NOT_STARTED
            file.write(f"{command[0]}: {error.strerror}\n".encode())
    seconds = time.monotonic() - begin
    return Ran(command, code, seconds, log.read_text(encoding="utf-8", errors="replace"))
