"""Subjects that break, or are slow enough to be struck; each with what may be said of it. None needs torch."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import subprocess
import sys
import time

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Result
from inputmeta.conformance.subjects.oracle import OracleSubject


class Wrong(OracleSubject):
    """Raises on every batch: a finding from the first one on."""

    name = "wrong"

    def build(self, request: Request) -> Result:
        """Raise."""
        raise ArithmeticError("planted")


class Slow(OracleSubject):
    """Right, and 50 ms a batch."""

    name = "slow"

    def build(self, request: Request) -> Result:
        """Wait, then answer."""
        time.sleep(0.05)
        return super().build(request)


class SlowWrong(Slow):
    """Wrong in one field, and 50 ms a batch."""

    name = "slow-wrong"

    def build(self, request: Request) -> Result:
        """Wait, then answer with one request too many."""
        return {**super().build(request), "num_reqs": len(request.sequences) + 1}


class Swallowing(Slow):
    """Takes every exception for one of its own, a signal's too."""

    name = "swallowing"

    def build(self, request: Request) -> Result:
        """Wait, whatever strikes."""
        with contextlib.suppress(BaseException):
            time.sleep(0.05)
        return OracleSubject.build(self, request)


class Exits(OracleSubject):
    """Ends its process as if all were well."""

    name = "exits"

    def build(self, request: Request) -> Result:
        """End."""
        os._exit(0)


class SystemExits(OracleSubject):
    """Raises SystemExit."""

    name = "system-exits"

    def build(self, request: Request) -> Result:
        """Raise."""
        raise SystemExit(0)


class Segfaults(OracleSubject):
    """Reads address 0."""

    name = "segfaults"

    def build(self, request: Request) -> Result:
        """Read."""
        ctypes.string_at(0)
        return {}


class Hangs(OracleSubject):
    """Never answers."""

    name = "hangs"

    def build(self, request: Request) -> Result:
        """Wait."""
        time.sleep(3600)
        return {}


class Interrupts(OracleSubject):
    """Raises KeyboardInterrupt."""

    name = "interrupts"

    def build(self, request: Request) -> Result:
        """Raise."""
        raise KeyboardInterrupt


class LeavesAChild(OracleSubject):
    """Dies, and a child of it keeps its pipes open."""

    name = "leaves-a-child"

    def build(self, request: Request) -> Result:
        """Fork, then die."""
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(7)


class StartsAProcess(OracleSubject):
    """Starts a process that outlives every batch, then answers."""

    name = "starts-a-process"

    def __init__(self) -> None:
        super().__init__()
        self.started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])


class Floods(OracleSubject):
    """Writes a megabyte to stderr with every batch."""

    name = "floods"

    def build(self, request: Request) -> Result:
        """Write, then answer."""
        os.write(2, b"\x1b[31mnoise\x07 " * 100_000)
        return super().build(request)


class Garbles(OracleSubject):
    """Writes to stdout, where the frames of its answers are."""

    name = "garbles"

    def build(self, request: Request) -> Result:
        """Write, then answer."""
        for descriptor in range(1, 12):
            if descriptor != 2:
                try:
                    os.write(descriptor, b"\xc1\xc1\xc1\xc1\n")
                except OSError:
                    continue
        return super().build(request)


class SlowToEnd(OracleSubject):
    """Takes two seconds to end."""

    name = "slow-to-end"

    def __init__(self) -> None:
        super().__init__()
        atexit.register(time.sleep, 2)


def raises_at_start() -> OracleSubject:
    """A factory that raises."""
    raise ZeroDivisionError("at the start")


def exits_at_start() -> OracleSubject:
    """A factory that ends the process."""
    os._exit(0)


BROKEN: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "Wrong": ((1,), ("CRASH",)),
    "Exits": ((1,), ("CRASH",)),
    "SystemExits": ((1,), ("CRASH",)),
    "Segfaults": ((1,), ("CRASH",)),
    "Hangs": ((1,), ("HANG",)),
    "Interrupts": ((1,), ("CRASH",)),
    "LeavesAChild": ((1,), ("CRASH",)),
    "StartsAProcess": ((0,), ()),
    "Floods": ((0,), ()),
    "Garbles": ((1,), ("CRASH",)),
    "SlowToEnd": ((0,), ()),
    "raises_at_start": ((125,), ()),
    "exits_at_start": ((125,), ()),
}
"""Exit codes and verdicts that a run of some cases on a broken subject, in a worker, may end with."""
