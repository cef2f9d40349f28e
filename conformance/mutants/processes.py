"""What takes the whole process down or never comes back. For workers only: in process they take the suite with them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Fields, Wrong, any_sequence, wrong_answer, wrong_class

BLOCK = 64 * 2**20
"""Bytes that the memory hogs take at a time."""
MOST_BLOCKS = 256
"""They stop at 16 GiB: twice the default limit, and no more than a machine can lose."""


class Trigger(Wrong):
    """Does something drastic at batches of one kind."""

    def before(self, request: Request) -> None:
        if not request.violations() and self.hits(request):
            self.strike()

    def hits(self, request: Request) -> bool:
        """Whether this batch sets it off."""
        return any_sequence(request, lambda s: s.is_placeholder)

    def strike(self) -> None:
        """What it does then."""


@wrong_class("CRASH", "CRASH:SIGSEGV", "a kernel reads past a table of exactly one full block")
class SegfaultAtOneLength(Trigger):
    def hits(self, request: Request) -> bool:
        return any_sequence(request, lambda s: s.seqlen_k == request.config.block_size)

    def strike(self) -> None:
        sys.stderr.write("about to read address 0\n")
        ctypes.string_at(0)


@wrong_class("CRASH", "CRASH:SIGSEGV:P-TABLE", "a table is read past its end, not refused")
class SegfaultsOnAShortTable(Wrong):
    def before(self, request: Request) -> None:
        if {error.condition for error in request.violations()} == {"P-TABLE"}:
            ctypes.string_at(0)


@wrong_class("CRASH", "CRASH:SIGABRT", "an assertion of the C library, a corrupted heap")
class AbortsAtAPlaceholder(Trigger):
    def strike(self) -> None:
        os.abort()


@wrong_class("CRASH", "CRASH:SIGFPE", "an integer division by the number of sparse ratios")
class DividesByZero(Trigger):
    def hits(self, request: Request) -> bool:
        return not request.config.sparse_ratios

    def strike(self) -> None:
        os.kill(os.getpid(), signal.SIGFPE)


@wrong_class("CRASH", "CRASH:SIGKILL", "the kernel's out-of-memory killer takes it")
class KilledFromOutside(Trigger):
    def strike(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@wrong_class("CRASH", "CRASH:exit-0", "a library that ends the process as if all were well")
class ExitsWith0(Trigger):
    def strike(self) -> None:
        os._exit(0)


@wrong_class("CRASH", "CRASH:exit-3", "exit() in an error path")
class ExitsWith3(Trigger):
    def strike(self) -> None:
        sys.exit(3)


@wrong_class("CRASH", "CRASH:exit-4", "a helper process keeps the pipes open after it is gone")
class DiesAndLeavesAChild(Trigger):
    def strike(self) -> None:
        subprocess.Popen(["sleep", "60"], close_fds=False)
        os._exit(4)


@wrong_class("HANG", "HANG:timeout", "a loop whose step is 0 at ratio 4")
class HangsAtOneRatio(Trigger):
    def hits(self, request: Request) -> bool:
        return 4 in {*request.config.dense_ratios, *request.config.sparse_ratios}

    def strike(self) -> None:
        while True:
            pass


@wrong_class("HANG", "HANG:timeout", "a lock that is taken twice")
class Deadlocks(Trigger):
    def strike(self) -> None:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


@wrong_class("HANG", "HANG:timeout", "a hang that ignores every polite signal")
class HangsAndWillNotEnd(Trigger):
    def strike(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(1)


@wrong_class("MEMORY", "CRASH:memory", "an expansion whose size is a product of two lengths")
class TakesAllMemory(Trigger):
    def strike(self) -> None:
        held = [np.ones(BLOCK, dtype=np.uint8) for _ in range(MOST_BLOCKS)]
        raise MemoryError(f"{len(held)} blocks were not enough to be stopped")


@wrong_class("MEMORY", "CRASH:memory", "every step leaves its scratch behind", label="not flaky")
class LeaksMemory(Wrong):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.held: list[np.ndarray] = []

    def before(self, request: Request) -> None:
        if len(self.held) < MOST_BLOCKS:
            self.held.append(np.ones(BLOCK, dtype=np.uint8))


@wrong_class("CRASH", "CRASH:raised", "an exception that nobody expected")
class Raises(Trigger):
    def strike(self) -> None:
        raise ZeroDivisionError("integer modulo\nby zero")


@wrong_class("CRASH", "CRASH:raised", "an error text that a terminal would obey")
class RaisesInEscapes(Trigger):
    def strike(self) -> None:
        raise ValueError("\x1b]0;owned\x07\x1b[2J\u202egnp")


@wrong_class("CRASH", "CRASH:raised", "a recursion over the blocks of a long context")
class RecursesForEver(Trigger):
    def strike(self) -> None:
        self.strike()


@wrong_answer("NOISE", "PASS", "progress bars and banners of libraries: no fault, and must be none")
def prints_to_stdout(_: Request, fields: Fields) -> None:
    print("building", len(fields), "fields")
    os.write(1, b"\x00\xff\x81 100%|#####| warm-up done\n" * 20)
    os.write(2, b"W0000 this is only a warning\n" * 20)


@wrong_class("CRASH", "CRASH:exit-1", "a library that closes descriptors it does not own")
class ClosesDescriptors(Trigger):
    def strike(self) -> None:
        os.closerange(0, 2)
        os.closerange(3, 64)
