"""`python -m inputmeta.conformance.benchmarks.reference_speed`: the reference beside the oracle on wide batches.

Processor time of one core, median of the rounds, without `kv_ca_index`. `audit`: the oracle on 8 sampled rows and the
comparison, reading the sequences as Python integers included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from inputmeta import oracle
from inputmeta.conformance import reference
from inputmeta.conformance.benchmarks.wide import FORMS, Form, wide_workload
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.audit import audit, readable, sampled_rows
from inputmeta.conformance.console import say

ROUNDS = 9
WINDOWS = frozenset({"kv_swa_index", "kv_swa_full_index"})


def milliseconds(run: Callable[[], object]) -> float:
    """Processor time of one call, median."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time_ns()
        run()
        times.append((time.process_time_ns() - begin) / 1e6)
    return median(times)


def line(form: Form) -> str:
    """What a form costs."""
    workload = wide_workload(1, form)
    request = Request(workload.path, workload.config, workload.sequences, expand=WINDOWS)
    plain = readable(request)

    def build() -> reference.Expected:
        return reference.expected(request.path, request.sequences, request.config, expand=WINDOWS)

    step, rows = build(), sampled_rows(workload.total_q, 8, 0)
    ours, theirs = (
        milliseconds(build),
        milliseconds(lambda: oracle.expected_fields(plain.path, plain.config, plain.sequences, expand=WINDOWS)),
    )
    audited = milliseconds(lambda: audit(request, step, rows))
    rates = [f"{form.sequences / took * 1e3:9,.0f}" for took in (ours, theirs)]
    return (
        f"{form.name:22} {form.sequences:9,} {workload.total_q:7,} {ours:9.2f} {theirs:9.1f} {audited:8.1f}"
        f" {rates[0]} {rates[1]}"
    )


def main() -> None:
    """Print a line a form."""
    say(f"{'form':22} sequences    rows    ref ms oracle ms audit ms     ref/s  oracle/s  (sequences a second)")
    for form in FORMS:
        say(line(form))


if __name__ == "__main__":
    main()
