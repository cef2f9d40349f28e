"""What is to be said of the failures of one test, and how the test ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

import pytest

from inputmeta.conformance.campaign.judging import Run
from inputmeta.conformance.campaign.known import KnownFailure
from inputmeta.conformance.campaign.summary import Known, Report
from inputmeta.conformance.console import readable


@dataclass(frozen=True)
class Setup:
    """What is tested, and how much."""

    run: Run
    seed: int
    examples: int
    """Generated batches a path."""
    shrink_seconds: float


@dataclass
class Judgement:
    """What is to be said of the failures of one test."""

    messages: list[str] = field(default_factory=list)
    """On those that no entry knows."""
    known: list[KnownFailure] = field(default_factory=list)

    def add(self, told: Report | Known, preface: str = "") -> None:
        """Take in what is to be said of one failure."""
        if isinstance(told, Known):
            self.known.append(told.entry)
        else:
            self.messages.append(f"{preface}{told}")

    def close(self, record: Record) -> None:
        """End the test as failed or as failing the way it is known to; return if nothing failed."""
        for entry in self.known:
            record("known_failure", entry.name)
        if self.messages:
            fail(self.messages)
        if self.known:
            texts = dict.fromkeys(f"KNOWN {entry}" for entry in self.known)
            pytest.xfail("; ".join(texts))


class Record(Protocol):
    """pytest's ``record_property``."""

    def __call__(self, name: str, value: object) -> None:
        """Add a property to the test's report."""


def fail(messages: Iterable[str]) -> NoReturn:
    """Fail the test with the suite's own messages: a traceback through the suite would say nothing more."""
    pytest.fail(readable("\n\n".join(messages)), pytrace=False)
