"""What the suite says of every mutant: ``python -m inputmeta.conformance.mutants [--seconds 60] [NAME…]``.

A line a mutant: class of fault, declared verdict, what it got, its label, seconds of fuzzing to the first sight, cases,
the size of the minimal case, and whether ``check`` catches it. Exit code 1 if one did not get what is declared for it,
or was missed by ``check``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from inputmeta.conformance import exits
from inputmeta.conformance.console import say
from inputmeta.conformance.mutants import MUTANTS
from inputmeta.conformance.mutants.runs import Run, put_to_check, run


def line(result: Run) -> str:
    """One line of the table."""
    verdict = "skip" if result.skipped else "ok" if result.right and not result.missed else "WRONG"
    text = f"{verdict:5} {result.name:32} {result.kind:13} {result.got:42} {result.label:24}"
    if result.size:
        size = f"{result.steps} steps {result.sequences} sequences {result.size} bytes"
        text += f" {result.seconds:6.2f} s {result.cases:5} cases  {size:36}"
    if result.check is not None:
        text += "  check: " + ("caught" if result.check else "passes")
    if result.corpus_cases is not None:
        text += f", corpus {result.corpus_cases} cases"
    if not result.right:
        text += f"  declared: {result.declared}  {result.note}"
    return text.rstrip()


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="mutants; all if left out")] = None,
    seed: Annotated[int, typer.Option(help="of the fuzzer")] = 1,
    seconds: Annotated[float, typer.Option(min=0, help="of fuzzing a mutant, at most")] = 60.0,
    shrink: Annotated[float, typer.Option(min=0, help="seconds of shrinking a mutant, at most")] = 45.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the table as JSON")] = None,
) -> None:
    """Run the mutants and report which did not get the verdict declared for them, or were missed by check."""
    unknown = set(names or ()) - MUTANTS.keys()
    if unknown:
        raise typer.BadParameter(f"no such mutant: {', '.join(sorted(unknown))}")
    say(f"seed {seed}, at most {seconds:g} s of fuzzing and {shrink:g} s of shrinking a mutant")
    results = []
    for name, mutant in MUTANTS.items():
        if not names or name in names:
            result = run(mutant, seed=seed, seconds=seconds, shrink_seconds=shrink)
            put_to_check(mutant, result)
            results.append(result)
            say(line(result))
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    ran = [result for result in results if not result.skipped]
    wrong = [result.name for result in ran if not result.right]
    missed = [result.name for result in ran if result.missed]
    say(f"{len(ran) - len(wrong)} of {len(ran)} mutants got the verdict declared for them")
    say(f"{len(ran) - len(missed)} of {len(ran)} are told by check from what is right")
    for told, listed in (("skipped, no CUDA device", [r.name for r in results if r.skipped]),
                         ("wrong", wrong), ("missed by check", missed)):  # fmt: skip
        if listed:
            say(f"{told}: {', '.join(listed)}")
    raise typer.Exit(exits.DIFFERS if wrong or missed else exits.CONFORMS)


if __name__ == "__main__":
    typer.run(main)
