"""One wide batch: draw it, have the oracle audit the reference now and then, hold the subject against the reference."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from inputmeta.conformance.check.audit import sampled_rows
from inputmeta.conformance.check.buffers import PATTERNS
from inputmeta.conformance.check.verdicts import Finding, Verdict, distinct
from inputmeta.conformance.subjects.base import Subject
from inputmeta.conformance.wide.against import audited, cells_of, compared
from inputmeta.conformance.wide.forms import Claims, draw_batch, forms_of
from inputmeta.conformance.wide.places import place_of

AUDIT_EVERY = 31
"""Batches to the next one of which the oracle audits the reference; no multiple of the number of forms."""
AUDITED_ROWS = 8


@dataclass(frozen=True)
class Counts:
    """What batches have come to: batches, sequences and query rows of their steps, cells compared; batches of which the
    oracle audited the reference; batches that were not compared, for the subject or a limit does not take them.
    """

    batches: int = 0
    sequences: int = 0
    rows: int = 0
    cells: int = 0
    audited: int = 0
    unsupported: int = 0

    def __add__(self, other: Counts) -> Counts:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Counts(*(one + two for one, two in pairs))


@dataclass(frozen=True)
class Ran:
    """What came of one batch."""

    form: str
    path: str
    counts: Counts
    findings: tuple[Finding, ...] = ()


def run_batch(subject: Subject, claims: Claims, seed: int, index: int) -> Ran:
    """Run batch ``index`` of a seed.

    Raises:
        SubjectError: the subject cannot be started any more.
    """
    batch = draw_batch(claims, seed, index)
    if any(subject.capabilities.lacks(request) is not None for request in batch.steps):
        return Ran(batch.form, batch.steps[0].path, Counts(unsupported=1))
    place = place_of(subject)
    steps = [place.reference_of(request) for request in batch.steps]
    polarity = index // len(forms_of(claims)) % len(PATTERNS)
    audits = index % AUDIT_EVERY == AUDIT_EVERY - 1
    findings: list[Finding] = []
    if audits:
        for number, (request, step) in enumerate(zip(batch.steps, steps, strict=True)):
            rows = sampled_rows(step.batch.total_q, AUDITED_ROWS, index)
            findings += audited(request, step, rows, number)
    if not findings:
        findings = compared(subject, batch.steps, PATTERNS[polarity], steps)
    path = batch.steps[0].path
    if any(found.verdict is Verdict.UNSUPPORTED for found in findings):
        return Ran(batch.form, path, Counts(audited=int(audits), unsupported=1))
    counts = Counts(
        batches=1,
        sequences=sum(len(request.sequences) for request in batch.steps),
        rows=sum(step.batch.total_q for step in steps),
        cells=sum(cells_of(step, subject) for step in steps),
        audited=int(audits),
    )
    return Ran(batch.form, path, counts, tuple(distinct(found.on_path(path) for found in findings)))
