"""``python -m inputmeta.conformance.strikes --count 1000 --seed 7``: strike the tool, and count what it does wrong."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.console import progress, say
from inputmeta.conformance.strikes.judge import FAULTS, faults
from inputmeta.conformance.strikes.plan import strike
from inputmeta.conformance.strikes.run import carry_out


def struck(seed: int, index: int) -> tuple[int, str, str, list[tuple[str, str]]]:
    """Carry out one strike: its index, kind, command, and faults."""
    planned = strike(seed, index)
    return index, planned.kind, " ".join(planned.arguments), faults(planned, carry_out(planned, seed))


def main(
    count: Annotated[int, typer.Option(min=1, help="how many strikes")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="of what is struck, and when")] = 7,
    only: Annotated[int | None, typer.Option(min=0, help="the strike with this index alone")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="strikes at once")] = 2,
) -> None:
    """Strike the tool, and count what was lost, hung, left behind and mislabelled. Exit code 1 if anything was."""
    indices = range(count) if only is None else [only]
    counts: Counter[tuple[str, str]] = Counter()
    kinds: Counter[str] = Counter()
    say(f"strikes: seed {seed}, {len(indices)} strikes, {jobs} at once")
    with progress(len(indices)) as bar, ProcessPoolExecutor(jobs) as pool:
        for index, kind, command, found in pool.map(struck, [seed] * len(indices), indices):
            kinds[kind] += 1
            counts.update({(kind, fault) for fault, _ in found})
            bar.update(bar.task_ids[0], advance=1, description=f"{kinds.total()} strikes, {counts.total()} faults")
            for fault, text in found:
                say(f"{fault}: {kind}: {text}\n  struck   inputmeta {command}")
                say(f"  again    python -m inputmeta.conformance.strikes --seed {seed} --only {index}")
    say(f"{'':18}{'struck':>8}" + "".join(f"{fault:>13}" for fault in FAULTS))
    for kind, times in kinds.items():
        say(f"{kind:18}{times:8}" + "".join(f"{counts[kind, fault]:13}" for fault in FAULTS))
    say(f"{'all':18}{kinds.total():8}" + "".join(f"{sum(counts[k, fault] for k in kinds):13}" for fault in FAULTS))
    raise typer.Exit(exits.DIFFERS if counts else exits.CONFORMS)


if __name__ == "__main__":
    typer.run(main)
