"""One worker process: spawned, spoken to over pipes, watched, and killed with its whole process group.

Whatever a worker does instead of answering (dies, hangs, grows, writes nonsense) is one SubjectFailure, raised by
:meth:`Worker.call`; the worker is then dead. Everything happens in the caller's thread: one loop writes the request,
reads the answer and the worker's stderr, looks at its memory, and ends at the answer, the death or the time-out. A
death is read from the process, not from its pipes: a child of it may hold them open.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, NoReturn, Protocol

from inputmeta.conformance.protocol.messages import (
    VERSION,
    Bye,
    Claims,
    ErrorAnswer,
    Hello,
    HelloAnswer,
    ProgramMessage,
    SuiteMessage,
)
from inputmeta.conformance.subjects.base import SubjectError, SubjectFailure
from inputmeta.conformance.version import VERSION as SUITE_VERSION
from inputmeta.conformance.workers.memory import bytes_beyond
from inputmeta.conformance.workers.reaper import REAPER
from inputmeta.conformance.workers.wire import FRAMES, Wire, garbage, quoted

MIB = 2**20
POLL_SECONDS = 0.02
"""Longest time between two looks at a worker, whether it lives and at its memory."""
LOOK_SHARE = 10
"""Times as long as a look at memory took to the next one: it grows with the processes and their pages."""
STARTUP_SECONDS = 120.0
"""For a program to say hello, where nobody says otherwise: importing a framework and opening a device takes long."""
ENDING_SECONDS = 0.002
"""Between two looks at a process that closed its stdout: it mostly ends at once."""
LEAST_START = 1.0
"""Of the seconds of a start, for the hello of a program that has imported what it needs."""
FAREWELL_SECONDS = 0.5
"""For a program to end after ``bye``, at least."""
KEPT_STDERR = 4096
"""Bytes of a worker's stderr that are kept, the last ones."""
NO_MEMORY = ("bad_alloc", "MemoryError", "annot allocate memory", "ut of memory")
"""What the last line of a process says that had no memory left."""
MOST_REASON = 2000
"""Characters of the reason why a program does not start: it may say where it raised."""
CHUNK = 2**20
CORE_BYTES = 1
"""Largest core dump: none. 0 would not do, where dumps are piped to a program: it gets them all the same."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Limits:
    """What one call may take."""

    timeout: float = 10.0
    """Seconds."""
    memory: int = 8192 * MIB
    """Bytes of memory of the worker and what it started, pages that they share counted once."""
    startup: float = STARTUP_SECONDS
    """Seconds from the start of a program to its hello."""


class Process(Protocol):
    """The process of a worker, which leads a session."""

    pid: int

    @property
    def stdin(self) -> IO[bytes] | None:
        """What it reads."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """What it writes."""

    @property
    def stderr(self) -> IO[bytes] | None:
        """What it says beside."""

    def state(self) -> tuple[int, int] | None:
        """How it ended, ``si_code`` and ``si_status``, without reaping it; None if it has not."""

    def kill(self) -> None:
        """Kill the process alone."""

    def wait(self) -> object:
        """Reap it, once it was killed."""


class Spawned(subprocess.Popen[bytes]):
    """A process that the suite started."""

    @classmethod
    def start(cls, argv: Sequence[str], env: Mapping[str, str] | None, pass_fds: Sequence[int] = ()) -> Spawned:
        """Start ``argv``. Raises SubjectError: there is no such program, or it cannot be run."""
        pipe = subprocess.PIPE
        try:
            process = cls(
                argv,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                bufsize=0,
                env=env,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        except (OSError, ValueError) as error:
            raise SubjectError(f"{argv[0]}: {getattr(error, 'strerror', None) or error}") from error
        REAPER.watch(process.pid)
        return process

    def state(self) -> tuple[int, int] | None:
        """See :class:`Process`."""
        try:
            state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:  # somebody else has reaped it: as subprocess has it then
            return os.CLD_EXITED, 0
        return None if state is None else (state.si_code, state.si_status)

    def end(self) -> None:
        """Kill its process group, and reap it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        REAPER.forget(self.pid)
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()


class Worker:
    """A spawned program that has been sent ``hello``. For one thread, but for :meth:`strike`."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        wire: Wire = FRAMES,
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        process: Process | None = None,
        waited: float = 0.0,
        stderr: bytes = b"",
    ) -> None:
        """Start ``argv`` and go on without waiting for it.

        ``process``: it was started already, ``waited`` seconds of its start have gone by, and ``stderr`` was read.

        Raises:
            SubjectError: there is no such program, or it cannot be run.
        """
        self.wire = wire
        self.limits = limits or Limits()
        self.argv = tuple(argv)
        self.stderr = stderr
        self.alive = True
        self.allowance = 0
        """Bytes of memory beyond the limit: what the suite itself has loaded there."""
        self.answered = 0
        """Calls that were answered, with whatever kind of answer."""
        self._hello: HelloAnswer | None = None
        self._buffer = bytearray()
        self._next_look = 0.0
        self._closed: float | None = None
        """When its stdout ended."""
        self._waited = waited
        self.process: Process = process or Spawned.start(self.argv, env)
        pipes = (self.process.stdin, self.process.stdout, self.process.stderr)
        self._in, self._out, self._err = (pipe.fileno() for pipe in pipes if pipe is not None)
        self._poll = select.poll()
        for fd in (self._in, self._out, self._err):
            os.set_blocking(fd, False)
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, CHUNK)  # fewer turns for a large batch
        # If the machine runs out of memory, the kernel shall take the worker, not the suite.
        with contextlib.suppress(OSError), open(f"/proc/{self.process.pid}/oom_score_adj", "w") as file:
            file.write("1000")
        with contextlib.suppress(OSError):  # the hard limit is 0 already
            resource.prlimit(self.process.pid, resource.RLIMIT_CORE, (CORE_BYTES, CORE_BYTES))
        self._pending = memoryview(wire.encode(Hello(protocol=VERSION, suite=SUITE_VERSION)))

    def hello(self) -> HelloAnswer:
        """Who the program is and what it claims; waits for it the first time, as long as it may take to start.

        Raises:
            SubjectError: it did not start, or did not say hello as it should.
        """
        if self._hello is None:
            try:
                answer = self._exchange(max(LEAST_START, self.limits.startup - self._waited))
            except SubjectFailure as failure:
                self.kill()
                if failure.verdict == "HANG":
                    raise SubjectError(late_start(self.limits.startup, self.last_words())) from failure
                why = self.last_words(MOST_REASON) if failure.code.startswith("exit-") else ""
                raise SubjectError(why or f"no hello: {failure.detail}") from failure
            if isinstance(answer, ErrorAnswer):
                self.close()
                raise SubjectError(" ".join(answer.message.split())[:500])
            if not isinstance(answer, HelloAnswer) or answer.protocol != VERSION:
                self.kill()
                raise SubjectError(f"no hello of protocol {VERSION}, but {brief(answer)}")
            self._hello = answer
        return self._hello

    @property
    def claims(self) -> Claims:
        """What the program claims."""
        return self.hello().capabilities

    def call(
        self, message: SuiteMessage, timeout: float | None = None, beat: Callable[[], object] | None = None
    ) -> ProgramMessage:
        """Send one message and wait for the answer to it. ``timeout`` in seconds; the limit's if left out.

        ``beat``: what changes as long as the program is at work; the time-out is that of standing still.

        Raises:
            SubjectFailure: there is none; the worker is dead.
            SubjectError: the program never said hello.
            ProtocolError: the message is too long to be sent; nothing was.
        """
        data = self.wire.encode(message)
        self.hello()
        if not self.alive:
            raise ValueError("this worker is dead")
        try:
            self._refuse_unasked()
            self._pending = memoryview(data)
            answer = self._exchange(self.limits.timeout if timeout is None else timeout, beat)
        except BaseException:  # an interruption too leaves an answer on the way
            self.kill()
            raise
        self.answered += 1
        return answer

    def kill(self) -> None:
        """End the process group at once. Harmless on a dead worker."""
        if not self.alive:
            return
        self.alive = False
        # Before it is reaped: until then the process group's number cannot be taken by another.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        REAPER.forget(self.process.pid)
        self._drain_stderr()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def strike(self) -> None:
        """End the process group from another thread: whoever waits for its answer sees it die, and reaps it."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def close(self, seconds: float = FAREWELL_SECONDS) -> None:
        """Say ``bye``, wait so many ``seconds`` at most for the program to end, then kill what is left."""
        if not self.alive:
            return
        if self._hello is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._in, self.wire.encode(Bye()))
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self._ended(seconds)
        self.kill()

    def last_words(self, most: int = 300) -> str:
        """The last line on stderr that is not empty, at most ``most`` characters; empty if there is none."""
        return last_line(self.stderr, most)

    def _exchange(self, timeout: float, beat: Callable[[], object] | None = None) -> ProgramMessage:
        """Write what is pending and read one message."""
        end = time.monotonic() + timeout
        last = None if beat is None else beat()
        self._poll.register(self._out, select.POLLIN)
        self._poll.register(self._err, select.POLLIN)
        if self._pending:
            self._poll.register(self._in, select.POLLOUT)
        while True:
            ended = self._state()
            if ended is not None:
                self._buffer += self._read(self._out) or b""  # a pipe holds no more than that
            body = self.wire.split(self._buffer)
            if body is not None:
                return self._take(body)
            if ended is not None:
                self._died(*ended)
            now = time.monotonic()
            if self._closed is not None:
                end = self._closed + self.limits.timeout
            elif beat is not None and (at := beat()) != last:
                last, end = at, now + timeout
            if now >= end:
                self._late(timeout)
            self._watch_memory(now)
            wait = POLL_SECONDS if self._closed is None else ENDING_SECONDS
            for fd, events in self._poll.poll(1000 * min(wait, end - now)):
                self._serve(fd, events)

    def _take(self, body: bytes) -> ProgramMessage:
        if self._pending:
            raise garbage("answered before it had read the message")
        if self._buffer:
            raise garbage(f"{len(self._buffer)} bytes after the answer: {quoted(self._buffer)}")
        self._watch_memory(time.monotonic())
        return self.wire.decode(body)

    def _serve(self, fd: int, events: int) -> None:
        """One event of a pipe."""
        if fd == self._out:
            data = self._read(self._out)
            if data == b"":
                self._closed = time.monotonic()
                self._poll.unregister(self._out)
            self._buffer += data or b""
        elif fd == self._err:
            data = self._read(self._err)
            if data == b"":
                self._poll.unregister(self._err)
            self.stderr = (self.stderr + (data or b""))[-KEPT_STDERR:]
        elif events & (select.POLLERR | select.POLLHUP):
            # Whether it is dead or only does not listen, stdout will tell.
            self._pending = self._pending[:0]
            self._poll.unregister(self._in)
        else:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):  # a break shows as POLLERR next time
                self._pending = self._pending[os.write(self._in, self._pending[:CHUNK]) :]
            if not self._pending:
                self._poll.unregister(self._in)

    @staticmethod
    def _read(fd: int) -> bytes | None:
        """What can be read now; None if nothing can, empty at the end of the stream."""
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            return None

    def _refuse_unasked(self) -> None:
        """Bytes that came since the last answer belong to none."""
        data = self._read(self._out)
        if data:
            raise garbage(f"{len(data)} bytes that nobody asked for: {quoted(data)}")

    def _watch_memory(self, now: float) -> None:
        if now < self._next_look:
            return
        used = bytes_beyond(self.process.pid, self.limits.memory + self.allowance)
        done = time.monotonic()
        self._next_look = done + max(POLL_SECONDS, LOOK_SHARE * (done - now))
        if used is not None:
            self._fail("CRASH", f"memory: {used // MIB} MiB resident, {self.memory_limits()}", "memory")

    def memory_limits(self) -> str:
        """The limits of memory that are in force: the suite's, and the system's if there is one."""
        text = f"limit {self.limits.memory // MIB} MiB"
        address_space = resource.RLIM_INFINITY
        with contextlib.suppress(OSError):
            address_space, _ = resource.prlimit(self.process.pid, resource.RLIMIT_AS)
        return text if address_space == resource.RLIM_INFINITY else f"{text}, RLIMIT_AS {address_space // MIB} MiB"

    def _late(self, timeout: float) -> NoReturn:
        """No answer in time: say within which."""
        if self._closed is not None:
            self._fail("CRASH", f"closed its stdout{self._part()} and lives on", "eof")
        full = self.limits.timeout
        hurried = self._hello is not None and timeout < full
        why = f" (shortened to look for smaller cases; the limit is {full:g} s)" if hurried else ""
        self._fail("HANG", f"no answer within {timeout:g} s{why}", "timeout")

    def _died(self, how: int, status: int) -> NoReturn:
        """Say how the process ended."""
        if how == os.CLD_EXITED:
            self._fail("CRASH", f"ended with exit code {status}{self._part()}", f"exit-{status}")
        self._fail("CRASH", f"died by {signal_name(status)}{self._part()}", signal_name(status))

    def _part(self) -> str:
        """How far the answer had come."""
        return f" in the middle of an answer, after {len(self._buffer)} bytes" if self._buffer else ""

    def _state(self) -> tuple[int, int] | None:
        """How the process ended, without reaping it; None if it has not."""
        return self.process.state()

    def _ended(self, seconds: float) -> None:
        """Wait for the process to end, at most ``seconds``."""
        end = time.monotonic() + seconds
        while self._state() is None and time.monotonic() < end:
            time.sleep(ENDING_SECONDS)

    def _fail(self, verdict: str, what: str, code: str) -> NoReturn:
        """Kill the worker and raise; the last line of its stderr goes with it."""
        limits = self.memory_limits()
        self.kill()
        words = self.last_words()
        if any(said in words for said in NO_MEMORY):
            what = f"out of memory ({limits}): {what}"
        raise SubjectFailure(verdict, what + (f"; stderr: {words}" if words else ""), code)

    def _drain_stderr(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._read(self._err):
                self.stderr = (self.stderr + data)[-KEPT_STDERR:]


def last_line(data: bytes, most: int = 300) -> str:
    """The last line that is not empty, at most ``most`` characters; empty if there is none."""
    lines = data.decode("utf-8", "replace").split("\n")
    return next((" ".join(line.split())[:most] for line in reversed(lines) if line.strip()), "")


def late_start(seconds: float, words: str) -> str:
    """What is said of a program that did not come up in time; ``words``: its last ones on stderr."""
    text = f"no hello within {seconds:g} s, the limit of a subject's start: --startup-seconds allows more"
    return text + (f"; stderr: {words}" if words else "")


def signal_name(number: int) -> str:
    """``SIGSEGV``; a real-time signal as ``SIG40``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def brief(message: ProgramMessage) -> str:
    """A message that should have been another, in a few words."""
    return " ".join(repr(message).split())[:200]
