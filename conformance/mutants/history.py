"""What depends on earlier calls, or on luck."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Fields, Wrong, wrong_class
from inputmeta.conformance.subjects.base import Result

LUCK = "INPUTMETA_MUTANT_LUCK"
"""Environment variable: a file that counts calls over all processes, so that luck comes out the same every time."""


def draw() -> int:
    """The next number of a count over all processes; without :data:`LUCK` a random one."""
    name = os.environ.get(LUCK)
    if name is None:
        return random.randrange(1000)
    with Path(name).open("ab", buffering=0) as file:
        file.write(b".")
        return file.tell() - 1  # before its own byte, whoever else writes


def spoil_position(fields: Fields) -> None:
    """Make the last position wrong."""
    fields["positions"][-1] += 1


@wrong_class("HISTORY", "MISMATCH:F-POS:positions", "a ring of scratch buffers with one bad entry", label="not flaky")
class Every7thCall(Wrong):
    calls = 0

    def after(self, request: Request, fields: Fields) -> None:
        self.calls += 1
        if self.calls % 7 == 0:
            spoil_position(fields)


@wrong_class(
    "HISTORY",
    "MISMATCH",
    "results are read before the stream has caught up: they are the last step's",
    label="not flaky",
)
class AnswerForThePreviousCase(Wrong):
    in_place = False
    last: Result | None = None

    def build(self, request: Request) -> Result:
        right = super().build(request)
        answer, self.last = self.last or right, right
        return answer


@wrong_class(
    "HISTORY",
    "MISMATCH:F-IDS:input_ids",
    "a captured graph is reused by the number of rows, with the ids of its capture",
    label="not flaky",
)
class MemoByShape(Wrong):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.seen: dict[int, np.ndarray] = {}

    def after(self, request: Request, fields: Fields) -> None:
        ids = fields["input_ids"]
        ids[:] = self.seen.setdefault(len(ids), ids.copy())


@wrong_class("HISTORY", "MISMATCH:F-POS:positions", "a table that is filled by the first call is read by it too")
class WrongOnTheFirstCall(Wrong):
    warm = False

    def after(self, request: Request, fields: Fields) -> None:
        if not self.warm:
            spoil_position(fields)
        self.warm = True


@wrong_class(
    "HISTORY",
    "MISMATCH:F-POS:positions",
    "a refused batch leaves half of its state behind for the next one",
    label="not flaky",
)
class WrongAfterARefusal(Wrong):
    refused = False

    def before(self, request: Request) -> None:
        self.refused = self.refused or bool(request.violations())

    def after(self, request: Request, fields: Fields) -> None:
        if self.refused:
            spoil_position(fields)
        self.refused = False


@wrong_class(
    "HISTORY",
    "MISMATCH:F-POS:positions",
    "scratch that was grown for 6 rows is read with its new stride by every smaller batch",
    label="not flaky",
)
class WrongAfterALargeBatch(Wrong):
    grown = False

    def after(self, request: Request, fields: Fields) -> None:
        small = len(fields["positions"]) < 6
        if self.grown and small:
            spoil_position(fields)
        self.grown = self.grown or not small


@wrong_class(
    "FLAKY", "FLAKY:F-POS:positions", "two streams without an event between them: one call in three", label="flaky"
)
class WrongByLuck(Wrong):
    in_place = False

    def after(self, request: Request, fields: Fields) -> None:
        if draw() % 3 == 0:
            spoil_position(fields)


@wrong_class(
    "FLAKY",
    "FLAKY:F-POS:positions",
    "what a process is given at its start, an address or a device, decides",
    label="flaky",
)
class WrongInEverySecondProcess(Wrong):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.wrong = draw() % 2 == 0

    def after(self, request: Request, fields: Fields) -> None:
        if self.wrong:
            spoil_position(fields)


@wrong_class(
    "FLAKY", "FLAKY:timeout", "one step that meets a cold cache takes for ever, and never again", label="flaky"
)
class SleepsOnce(Wrong):
    def after(self, request: Request, fields: Fields) -> None:
        if draw() == 5:
            time.sleep(3600)


@wrong_class(
    "HISTORY",
    "MISMATCH or REJECTED or CRASH",
    "what is made of an array is kept by the identity of the array, as flash-linear-attention's tensor cache does: "
    "refilled in place it is the same array, and the answer is that of its old contents",
)
class ConvertsAnArrayOnce(Wrong):
    most = 64

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.made: list[tuple[object, tuple[int, ...]]] = []

    def build(self, request: Request) -> Result:
        sequences = [replace(sequence, **self.read(sequence)) for sequence in request.sequences]
        return super().build(replace(request, sequences=sequences))

    def read(self, sequence: oracle.SequenceMetadata) -> dict[str, Any]:
        """The arrays of a sequence by name."""
        return {name: self.converted(getattr(sequence, name)) for name in oracle.SEQUENCE_ARRAYS}

    def converted(self, values: Sequence[int]) -> tuple[int, ...]:
        """The integers of an array, of one that was there before as they were then."""
        for array, made in self.made:
            if array is values:
                return made
        made = tuple(values)
        self.made = [*self.made[-self.most :], (values, made)]
        return made


@wrong_class("HISTORY", "MISMATCH", "the plan of a batch is kept by the identity of the list of its sequences")
class PlansAListOnce(Wrong):
    in_place = False
    planned: tuple[object, Result] | None = None

    def build(self, request: Request) -> Result:
        right = super().build(request)
        if self.planned is None or self.planned[0] is not request.sequences:
            self.planned = (request.sequences, right)
        return self.planned[1]
