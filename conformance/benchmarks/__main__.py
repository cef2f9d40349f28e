"""`python -m inputmeta.conformance.benchmarks`: how the engine compares with numpy and with a memset, in one run."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Annotated

import typer

from inputmeta import engine, oracle
from inputmeta.conformance.benchmarks.contenders import Operation, construction_run, operations
from inputmeta.conformance.benchmarks.gpu import report_text, run_gpu_benchmark
from inputmeta.conformance.benchmarks.measure import interleaved, ratios, spread_of
from inputmeta.conformance.benchmarks.report import (
    NOTES,
    Constructed,
    Measured,
    Report,
    cpu_model,
    print_report,
    versions,
    write_json,
)
from inputmeta.conformance.benchmarks.workloads import SCALES, Workload, workloads
from inputmeta.conformance.console import fail
from inputmeta.conformance.exits import NO_SUBJECT

RATIOS = {
    "numpy / engine": ("numpy", "engine"),
    "numpy / engine fresh": ("numpy", "engine fresh"),
    "engine / memset": ("engine", "memset"),
}
"""Above 1 the first is the slower one."""
CONSTRUCTIONS = 3


def measured(operation: Operation, repeat: int) -> Measured:
    """Times every contender of one operation `repeat` times."""
    samples = interleaved(operation.runs, repeat)
    return Measured(
        workload=operation.workload.name,
        operation=operation.name,
        sequences=len(operation.workload.sequences),
        total_q=operation.workload.total_q,
        tensors=operation.tensors,
        written=operation.written,
        microseconds={name: spread_of([value / 1e3 for value in values]) for name, values in samples.items()},
        ratios={name: spread_of(ratios(samples[above], samples[below])) for name, (above, below) in RATIOS.items()},
    )


def constructed(workload: Workload, repeat: int) -> Constructed:
    """Times the construction of the engine's sequences, a few times only: it copies up to hundreds of MiB."""
    samples = interleaved({"construct": construction_run(workload)}, min(repeat, CONSTRUCTIONS))
    return Constructed(
        workload=workload.name,
        sequences=len(workload.sequences),
        copied=sum(getattr(one, name).nbytes for one in workload.sequences for name in oracle.SEQUENCE_ARRAYS),
        microseconds=spread_of([value / 1e3 for value in samples["construct"]]),
    )


def run_benchmark(scale: str, repeat: int, command: str = "") -> Report:
    """Measures every workload of a scale ("full", "tiny")."""
    wall, processor = perf_counter(), process_time()
    batches = workloads(SCALES[scale])
    lines = []
    for workload in batches:
        lines += [measured(operation, repeat) for operation in operations(workload)]
    constructions = [constructed(workload, repeat) for workload in batches]
    return Report(
        command=command,
        scale=scale,
        repeat=repeat,
        versions=versions(),
        cpu=cpu_model(),
        cpu_share=(process_time() - processor) / (perf_counter() - wall),
        notes=NOTES,
        measured=lines,
        constructed=constructions,
    )


def benchmark(
    json: Annotated[Path | None, typer.Option(help="Also write the report as JSON to this file.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Interleaved rounds.")] = 25,
    scale: Annotated[str, typer.Option(help="full, or tiny to see that it runs; tiny times mean nothing.")] = "full",
    device: Annotated[str, typer.Option(help="cpu, or cuda for the kernels.")] = "cpu",
) -> None:
    """Compares the engine with a vectorised numpy reference and with a memset of the bytes it writes; on a GPU, with
    empty kernels, with the eager path and with a fill of these bytes.
    """
    if scale not in SCALES:
        raise typer.BadParameter(f"{scale}: one of {', '.join(SCALES)}", param_hint="--scale")
    if device not in {"cpu", "cuda"}:
        raise typer.BadParameter(f"{device}: cpu or cuda", param_hint="--device")
    command = " ".join(["python -m inputmeta.conformance.benchmarks", *sys.argv[1:]])
    if device == "cuda":
        if not engine.cuda_available():
            raise fail("there is no GPU, or the engine was built without CUDA", NO_SUBJECT)
        on_gpu = run_gpu_benchmark(scale, repeat, command)
        print(report_text(on_gpu))
        if json is not None:
            write_json(on_gpu, json)
        return
    report = run_benchmark(scale, repeat, command)
    print_report(report)
    if json is not None:
        write_json(report, json)


if __name__ == "__main__":
    typer.run(benchmark)
