"""Subjects that run out of memory: ``memory_program:NAME``."""

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.oracle import OracleSubject

HUGE = (2**20, 2**20)
"""Cells that no address space of a test has room for, but a number of bytes that numpy accepts."""


class Greedy(OracleSubject):
    """Takes 4 TiB at a placeholder."""

    def build(self, request: Request):
        if any(sequence.is_placeholder for sequence in request.sequences):
            np.ones(HUGE, dtype=np.int32)
        return super().build(request)


class Wide(OracleSubject):
    """Answers a view of one cell that looks like 4 TiB: it costs its maker nothing."""

    def build(self, request: Request):
        return {**super().build(request), "positions": np.broadcast_to(np.int32(1), HUGE)}
