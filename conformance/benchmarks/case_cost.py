"""`python -m inputmeta.conformance.benchmarks.case_cost`: seconds that a case takes, against what is estimated of it.

The estimate decides which case files are refused before any work (:mod:`inputmeta.conformance.cases.budget`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer

from inputmeta.conformance.benchmarks import report
from inputmeta.conformance.cases.budget import case_cost
from inputmeta.conformance.cases.model import Case, Config, Path, Sequence
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.console import say
from inputmeta.conformance.subjects.oracle import OracleSubject

BLOCK = 32
CONFIG = Config(block_size=BLOCK, sparse_ratios=(4,), window_size=64, swa_block_size=64, max_model_len=2**20)


@dataclass(frozen=True)
class Line:
    """One case: what it is, processor seconds measured, seconds estimated."""

    name: str
    seconds: float
    estimated: float


def cases(rows: int) -> Iterator[tuple[str, Case]]:
    """Cases that are made of one thing: steps, sequences, query rows, ratios, table columns; about ``rows`` of it."""
    for path in ("prompt", "decode", "decode_zos"):
        one, many = _sequence(path, 1), _sequence(path, rows)
        yield f"{path}: steps", _case(path, [[one]] * (rows // 8))
        yield f"{path}: sequences", _case(path, [[one] * rows])
        yield f"{path}: placeholders", _case(path, [[Sequence(seqlen_q=0, seqlen_k=0, is_placeholder=True)] * rows])
        yield f"{path}: rows", _case(path, [[many]])
        yield f"{path}: ratios", _case(path, [[many]], dense_ratios=(1, 2, 8, 16), sparse_ratios=(1, 2, 4, 8, 16, 32))
    yield "prompt: compact", _case("prompt", [[_sequence("prompt", rows)]], yoco_mode="compact")
    yield "prompt: ranks", _case("prompt", [[_sequence("prompt", rows)]], cp_size=2)
    yield (
        "decode: columns",
        msgspec.structs.replace(_case("decode", [[_sequence("decode", 32)]]), max_num_blocks=rows * 64),
    )


def _case(path: Path, steps: list[list[Sequence]], **config: object) -> Case:
    return Case(
        schema="inputmeta-case/1",
        title="cost",
        path=path,
        config=msgspec.structs.replace(CONFIG, **config),
        steps=tuple(map(tuple, steps)),
    )


def _sequence(path: Path, rows: int) -> Sequence:
    blocks = tuple(range(-(-rows // BLOCK)))
    if path == "prompt":
        return Sequence(seqlen_q=rows, seqlen_k=rows, block_table=blocks, token_ids=(1,) * rows)
    return Sequence(seqlen_q=rows, seqlen_k=rows, block_table=blocks, token_ids=(1,), draft_tokens=(1,) * (rows - 1))


def measured(name: str, case: Case) -> Line:
    """The case run once against the oracle itself: expected, built, compared."""
    start = time.process_time()
    run_case(case, OracleSubject())
    return Line(name, time.process_time() - start, case_cost(case).seconds)


def main(json: report.Json = None, rows: Annotated[int, typer.Option(min=8, help="size of each case")] = 4_000) -> None:
    """Measures each kind of case once; the estimate is to be above, and within a small factor."""
    lines = [measured(name, case) for name, case in cases(rows)]
    for line in lines:
        ratio = line.estimated / line.seconds
        say(f"{line.name:<26} {line.seconds:7.3f} s, estimated {line.estimated:7.3f} s: {ratio:5.1f} x")
    if json is not None:
        json.write_bytes(
            msgspec.json.format(msgspec.json.encode({"command": report.command_line(".case_cost"), "lines": lines}))
        )


if __name__ == "__main__":
    typer.run(main)
