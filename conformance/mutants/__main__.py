"""What the suite says of every member of the zoo: ``python -m inputmeta.conformance.mutants [--json FILE] [--quick]
[NAME…]``.

A line a member: class of fault, declared verdict, what it got, its label, seconds to first sight, and the size of the
minimal case. Exit code 1 if one did not get what is declared for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from inputmeta.conformance.console import say
from inputmeta.conformance.mutants import MEMBERS
from inputmeta.conformance.mutants.runs import Run, run


def line(result: Run) -> str:
    """One line of the table."""
    verdict = "skip" if result.skipped else "ok" if result.right else "WRONG"
    text = f"{verdict:5} {result.name:32} {result.kind:13} {result.declared:42} {result.got:42} {result.label:24}"
    if result.size:
        size = f"{result.steps} steps {result.sequences} sequences {result.size} bytes"
        text += f" {result.seconds:6.2f} s  {size}"
    return (text + (f"  {result.note}" if result.note and not result.right else "")).rstrip()


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="members; all if left out")] = None,
    seed: Annotated[int, typer.Option(help="of the fuzzer")] = 1,
    shrink: Annotated[float, typer.Option(min=0, help="seconds of shrinking a member")] = 45.0,
    quick: Annotated[bool, typer.Option("--quick", help="neither shrink nor replay")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the table as JSON")] = None,
) -> None:
    """Run the members of the zoo and report which did not get the verdict declared for them."""
    unknown = set(names or ()) - MEMBERS.keys()
    if unknown:
        raise typer.BadParameter(f"no such member: {', '.join(sorted(unknown))}")
    say(f"seed {seed}, at most {0 if quick else shrink:g} s of shrinking a member")
    results = []
    for name, member in MEMBERS.items():
        if not names or name in names:
            results.append(run(member, seed=seed, shrink_seconds=0 if quick else shrink, examine=not quick))
            say(line(results[-1]))
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    wrong = [result.name for result in results if not result.right]
    skipped = [result.name for result in results if result.skipped]
    say(f"{len(results) - len(wrong) - len(skipped)} of {len(results)} members got the verdict declared for them")
    for name in skipped:
        say(f"skipped: {name}: no CUDA device")
    for name in wrong:
        say(f"wrong: {name}")
    raise typer.Exit(bool(wrong))


if __name__ == "__main__":
    typer.run(main)
