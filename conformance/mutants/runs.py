"""Running a mutant as any subject is run: fuzzed with a fixed seed, shrunk, replayed, and put to ``check``'s cases."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from inputmeta import oracle
from inputmeta.conformance.campaign.examine import AFTER_EARLIER, DETERMINISTIC, Examined, Examiner
from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.campaign.fuzz import MAX_ROUNDS, Campaign, fuzz
from inputmeta.conformance.campaign.generated import profile_for
from inputmeta.conformance.campaign.journal import Journal
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.mutants.devices import driver
from inputmeta.conformance.mutants.history import LUCK
from inputmeta.conformance.mutants.mutant import Mutant
from inputmeta.conformance.workers.target import Target

HANG_SECONDS = 1.5
"""Time-out for mutants that hang."""
PATIENCE = 30.0
"""Time-out for the others: none comes near it, however busy the machine is."""
HOG_MIB = 256
"""Memory limit of mutants that take all they can get; they begin with some 60 MiB."""
MEMORY_MIB = 2048
"""Memory limit of the others."""
CHECK_ROUNDS = 10
"""Rounds of generated cases of ``check``, and its seed below."""
CHECK_SEED = 0


class Run(msgspec.Struct):
    """What came of one mutant: a line of the table."""

    name: str
    kind: str
    declared: str
    got: str
    """Signature of its smallest case as it would be reported; PASS; or why it was skipped."""
    right: bool
    """Whether every finding was as declared, and the label."""
    label: str = ""
    """What the replays said; empty if they were left out."""
    seconds: float = 0.0
    """Of fuzzing, to the first sight."""
    cases: int = 0
    """Cases run, those of shrinking included."""
    steps: int = 0
    """Of the minimal case."""
    sequences: int = 0
    """Of the minimal case, over its steps."""
    size: int = 0
    """Bytes of the minimal case as compact JSON."""
    corpus_cases: int | None = None
    """Cases of the corpus that show it. None: not counted, for each might cost a worker."""
    check: bool | None = None
    """Whether ``check`` catches it, by the corpus or by its generated cases; None: it was left out."""
    note: str = ""
    skipped: bool = False

    @property
    def missed(self) -> bool:
        """Whether ``check`` takes a wrong subject for a right one, or the other way round."""
        return self.check is not None and self.check == (self.declared == Verdict.PASS)


def target_of(mutant: Mutant) -> Target:
    """The mutant as the command line would name it."""
    waits = mutant.declared.endswith((":timeout", ":eof"))
    timeout = HANG_SECONDS if waits else PATIENCE
    memory = HOG_MIB if mutant.kind == "MEMORY" else MEMORY_MIB
    if mutant.make is None:
        return Target(command=shlex.join(mutant.command), timeout=timeout, memory_limit=memory)
    subject = f"mutant:{mutant.name}"
    return Target(subject=subject, in_process=mutant.in_process, timeout=timeout, memory_limit=memory)


@contextmanager
def fixed_luck() -> Iterator[None]:
    """Mutants that depend on luck have the same luck each time."""
    with tempfile.TemporaryDirectory(prefix="inputmeta-mutant-") as folder:
        os.environ[LUCK] = str(Path(folder) / "luck")
        try:
            yield
        finally:
            del os.environ[LUCK]


@contextmanager
def opened(mutant: Mutant) -> Iterator[Session]:
    """A session on a mutant, with its limits and a luck of its own."""
    with fixed_luck(), target_of(mutant).open() as subject, Journal() as journal:
        yield Session(subject, journal)


def run(
    mutant: Mutant, *, seed: int = 1, seconds: float = 60.0, shrink_seconds: float = 45.0, examine: bool = True
) -> Run:
    """Fuzz a mutant until it shows or the time is up, shrink it, and have the replays label it.

    ``shrink_seconds`` 0: its first case as it is. ``examine`` False: no replays, so no label.
    """
    if lacks_a_device(mutant):
        return Run(mutant.name, mutant.kind, mutant.declared, "no CUDA device", right=True, skipped=True)
    passes = mutant.declared == Verdict.PASS
    with opened(mutant) as session:
        campaign = fuzz(
            session,
            profile_for(session.subject, mutant.paths),
            seed_value=seed,
            seconds=None if passes else seconds,
            rounds=1 if passes else MAX_ROUNDS,
            shrink_seconds=shrink_seconds,
        )
        smallest = smallest_of(mutant, campaign)
        if smallest is None:
            return passed(mutant, campaign)
        seen = Examiner(session).examine(smallest) if examine else None
    return told(mutant, campaign, smallest, seen)


def smallest_of(mutant: Mutant, campaign: Campaign) -> Failure | None:
    """The smallest failure, of the declared signature if there is one: it may break a relation on a smaller case."""
    failures = list(campaign.failures.values())
    declared = [failure for failure in failures if mutant.fits(failure.finding.signature)]
    return min(declared or failures, key=lambda failure: failure.size, default=None)


def lacks_a_device(mutant: Mutant) -> bool:
    """Whether a mutant needs a CUDA device that is not there."""
    return mutant.gpu and driver() is None


def passed(mutant: Mutant, campaign: Campaign) -> Run:
    """Nothing was found."""
    right = mutant.declared == Verdict.PASS and campaign.verdicts[Verdict.PASS] > 0
    return Run(mutant.name, mutant.kind, mutant.declared, Verdict.PASS, right, cases=campaign.cases)


def told(mutant: Mutant, campaign: Campaign, smallest: Failure, seen: Examined | None) -> Run:
    """The smallest failure as it would be reported; right if all others are of the declared signature as well."""
    finding, case = (smallest.finding, smallest.case) if seen is None else (seen.finding, seen.case)
    others = {failure.finding.signature for failure in campaign.failures.values()} - {smallest.finding.signature}
    right = mutant.fits(finding.signature) and all(mutant.may_show(signature) for signature in others)
    if mutant.make is None:  # else it may be wrong for another reason: it is right until it spoils an answer
        right = right and campaign.verdicts[Verdict.PASS] > 0
    return Run(
        name=mutant.name,
        kind=mutant.kind,
        declared=mutant.declared,
        got=finding.signature,
        right=right and (seen is None or label_fits(mutant.label, seen.label)),
        label="" if seen is None else seen.label,
        seconds=round(min(failure.seconds for failure in campaign.failures.values()), 2),
        cases=campaign.cases,
        steps=len(case.steps),
        sequences=sum(len(step) for step in case.steps),
        size=len(msgspec.json.encode(case)),
        note="; ".join(sorted(others)) if not right else ("" if seen is None else seen.note),
    )


def label_fits(declared: str, label: str) -> bool:
    """Whether a label is the declared one.

    >>> label_fits("flaky", "2 of 5"), label_fits("deterministic", "2 of 5")
    (True, False)
    """
    if declared == "flaky":
        return re.fullmatch(r"\d+ of \d+", label) is not None
    wanted = {"deterministic": {DETERMINISTIC}, "after earlier cases": {AFTER_EARLIER}}
    return label in wanted.get(declared, {DETERMINISTIC, AFTER_EARLIER})


def put_to_check(mutant: Mutant, result: Run) -> None:
    """Fill in what the cases of ``check`` say: those of the corpus, then, if none shows it, generated ones."""
    if result.skipped:
        return
    with opened(mutant) as session:
        shown = 0
        for _, case in load_corpus(bundled_corpus()):
            shown += bool(session.run(case).findings)
            if shown and not mutant.in_process:
                break
    if mutant.in_process:
        result.corpus_cases = shown
    result.check = bool(shown) or shown_by_generated_cases(mutant)


def shown_by_generated_cases(mutant: Mutant) -> bool:
    """Whether the generated cases of ``check`` show a mutant."""
    with opened(mutant) as session:
        profile = profile_for(session.subject, oracle.PATHS)
        return bool(fuzz(session, profile, seed_value=CHECK_SEED, rounds=CHECK_ROUNDS, shrink_seconds=0).failures)
