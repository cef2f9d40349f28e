"""Verdicts, findings and their identity.

A finding is one verdict on one field (or on the batch as a whole). Its signature (:class:`Signature`) is what fuzzing
groups by, what Hypothesis sees as an exception class of its own, and what a report names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from inputmeta import oracle
from inputmeta.conformance.check.evidence import Evidence


class Verdict(StrEnum):
    """What the suite says of a subject on one batch."""

    PASS = "PASS"
    """Every claimed field is exactly what the oracle says."""
    MISMATCH = "MISMATCH"
    """A defined cell, a shape or a dtype differs."""
    REJECTED = "REJECTED"
    """Refused a batch that breaks no precondition."""
    ACCEPTED = "ACCEPTED"
    """Took a batch that breaks a precondition, or refused it for another, naming a wrong sequence or field, or wrote
    before it refused."""
    OUT_OF_BOUNDS = "OUT_OF_BOUNDS"
    """Wrote outside the buffer it was given."""
    ALLOCATION = "ALLOCATION"
    """Gave a block or a state slot against a rule of the pool (A-…), or none where the pool has room."""
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
    SUITE = "SUITE"
    """The suite is wrong: its reference and its oracle differ, or it drew an invalid batch. It accuses no subject."""
    KNOWN = "KNOWN"
    """Fails as a known-failures file says."""
    UNSUPPORTED = "UNSUPPORTED"
    """Does not claim this batch or field."""


NO_FAILURES = frozenset({Verdict.PASS, Verdict.KNOWN, Verdict.UNSUPPORTED})
"""Verdicts that no finding has."""
VALUE = "value"
"""Kind of a finding on cells."""
FORMS = frozenset({"missing", "type", "dtype", "shape"})
"""Kinds of a finding on the form of a field."""
CODE = re.compile(r"[A-Za-z0-9_-]+")

RELATIONS = ("M-4", "M-5")
"""What must hold between several builds of one batch (SPEC.md section 12), as findings name it."""


class Signature(NamedTuple):
    """Identity of a finding across runs. ``str()`` is ``VERDICT:PATH:FORMULA:FIELD:KIND``, :meth:`parse` its inverse.

    >>> str(Signature("MISMATCH", "decode", "F-POS", "positions", VALUE))
    'MISMATCH:decode:F-POS:positions:value'
    """

    verdict: str
    path: str
    formula: str
    """Formula, precondition, rule of allocation (A-…), relation between builds, or promise of a container (I-…); ``-``
    without an answer to a valid batch."""
    field: str
    """Declared name, or that of a key set; ``-`` for the step as a whole."""
    kind: str
    """``value``, or what is wrong with the field's form (:data:`FORMS`), or what a refusal names wrongly (``sequence``,
    ``field``), or what a rule of allocation is about (``block``, ``state``), or the promise of a container (``copy``,
    ``flatten``, …), or how the subject failed to answer
    (``SIGSEGV``, ``timeout``, ``raised``); ``-`` where the verdict says all."""

    def __str__(self) -> str:
        """The parts between colons."""
        return ":".join(self)

    @classmethod
    def parse(cls, text: str) -> Signature:
        """The signature that a text is; ValueError, which says what is wrong with it, if it is none.

        >>> Signature.parse("CRASH:prompt:P-TABLE:-:SIGSEGV").kind
        'SIGSEGV'
        """
        parts = text.split(":")
        if len(parts) != len(cls._fields):
            raise ValueError("want VERDICT:PATH:FORMULA:FIELD:KIND")
        found = cls(*parts)
        formulas = {"-", *oracle.FORMULAS, *oracle.PRECONDITIONS, *oracle.ALLOCATION, *RELATIONS, *oracle.PROMISES}
        if found.verdict not in set(Verdict) - NO_FAILURES:
            raise ValueError(f"{found.verdict} is no verdict on a failure")
        for what, known in (
            ("path", oracle.PATHS),
            ("formula", formulas),
            ("field", {"-", *oracle.FIELDS, *oracle.KEY_SETS}),
        ):
            if getattr(found, what) not in known:
                raise ValueError(f"there is no {what} {getattr(found, what)}")
        if not CODE.fullmatch(found.kind):
            raise ValueError(f"kind {found.kind} is none of value, {', '.join(sorted(FORMS))}, a code, -")
        return found

    @property
    def short(self) -> str:
        """The same on every path, as files of known failures had it before they were TOML, and mutants declare it.

        ``VERDICT:FORMULA:FIELD``, with ``:KIND`` if a form is wrong; ``VERDICT:CODE:FORMULA`` without an answer.

        >>> Signature.parse("MISMATCH:decode:F-POS:positions:value").short
        'MISMATCH:F-POS:positions'
        >>> Signature.parse("MISMATCH:decode:F-POS:positions:shape").short
        'MISMATCH:F-POS:positions:shape'
        >>> Signature.parse("CRASH:decode:P-TABLE:-:SIGSEGV").short
        'CRASH:SIGSEGV:P-TABLE'
        """
        if self.kind in (VALUE, "-"):
            return ":".join([self.verdict, self.formula, self.field])
        if self.kind in FORMS:
            return ":".join([self.verdict, self.formula, self.field, self.kind])
        return ":".join([self.verdict, self.kind, self.formula])


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
    """Flat key of the field (``klen.4``), or of the key set."""
    formula: str
    """Formula (F-…) or precondition (P-…) that the finding speaks of; ``-`` without an answer to a valid batch."""
    detail: str
    """One line: what is wrong."""
    cell: Cell | None = None
    differing: int = 0
    compared: int = 0
    kind: str = ""
    """``value``, or what is wrong with the form of a field: missing, type, dtype, shape; or what a refusal names
    wrongly: sequence, field; or what is given against a rule: block, state; or the promise that a container does not
    keep; empty for other verdicts."""
    sequence: int | None = None
    """The sequence at fault, where the finding knows it and has no cell to tell it."""
    frames: tuple[str, ...] = field(default=(), compare=False)
    """Where the subject raised: its last frames, the innermost last."""
    code: str = ""
    """How the subject failed to answer, in a word that stays the same from run to run: SIGSEGV, timeout, raised."""
    path: str = "-"
    """Construction path of the step; ``-`` until whoever runs it has said."""
    evidence: Evidence | None = field(default=None, compare=False, repr=False)
    """Of a finding on cells: how they are spread, and what stands around the first."""

    @property
    def field(self) -> str | None:
        """Declared field name: the key without its ratio."""
        return None if self.key is None else field_name(self.key)

    @property
    def left_out(self) -> str:
        """What an UNSUPPORTED finding leaves out, as it is counted: the field with the reason, or that of the batch."""
        return self.detail if self.key is None else f"{field_name(self.key)}: {self.detail}"

    @property
    def speaks_of_values(self) -> bool:
        """Whether it says that a field is not what its formula says, from which others may follow."""
        values = self.key is not None and field_name(self.key) in oracle.FIELDS
        return values and self.verdict in (Verdict.MISMATCH, Verdict.UNWRITTEN)

    def at_step(self, step: int) -> Finding:
        """The same finding as one on another step."""
        return replace(self, step=step)

    def on_path(self, path: str) -> Finding:
        """The same finding on a step of a path."""
        return replace(self, path=path)

    @property
    def on_form(self) -> bool:
        """Whether it is the form of a field that is wrong."""
        return self.kind in FORMS

    @property
    def identity(self) -> Signature:
        """Verdict, path, formula, field, kind.

        >>> str(Finding(Verdict.MISMATCH, 0, "klen.4", "F-KLEN", "shape [0]", kind="shape", path="prompt").identity)
        'MISMATCH:prompt:F-KLEN:klen:shape'
        """
        return Signature(self.verdict, self.path, self.formula, self.field or "-", self.code or self.kind or "-")

    @property
    def signature(self) -> str:
        """The identity as text.

        >>> Finding(Verdict.CRASH, 0, None, "P-TABLE", "died", code="SIGSEGV", path="decode").signature
        'CRASH:decode:P-TABLE:-:SIGSEGV'
        """
        return str(self.identity)


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


def meaning_of(key: str) -> str:
    """What the field or key set behind a flat key is, in words.

    >>> meaning_of("visible_ca.4")
    'compressed keys that a row sees, by ratio'
    """
    name = field_name(key)
    return oracle.KEY_SETS[name].meaning if name in oracle.KEY_SETS else declared(key).meaning


class NonConformanceError(AssertionError):
    """A subject differs from the oracle. Raised as the subclass of its signature: see :func:`exception_class`."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.signature}: {finding.detail}")
        self.finding = finding


@cache
def exception_class(signature: str) -> type[NonConformanceError]:
    """The exception class of one signature: Hypothesis tells failures apart by class and place of the raise."""
    return type("NonConformance_" + "".join(c if c.isalnum() else "_" for c in signature), (NonConformanceError,), {})
