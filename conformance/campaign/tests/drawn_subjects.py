"""Subjects that are wrong where a worker draws their cases itself, or slow."""

from __future__ import annotations

import os
import time
from pathlib import Path

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Result
from inputmeta.conformance.subjects.oracle import OracleSubject

FOLDER = "INPUTMETA_TEST_FOLDER"
"""Environment variable: a folder that processes of a test share."""
MANY = 3
"""Sequences of a batch from which on some are wrong."""


class Exits(OracleSubject):
    """Ends its process at a batch of many sequences."""

    def build(self, request: Request) -> Result:
        """See the base class."""
        if len(request.sequences) >= MANY:
            os._exit(3)
        return super().build(request)


class Hangs(OracleSubject):
    """Hangs at a batch of many sequences."""

    def build(self, request: Request) -> Result:
        """See the base class."""
        if len(request.sequences) >= MANY:
            time.sleep(60)
        return super().build(request)


class WrongOnce(OracleSubject):
    """Wrong at one build of a process, long after its first."""

    builds = 0

    def build(self, request: Request) -> Result:
        """See the base class."""
        self.builds += 1
        result = super().build(request)
        return {**result, "num_reqs": -1} if self.builds == 100 else result


class WrongBeside(OracleSubject):
    """Wrong in every process but the first one that was loaded."""

    def __init__(self) -> None:
        super().__init__()
        try:
            Path(os.environ[FOLDER], "first").touch(exist_ok=False)
            self.first = True
        except FileExistsError:
            self.first = False

    def build(self, request: Request) -> Result:
        """See the base class."""
        result = super().build(request)
        return result if self.first else {**result, "num_reqs": -1}


class SlowAndWrong(OracleSubject):
    """Takes its time, and is wrong at two sequences of three rows and more."""

    def build(self, request: Request) -> Result:
        """See the base class."""
        time.sleep(0.02)
        result = super().build(request)
        wrong = sum(sequence.seqlen_q >= MANY for sequence in request.sequences) >= 2
        return {**result, "num_reqs": -1} if wrong else result
