"""Replay of request traces: a small continuous-batching scheduler whose every batch goes to subject and oracle."""

from conformance.trace.counts import Counts
from conformance.trace.options import TraceOptions, trace_config
from conformance.trace.progress import TraceProgress, summary_lines
from conformance.trace.reader import TraceError, TraceRequest, count_requests, read_trace
from conformance.trace.replay import TraceResult, replay_trace
from conformance.trace.rows import choose_rows
from conformance.trace.scheduler import Scheduler
from conformance.trace.steps import PLACEHOLDER, Step, step_case

__all__ = [
    "PLACEHOLDER",
    "Counts",
    "Scheduler",
    "Step",
    "TraceError",
    "TraceOptions",
    "TraceProgress",
    "TraceRequest",
    "TraceResult",
    "choose_rows",
    "count_requests",
    "read_trace",
    "replay_trace",
    "step_case",
    "summary_lines",
    "trace_config",
]
