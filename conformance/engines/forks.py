"""One process a release: what its engine imports is imported once, and each call on it is a fork.

The import of a large engine takes longer than most of what is asked of it. ``python -m …engines.forks NAME VERSION``
reads calls as lines of JSON and answers with lines of JSON; it imports the modules that a release names as ``ahead``,
in none of which a fault is planted.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from inputmeta.conformance import exits
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.plants import Plant
from inputmeta.conformance.subjects.base import SubjectError

QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "TRITON_INTERPRET": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
"""Engines are judged on the CPU, on one thread each, and get nothing from a network."""
POLL_SECONDS = 0.02


class Asked(msgspec.Struct, frozen=True):
    """A call: a command line behind ``inputmeta``, on a planted fault if there is one; or that fault is looked for."""

    words: tuple[str, ...] = ()
    plant: Plant | None = None
    seconds: float = 300.0
    """After which it is ended."""


class Ended(msgspec.Struct, frozen=True):
    """What came of it: exit code (:data:`LATE`: it was ended), output, seconds."""

    code: int
    output: str
    seconds: float


LATE = 124


class Engine:
    """The process of a release, as a context manager; it starts with the first call."""

    def __init__(self, name: str, version: str | None = None) -> None:
        self.words = [name, *([] if version is None else [version])]
        self.process: subprocess.Popen[bytes] | None = None
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            with suppress(OSError):
                self.process.stdin.close()
            self.process.wait()
        self.errors.close()

    def ask(self, asked: Asked) -> Ended:
        """What a call gives; of a process that died, code 70 and the end of what it said."""
        if self.process is None:
            argv = [sys.executable, "-m", "inputmeta.conformance.engines.forks", *self.words]
            self.process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=environment()
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = b""
        with suppress(OSError):
            self.process.stdin.write(msgspec.json.encode(asked) + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        if line:
            return msgspec.json.decode(line, type=Ended)
        with suppress(subprocess.TimeoutExpired):  # its last words come behind the end of its answers
            self.process.wait(POLL_SECONDS * 500)
        self.errors.seek(0)
        return Ended(exits.TOOL_FAILED, self.errors.read().decode(errors="replace")[-3000:], 0.0)


def environment() -> Mapping[str, str]:
    """Of a process in which engines run."""
    return {**os.environ, **QUIET}


def run_forked(body: Callable[[], int], seconds: float) -> Ended:
    """A fork that ends with the code of ``body``, and what it said; it and its children are killed if it is late."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            be_child(body, output.fileno())
        with suppress(OSError):  # it may have done so itself, or be gone
            os.setpgid(pid, pid)
        code = LATE
        while time.monotonic() - begin < seconds:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(POLL_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if code == LATE:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        output.seek(0)
        return Ended(code, output.read().decode(errors="replace"), time.monotonic() - begin)


def be_child(body: Callable[[], int], output: int) -> None:
    """The rest of a fork's life: ``body``, all that it says into a file."""
    code = exits.TOOL_FAILED
    try:
        os.setpgid(0, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = body()
    except SubjectError as error:
        sys.stderr.write(f"inputmeta: {error}\n")
        code = exits.NO_SUBJECT
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def command(words: tuple[str, ...]) -> int:
    """A command line of ``inputmeta`` in this process; its exit code."""
    main: Callable[[], None] = import_module("inputmeta.conformance.commands.main").main
    sys.argv = ["inputmeta", *words]
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else exits.TOOL_FAILED * bool(ended.code)
    return exits.CONFORMS


def perform(asked: Asked) -> int:
    """A call, in this process."""
    if asked.plant is None:
        return command(asked.words)
    planted = import_module("inputmeta.conformance.engines.planted")
    with tempfile.TemporaryDirectory(prefix="inputmeta-plant-") as root:
        if not asked.words:
            return int(planted.look_for(asked.plant, Path(root)))
        planted.plant_here(asked.plant, Path(root))
        return command(asked.words)


def serve(name: str, version: str | None = None) -> None:
    """Answer calls until there are no more. Raises SubjectError if the release is not here."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an import says is no answer
    packages.use(name, version)
    for module in packages.PACKAGES[name].ahead:
        import_module(module)
    for module in ("commands.main", "commands.check", "commands.fuzz", "commands.replay", "engines.planted"):
        import_module(f"inputmeta.conformance.{module}")
    gc.collect()
    gc.freeze()
    for line in sys.stdin.buffer:
        asked = msgspec.json.decode(line, type=Asked)
        ended = run_forked(lambda asked=asked: perform(asked), asked.seconds)  # type: ignore[misc]
        answers.write(msgspec.json.encode(ended) + b"\n")
        answers.flush()


if __name__ == "__main__":
    try:
        serve(*sys.argv[1:3])
    except SubjectError as error:
        raise SystemExit(f"inputmeta: {error}") from error
