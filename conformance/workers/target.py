"""What is tested, as the command line names it, and how it is opened."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from inputmeta.conformance.check.containers import inspector_of
from inputmeta.conformance.subjects.base import Subject, SubjectError, without_refusals
from inputmeta.conformance.subjects.loading import load_subject
from inputmeta.conformance.workers.process import MIB, Limits, Worker
from inputmeta.conformance.workers.subject import IsolatedSubject
from inputmeta.conformance.workers.wire import FRAMES, LINES, OURS, Wire

SUBJECT = "engine"
"""What is tested if nothing is named."""
TIMEOUT = 10.0
"""Seconds a batch."""
MEMORY_LIMIT = 8192
"""MiB of resident memory."""


class Unrefusing:
    """A subject in this process of which no refusal is asked."""

    def __init__(self, subject: Subject) -> None:
        self.name = subject.name
        self.capabilities = without_refusals(subject.capabilities)
        self.build = subject.build
        self.inspect_container = inspector_of(subject)


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
    valid_only: bool = False
    """Whatever it claims to check, no batch that breaks a precondition is handed over."""

    @property
    def options(self) -> str:
        """The options of the command line that name this target; defaults left out."""
        if self.command is None:
            parts = [f"--subject {shlex.quote(self.subject)}"]
        else:
            parts = [f"--subject-command {shlex.quote(self.command)}"] + ["--subject-json"] * self.json
        parts += ["--in-process"] * self.in_process
        if self.timeout != TIMEOUT:
            parts.append(f"--timeout {self.timeout:g}")
        if self.memory_limit != MEMORY_LIMIT:
            parts.append(f"--memory-limit {self.memory_limit}")
        parts += ["--valid-only"] * self.valid_only
        return " ".join(parts)

    @property
    def limits(self) -> Limits:
        """What one batch may take."""
        return Limits(self.timeout, self.memory_limit * MIB)

    def start(self) -> Worker:
        """A new worker; raises SubjectError if the program cannot be run."""
        if self.command is None:
            return self.start_python("inputmeta.conformance.protocol.serve", self.subject, wire=OURS)
        return Worker(self._words(), wire=LINES if self.json else FRAMES, limits=self.limits)

    def start_python(
        self, module: str, *arguments: str, wire: Wire = FRAMES, env: Mapping[str, str] | None = None
    ) -> Worker:
        """A new worker that runs a module of the suite, ``env`` beside ours; raises SubjectError if it cannot run."""
        argv = [sys.executable, "-m", module, *arguments]
        # What can be imported here can be imported there; ``-m`` adds the working folder.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        return Worker(argv, wire=wire, limits=self.limits, env={**(env or {}), **os.environ, "PYTHONPATH": path})

    @contextmanager
    def open(self, *, spares: int = 0) -> Iterator[Subject]:
        """The subject, its workers ended afterwards. ``spares``: workers kept ready from the start.

        Raises:
            SubjectError: it cannot be loaded, or the options do not go together.
        """
        if self.in_process:
            if self.command is not None:
                raise SubjectError("--in-process: a --subject-command is a process of its own")
            subject = load_subject(self.subject)
            yield Unrefusing(subject) if self.valid_only else subject
            return
        if self.json and self.command is None:
            raise SubjectError("--subject-json: belongs to --subject-command")
        with IsolatedSubject(self.start, timeout=self.timeout, spares=spares) as isolated:
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
