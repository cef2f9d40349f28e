"""`python -m inputmeta.conformance.benchmarks.transports`: round trips a second through each transport to a subject."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np
import typer
from rich.table import Table

from inputmeta import oracle
from inputmeta.conformance.benchmarks import report
from inputmeta.conformance.benchmarks.workloads import integers
from inputmeta.conformance.cases.request import affordable_expansions
from inputmeta.conformance.check.buffers import PATTERNS, Arena
from inputmeta.conformance.examples import CannotBuildError, build_cpp
from inputmeta.conformance.gpu.summary import machine
from inputmeta.conformance.protocol.convert import SHARED_FROM
from inputmeta.conformance.subjects import Request, Subject
from inputmeta.conformance.subjects.base import SubjectFailure
from inputmeta.conformance.subjects.callables import probe
from inputmeta.conformance.workers.exchange import Forms
from inputmeta.conformance.workers.subject import IsolatedSubject
from inputmeta.conformance.workers.target import Target

EXAMPLES = Path(__file__).parents[1] / "examples"
PYTHON_EXAMPLE = "inputmeta.conformance.examples.object_subject:BoundarySubject"
NOTES = (
    "A round trip is one batch handed over, built and handed back; wall-clock time of the best round.",
    "in process and worker: the same few numpy lines, so that they differ by the transport; C++ builds every field.",
    "starts: seconds from the start of a process to its hello.",
    "Forms: prompts to `engine` in a worker; int64 in frames is how a program without the claims is spoken to.",
    "None, in the table a dash: the batch is beyond a frame, 256 MiB.",
)
FORMS = {
    "int64 in frames": Forms(),
    "int32 in frames": Forms(int32=True),
    "int32 in shared memory": Forms(int32=True, share_from=SHARED_FROM),
}
"""The forms of arrays that are compared."""


class Transport(msgspec.Struct, frozen=True):
    """Round trips a second through one transport, by workload; `starts` in seconds, None in process."""

    name: str
    subject: str
    starts: float | None
    per_second: dict[str, float]


class FormRates(msgspec.Struct, frozen=True):
    """Round trips a second in one form of arrays, by workload; None: it cannot be sent."""

    name: str
    per_second: dict[str, float | None]


class TransportReport(report.Report, frozen=True, kw_only=True):
    """A whole run."""

    transports: tuple[Transport, ...]
    forms: tuple[FormRates, ...]

    def tables(self) -> Iterator[Table]:
        """A line a transport."""
        rows = [
            [
                f"{one.name} ({one.subject})",
                "" if one.starts is None else f"{one.starts:.2f} s",
                *(f"{rate:,.1f}" for rate in one.per_second.values()),
            ]
            for one in self.transports
        ]
        yield report.table(["round trips a second", "starts", *self.transports[0].per_second], rows)
        rows = [
            [form.name, *("-" if rate is None else f"{rate:,.2f}" for rate in form.per_second.values())]
            for form in self.forms
        ]
        yield report.table(["round trips a second", *self.forms[0].per_second], rows)


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


def prompt_step(sequences: int, context: int, rows: int) -> Request:
    """A prompt of so many sequences, the last `rows` of `context` tokens of each; its arrays are int32, as an engine's.

    Expansions are left out: they are the same bytes in either form.
    """
    config = replace(decode_step(1, context).config, dense_ratios=(4, 128), sparse_ratios=(1,))
    table, tokens = (integers(np.arange(count, dtype=np.int32)) for count in (-(-context // 128), context))
    one = oracle.SequenceMetadata(
        seqlen_q=rows, seqlen_k=context, block_table=table, token_ids=tokens, recent_tokens=tokens
    )
    batch = [replace(one, state_id=index) for index in range(sequences)]
    return Request(path="prompt", config=config, sequences=batch, expand=frozenset())


def prompts(scale: str) -> dict[str, Request]:
    """The prompts by name; the last is beyond a frame of int64."""
    sizes = ((8, 64, 4),) if scale == "tiny" else ((1024, 1024, 16), (1024, 4096, 64), (1024, 20_000, 64))
    steps = (prompt_step(*size) for size in sizes)
    return {f"prompt, {described(step)}, {step.sequences[0].seqlen_q} rows": step for step in steps}


def form_rates(forms: Forms, steps: dict[str, Request], rounds: int, seconds: float) -> dict[str, float | None]:
    """Round trips a second in one form."""
    rates: dict[str, float | None] = {}
    with Target(subject="engine", timeout=60.0).open() as subject:
        assert isinstance(subject, IsolatedSubject)
        subject.forms = forms
        for name, step in steps.items():
            try:
                rates[name] = round(per_second(partial(subject.build, step), rounds, seconds), 2)
            except SubjectFailure as failure:
                if failure.code != "limit":
                    raise
                rates[name] = None
    return rates


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
    """Each transport with the subject behind it; the C++ one only where it can be built."""
    json_program = shlex.join([sys.executable, str(EXAMPLES / "json_program.py")])
    found = {
        "in process": (PYTHON_EXAMPLE, Target(subject=PYTHON_EXAMPLE, in_process=True)),
        "worker": (PYTHON_EXAMPLE, Target(subject=PYTHON_EXAMPLE)),
        "command, lines of JSON": ("json_program.py", Target(command=json_program, json=True)),
    }
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "decode_builder"
        with suppress(CannotBuildError):
            build_cpp(program, "-O2")
            found["command, C++"] = ("cpp/decode_builder", Target(command=shlex.quote(str(program))))
        yield found


def measured(name: str, behind: str, target: Target, rates_of: Callable[[Subject], dict[str, float]]) -> Transport:
    """One transport."""
    begin = perf_counter()
    with target.open() as subject:
        starts = None if target.in_process else round(perf_counter() - begin, 3)
        return Transport(name=name, subject=behind, starts=starts, per_second=rates_of(subject))


def transports(
    json: report.Json = None, repeat: report.Repeat = 5, scale: report.ScaleOption = report.ScaleName.FULL
) -> None:
    """Measures round trips a second through each transport: in process, worker, command (C++), command (JSON)."""
    batches = workloads(scale)
    seconds = 0.01 if scale == "tiny" else 0.5

    def rates_of(subject: Subject) -> dict[str, float]:
        asked = {workload: offered(request, subject) for workload, request in batches.items()}
        return {name: round(per_second(partial(subject.build, r), repeat, seconds), 1) for name, r in asked.items()}

    with targets() as found:
        each = tuple(measured(name, *target, rates_of) for name, target in found.items())
    steps = prompts(scale)
    forms = tuple(FormRates(name, form_rates(form, steps, repeat, seconds)) for name, form in FORMS.items())
    command = report.command_line(".transports")
    run = TransportReport(command=command, machine=machine(), repeat=repeat, notes=NOTES, transports=each, forms=forms)
    report.publish(run, json)


if __name__ == "__main__":
    typer.run(transports)
