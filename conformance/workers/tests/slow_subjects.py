"""Subjects whose import is slow, or does what cannot be forked; ``INPUTMETA_TEST_IMPORT`` says what."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Result
from inputmeta.conformance.subjects.oracle import OracleSubject

DOES, _, LOG = os.environ.get("INPUTMETA_TEST_IMPORT", "").partition(":")


def logged(text: str) -> None:
    """A line in the file that the test reads."""
    if LOG:  # not where tests are collected
        with Path(LOG).open("a") as file:
            file.write(f"{text} {os.getpid()}\n")


logged("import")
sys.stderr.write("importing\n" * 20_000)  # more than a pipe holds
if DOES == "hangs":
    time.sleep(600)
elif DOES == "threads":
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
elif DOES == "dies":
    os.abort()
elif DOES == "raises":
    raise ImportError("no such library")


class Slow(OracleSubject):
    """Dies at a placeholder; takes its time to end."""

    def __init__(self) -> None:
        super().__init__()
        logged("made")
        atexit.register(self.end)

    def end(self) -> None:
        """What an end has to do, longer than a moment."""
        time.sleep(0.55)
        logged("ended")

    def build(self, request: Request) -> Result:
        """See OracleSubject."""
        if any(sequence.is_placeholder for sequence in request.sequences):
            os.abort()
        return super().build(request)
