"""How fast the suite catches every planted fault: ``python -m inputmeta.conformance.mutants.detect [--seconds 60]
[--json FILE] [ID…]``.

For each fault: seconds of fuzzing to the first finding and its signature, and how many corpus cases show it. Exit code
1 if a fault was missed by the fuzzer, or by ``check`` (the corpus, then its generated cases).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from inputmeta import oracle
from inputmeta.conformance.campaign.fuzz import fuzz
from inputmeta.conformance.campaign.generated import profile_for
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.console import say
from inputmeta.conformance.mutants.formulas import BY_ID, FAULTS, Fault, fault_subject
from inputmeta.conformance.subjects.oracle import OracleSubject


class Detection(msgspec.Struct):
    """What caught one fault."""

    fault: str
    bug_class: str
    fuzz_seconds: float | None
    """Seconds of fuzzing to the first finding; None: not found."""
    fuzz_cases: int
    signature: str
    corpus_cases: int
    """Cases of the corpus that show the fault."""
    check: bool
    """Whether `inputmeta check` catches it."""


def detect(fault: Fault, seconds: float, seed: int, check_rounds: int = 10) -> Detection:
    """Fuzz one fault until it is found or the time is up, and run the corpus on it."""
    subject = fault_subject(fault.id)
    profile = profile_for(subject, oracle.PATHS)
    campaign = fuzz(subject, profile, seed_value=seed, seconds=seconds, shrink_seconds=0)
    first = min(campaign.failures.values(), key=lambda failure: failure.seconds, default=None)
    shown = corpus_hits(subject)
    return Detection(
        fault=fault.id,
        bug_class=fault.bug_class,
        fuzz_seconds=None if first is None else round(first.seconds, 2),
        fuzz_cases=campaign.cases,
        signature="" if first is None else first.finding.signature,
        corpus_cases=shown,
        check=bool(shown) or caught_by_generated_cases(subject, check_rounds),
    )


def corpus_hits(subject: OracleSubject) -> int:
    """Number of corpus cases on which the subject differs."""
    return sum(bool(run_case(case, subject).findings) for _, case in load_corpus(bundled_corpus()))


def caught_by_generated_cases(subject: OracleSubject, rounds: int) -> bool:
    """Whether the generated cases of ``check`` show the fault."""
    profile = profile_for(subject, oracle.PATHS)
    return bool(fuzz(subject, profile, seed_value=0, rounds=rounds, shrink_seconds=0).failures)


def main(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID…", help="faults; all if left out")] = None,
    seconds: Annotated[float, typer.Option(help="of fuzzing a fault")] = 60.0,
    seed: Annotated[int, typer.Option(help="of the fuzzer")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the table as JSON")] = None,
) -> None:
    """Plant every fault in turn and report what catches it."""
    unknown = set(ids or ()) - BY_ID.keys()
    if unknown:
        raise typer.BadParameter(f"no such fault: {', '.join(sorted(unknown))}")
    say(f"seed {seed}, {seconds:g} s of fuzzing a fault")
    results = []
    for fault in FAULTS:
        if ids and fault.id not in ids:
            continue
        found = detect(fault, seconds, seed)
        results.append(found)
        speed = "MISSED" if found.fuzz_seconds is None else f"{found.fuzz_seconds:6.2f} s {found.fuzz_cases:5} cases"
        checked = f"check: corpus {found.corpus_cases} cases" if found.check else "check: MISSED"
        say(f"{found.fault:32} {found.bug_class:6} fuzz {speed}  {checked:24} {found.signature}")
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    missed = [found.fault for found in results if found.fuzz_seconds is None or not found.check]
    say(f"{len(results) - len(missed)} of {len(results)} faults caught by fuzz and by check")
    for name in missed:
        say(f"missed: {name}")
    raise typer.Exit(bool(missed))


if __name__ == "__main__":
    typer.run(main)
