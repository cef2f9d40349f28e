"""How fast the wide tier finds the faults of size, and what they are reduced to: a line a fault and seed.

``python -m inputmeta.conformance.mutants.wide_table`` has the faults in a copy of the reference, ``--cpp`` in the C++
engine, which it compiles with them. With ``--cuda`` the faults are those of :mod:`.wide_cuda`, and the kernels of this
process's engine were compiled with the one that is named.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from inputmeta import oracle
from inputmeta.conformance import exits
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.campaign.wide_cases import reduce_batch
from inputmeta.conformance.console import say
from inputmeta.conformance.mutants import wide_cpp, wide_cuda
from inputmeta.conformance.mutants.mutant import Mutant
from inputmeta.conformance.mutants.wide import WIDE
from inputmeta.conformance.wide.forms import Claims, draw_batch
from inputmeta.conformance.wide.loop import run_batch


@dataclass(frozen=True)
class Sized:
    """What became of one fault and seed."""

    name: str
    seed: int
    seconds: float
    """To the first confirmed finding."""
    form: str = ""
    signature: str = ""
    """Empty: it was not found."""
    right: bool = False
    """Whether the finding is as declared."""
    reduced: float = 0.0
    """Seconds from there to the smallest case, which the ordinary path confirms."""
    size: str = ""
    """Of that case; empty: the wide batch alone shows it."""
    threshold: str = ""


def find(mutant: Mutant, seed: int, most: float) -> tuple[Sized, int]:
    """The wide tier, in this process, until a fault is confirmed by the oracle, for ``most`` seconds; and the batch."""
    assert mutant.make is not None
    subject = mutant.make()
    claims = Claims(subject.capabilities, oracle.PATHS)
    begin, index = time.monotonic(), 0
    while (spent := time.monotonic() - begin) < most:
        ran = run_batch(subject, claims, seed, index)
        if ran.findings:
            signature, spent = ran.findings[0].signature, time.monotonic() - begin
            return Sized(mutant.name, seed, spent, ran.form, signature, mutant.fits(signature)), index
        index += 1
    return Sized(mutant.name, seed, spent), index


def find_and_reduce(mutant: Mutant, seed: int, most: float, most_reducing: float) -> Sized:
    """As :func:`find`; then what was found is reduced, for ``most_reducing`` seconds."""
    assert mutant.make is not None
    found, index = find(mutant, seed, most)
    if not found.signature:
        return found
    subject = mutant.make()
    claims = Claims(subject.capabilities, oracle.PATHS)
    finding = run_batch(subject, claims, seed, index).findings[0]
    begin = time.monotonic()
    failures, told = reduce_batch(Session(subject), draw_batch(claims, seed, index), finding, begin + most_reducing)
    spent, size = time.monotonic() - begin, ""
    if failures:
        steps = failures[0].case.steps
        sequences = [each for step in steps for each in step]
        rows, keys = sum(each.seqlen_q for each in sequences), sum(each.seqlen_k for each in sequences)
        size = f"{len(steps)} steps {len(sequences)} sequences {rows} rows {keys} tokens"
    return replace(found, reduced=spent, size=size, threshold=told.partition("; ")[2])


def line(sized: Sized) -> str:
    """One line of the table."""
    verdict = "ok" if sized.right and sized.size else "WRONG"
    text = f"{verdict:5} {sized.name:28} seed {sized.seed} found {sized.seconds:5.2f} s  {sized.form:16}"
    text += f" reduced {sized.reduced:5.2f} s  {sized.size or 'no ordinary case':44} {sized.threshold}"
    return text if sized.signature else f"{verdict:5} {sized.name:28} seed {sized.seed} not found"


def faults(names: list[str], *, cpp: bool = False, cuda: bool = False) -> dict[str, Mutant]:
    """The faults of these names, all if there are none; ``cpp``, ``cuda``: those that are planted in the engine."""
    if cuda:
        known = {name: wide_cuda.in_kernels(plant) for name, plant in wide_cuda.BY_NAME.items()}
    elif cpp:
        known = {plant.name: wide_cpp.in_engine(WIDE[plant.name]) for plant in wide_cpp.PLANTS}
    else:
        known = dict(WIDE)
    unknown = set(names) - known.keys()
    if unknown:
        raise typer.BadParameter(f"no such fault: {', '.join(sorted(unknown))}")
    return {name: mutant for name, mutant in known.items() if not names or name in names}


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="faults; all if left out")] = None,
    *,
    cpp: Annotated[bool, typer.Option("--cpp", help="those that are planted in the C++ engine, in it")] = False,
    cuda: Annotated[
        bool, typer.Option("--cuda", help="the one that this process's kernels were compiled with")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="so many seeds, from 0 on")] = 5,
    seconds: Annotated[float, typer.Option(min=0, help="to find a fault, at most")] = 10.0,
    reducing: Annotated[float, typer.Option(min=0, help="to reduce what was found, at most")] = 30.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the table as JSON")] = None,
) -> None:
    """Find every fault of size over several seeds and reduce it; exit code 1 if one was missed or is no case."""
    chosen = faults(names or [], cpp=cpp, cuda=cuda)
    if cpp:
        with tempfile.TemporaryDirectory(prefix="inputmeta-faults-") as folder:
            wide_cpp.load(wide_cpp.build(Path(folder)))
    table = []
    for mutant in chosen.values():
        for seed in range(seeds):
            table.append(find_and_reduce(mutant, seed, seconds, reducing))
            say(line(table[-1]))
    right = [sized for sized in table if sized.right and sized.size]
    say(f"{len(right)} of {len(table)} found as declared and reduced to a case that the ordinary path confirms; "
        f"slowest: found in {max(each.seconds for each in table):.1f} s, "
        f"reduced in {max(each.reduced for each in table):.1f} s")  # fmt: skip
    if json_file is not None:
        command = " ".join(["python -m inputmeta.conformance.mutants.wide_table", *sys.argv[1:]])
        kept = {"command": command, "faults": table}
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    raise typer.Exit(exits.CONFORMS if len(right) == len(table) else exits.DIFFERS)


if __name__ == "__main__":
    typer.run(main)
