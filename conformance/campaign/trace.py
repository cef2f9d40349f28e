"""Replaying a trace: every step's batch through subject and oracle, compared row by chosen row.

Steps of :data:`WIDE_SEQUENCES` and more are held against the reference, in every row, as the wide tier does it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from inputmeta import oracle
from inputmeta.conformance.campaign.failures import Failures, seen_on
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.audit import sampled_rows
from inputmeta.conformance.check.compare import compare_fields
from inputmeta.conformance.check.runner import build, wanted_fields
from inputmeta.conformance.check.verdicts import Finding, Verdict, field_name
from inputmeta.conformance.interrupts import Interrupted, look
from inputmeta.conformance.subjects.base import Result, Subject, Unsupported
from inputmeta.conformance.subjects.reference import reference_of
from inputmeta.conformance.trace.counts import Counts
from inputmeta.conformance.trace.options import TraceOptions, step_config
from inputmeta.conformance.trace.reader import TraceRequest
from inputmeta.conformance.trace.rows import choose_rows
from inputmeta.conformance.trace.scheduler import Scheduler
from inputmeta.conformance.trace.steps import Step, step_case
from inputmeta.conformance.wide.against import audited, cells_of, claimed, confirmed, differing_keys
from inputmeta.conformance.wide.loop import AUDIT_EVERY, AUDITED_ROWS

EXPAND = frozenset({"kv_swa_full_index", "kv_swa_index"})
"""Expansions that are built: W cells a row. Dense ones would be 16 GiB for a long chunk at ratio 1."""

WIDE_SEQUENCES = 256
"""Sequences of a step from which on it is held against the reference: the oracle takes seconds for them."""


@dataclass
class TraceResult:
    """What a replay has seen so far."""

    counts: Counts = field(default_factory=Counts)
    compared_steps: int = 0
    wide_steps: int = 0
    """Of them, those that were held against the reference."""
    audited_steps: int = 0
    """Of those, the ones of which the oracle audited the reference."""
    rows_built: int = 0
    rows_compared: int = 0
    cells_compared: int = 0
    """Defined cells."""
    failures: Failures = field(default_factory=Failures)
    """On cases of the one step that differs: its index in the replay is in their titles."""
    suite: list[Finding] = field(default_factory=list)
    """Where reference and oracle differ, which ends the replay and accuses no subject."""
    differing_steps: int = 0
    """Steps with a finding."""
    unsupported: Counter[str] = field(default_factory=Counter)
    """Steps by what of them the subject does not claim: a path, a configuration, a field."""
    saved: Case | None = None
    """The step that was asked for."""
    seconds: float = 0.0
    subject_seconds: float = 0.0
    oracle_seconds: float = 0.0
    """Seconds in the oracle and in the comparison."""

    @property
    def passed(self) -> bool:
        """Whether something was compared and nothing differed."""
        return self.compared_steps > 0 and not self.failures and not self.suite

    @property
    def steps_per_second(self) -> float:
        """Steps of all kinds by wall clock."""
        return self.counts.steps / self.seconds if self.seconds else 0.0


OnStep = Callable[[Step, TraceResult], None]
"""Called behind every step, with the step's arrays still as they were."""


def replay_trace(
    requests: Iterable[TraceRequest],
    options: TraceOptions,
    subject: Subject,
    on_step: OnStep | None = None,
    *,
    config: oracle.MetadataConfig | None = None,
    save_case: int | None = None,
    keep_going: bool = False,
) -> TraceResult:
    """Schedule the requests and check every step's batch; ``config`` as for :class:`Scheduler`, its rank by turns.

    Ends at the first step with a finding unless ``keep_going``. The step with index ``save_case`` and the first one
    of each signature are kept as cases. Memory does not grow with the trace. When the run is to end the result is what
    was seen so far.

    Raises:
        TraceError: from ``requests``.
        oracle.PreconditionError: the scheduler made a batch that breaks a precondition: a fault of ours.
    """
    scheduler = Scheduler(requests, options, config)
    result = TraceResult(counts=scheduler.counts)
    started = time.perf_counter()
    for step in scheduler:
        config = step_config(scheduler.config, step.index)
        if step.index == save_case:
            result.saved = step_case(step, config, options.seed)
        try:
            look()
            findings = _check(step, config, options, subject, result)
        except Interrupted:
            break
        result.suite += [found for found in findings if found.verdict is Verdict.SUITE]
        if result.suite:
            break
        result.differing_steps += bool(findings)
        if any(found.signature not in result.failures for found in findings):
            case = step_case(step, config, options.seed)
            for failure in seen_on(case, [found.at_step(0) for found in findings]):
                if failure.finding.signature not in result.failures:
                    result.failures.note(failure)
        result.seconds = time.perf_counter() - started
        if on_step is not None:
            on_step(step, result)
        if findings and not keep_going:
            break
    return result


def _check(
    step: Step, config: oracle.MetadataConfig, options: TraceOptions, subject: Subject, result: TraceResult
) -> list[Finding]:
    """Build one step by the subject, compare the chosen rows (of a wide step all), and count both."""
    request = Request(step.path, config, step.sequences, expand=EXPAND)
    beyond = subject.capabilities.lacks(request)
    if beyond is not None:
        result.unsupported[beyond] += 1
        return []
    before = time.perf_counter()
    built = build(subject, request, step.index)
    after = time.perf_counter()
    result.subject_seconds += after - before
    result.compared_steps += 1
    if isinstance(built, Finding) and built.verdict is Verdict.UNSUPPORTED:
        result.compared_steps -= 1
        result.unsupported[built.left_out] += 1
        return []
    if isinstance(built, Finding):
        return [built.on_path(step.path)]
    if len(step.sequences) >= WIDE_SEQUENCES:
        findings = _against_reference(request, built, subject, step.index, result)
    else:
        rows = choose_rows(config, step.sequences, options.rows, options.seed, step.index)
        findings = _against_oracle(request, rows, built, subject, result)
        findings = [found.at_step(step.index) for found in findings]
    result.oracle_seconds += time.perf_counter() - after
    result.rows_built += step.total_q
    return [found.on_path(step.path) for found in findings]


def _against_oracle(
    request: Request, rows: list[int] | None, built: Result, subject: Subject, result: TraceResult
) -> list[Finding]:
    """Compare the chosen rows with what the oracle says of them."""
    wanted, unclaimed = wanted_fields(request, subject, rows)
    for name in unclaimed:
        result.unsupported[name] += 1
    result.rows_compared += sum(each.seqlen_q for each in request.sequences) if rows is None else len(rows)
    findings = compare_fields(wanted, built)
    for found in findings:
        if found.verdict is Verdict.UNSUPPORTED and found.key is not None:
            result.unsupported[found.left_out] += 1
            del wanted[found.key]
    result.cells_compared += sum(want.compared() for want in wanted.values())
    return [found for found in findings if found.verdict is not Verdict.UNSUPPORTED]


def _against_reference(
    request: Request, built: Result, subject: Subject, index: int, result: TraceResult
) -> list[Finding]:
    """Compare every row with the reference; what differs as the oracle has it. The oracle audits one step in some."""
    expected = reference_of(request)
    wanted = claimed(expected, subject)
    for name in sorted({key.partition(".")[0] for key in expected.fields.keys() - wanted.keys()}):
        result.unsupported[name] += 1
    for key in wanted:
        reason = built.get(key)
        if isinstance(reason, Unsupported):
            result.unsupported[f"{field_name(key)}: {reason}"] += 1
    result.wide_steps += 1
    result.rows_compared += expected.batch.total_q
    result.cells_compared += cells_of(expected, subject)
    if result.wide_steps % AUDIT_EVERY == 1:
        result.audited_steps += 1
        suite = audited(request, expected, sampled_rows(expected.batch.total_q, AUDITED_ROWS, index), index)
        if suite:
            return suite
    differing = differing_keys(expected, wanted, built)
    if not differing:
        return []
    return [found.at_step(index) for found in confirmed(subject, [request], expected, differing, built, in_place=False)]
