"""Replaying a trace: every step's batch through subject and oracle, compared row by chosen row."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from inputmeta import oracle
from inputmeta.conformance.campaign.failures import Failures, seen_on
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.compare import compare_fields
from inputmeta.conformance.check.runner import build, wanted_fields
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.interrupts import Interrupted, look
from inputmeta.conformance.subjects.base import Subject
from inputmeta.conformance.trace.counts import Counts
from inputmeta.conformance.trace.options import TraceOptions, step_config
from inputmeta.conformance.trace.reader import TraceRequest
from inputmeta.conformance.trace.rows import choose_rows
from inputmeta.conformance.trace.scheduler import Scheduler
from inputmeta.conformance.trace.steps import Step, step_case

EXPAND = frozenset({"kv_swa_full_index", "kv_swa_index"})
"""Expansions that are built: W cells a row. Dense ones would be 16 GiB for a long chunk at ratio 1."""


@dataclass
class TraceResult:
    """What a replay has seen so far."""

    counts: Counts = field(default_factory=Counts)
    compared_steps: int = 0
    rows_built: int = 0
    rows_compared: int = 0
    cells_compared: int = 0
    """Defined cells."""
    failures: Failures = field(default_factory=Failures)
    """On cases of the one step that differs: its index in the replay is in their titles."""
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
        return self.compared_steps > 0 and not self.failures

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
    """Build one step by the subject, compare the chosen rows, and count both."""
    beyond = subject.capabilities.lacks(step.path, config, step.sequences)
    if beyond is not None:
        result.unsupported[beyond] += 1
        return []
    request = Request(step.path, config, step.sequences, expand=EXPAND)
    before = time.perf_counter()
    built = build(subject, request, step.index)
    after = time.perf_counter()
    result.subject_seconds += after - before
    result.compared_steps += 1
    if isinstance(built, Finding) and built.verdict is Verdict.UNSUPPORTED:
        result.compared_steps -= 1
        result.unsupported[built.detail] += 1
        return []
    if isinstance(built, Finding):
        return [built.on_path(step.path)]
    rows = choose_rows(config, step.sequences, options.rows, options.seed, step.index)
    wanted, unclaimed = wanted_fields(request, subject, rows)
    for name in unclaimed:
        result.unsupported[name] += 1
    findings = [found.on_path(step.path) for found in compare_fields(wanted, built, step.index)]
    result.oracle_seconds += time.perf_counter() - after
    result.rows_built += step.total_q
    result.rows_compared += step.total_q if rows is None else len(rows)
    result.cells_compared += sum(want.compared() for want in wanted.values())
    return findings
