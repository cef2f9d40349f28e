"""Running a member of the zoo as any subject is run: isolated, fuzzed with a fixed seed, shrunk, examined."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from inputmeta.conformance.campaign.examine import AFTER_EARLIER, DETERMINISTIC, Examined, Examiner
from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.campaign.fuzz import Campaign, fuzz
from inputmeta.conformance.campaign.generated import profile_for
from inputmeta.conformance.campaign.journal import Journal
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.mutants.devices import driver
from inputmeta.conformance.mutants.history import LUCK
from inputmeta.conformance.mutants.mutant import Specimen
from inputmeta.conformance.workers.target import Target

ROUNDS = 3
"""Rounds of 100 cases; every member shows in fewer."""
HANG_SECONDS = 1.5
"""Time-out for members that hang."""
PATIENCE = 30.0
"""Time-out for the others: none comes near it, however busy the machine is."""
HOG_MIB = 256
"""Memory limit of members that take all they can get; they begin with some 60 MiB."""
MEMORY_MIB = 2048
"""Memory limit of the others."""


class Run(msgspec.Struct):
    """What came of one member: a line of the table."""

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
    """From the first case to the first sight."""
    cases: int = 0
    """Cases run, those of shrinking included."""
    steps: int = 0
    """Of the minimal case."""
    sequences: int = 0
    """Of the minimal case, over its steps."""
    size: int = 0
    """Bytes of the minimal case as compact JSON."""
    note: str = ""
    skipped: bool = False


def target_of(member: Specimen) -> Target:
    """The member as the command line would name it."""
    timeout = HANG_SECONDS if member.declared.endswith(":timeout") else PATIENCE
    memory = HOG_MIB if member.kind == "MEMORY" else MEMORY_MIB
    if member.make is None:
        return Target(command=shlex.join(member.command), timeout=timeout, memory_limit=memory)
    return Target(subject=f"zoo:{member.name}", timeout=timeout, memory_limit=memory)


@contextmanager
def fixed_luck() -> Iterator[None]:
    """Members that depend on luck have the same luck each time."""
    with tempfile.TemporaryDirectory(prefix="inputmeta-zoo-") as folder:
        os.environ[LUCK] = str(Path(folder) / "luck")
        try:
            yield
        finally:
            del os.environ[LUCK]


def run(
    member: Specimen, *, seed: int = 1, shrink_seconds: float = 45.0, examine: bool = True, rounds: int = ROUNDS
) -> Run:
    """Fuzz a member until it shows, shrink it, and have the replays label it.

    ``shrink_seconds`` 0: its first case as it is. ``examine`` False: no replays, so no label. ``rounds``: of 100 cases,
    for those that show; the others have one.
    """
    if member.gpu and driver() is None:
        return Run(member.name, member.kind, member.declared, "no CUDA device", right=True, skipped=True)
    rounds = 1 if member.declared == Verdict.PASS else rounds
    with fixed_luck(), target_of(member).open() as subject, Journal() as journal:
        session = Session(subject, journal)
        profile = profile_for(subject, member.paths)
        campaign = fuzz(session, profile, seed_value=seed, rounds=rounds, shrink_seconds=shrink_seconds)
        smallest = min(campaign.failures.values(), key=lambda failure: failure.size, default=None)
        if smallest is None:
            return passed(member, campaign)
        seen = Examiner(session).examine(smallest) if examine else None
    return told(member, campaign, smallest, seen)


def passed(member: Specimen, campaign: Campaign) -> Run:
    """Nothing was found."""
    right = member.declared == Verdict.PASS and campaign.verdicts[Verdict.PASS] > 0
    return Run(member.name, member.kind, member.declared, Verdict.PASS, right, cases=campaign.cases)


def told(member: Specimen, campaign: Campaign, smallest: Failure, seen: Examined | None) -> Run:
    """The smallest failure as it would be reported; right if all others are of the declared signature as well."""
    finding, case = (smallest.finding, smallest.case) if seen is None else (seen.finding, seen.case)
    others = {failure.finding.signature for failure in campaign.failures.values()} - {smallest.finding.signature}
    right = member.fits(finding.signature) and all(member.fits(signature) for signature in others)
    if member.make is None:  # else it may be wrong for another reason: it is right until it spoils an answer
        right = right and campaign.verdicts[Verdict.PASS] > 0
    return Run(
        name=member.name,
        kind=member.kind,
        declared=member.declared,
        got=finding.signature,
        right=right and (seen is None or label_fits(member.label, seen.label)),
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
