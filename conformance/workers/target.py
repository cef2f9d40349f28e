"""What is tested, as the command line names it, and how it is opened."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from inputmeta.conformance.check.containers import inspector_of
from inputmeta.conformance.console import notice
from inputmeta.conformance.subjects.base import Subject, SubjectError, without_refusals
from inputmeta.conformance.subjects.loading import load_subject
from inputmeta.conformance.workers.compiled import kept_compiled
from inputmeta.conformance.workers.host import Starter
from inputmeta.conformance.workers.process import MIB, STARTUP_SECONDS, Limits, Worker, late_start
from inputmeta.conformance.workers.subject import IsolatedSubject
from inputmeta.conformance.workers.wire import FRAMES, LINES, Wire

SUBJECT = "engine"
"""What is tested if nothing is named."""
TIMEOUT = 10.0
"""Seconds a batch."""
MEMORY_LIMIT = 8192
"""MiB of resident memory."""


@cache
def require_suite(python: str, seconds: float) -> None:
    """Whether an interpreter can serve a subject, asked once; it has so many ``seconds`` to import the suite.

    Raises:
        SubjectError: there is no such interpreter, or it cannot import the suite.
    """
    asked = [python, "-c", "import inputmeta.conformance.protocol.serve"]
    try:
        ended = subprocess.run(asked, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise SubjectError(f"--subject-python {python}: {late_start(seconds, '')}") from error
    except (OSError, ValueError) as error:
        raise SubjectError(f"--subject-python {python}: {getattr(error, 'strerror', None) or error}") from error
    if ended.returncode:
        why = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1][:300]
        raise SubjectError(
            f"--subject-python {python}: cannot import the suite ({why}): pip install inputmeta-conformance there, "
            "or name its folder in PYTHONPATH"
        )


class Unrefusing:
    """A subject in this process of which no refusal is asked."""

    def __init__(self, subject: Subject) -> None:
        self.name = subject.name
        self.capabilities = without_refusals(subject.capabilities)
        self.build = subject.build
        self.inspect_container = inspector_of(subject)
        self.reset = getattr(subject, "reset", None)


@dataclass(frozen=True)
class Target:
    """A subject by name or by command, and where and within which limits it runs."""

    subject: str = SUBJECT
    """A name that :func:`inputmeta.conformance.subjects.load_subject` knows; not looked at if there is a command."""
    command: str | None = None
    """A program that speaks the protocol, with its arguments, quoted as for a shell; no shell runs it."""
    json: bool = False
    """The command speaks lines of JSON."""
    in_process: bool = False
    timeout: float = TIMEOUT
    memory_limit: int = MEMORY_LIMIT
    startup: float = STARTUP_SECONDS
    """Seconds for a worker to import and make the subject, and to say hello."""
    valid_only: bool = False
    """Whatever it claims to check, no batch that breaks a precondition is handed over."""
    python: str | None = None
    """The interpreter that workers of a ``subject`` run in, with the packages that it has; None: ours, with ours."""

    @property
    def options(self) -> str:
        """The options of the command line that name this target; defaults left out."""
        if self.command is None:
            parts = [f"--subject {shlex.quote(self.subject)}"]
        else:
            parts = [f"--subject-command {shlex.quote(self.command)}"] + ["--subject-json"] * self.json
        parts += [f"--subject-python {shlex.quote(self.python)}"] if self.python is not None else []
        parts += ["--in-process"] * self.in_process
        if self.timeout != TIMEOUT:
            parts.append(f"--timeout {self.timeout:g}")
        if self.memory_limit != MEMORY_LIMIT:
            parts.append(f"--memory-limit {self.memory_limit}")
        if self.startup != STARTUP_SECONDS:
            parts.append(f"--startup-seconds {self.startup:g}")
        parts += ["--valid-only"] * self.valid_only
        return " ".join(parts)

    @property
    def limits(self) -> Limits:
        """What one batch may take."""
        return Limits(self.timeout, self.memory_limit * MIB, self.startup)

    @contextmanager
    def starting(self) -> Iterator[Callable[[], Worker]]:
        """What starts a new worker, and raises SubjectError if the program cannot be run.

        Workers of a Python subject whose import is slow are forked from one process, which ends here.
        """
        if self.command is not None:
            yield self._start_command
            return
        if self.python is not None:
            require_suite(self.python, self.startup)
        with Starter(self._argv, self._environment({}), self.subject, self.limits) as starter:
            yield starter.start
            if starter.note:
                notice(f"subject {self.subject}: every worker imported it anew, since {starter.note}")

    def _start_command(self) -> Worker:
        return Worker(self._words(), wire=LINES if self.json else FRAMES, limits=self.limits)

    def start_python(
        self, module: str, *arguments: str, wire: Wire = FRAMES, env: Mapping[str, str] | None = None
    ) -> Worker:
        """A new worker that runs a module of the suite, ``env`` beside ours; raises SubjectError if it cannot run."""
        if self.python is not None:
            require_suite(self.python, self.startup)
        argv, environment = self._argv(module, arguments), self._environment(env or {})
        return Worker(argv, wire=wire, limits=self.limits, env=environment)

    def _argv(self, module: str, arguments: Sequence[str]) -> list[str]:
        return [self.python or sys.executable, "-m", module, *arguments]

    def _environment(self, added: Mapping[str, str]) -> dict[str, str]:
        environment = {**added, **os.environ, **kept_compiled(self.python or sys.executable, os.environ)}
        if self.python is None:
            # What can be imported here can be imported there; ``-m`` adds the working folder.
            environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        return environment

    @contextmanager
    def open(self, *, spares: int = 0) -> Iterator[Subject]:
        """The subject, its workers ended afterwards. ``spares``: workers kept ready from the start.

        Raises:
            SubjectError: it cannot be loaded, or the options do not go together.
        """
        if self.python is not None and self.command is not None:
            raise SubjectError("--subject-python: belongs to --subject; a --subject-command is run as it is")
        if self.in_process:
            if self.command is not None:
                raise SubjectError("--in-process: a --subject-command is a process of its own")
            if self.python is not None:
                raise SubjectError("--in-process: with --subject-python a subject is in a process of its own")
            subject = load_subject(self.subject)
            yield Unrefusing(subject) if self.valid_only else subject
            return
        if self.json and self.command is None:
            raise SubjectError("--subject-json: belongs to --subject-command")
        with self.starting() as start, IsolatedSubject(start, timeout=self.timeout, spares=spares) as isolated:
            if self.valid_only:
                isolated.capabilities = without_refusals(isolated.capabilities)
            yield isolated

    def _words(self) -> list[str]:
        try:
            words = shlex.split(self.command or "")
        except ValueError as error:
            raise SubjectError(f"--subject-command: {error}") from error
        if not words:
            raise SubjectError("--subject-command: is empty")
        return words
