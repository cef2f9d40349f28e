"""`python -m inputmeta.conformance.benchmarks`: how the engine compares with numpy and with a memset, in one run."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from time import perf_counter, process_time
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from inputmeta import oracle
from inputmeta.conformance.benchmarks import report
from inputmeta.conformance.benchmarks.measure import Spread, interleaved, spread_of
from inputmeta.conformance.benchmarks.workloads import SCALES, Workload, workloads
from inputmeta.conformance.console import fail, notice
from inputmeta.conformance.exits import NO_SUBJECT
from inputmeta.conformance.gpu.summary import machine
from inputmeta.conformance.subjects.loading import engine_missing

try:
    from inputmeta import engine
    from inputmeta.conformance.benchmarks.contenders import construction_run, measured, operations
    from inputmeta.conformance.benchmarks.gpu import run_gpu_benchmark
except ImportError as error:
    notice(f"the benchmark {engine_missing(error) or error}")
    raise SystemExit(NO_SUBJECT) from error

NOTES = (
    "Median processor time of interleaved rounds; ratios are taken round by round, in brackets their quartiles.",
    "engine: out reused, every precondition checked. numpy: fresh arrays, no precondition checked.",
    "engine fresh: no out; the allocator mostly hands back memory just freed, warm; the largest come as new pages.",
    "memset: one call a tensor, as many bytes as the tensor has defined cells; buffers rotate as those of engine do.",
    "Sequence objects are built outside these times, for engine and numpy alike; construct is that cost.",
)
RATIOS = {
    "numpy / engine": ("numpy", "engine"),
    "numpy / engine fresh": ("numpy", "engine fresh"),
    "engine / memset": ("engine", "memset"),
}
"""Above 1 the first is the slower one."""
CONSTRUCTIONS = 3


class Device(StrEnum):
    """Where the fields are built."""

    CPU = "cpu"
    CUDA = "cuda"


class Constructed(msgspec.Struct, frozen=True):
    """Building a workload's engine sequences from numpy arrays. `lent`: bytes; times in microseconds a batch."""

    workload: str
    sequences: int
    lent: int
    microseconds: Spread


class CpuReport(report.Report, frozen=True, kw_only=True):
    """A whole run on the CPU; `cpu_share` is processor time over wall-clock time: 1 on an idle machine."""

    cpu_share: float
    measured: list[report.Measured]
    constructed: list[Constructed]

    def tables(self) -> Iterator[Table]:
        """Operations, then constructions."""
        yield report.measured_table(self.measured)
        rows = [
            [one.workload, str(one.sequences), report.mebibytes(one.lent), report.microseconds(one.microseconds)]
            for one in self.constructed
        ]
        yield report.table(["construct engine.SequenceMetadata", "sequences", "MiB lent", "us"], rows)


def constructed(workload: Workload, repeat: int) -> Constructed:
    """Times the construction of the engine's sequences, a few times only."""
    samples = interleaved({"construct": construction_run(workload)}, min(repeat, CONSTRUCTIONS))
    return Constructed(
        workload=workload.name,
        sequences=len(workload.sequences),
        lent=sum(4 * len(getattr(one, name)) for one in workload.sequences for name in oracle.SEQUENCE_ARRAYS),
        microseconds=spread_of([value / 1e3 for value in samples["construct"]]),
    )


def run_benchmark(scale: str, repeat: int) -> CpuReport:
    """Measures every workload of a scale ("full", "tiny")."""
    wall, processor = perf_counter(), process_time()
    batches = workloads(SCALES[scale])
    lines = [measured(operation, RATIOS, repeat) for workload in batches for operation in operations(workload)]
    constructions = [constructed(workload, repeat) for workload in batches]
    share = (process_time() - processor) / (perf_counter() - wall)
    busy = f"{share:.0%} of a CPU: wide quartiles, or much less than 100%, mean a busy machine: run again."
    return CpuReport(
        command=report.command_line(),
        machine=machine(),
        repeat=repeat,
        notes=(*NOTES, busy),
        cpu_share=share,
        measured=lines,
        constructed=constructions,
    )


def benchmark(
    json: report.Json = None,
    repeat: report.Repeat = 25,
    scale: report.ScaleOption = report.ScaleName.FULL,
    device: Annotated[Device, typer.Option(help="cuda for the kernels.")] = Device.CPU,
) -> None:
    """Compares the engine with a vectorised numpy reference and with a memset of the bytes it writes; on a GPU, with
    empty kernels, with the eager path and with a fill of these bytes.
    """
    if device == Device.CPU:
        report.publish(run_benchmark(scale, repeat), json)
    elif engine.cuda_available():
        report.publish(run_gpu_benchmark(scale, repeat), json)
    else:
        raise fail("there is no GPU, or the engine was built without CUDA", NO_SUBJECT)


if __name__ == "__main__":
    typer.run(benchmark)
