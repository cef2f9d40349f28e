"""The failure of a wide batch on the smallest case that shows it, which the ordinary path and the oracle confirm."""

from __future__ import annotations

import dataclasses

from inputmeta import oracle
from inputmeta.conformance.campaign.failures import Failure, seen_on
from inputmeta.conformance.campaign.reducer import reduce_case
from inputmeta.conformance.campaign.reducing import IsKnown, never
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.budget import case_cells
from inputmeta.conformance.cases.model import Case, Path, case_config, case_sequences
from inputmeta.conformance.cases.request import Request, affordable_expansions, step_request
from inputmeta.conformance.check.buffers import PATTERNS
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.interrupts import look
from inputmeta.conformance.subjects.base import Subject
from inputmeta.conformance.wide.against import compared
from inputmeta.conformance.wide.forms import MOST_CELLS, Batch

Steps = tuple[Request, ...]
MOST_INTEGERS = 2**24
"""Entries of the arrays of a batch that is made a case."""
ORDINARY_CELLS = 2**23
"""Cells, about, of a case that is run in the ordinary way, where the oracle says every one."""


def reduce_batch(
    session: Session, batch: Batch, finding: Finding, deadline: float, *, is_known: IsKnown = never
) -> tuple[list[Failure], str]:
    """The failure on the smallest case found by the ``deadline`` (monotonic clock), and from which sizes on it fails.

    ``is_known``: a case on which the finding is a known failure is none that shows it.
    What else fails on that case is behind it. The search asks by the reference, which takes milliseconds; the case in
    the end is run in the ordinary way. No failure where that does not show the finding: an expansion that is too large
    for a case.

    Raises:
        Interrupted: the run is to end, and no case is known to fail yet.
        SubjectError: the subject cannot be started any more; likewise.
        CaseError: the journal cannot be written.
    """
    first = case_of(batch.steps, f"wide batch {batch.seed}:{batch.index}, {batch.form}")
    if first is None:
        return [], "not reduced: more than a case can hold"

    def probe(case: Case) -> Finding | None:
        look()
        found = shown(session.subject, steps_of(case), finding)
        return None if found is None or is_known(found, case) else found

    reduced = reduce_case(first, finding, probe, deadline)
    told = str(reduced)
    if case_cells(reduced.case) > ORDINARY_CELLS:
        return [], told
    seen = seen_on(reduced.case, session.run(reduced.case).findings, session.mark())
    seen.sort(key=lambda failure: failure.finding.signature != finding.signature)
    if not seen or seen[0].finding.signature != finding.signature:
        return [], told
    return [dataclasses.replace(failure, reduced=told) for failure in seen], told


def shown(subject: Subject, steps: Steps, finding: Finding) -> Finding | None:
    """The finding, if the batch shows it by the reference; None as well where it is beyond the subject."""
    able = subject.capabilities
    for each in steps:
        if not each.sequences or able.lacks(each):
            return None
    findings = [found.on_path(steps[0].path) for found in compared(subject, steps, PATTERNS[0], by_oracle=False)]
    return next((found for found in findings if found.signature == finding.signature), None)


def steps_of(case: Case) -> Steps:
    """The steps of a case as those of a wide batch, with expansions as large as these have."""
    steps = [step_request(case, index) for index in range(len(case.steps))]
    return tuple(
        dataclasses.replace(each, expand=affordable_expansions(each.config, each.sequences, MOST_CELLS))
        for each in steps
    )


def case_of(steps: Steps, title: str) -> Case | None:
    """The batch as a case; None where its steps have tables of several widths, or it is far beyond a file."""
    names = oracle.SEQUENCE_ARRAYS
    sizes = sum(len(getattr(each, name)) for step in steps for each in step.sequences for name in names)
    if sizes > MOST_INTEGERS or len({each.max_num_blocks for each in steps}) > 1:
        return None
    first = steps[0]
    path: Path = first.path
    return Case(
        schema="inputmeta-case/1",
        title=title,
        path=path,
        config=case_config(first.config),
        steps=tuple(case_sequences(step.sequences) for step in steps),
        gather=tuple(each.gather for each in steps) if any(each.gather for each in steps) else (),
        max_num_blocks=first.max_num_blocks,
    )
