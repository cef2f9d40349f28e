"""Progress of a replay: a live line on a terminal, a plain line now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from inputmeta.conformance.campaign.summary import Part
from inputmeta.conformance.campaign.trace import WIDE_SEQUENCES, TraceResult
from inputmeta.conformance.trace.steps import Step

PLAIN_SECONDS = 30.0
"""Between two lines where output is not a terminal."""

LIVE_SECONDS = 0.2


class TraceProgress:
    """An ``on_step`` that shows requests done, steps, steps/s and the verdict so far; use as a context manager.

    ``total`` is the number of requests, None if not known.
    """

    def __init__(self, total: int | None = None, *, console: Console | None = None, quiet: bool = False) -> None:
        self._console = console or Console(stderr=True)
        self._quiet = quiet
        self._total = total
        self._interval = LIVE_SECONDS if self._console.is_terminal else PLAIN_SECONDS
        self._shown = time.monotonic()
        self._live: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> TraceProgress:
        if self._console.is_terminal and not self._quiet:
            columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._live = Progress(*columns, TextColumn("{task.description}"), console=self._console, transient=True)
            self._task = self._live.add_task("", total=self._total)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, step: Step, result: TraceResult) -> None:
        """Show the state behind a step, if it is time."""
        now = time.monotonic()
        if self._quiet or now - self._shown < self._interval:
            return
        self._shown = now
        if self._live is not None:
            done = done_requests(result)
            self._live.update(self._task, completed=done, description=progress_line(step, result))
        else:
            of = "" if self._total is None else f" of {self._total}"
            line = f"{done_requests(result)}{of} requests, {progress_line(step, result)}"
            self._console.print(line, highlight=False, soft_wrap=True)


def done_requests(result: TraceResult) -> int:
    """Requests that are finished or were refused."""
    return result.counts.finished + sum(result.counts.refused.values())


def progress_line(step: Step, result: TraceResult) -> str:
    """Steps, rate, simulated time and verdict, in one line."""
    verdict = "no difference" if not result.failures else f"{result.differing_steps} steps differ"
    rate = f"{result.steps_per_second:.0f} steps/s"
    return f"{result.counts.steps} steps, {rate}, {step.clock_ms / 1000:.0f} s of the trace, {verdict}"


def part_of(result: TraceResult, name: str, seed: int) -> Part:
    """A trace as a part of a run."""
    verdicts = {"PASS": result.compared_steps - result.differing_steps, "MISMATCH": result.differing_steps}
    return Part(
        f"trace {name}",
        result.counts.steps,
        "steps",
        {verdict: count for verdict, count in verdicts.items() if count},
        result.cells_compared,
        result.seconds,
        seed,
        tuple(summary_lines(result)),
        dict(result.unsupported),
    )


def summary_lines(result: TraceResult) -> list[str]:
    """The result as text, a line a matter."""
    counts = result.counts
    refused = "".join(f", {number} refused ({reason})" for reason, number in sorted(counts.refused.items()))
    lines = [
        f"requests: {counts.requests} read, {counts.finished} finished, {counts.truncated} truncated{refused}",
        f"steps: {counts.prompt_steps} prompt, {counts.decode_steps} decode, {counts.idle_steps} idle; "
        f"{result.compared_steps} compared",
        f"rows: {result.rows_built} built, {result.rows_compared} compared, {result.cells_compared} cells",
        f"prefix: {counts.hits} hits of {counts.hit_tokens} tokens, {counts.replayed_tokens} of them replayed, "
        f"{counts.evictions} evictions",
        f"events: {counts.preemptions} preemptions, {counts.placeholders} placeholders, "
        f"{counts.drafts_rejected} of {counts.drafts} drafts rejected",
        f"time: {result.seconds:.1f} s ({result.subject_seconds:.1f} s subject, {result.oracle_seconds:.1f} s oracle), "
        f"{result.steps_per_second:.1f} steps/s",
    ]
    if result.wide_steps:
        lines.append(
            f"wide: {result.wide_steps} steps of {WIDE_SEQUENCES} sequences and more held against the reference, in "
            f"every row, {result.audited_steps} of them audited by the oracle"
        )
    lines += [f"unsupported: {name} in {steps} steps" for name, steps in sorted(result.unsupported.items())]
    if result.failures:
        verdict = f"{result.differing_steps} steps differ"
    elif result.suite:
        verdict = "the suite is wrong"
    else:
        verdict = "PASS" if result.passed else "nothing ran"
    return [*lines, f"verdict: {verdict}"]
