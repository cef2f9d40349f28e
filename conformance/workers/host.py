"""Workers of a Python subject whose import is slow: forked from a process that has imported it once.

The suite's side of :mod:`inputmeta.conformance.protocol.host`. A worker is the host's child, so that the host says how
it ended, and reaps it. With the host its workers die; the host dies with the suite's end of the socket. The next worker
after a host's death has a new one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import IO

from inputmeta.conformance.protocol.host import FORK, HOST, MOST_PACKET, PACKET, PLAIN, REAP, STATE
from inputmeta.conformance.subjects.base import SubjectError
from inputmeta.conformance.workers.process import KEPT_STDERR, Limits, Spawned, Worker, last_line, late_start
from inputmeta.conformance.workers.reaper import REAPER
from inputmeta.conformance.workers.wire import OURS

SLOW_SECONDS = 3.0
"""An import that takes longer is made once. A quick one is made anew for each worker: then two of them share nothing,
not even where things lie in memory, and a failure that hangs on it is seen to be one."""
REPLY_SECONDS = 30.0
"""For a host, which does nothing but answer, on a busy machine."""
END_SECONDS = 0.5
"""For a host to end; what it has imported may have something to do at its end."""
LOST = (os.CLD_KILLED, int(signal.SIGKILL))
"""How a worker ended whose host did: by the signal that it gets then."""


class HostLostError(OSError):
    """The host does not answer any more."""


class Host:
    """A process that forks workers. For several threads."""

    def __init__(self, process: Spawned, control: socket.socket) -> None:
        self.alive = True
        self.pid = process.pid
        self._process = process
        self._control = control
        self._lock = Lock()
        control.settimeout(REPLY_SECONDS)

    def ask(self, what: bytes, number: int = 0, streams: Sequence[int] = ()) -> tuple[int, int]:
        """One request; the two numbers of its answer. Raises HostLostError: then the host is dead."""
        with self._lock:
            if not self.alive:
                raise HostLostError("the host has ended")
            try:
                socket.send_fds(self._control, [PACKET.pack(what, number, 0)], streams)
                answer = self._control.recv(MOST_PACKET)
                _, first, second = PACKET.unpack(answer)
            except BaseException as error:  # an interruption too leaves an answer on the way
                self._end()
                if isinstance(error, Exception):
                    raise HostLostError("the host has ended") from error
                raise
        return first, second

    def close(self) -> None:
        """End it, and with it the workers that are left."""
        with self._lock:
            if self.alive:
                self._control.shutdown(socket.SHUT_RDWR)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_SECONDS)
            self._end()

    def _end(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self._control.close()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        REAPER.forget(self.pid)


class Forked:
    """A worker's process that a host forked: what :class:`Worker` asks of one."""

    def __init__(self, host: Host, pid: int, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.host = host
        try:
            self._exists: int | None = os.pidfd_open(pid)
        except ProcessLookupError:  # dead, and its host too
            self._exists = None

    def state(self) -> tuple[int, int] | None:
        """How it ended, ``si_code`` and ``si_status``; None if it has not."""
        if self._exists is not None and not select.select([self._exists], [], [], 0)[0]:
            return None
        try:
            code, status = self.host.ask(STATE, self.pid)
        except HostLostError:
            return LOST
        return None if code == -1 else (code, status)

    def kill(self) -> None:
        """Kill the process alone."""
        if self._exists is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._exists, signal.SIGKILL)

    def wait(self) -> None:
        """Have it reaped, once it was killed."""
        if self._exists is not None:
            os.close(self._exists)
            self._exists = None
        with contextlib.suppress(HostLostError):
            self.host.ask(REAP, self.pid)


@dataclass
class Starter:
    """Starts workers of one subject: fresh processes, or from a host. A context manager: it ends the host."""

    argv: Callable[[str, Sequence[str]], list[str]]
    """The command line of a module of the suite with its arguments."""
    env: Mapping[str, str]
    subject: str
    limits: Limits
    plain: bool = False
    """No worker is forked."""
    note: str = ""
    """Why not, where it would be worth it."""
    host: Host | None = None

    def __post_init__(self) -> None:
        self._lock = Lock()

    def start(self) -> Worker:
        """A new worker. Raises SubjectError if it cannot be started, or the subject's import takes too long."""
        with self._lock:
            if self.plain:
                argv = self.argv("inputmeta.conformance.protocol.serve", [self.subject])
                return Worker(argv, wire=OURS, limits=self.limits, env=self.env)
            if self.host is not None and self.host.alive:
                with contextlib.suppress(HostLostError):
                    return self._forked(self.host)
            return self._first()

    def _first(self) -> Worker:
        """The worker that tells how the next ones are started."""
        begin = time.monotonic()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            arguments = [str(theirs.fileno()), str(SLOW_SECONDS), self.subject]
            argv = self.argv("inputmeta.conformance.protocol.host", arguments)
            try:
                process = Spawned.start(argv, self.env, pass_fds=[theirs.fileno()])
            except SubjectError:
                ours.close()
                raise
        try:
            told, words = self._told(process, ours, begin + self.limits.startup)
        except BaseException:
            ours.close()
            process.end()
            raise
        waited = time.monotonic() - begin
        if told != HOST:
            ours.close()
            self.plain = told is not None
            self.note = (told or PLAIN)[len(PLAIN) :].decode("utf-8", "replace")
            return Worker(argv, wire=OURS, limits=self.limits, process=process, waited=waited, stderr=words)
        self.host = Host(process, ours)
        try:
            pid, _ = self.host.ask(FORK)
        except HostLostError as error:
            raise SubjectError(f"subject {self.subject}: its process ended once it had imported it") from error
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        child = Forked(self.host, pid, process.stdin, process.stdout, process.stderr)
        REAPER.watch(pid)
        return Worker(argv, wire=OURS, limits=self.limits, process=child, waited=waited, stderr=words)

    def _told(self, process: Spawned, control: socket.socket, end: float) -> tuple[bytes | None, bytes]:
        """What the process says once it has imported the subject, None if it ended; and what it wrote to stderr."""
        assert process.stderr is not None
        words = b""
        errors = [process.stderr.fileno()]
        while (left := end - time.monotonic()) > 0:
            ready = select.select([control.fileno(), *errors], [], [], left)[0]
            if errors and errors[0] in ready:
                data = os.read(errors[0], MOST_PACKET)
                words = (words + data)[-KEPT_STDERR:]
                errors = errors if data else []
            elif ready:
                return control.recv(MOST_PACKET) or None, words
        raise SubjectError(f"subject {self.subject}: {late_start(self.limits.startup, last_line(words))}")

    def _forked(self, host: Host) -> Worker:
        """A worker from a host. Raises HostLostError."""
        pairs = [os.pipe() for _ in range(3)]
        (stdin, to_it), (from_it, stdout), (errors, stderr) = pairs
        try:
            pid, _ = host.ask(FORK, streams=[stdin, stdout, stderr])
        except BaseException:
            for number in (to_it, from_it, errors):
                os.close(number)
            raise
        finally:
            for number in (stdin, stdout, stderr):
                os.close(number)
        REAPER.watch(pid)
        files = os.fdopen(to_it, "wb", 0), os.fdopen(from_it, "rb", 0), os.fdopen(errors, "rb", 0)
        return Worker([sys.executable], wire=OURS, limits=self.limits, process=Forked(host, pid, *files))

    def __enter__(self) -> Starter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.host is not None:
            self.host.close()
