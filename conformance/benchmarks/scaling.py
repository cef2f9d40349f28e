"""`python -m inputmeta.conformance.benchmarks.scaling`: the engine's time by sequences and by rows, with memset's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import typer
from rich.table import Table

from inputmeta.conformance.benchmarks import report
from inputmeta.conformance.benchmarks.contenders import EngineSide, defined_bytes, memset_run, operation, tensors_of
from inputmeta.conformance.benchmarks.contenders import measured as measured_operation
from inputmeta.conformance.benchmarks.workloads import (
    FULL,
    TINY,
    Material,
    Scale,
    Workload,
    decode_workload,
    prompt_workload,
)
from inputmeta.conformance.gpu.summary import machine

NOTES = (
    "Median processor time of interleaved rounds, out reused; ratios are taken round by round, in brackets quartiles.",
    "decode: contexts of 1,000 to 32,000 tokens, 4 rows a sequence. prompt: so many rows in chunks of 8, or in one.",
    "Linear: from one line to the next the time grows as the bytes do, or slower while a call's fixed cost shows.",
)
SEQUENCES = (1, 4, 16, 64, 256, 1_024, 4_096)
ROWS_A_CHUNK = 8
RATIOS = {"engine / memset": ("engine", "memset")}


class ScalingReport(report.Report, frozen=True, kw_only=True):
    """A whole run; each line is a step with four times the sequences, or rows, of the one above."""

    measured: list[report.Measured]

    def tables(self) -> Iterator[Table]:
        """A line a step."""
        heading = ["workload", "sequences", "rows", "MiB", "engine us", "us a sequence", "ns a row", "engine / memset"]
        rows = [
            [
                one.workload,
                str(one.sequences),
                str(one.total_q),
                report.mebibytes(one.written),
                report.microseconds(one.microseconds["engine"]),
                f"{one.microseconds['engine'].median / one.sequences:.2f}",
                f"{one.microseconds['engine'].median / one.total_q * 1e3:.1f}",
                report.spread(one.ratios["engine / memset"]),
            ]
            for one in self.measured
        ]
        yield report.table(heading, rows)


def scaled(scale: Scale, counts: tuple[int, ...]) -> Iterator[Workload]:
    """Decode steps and prompts of so many sequences; prompts of one sequence with as many rows."""
    material = Material(scale)
    for count in counts:
        yield decode_workload(material, scale, count)
    for count in counts:
        yield prompt_workload(material, replace(scale, prompt_tokens=ROWS_A_CHUNK * count), count)
    for count in counts:
        yield prompt_workload(material, replace(scale, prompt_tokens=ROWS_A_CHUNK * count), 1)


def measured(workload: Workload, repeat: int) -> report.Measured:
    """Engine and memset of one step."""
    side = EngineSide(workload)
    written = tensors_of(side.prepare(None))
    one = operation(workload, "prepare", written, side.prepare, lambda: None)
    sizes = [defined_bytes(workload, key, tensor) for key, tensor in written.items()]
    runs = {"engine": one.runs["engine"], "memset": memset_run(written, sizes)}
    return measured_operation(replace(one, runs=runs), RATIOS, repeat)


def scaling(
    json: report.Json = None, repeat: report.Repeat = 25, scale: report.ScaleOption = report.ScaleName.FULL
) -> None:
    """Measures steps of 1 to 4,096 sequences, and prompts of one sequence with as many rows."""
    is_full = scale == report.ScaleName.FULL
    sizes = replace(FULL, shortest_context=1_000, longest_context=32_000, longest_prefix=16_384) if is_full else TINY
    lines = [measured(workload, repeat) for workload in scaled(sizes, SEQUENCES if is_full else (1, 4))]
    command = report.command_line(".scaling")
    report.publish(ScalingReport(command=command, machine=machine(), repeat=repeat, notes=NOTES, measured=lines), json)


if __name__ == "__main__":
    typer.run(scaling)
