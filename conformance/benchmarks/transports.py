"""`python -m inputmeta.conformance.benchmarks.transports`: round trips a second through each door to a subject."""

from __future__ import annotations

import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated

import msgspec
import typer

from inputmeta import oracle
from inputmeta.conformance.benchmarks.report import cpu_model, write_json
from inputmeta.conformance.cases.request import affordable_expansions
from inputmeta.conformance.check.buffers import PATTERNS, Arena
from inputmeta.conformance.subjects import Request, Subject
from inputmeta.conformance.subjects.callables import probe
from inputmeta.conformance.version import VERSION
from inputmeta.conformance.workers.target import Target

EXAMPLES = Path(__file__).parents[1] / "examples"
PYTHON_EXAMPLE = "inputmeta.conformance.examples.object_subject:BoundarySubject"
NOTES = (
    "A round trip is one batch handed over, built and handed back; wall-clock time of the best round.",
    "in process and worker: the same few numpy lines, so that their difference is the door; cpp builds every field.",
    "starts: seconds from the start of a process to its hello.",
)


class Door(msgspec.Struct, frozen=True):
    """Round trips a second through one door, by workload; `starts` in seconds, None in process."""

    name: str
    subject: str
    starts: float | None
    per_second: dict[str, float]


class DoorReport(msgspec.Struct, frozen=True):
    """A whole run."""

    command: str
    version: str
    python: str
    cpu: str
    rounds: int
    notes: tuple[str, ...]
    doors: tuple[Door, ...]


def decode_step(sequences: int, context: int) -> Request:
    """A decode step of so many sequences, each with `context` tokens, as a scheduler hands it over."""
    config = oracle.MetadataConfig(
        block_size=128,
        window_size=128,
        swa_block_size=256,
        max_model_len=2 * context,
        dense_ratios=(128,),
        sparse_ratios=(4,),
    )
    table = tuple(range(-(-context // 128)))
    tokens = tuple(range(context))
    one = oracle.SequenceMetadata(seqlen_q=1, seqlen_k=context, block_table=table, token_ids=tokens)
    batch = [replace(one, state_id=index) for index in range(sequences)]
    return Request(path="decode", config=config, sequences=batch, expand=affordable_expansions(config, batch))


def workloads(scale: str) -> dict[str, Request]:
    """The batches by name; "tiny" to see that it runs."""
    large = decode_step(4, 256) if scale == "tiny" else decode_step(64, 4096)
    return {"decode, 2 sequences, 11 tokens each": probe("decode"), f"decode, {described(large)}": large}


def described(request: Request) -> str:
    """A batch's size in words."""
    return f"{len(request.sequences)} sequences, {request.sequences[0].seqlen_k} tokens each"


def offered(request: Request, subject: Subject) -> Request:
    """The request with the caller's buffers, if the subject fills them."""
    if not subject.capabilities.in_place:
        return request
    shapes = {
        key: (field.dtype, field.shape)
        for key, field in request.expected().items()
        if field.shape and key.partition(".")[0] in subject.capabilities.fields
    }
    return replace(request, out=Arena([shapes], PATTERNS[0]).views(shapes))


def per_second(call: Callable[[], object], rounds: int, seconds: float) -> float:
    """Calls a second in the best of `rounds` rounds of about `seconds` each: the others hold a neighbour's time."""
    call()
    begin = perf_counter()
    call()
    calls = max(1, round(seconds / (perf_counter() - begin)))
    rates = []
    for _ in range(rounds):
        begin = perf_counter()
        for _ in range(calls):
            call()
        rates.append(calls / (perf_counter() - begin))
    return max(rates)


@contextmanager
def targets() -> Iterator[dict[str, tuple[str, Target]]]:
    """Each door with the subject behind it; the C++ one only where there is a compiler."""
    json_program = shlex.join([sys.executable, str(EXAMPLES / "json_program.py")])
    found = {
        "in process": (PYTHON_EXAMPLE, Target(subject=PYTHON_EXAMPLE, in_process=True)),
        "worker": (PYTHON_EXAMPLE, Target(subject=PYTHON_EXAMPLE)),
        "command, lines of JSON": ("json_program.py", Target(command=json_program, json=True)),
    }
    compiler = shutil.which("c++")
    with tempfile.TemporaryDirectory() as folder:
        if compiler is not None:
            program = str(Path(folder) / "decode_builder")
            sources = [str(EXAMPLES / "cpp" / name) for name in ("main.cpp", "decode.cpp")]
            subprocess.run([compiler, "-std=c++20", "-O2", "-o", program, *sources], check=True)
            found["command, C++"] = ("cpp/decode_builder", Target(command=shlex.quote(program)))
        yield found


def measured(name: str, behind: str, target: Target, rates_of: Callable[[Subject], dict[str, float]]) -> Door:
    """One door."""
    begin = perf_counter()
    with target.open() as subject:
        starts = None if target.in_process else round(perf_counter() - begin, 3)
        return Door(name=name, subject=behind, starts=starts, per_second=rates_of(subject))


def run_doors(scale: str, rounds: int, command: str = "") -> DoorReport:
    """Measure every door at a scale ("full", "tiny")."""
    batches = workloads(scale)
    seconds = 0.01 if scale == "tiny" else 0.5

    def rates_of(subject: Subject) -> dict[str, float]:
        asked = {workload: offered(request, subject) for workload, request in batches.items()}
        return {name: round(per_second(partial(subject.build, r), rounds, seconds), 1) for name, r in asked.items()}

    with targets() as found:
        doors = tuple(measured(name, *door, rates_of) for name, door in found.items())
    return DoorReport(
        command=command,
        version=VERSION,
        python=platform.python_version(),
        cpu=cpu_model(),
        rounds=rounds,
        notes=NOTES,
        doors=doors,
    )


def doors(
    json: Annotated[Path | None, typer.Option(help="Also write the report as JSON to this file.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of half a second for each door and batch.")] = 5,
    scale: Annotated[str, typer.Option(help="full, or tiny to see that it runs; tiny times mean nothing.")] = "full",
) -> None:
    """Measures round trips a second through each door: in process, worker, command (C++), command (lines of JSON)."""
    if scale not in ("full", "tiny"):
        raise typer.BadParameter(f"{scale}: full or tiny", param_hint="--scale")
    report = run_doors(
        scale, rounds, " ".join(["python -m inputmeta.conformance.benchmarks.transports", *sys.argv[1:]])
    )
    for door in report.doors:
        starts = "" if door.starts is None else f", starts in {door.starts:.2f} s"
        typer.echo(f"{door.name} ({door.subject}{starts})")
        for workload, rate in door.per_second.items():
            typer.echo(f"  {rate:>10,.1f} round trips a second: {workload}")
    if json is not None:
        write_json(report, json)


if __name__ == "__main__":
    typer.run(doors)
