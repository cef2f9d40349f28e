"""Workers forked from one process that has imported a subject: ``… protocol.host CONTROL SECONDS SUBJECT``.

The process imports what the subject needs, and says on the socket with the number CONTROL how it goes on. Mostly it is
a worker itself, as :mod:`inputmeta.conformance.protocol.serve`: an import that is quick is best made anew for each. If
it took more than SECONDS the process is a host: it makes no subject, and forks every worker when it is asked to. A fork
has one thread and no CUDA; where the import started either, the process is a worker itself and says why.

Messages on the socket are packets of :data:`PACKET`: what, then two numbers.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from typing import BinaryIO, NoReturn

from inputmeta.conformance.protocol.serve import own_streams, serve, subject_or_exit
from inputmeta.conformance.subjects.loading import preload

PACKET = struct.Struct("<cqq")
PLAIN, HOST = b"P", b"H"
"""Of the process, once: it is a worker itself, or a host. Behind PLAIN, a text: why, though the import was slow."""
FORK, STATE, REAP = b"F", b"S", b"R"
"""Of the suite: fork a worker (with its standard streams; none: the process's own), how did it end, reap it.

Answered by the pid; by ``si_code`` and ``si_status``, -1 as long as it lives; by nothing of meaning."""
MOST_PACKET = 2048
PR_SET_PDEATHSIG = 1


class Streams:
    """The standard streams of the worker that the process is, or forks first."""

    def __init__(self) -> None:
        self.source, self.sink = own_streams()

    def leave(self) -> None:
        """They are another process's now: whoever reads them sees that one's end."""
        self.source.close()
        self.sink.close()
        empty = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):
            os.dup2(empty, number)
        os.close(empty)


def obstacle() -> str:
    """Why this process cannot be forked from any more; empty if it can."""
    devices = {os.readlink(f"/proc/self/fd/{number}") for number in _numbers() if number > 2}
    if any(path.startswith("/dev/nvidia") for path in devices):
        return "importing it opened a CUDA device"
    # What knows of forks, as OpenBLAS does, ends its threads before one and starts them when it needs them again.
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    threads = len(os.listdir("/proc/self/task")) - 1
    return f"importing it started threads that are still there: {threads}" if threads else ""


def _numbers() -> list[int]:
    """Numbers of the open files."""
    return [int(name) for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")]


def fork_workers(control: socket.socket, streams: Streams) -> tuple[BinaryIO, BinaryIO] | None:
    """Serve the suite until it closes the socket: None. In every forked worker: its streams."""
    first = True
    while True:
        packet, numbers, _, _ = socket.recv_fds(control, PACKET.size, 3)
        if not packet:
            return None
        what, pid, _ = PACKET.unpack(packet)
        if what == FORK:
            own = _fork(control)
            if own and numbers:
                return _taken(numbers)
            if own:
                return streams.source, streams.sink
            for number in numbers:
                os.close(number)
            if first and not numbers:
                first = False
                streams.leave()
        elif what == STATE:
            state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            control.send(PACKET.pack(STATE, *((-1, -1) if state is None else (state.si_code, state.si_status))))
        else:
            os.waitpid(pid, 0)
            control.send(PACKET.pack(REAP, 0, 0))


def _fork(control: socket.socket) -> bool:
    """Whether this is the new worker: in a session of its own, which it says itself, and that ends with the host."""
    host = os.getpid()
    if os.fork():
        return False
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != host:
        os._exit(1)
    control.send(PACKET.pack(FORK, os.getpid(), 0))
    control.close()
    return True


def _taken(numbers: list[int]) -> tuple[BinaryIO, BinaryIO]:
    """The streams that came with a request: input and output for the protocol, and what else is written to error."""
    source, sink, errors = numbers
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.close(errors)
    return os.fdopen(source, "rb"), os.fdopen(sink, "wb")


def main(arguments: list[str]) -> int:
    """Entry point of the module."""
    if len(arguments) != 3:
        sys.stderr.write("usage: python -m inputmeta.conformance.protocol.host CONTROL SECONDS SUBJECT\n")
        return 2
    slow, name = float(arguments[1]), arguments[2]
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    streams = Streams()
    begin = time.monotonic()
    imported = preload(name)
    reason = obstacle() if imported and time.monotonic() - begin > slow else None
    if reason == "":
        control.send(HOST)
        worker = fork_workers(control, streams)
        if worker is not None:
            run_forked(name, *worker)
        return 0
    control.send(PLAIN + (reason or "").encode())
    control.close()
    serve(subject_or_exit(name), streams.source, streams.sink)
    return 0


def run_forked(name: str, source: BinaryIO, sink: BinaryIO) -> NoReturn:
    """Be a worker. At its end what was to be done at an end is done, but memory is left to the system.

    An interpreter that has imported much takes seconds to give it back piece by piece.
    """
    code: object = 0
    try:
        serve(subject_or_exit(name), source, sink)
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
