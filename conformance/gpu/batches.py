"""The corpus and a fixed set of generated batches through one subject, in one process: what compute-sanitizer runs.

    python -m inputmeta.conformance.gpu.batches [--subject engine-cuda] [--own-buffers] [--count 500]

The generated set is the same in every run of one Hypothesis version: its digest is printed. Results are compared as
everywhere. ``--own-buffers`` runs only the pass on the subject's own buffers: they hold what the allocator left, so
that initcheck can tell what reads it, where the offered buffers are initialised by the poison.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from hypothesis import HealthCheck, Phase, given, seed, settings

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.runs import claimed_paths, profile_for, replay_command
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.cases.files import CaseError, case_id
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import store_case
from inputmeta.conformance.check.report import describe
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.console import fail, say
from inputmeta.conformance.generate import Profile, batches
from inputmeta.conformance.subjects import Subject, SubjectError, load_subject
from inputmeta.conformance.workers.target import Target

COUNT = 500
SEED = 4


@dataclass
class Tally:
    """Cases of a run by what became of them, the defined cells compared, and the formulas and fields that differed."""

    passed: int = 0
    failed: int = 0
    unsupported: int = 0
    cells: int = 0
    signatures: Counter[str] = field(default_factory=Counter)

    def line(self, name: str) -> str:
        """``corpus: 230 passed, 0 failed, 0 unsupported, 12345 cells compared``."""
        counts = f"{self.passed} passed, {self.failed} failed, {self.unsupported} unsupported"
        return f"{name}: {counts}, {self.cells} cells compared"


def fixed_cases(count: int, profile: Profile, seed_value: int = SEED) -> list[Case]:
    """The first ``count`` cases that the generator draws for a seed: no shrinking, no database, no clock."""
    cases: list[Case] = []

    @seed(seed_value)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(batches(profile))
    def collect(case: Case) -> None:
        cases.append(case)

    collect()
    return cases[:count]


def digest(cases: Iterable[Case]) -> str:
    """16 hexadecimal digits that stand for the content of the cases, in order."""
    return hashlib.sha256("".join(map(case_id, cases)).encode()).hexdigest()[:16]


def run_cases(cases: Iterable[Case], subject: Subject, save_dir: Path) -> Tally:
    """Run cases; findings are described, and their cases saved, as they come."""
    tally = Tally()
    for case in cases:
        outcome = run_case(case, subject)
        tally.cells += outcome.cells
        if not outcome.ran:
            tally.unsupported += 1
        elif not outcome.findings:
            tally.passed += 1
        else:
            tally.failed += 1
            tally.signatures.update(finding.signature for finding in outcome.findings)
            command = replay_command([store_case(case, save_dir)], Target(subject=subject.name))
            for finding in outcome.findings:
                say(describe(finding, case, command))
    return tally


def run_batches(subject: Subject, corpus: Path | None, count: int, save_dir: Path) -> int:
    """The corpus (None: left out), then ``count`` generated cases; prints the counts and returns the exit code."""
    paths = claimed_paths(subject, None)
    tallies = []
    if corpus is not None:
        tallies.append(run_cases((case for _, case in load_corpus(corpus)), subject, save_dir))
        say(tallies[-1].line("corpus"))
    if count and paths:
        cases = fixed_cases(count, profile_for(subject, paths))
        tallies.append(run_cases(cases, subject, save_dir))
        say(tallies[-1].line(f"generated, seed {SEED}, digest {digest(cases)}"))
    for signature, number in sum((tally.signatures for tally in tallies), Counter[str]()).most_common():
        say(f"  {number:5}  {signature}")
    if any(tally.failed for tally in tallies):
        return exits.DIFFERS
    return exits.CONFORMS if any(tally.passed for tally in tallies) else exits.NOTHING_RAN


def main(
    subject: Annotated[str, typer.Option("--subject", "-s", help="what is tested")] = "engine-cuda",
    count: Annotated[int, typer.Option(min=0, help="generated batches")] = COUNT,
    corpus: Annotated[bool, typer.Option(help="run the corpus too")] = True,
    own_buffers: Annotated[bool, typer.Option("--own-buffers", help="only the pass on the subject's buffers")] = False,
    save_dir: Annotated[Path, typer.Option(help="where failing cases are saved")] = Path("inputmeta-failures"),
) -> None:
    """Run the corpus and a fixed set of generated batches through one subject. Exit codes as of `inputmeta`."""
    try:
        tested = load_subject(subject)
        if own_buffers:
            tested.capabilities = dataclasses.replace(tested.capabilities, in_place=False)
        code = run_batches(tested, bundled_corpus() if corpus else None, count, save_dir)
    except SubjectError as error:
        raise fail(str(error), exits.NO_SUBJECT) from error
    except CaseError as error:
        raise fail(str(error)) from error
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
