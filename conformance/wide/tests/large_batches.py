"""Subjects for processes of the tests: a right one, and some that do not survive 256 sequences or more."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import NoReturn

from inputmeta.conformance import reference
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Result
from inputmeta.conformance.subjects.reference import ReferenceSubject, in_place, reference_of

MANY = 256


class Right(ReferenceSubject):
    """Builds every valid batch; checks no precondition, which would take long."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = replace(self.capabilities, refuses=frozenset())

    def build(self, request: Request) -> Result:
        step = reference_of(request)
        fields = reference.as_numpy(step.fields)
        return fields if request.out is None else in_place(step, fields, request.out)


class Falls(Right):
    """Right on batches of fewer sequences."""

    def build(self, request: Request) -> Result:
        if len(request.sequences) >= MANY:
            self.fall()
        return super().build(request)

    def fall(self) -> NoReturn:
        """Ends the process."""
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError


class Hangs(Falls):
    def fall(self) -> NoReturn:
        time.sleep(600)
        raise AssertionError
