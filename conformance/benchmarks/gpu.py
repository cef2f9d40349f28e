"""The benchmark on a GPU: ``python -m inputmeta.conformance.benchmarks --device cuda --json FILE``.

Where it falls short, the profile says why; for the kernels of a decode step:

    ncu --set full --import-source on --kernel-name 'regex:zos' --launch-skip 20 --launch-count 2 -o decode \
        python -m inputmeta.conformance.benchmarks --device cuda --scale full --repeat 1
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import torch
from rich.table import Table

from inputmeta.conformance.benchmarks import report
from inputmeta.conformance.benchmarks.contenders import measured
from inputmeta.conformance.benchmarks.gpu_contenders import DecodeSide, expansion_operations
from inputmeta.conformance.benchmarks.gpu_measure import host_times, replay_times
from inputmeta.conformance.benchmarks.report import Measured
from inputmeta.conformance.benchmarks.workloads import SCALES, gpu_workloads
from inputmeta.conformance.gpu.summary import machine

NOTES = (
    "Medians of interleaved rounds, in brackets quartiles; ratios are taken round by round.",
    "Replays: a sample is 20 replays back to back, queued while the device waits, between two CUDA events.",
    "empty: two launches of a Triton kernel of one block that does nothing, in a graph.",
    "fill, memset: torch's fill kernel and cudaMemset of as many bytes as the operation has defined cells.",
    "Host time: 20 calls on an idle device, from call to return, by the clock. The step of zos is there already.",
    "eager: pinned tensors filled, each copied to a captured buffer. eager fresh: one pack, one copy, to new memory.",
    "one buffer stays in the L2 cache where it fits; the buffers in turn, together, do not.",
)

GRAPH_RATIOS = {
    "metadata / empty": ("metadata", "empty"),
    "fill / metadata": ("fill", "metadata"),
    "memset / metadata": ("memset", "metadata"),
}
HOST_RATIOS = {
    "eager / zos": ("eager", "zos"),
    "eager fresh / zos": ("eager fresh", "zos"),
    "eager / zos + extraction": ("eager", "zos + extraction"),
}
EXPANSION_RATIOS = {"fill / engine": ("fill", "engine"), "memset / engine": ("memset", "engine")}


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """One of the aims: the ratio of its name, and whether it is met: at most 1.25, or at least 5 or 0.8."""

    workload: str
    ratio: str
    value: float
    wanted: str
    is_met: bool


class GpuReport(report.Report, frozen=True, kw_only=True):
    """A whole run on a GPU."""

    measured: list[Measured]
    aims: list[Aim]

    def tables(self) -> Iterator[Table]:
        """One for the replays, one for host times, one for expansions, one for aims."""
        for names in (GRAPH_RATIOS, HOST_RATIOS, EXPANSION_RATIOS):
            lines = [line for line in self.measured if line.ratios.keys() == names.keys()]
            if lines:
                yield report.measured_table(lines)
        rows = [
            [one.workload, one.ratio, f"{one.value:.2f}", one.wanted, "met" if one.is_met else "missed"]
            for one in self.aims
        ]
        yield report.table(["aim", "ratio", "median", "wanted", ""], rows)


def aims(lines: list[Measured]) -> list[Aim]:
    """What is aimed for, held against medians; an expansion against the faster one of fill and memset. Host time twice:
    of the call, for a step that the host extracted earlier, and with all that eager does too, from the sequences on.
    """
    found = []
    for line in lines:
        if "metadata / empty" in line.ratios:
            # Two empty kernels, or the bytes: whichever takes longer is what no launch can fall below.
            value = min(line.ratios["metadata / empty"].median, 1 / line.ratios["fill / metadata"].median)
            found.append(aim(line, "metadata / the larger of empty and fill", value, "<= 1.25", value <= 1.25))
        elif "eager / zos" in line.ratios and line.sequences >= 256:
            value = min(line.ratios["eager / zos"].median, line.ratios["eager fresh / zos"].median)
            found.append(aim(line, "eager / zos, the less of both", value, ">= 5", value >= 5))
            value = line.ratios["eager / zos + extraction"].median
            found.append(aim(line, "eager / zos + extraction", value, ">= 5", value >= 5))
        elif "fill / engine" in line.ratios:
            value = min(line.ratios["fill / engine"].median, line.ratios["memset / engine"].median)
            found.append(aim(line, "share of fill bandwidth", value, ">= 0.8", value >= 0.8))
    return found


def aim(line: Measured, ratio: str, value: float, wanted: str, is_met: bool) -> Aim:
    """The aim of one line of the report."""
    where = f"{line.workload}: {line.operation}"
    return Aim(workload=where, ratio=ratio, value=round(value, 3), wanted=wanted, is_met=is_met)


def run_gpu_benchmark(scale: str, repeat: int) -> GpuReport:
    """Measures every workload of a scale ("full", "tiny") on torch's current GPU."""
    device = torch.device("cuda", torch.cuda.current_device())
    lines = []
    for workload in gpu_workloads(SCALES[scale]):
        if workload.path == "prompt" or workload.expansion == "kv_ca_index":
            wide = expansion_operations(workload, device)
            lines += [measured(operation, EXPANSION_RATIOS, repeat, replay_times) for operation in wide]
        else:
            side = DecodeSide(workload, device)
            lines.append(measured(side.graph_operation(), GRAPH_RATIOS, repeat, replay_times))
            lines.append(measured(side.host_operation(), HOST_RATIOS, repeat, host_times))
    return GpuReport(
        command=report.command_line(),
        machine=machine(),
        repeat=repeat,
        notes=NOTES,
        measured=lines,
        aims=aims(lines),
    )
