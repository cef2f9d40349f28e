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
from pathlib import Path
from typing import Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.generated import claimed_paths, generated_cases, profile_for
from inputmeta.conformance.campaign.judging import CaseCounts, Run, run_cases
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.cases.files import CaseError, case_id
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.console import fail, say
from inputmeta.conformance.subjects import load_subject
from inputmeta.conformance.subjects.base import SubjectError
from inputmeta.conformance.workers.target import Target

COUNT = 500
SEED = 4


def digest(cases: Iterable[Case]) -> str:
    """16 hexadecimal digits that stand for the content of the cases, in order."""
    return hashlib.sha256("".join(map(case_id, cases)).encode()).hexdigest()[:16]


def run_batches(run: Run, corpus: Path | None, count: int) -> int:
    """The corpus (None: left out), then ``count`` generated cases; prints the counts and returns the exit code."""
    paths = claimed_paths(run.subject)
    ran: list[CaseCounts] = []

    def run_and_tell(name: str, cases: Iterable[tuple[Path | None, Case]]) -> None:
        ran.append(run_cases(run, cases, examine=False))
        say(f"{name}: {ran[-1]}, {ran[-1].cells} cells compared")

    if corpus is not None:
        run_and_tell("corpus", load_corpus(corpus))
    if count and paths:
        cases = generated_cases(profile_for(run.subject, paths), SEED, count)
        run_and_tell(f"generated, seed {SEED}, digest {digest(cases)}", ((None, case) for case in cases))
    for signature, number in sum((counts.signatures for counts in ran), Counter[str]()).most_common():
        say(f"  {number:5}  {signature}")
    if any(counts.failed for counts in ran):
        return exits.DIFFERS
    return exits.CONFORMS if any(counts.passed for counts in ran) else exits.NOTHING_RAN


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
        run = Run(Session(tested), Target(subject=tested.name), save_dir)
        code = run_batches(run, bundled_corpus() if corpus else None, count)
    except SubjectError as error:
        raise fail(str(error), exits.NO_SUBJECT) from error
    except CaseError as error:
        raise fail(str(error)) from error
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
