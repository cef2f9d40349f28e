"""`python -m inputmeta.conformance.benchmarks.wide_speed`: sequences a second of the wide tier, and where time goes.

The forms are mixed as in a run, the oracle audits as in a run. Processes are started and warmed up first. `parts` are
seconds of one process, a step after the other, waiting for the device after each part.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from inputmeta import oracle
from inputmeta.conformance.check.buffers import PATTERNS
from inputmeta.conformance.console import say
from inputmeta.conformance.gpu.summary import Machine, machine
from inputmeta.conformance.subjects import load_subject
from inputmeta.conformance.subjects.base import Subject
from inputmeta.conformance.wide.against import compared
from inputmeta.conformance.wide.forms import FORMS, Claims, draw_batch
from inputmeta.conformance.wide.messages import Batches
from inputmeta.conformance.wide.places import DevicePlace, place_of
from inputmeta.conformance.wide.process import Loop, Share, Wide
from inputmeta.conformance.workers.target import Target

SEED = 1
WARM_UP = Batches(seed=SEED, first=10**6, count=2 * len(FORMS), seconds=30.0, paths=oracle.PATHS)


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """So many processes over so many seconds."""

    processes: int
    seconds: float
    batches: int
    sequences: int
    rows: int
    cells: int
    audited: int
    failed: int
    sequences_a_second: float


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one process by part, over the steps of some batches; sequences a second of reference and comparison
    without drawing and building."""

    steps: int
    sequences: int
    draw: float
    reference: float
    build: float
    compare: float
    reference_and_compare_sequences_a_second: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run of this benchmark."""

    command: str
    machine: Machine
    cores: int
    subject: str
    speeds: list[Speed]
    parts: Parts | None


def speed(subject: str, processes: int, seconds: float) -> Speed:
    """The wide tier in so many processes for so long."""
    wide = Wide(SEED, oracle.PATHS)
    with tempfile.TemporaryDirectory(prefix="inputmeta-speed-") as folder, ThreadPoolExecutor(processes) as pool:
        loops = [Loop(Target(subject=subject), Path(folder), number) for number in range(processes)]
        try:
            list(pool.map(lambda loop: loop.run(WARM_UP), loops))
            lock = threading.Lock()
            begin = time.monotonic()
            share = Share(wide, 0, 2**62, begin + seconds, bool, lock=lock)

            def work(loop: Loop) -> None:
                asked = share.take()
                while asked is not None:
                    asked = share.took(asked, loop.run(asked)) or share.take()

            list(pool.map(work, loops))
            took = time.monotonic() - begin
        finally:
            for loop in loops:
                loop.close()
    counts = wide.counts
    return Speed(
        processes=processes,
        seconds=round(took, 2),
        batches=counts.batches,
        sequences=counts.sequences,
        rows=counts.rows,
        cells=counts.cells,
        audited=counts.audited,
        failed=len(wide.found),
        sequences_a_second=round(counts.sequences / took),
    )


class Timed:
    """A subject whose builds are timed."""

    def __init__(self, subject: Subject) -> None:
        self.name, self.capabilities = subject.name, subject.capabilities
        self.seconds = 0.0
        self._subject = subject
        for method in ("build", "build_tensors"):
            if hasattr(subject, method):
                setattr(self, method, self.timed(method))
        if hasattr(subject, "device"):
            self.device = subject.device

    def timed(self, method: str) -> object:
        """A method of the subject that counts its seconds, to the end of what it began on the device."""
        place = place_of(self._subject)

        def call(*arguments: object) -> object:
            begin = time.perf_counter()
            result = getattr(self._subject, method)(*arguments)
            if isinstance(place, DevicePlace):
                place.synchronize()
            self.seconds += time.perf_counter() - begin
            return result

        return call


def parts(name: str, count: int) -> Parts:
    """What one process does with its time over ``count`` batches, after as many to warm up."""
    subject = Timed(load_subject(name))
    place = place_of(subject)  # type: ignore[arg-type]
    claims = Claims(subject.capabilities, oracle.PATHS)
    taken: Counter[str] = Counter()
    steps = sequences = 0
    for index in range(-count, count):
        if index == 0:
            taken.clear()
            subject.seconds, steps, sequences = 0.0, 0, 0
        begin = time.perf_counter()
        batch = draw_batch(claims, SEED, abs(index))
        drawn = time.perf_counter()
        expected = [place.reference_of(request) for request in batch.steps]
        if isinstance(place, DevicePlace):
            place.synchronize()
        made = time.perf_counter()
        compared(subject, batch.steps, PATTERNS[0], expected)  # type: ignore[arg-type]
        taken.update({"draw": drawn - begin, "reference": made - drawn, "compare": time.perf_counter() - made})
        steps += len(batch.steps)
        sequences += sum(len(request.sequences) for request in batch.steps)
    compare = taken["compare"] - subject.seconds
    return Parts(
        steps=steps,
        sequences=sequences,
        draw=round(taken["draw"], 3),
        reference=round(taken["reference"], 3),
        build=round(subject.seconds, 3),
        compare=round(compare, 3),
        reference_and_compare_sequences_a_second=round(sequences / (taken["reference"] + compare)),
    )


def main(
    subject: Annotated[str, typer.Option("--subject", "-s", help="what is tested")] = "engine",
    processes: Annotated[list[int] | None, typer.Option(min=1, help="processes; may be repeated")] = None,
    seconds: Annotated[float, typer.Option(min=0.5, help="of each number of processes")] = 10.0,
    batches: Annotated[int, typer.Option(min=0, help="of which the parts are timed, 0: none")] = 60,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the report as JSON")] = None,
) -> None:
    """Measure the wide tier; a line for each number of processes (by default one a core), one for the parts."""
    cores = len(os.sched_getaffinity(0))
    speeds = []
    for number in processes or [cores]:
        speeds.append(speed(subject, number, seconds))
        say(f"{subject}: {msgspec.json.encode(speeds[-1]).decode()}")
    timed = parts(subject, batches) if batches else None
    say(f"{subject}: {msgspec.json.encode(timed).decode()}")
    if json_file is not None:
        command = " ".join(["python -m inputmeta.conformance.benchmarks.wide_speed", *sys.argv[1:]])
        report = Report(command=command, machine=machine(), cores=cores, subject=subject, speeds=speeds, parts=timed)
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


if __name__ == "__main__":
    typer.run(main)
