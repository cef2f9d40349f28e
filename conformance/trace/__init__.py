"""Request traces: a small continuous-batching scheduler that makes a batch a step of them."""

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
    "TraceRequest",
    "choose_rows",
    "count_requests",
    "read_trace",
    "step_case",
    "trace_config",
]
