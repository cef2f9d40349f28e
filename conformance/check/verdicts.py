"""Verdicts, findings and their identity.

A finding is one verdict on one field (or on the batch as a whole). Its signature (verdict, formula, field, kind) is
what fuzzing groups by, what Hypothesis sees as an exception class of its own, and what a report names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache

from inputmeta import oracle


class Verdict(StrEnum):
    """What the suite says of a subject on one batch."""

    PASS = "PASS"
    """Every claimed field is exactly what the oracle says."""
    MISMATCH = "MISMATCH"
    """A defined cell, a shape or a dtype differs."""
    REJECTED = "REJECTED"
    """Refused a batch that breaks no precondition."""
    ACCEPTED = "ACCEPTED"
    """Took a batch that breaks a precondition, or refused it for another, or wrote before it refused."""
    OUT_OF_BOUNDS = "OUT_OF_BOUNDS"
    """Wrote outside the buffer it was given."""
    UNWRITTEN = "UNWRITTEN"
    """Left a defined cell as it was."""
    CRASH = "CRASH"
    """Ended with something that is neither fields nor a rejection."""
    DEVICE_ERROR = "DEVICE_ERROR"
    """A device failed, after which the process can do nothing more with it."""
    HANG = "HANG"
    """Gave no answer in time."""
    FLAKY = "FLAKY"
    """Fails, but not each time the same case is run in the same way."""
    KNOWN = "KNOWN"
    """Fails as a known-failures file says."""
    UNSUPPORTED = "UNSUPPORTED"
    """Does not claim this batch or field."""


@dataclass(frozen=True)
class Cell:
    """The first differing cell of a field: indices into the full field, what was got, what was wanted."""

    index: tuple[int, ...]
    got: int | bool
    want: int | bool


@dataclass(frozen=True)
class Finding:
    """One verdict other than PASS on one field of one step, or on the step as a whole (``key`` is None)."""

    verdict: Verdict
    step: int
    key: str | None
    """Flat key of the field (``klen.4``)."""
    formula: str
    """Formula (F-…) or precondition (P-…) that the finding speaks of; ``-`` without an answer to a valid batch."""
    detail: str
    """One line: what is wrong."""
    cell: Cell | None = None
    differing: int = 0
    compared: int = 0
    kind: str = ""
    """What is wrong with the form of a field: missing, type, dtype, shape; empty where cells are."""
    frames: tuple[str, ...] = field(default=(), compare=False)
    """Where the subject raised: its last frames, the innermost last."""
    code: str = ""
    """How the subject failed to answer, in a word that stays the same from run to run: SIGSEGV, timeout, raised."""

    @property
    def field(self) -> str | None:
        """Declared field name: the key without its ratio."""
        return None if self.key is None else field_name(self.key)

    @property
    def speaks_of_values(self) -> bool:
        """Whether it says that a field is not what its formula says, from which others may follow."""
        return self.key is not None and self.verdict in (Verdict.MISMATCH, Verdict.UNWRITTEN)

    def at_step(self, step: int) -> Finding:
        """The same finding as one on another step."""
        return replace(self, step=step)

    @property
    def signature(self) -> str:
        """Identity across runs: verdict, formula, field, and what is wrong with the field's form, if it is that.

        Without an answer: verdict, code, broken precondition.

        >>> Finding(Verdict.MISMATCH, 0, "klen.4", "F-KLEN", "shape [0], want [1]", kind="shape").signature
        'MISMATCH:F-KLEN:klen:shape'
        >>> Finding(Verdict.CRASH, 0, None, "P-TABLE", "died by SIGSEGV", code="SIGSEGV").signature
        'CRASH:SIGSEGV:P-TABLE'
        """
        if self.code:
            return ":".join([self.verdict, self.code, self.formula])
        return ":".join([self.verdict, self.formula, self.field or "-", *([self.kind] if self.kind else [])])


def field_name(key: str) -> str:
    """Declared field name of a flat key.

    >>> field_name("klen.4")
    'klen'
    """
    return key.partition(".")[0]


def distinct(findings: Iterable[Finding]) -> list[Finding]:
    """The first finding of each signature."""
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.signature, finding)
    return list(first.values())


def declared(key: str) -> oracle.Field:
    """Declaration of the field behind a flat key."""
    return oracle.FIELDS[field_name(key)]


class NonConformanceError(AssertionError):
    """A subject differs from the oracle. Raised as the subclass of its signature: see :func:`exception_class`."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.signature}: {finding.detail}")
        self.finding = finding


@cache
def exception_class(signature: str) -> type[NonConformanceError]:
    """The exception class of one signature: Hypothesis tells failures apart by class and place of the raise."""
    return type("NonConformance_" + "".join(c if c.isalnum() else "_" for c in signature), (NonConformanceError,), {})
