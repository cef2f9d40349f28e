"""Replay of request traces: a small continuous-batching scheduler whose every batch goes to subject and oracle."""

from inputmeta.conformance.campaign.trace import TraceResult, replay_trace
from inputmeta.conformance.commands.trace_progress import TraceProgress, summary_lines
from inputmeta.conformance.trace.counts import Counts
from inputmeta.conformance.trace.options import TraceOptions, trace_config
from inputmeta.conformance.trace.reader import TraceError, TraceRequest, count_requests, read_trace
from inputmeta.conformance.trace.rows import choose_rows
from inputmeta.conformance.trace.scheduler import Scheduler
from inputmeta.conformance.trace.steps import PLACEHOLDER, Step, step_case

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
