"""Subjects that fail to answer, each in one way: the oracle, except on a batch with a sequence of 3 query rows."""

import ctypes
import os
import sys
import time
from pathlib import Path

from inputmeta.conformance.subjects import Request, Result
from inputmeta.conformance.subjects.oracle import OracleSubject

COUNTER = "INPUTMETA_TEST_COUNTER"
"""Environment variable: a file that grows by a byte for each subject made."""


class Wrong(OracleSubject):
    """Fails where a sequence has 3 query rows."""

    def __init__(self) -> None:
        super().__init__(name="wrong")

    def fail(self, request: Request) -> None:
        """What it does instead of building."""

    def build(self, request: Request) -> Result:
        if any(sequence.seqlen_q == 3 for sequence in request.sequences):
            self.fail(request)
        return super().build(request)


class Segfaults(Wrong):
    def fail(self, request: Request) -> None:
        sys.stderr.write("about to read address 0\n")
        ctypes.string_at(0)


class Aborts(Wrong):
    def fail(self, request: Request) -> None:
        os.abort()


class Hangs(Wrong):
    def fail(self, request: Request) -> None:
        time.sleep(3600)


class Hogs(Wrong):
    def fail(self, request: Request) -> None:
        self.kept = b"\1" * 2**29
        time.sleep(3600)


class Exits(Wrong):
    def fail(self, request: Request) -> None:
        os._exit(3)


class Raises(Wrong):
    def fail(self, request: Request) -> None:
        raise ZeroDivisionError("by zero")


class BreaksDevice(Wrong):
    """Sticky: every batch after the first failure fails."""

    broken = False

    def build(self, request: Request) -> Result:
        if self.broken:
            self.fail(request)
        return super().build(request)

    def fail(self, request: Request) -> None:
        self.broken = True
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


class Prints(Wrong):
    """Not wrong: what a subject prints is no answer."""

    def fail(self, request: Request) -> None:
        os.write(1, b"hello from C\n")
        sys.stdout.write("hello from Python\n")


class EverySeventh(OracleSubject):
    """Wrong on every seventh call, whatever the batch."""

    calls = 0

    def build(self, request: Request) -> Result:
        self.calls += 1
        result = dict(super().build(request))
        if self.calls % 7 == 0:
            result["positions"][0] += 1
        return result


class AfterLarger(OracleSubject):
    """Wrong once a prompt of other configuration or path had 6 rows or more: it keeps what it should not."""

    stale = False

    def build(self, request: Request) -> Result:
        result = dict(super().build(request))
        rows = sum(sequence.seqlen_q for sequence in request.sequences)
        if self.stale and rows < 6:
            result["positions"][-1] += 1
        self.stale = self.stale or rows >= 6
        return result


class EverySecondProcess(OracleSubject):
    """Wrong in every second process, from its start to its end."""

    def __init__(self) -> None:
        super().__init__()
        with Path(os.environ[COUNTER]).open("ab", buffering=0) as out:
            out.write(b".")
            self.wrong = out.tell() % 2 == 0  # its own byte, whoever else writes

    def build(self, request: Request) -> Result:
        result = dict(super().build(request))
        if self.wrong:
            result["positions"][0] += 1
        return result


class EndsAfterwards(OracleSubject):
    """Answers, and ends before it is asked again."""

    def build(self, request: Request) -> Result:
        result = super().build(request)
        if any(sequence.seqlen_q == 3 for sequence in request.sequences):
            os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", f"sleep 0.2; kill -9 {os.getpid()}")
        return result
