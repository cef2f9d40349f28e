"""Generated batches of one path against the subject, run once and told apart by field, refusal and answer.

A fixed seed draws the same batches whatever the subject does, so that every field is compared on all of them. Only when
something fails are fuzzing campaigns run on the same seed, for the smallest cases.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from inputmeta import oracle
from inputmeta.conformance.campaign.failures import Failure, Failures, seen_on
from inputmeta.conformance.campaign.fuzz import fuzz
from inputmeta.conformance.campaign.generated import for_each_case, profile_for
from inputmeta.conformance.campaign.known import KnownFailure
from inputmeta.conformance.cases.model import Case, Origin
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.check.verdicts import Finding, Verdict, field_name
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.generate.int32 import block_count
from inputmeta.conformance.generate.rounds import ROUND_EXAMPLES, on_containers
from inputmeta.conformance.suite.judgement import Judgement, Setup

INVALID_SHARE = 0.25
"""Share of the batches that break a precondition."""

Unit = tuple[str, str]
"""What a test stands for: ``("field", name)``, ``("refusal", condition)``, :data:`ANSWER` or :data:`CONTAINER`."""

ANSWER: Unit = ("answer", "")
CONTAINER: Unit = ("container", "")


@dataclass
class Seen:
    """One signature of a unit: the entry that knows it, and how many cases showed it."""

    known: KnownFailure | None
    cases: int = 0


@dataclass
class PathResults:
    """What the batches of one path gave."""

    setup: Setup
    path: str
    checked: Counter[Unit] = field(default_factory=Counter)
    """Cases in which a unit was checked."""
    seen: dict[Unit, dict[str, Seen]] = field(default_factory=dict)
    failures: Failures = field(default_factory=Failures)
    drawn: int = 0
    """Batches that were drawn so far."""
    _hurry: ExitStack = field(default_factory=ExitStack)

    def run(self) -> PathResults:
        """Draw the batches and run them; returns itself. SubjectError if the subject cannot be started any more."""
        with self._hurry:
            for_each_case(self.profile, self.setup.seed, self.setup.examples, self._check)
        return self

    @cached_property
    def profile(self) -> Profile:
        """What is drawn: this path, within what the subject claims."""
        return replace(profile_for(self.setup.run.subject, (self.path,)), invalid=INVALID_SHARE)

    def _check(self, case: Case) -> None:
        self._check_case(case, containers=on_containers(self.drawn))
        self.drawn += 1
        able = self.setup.run.subject.capabilities
        narrow = narrowed(case) if able.in_place and "P-OUT" in able.refuses else None
        if narrow is not None:
            self._check_case(narrow, containers=False)

    def _check_case(self, case: Case, *, containers: bool) -> None:
        session = self.setup.run.session
        outcome = session.run(case, containers=containers)
        if not outcome.ran:
            return
        broken = broken_steps(case, outcome)
        self._count(case, outcome, broken)
        for failure in seen_on(case, outcome.findings, session.mark()):
            self._note(unit_of(failure.finding, broken), failure)
        if any(finding.verdict is Verdict.HANG for finding in outcome.findings):
            # One hang after the other would take the run's whole time; none is reported before it is examined in full.
            self._hurry.enter_context(session.hurried())

    def _note(self, unit: Unit, failure: Failure) -> None:
        group = self.seen.setdefault(unit, {})
        signature = failure.finding.signature
        known = self.setup.run.known.match(failure.finding, failure.case)
        seen = group.setdefault(signature, Seen(known))
        if known is None and seen.known is not None:  # known of other cases alone
            seen.known = None
            del self.failures[signature]
        if (known is None) == (seen.known is None):
            self.failures.note(failure)
        seen.cases += 1

    def _count(self, case: Case, outcome: Outcome, broken: dict[int, str]) -> None:
        """Count the units that a case checked. A batch without an answer has no field that was compared."""
        self.checked.update(("refusal", condition) for condition in set(broken.values()))
        if len(broken) == len(case.steps):
            return
        self.checked[ANSWER] += 1
        self.checked[CONTAINER] += outcome.container
        if not any(unit_of(finding, broken) == ANSWER for finding in outcome.findings):
            self.checked.update(("field", name) for name in {field_name(key) for key in outcome.keys})

    @property
    def unanswered(self) -> bool:
        """Whether some valid batch got no answer in a way that no entry knows."""
        return any(seen.known is None for seen in self.seen.get(ANSWER, {}).values())

    def judgement(self, unit: Unit) -> Judgement:
        """What is to be said of the failures of a unit; the cases of those that no entry knows are saved."""
        judgement = Judgement()
        origin = Origin(found_by="pytest", seed=self.setup.seed, minimised_by="hypothesis")
        of = f"{self.setup.examples} batches, seed {self.setup.seed}"
        for signature, seen in sorted(self.seen.get(unit, {}).items(), key=lambda item: self.failures[item[0]].size):
            if seen.known is not None:
                judgement.known.append(seen.known)
                continue
            told = self.setup.run.judge(self._smallest.get(signature, self.failures[signature]), origin=origin)
            judgement.add(told, f"{signature}: in {seen.cases} of {of}\n")
        return judgement

    @cached_property
    def _smallest(self) -> dict[str, Failure]:
        """The smallest failures by signature, from campaigns over the same batches.

        A campaign ends with the first round that fails. What it found is known to the next, which so comes to what only
        later batches show.
        """
        setup = self.setup
        end = time.monotonic() + setup.shrink_seconds
        signatures = [signature for group in self.seen.values() for signature in group]
        found = Failures()
        while set(signatures) - found.keys() and (left := end - time.monotonic()) > 0:
            campaign = fuzz(
                setup.run.session,
                self.profile,
                seed_value=setup.seed,
                seconds=left,
                rounds=-(-setup.examples // ROUND_EXAMPLES),
                shrink_seconds=left,
                known=setup.run.known.afresh(),
                passed_over=frozenset(found),
            )
            if not campaign.failures:
                break
            found.update(campaign.failures)
        return found


def broken_steps(case: Case, outcome: Outcome) -> dict[int, str]:
    """Steps that the subject had to refuse, with the precondition that the case was made to break."""
    conditions = [tag.removeprefix("invalid:") for tag in case.tags if tag.startswith("invalid:")]
    return {index: conditions[0] for index in outcome.broken} if conditions else {}


def narrowed(case: Case) -> Case | None:
    """A valid decode batch with the caller's block tables one column too narrow (P-OUT); None if it cannot be."""
    if case.allocation is not None:
        return None
    if case.path == "prompt" or len(case.steps) > 1 or any(tag.startswith("invalid:") for tag in case.tags):
        return None
    needed = max(block_count(case.config, sequence.seqlen_k) for sequence in case.steps[0])
    if needed < 2:
        return None
    gather = tuple(None for _ in case.gather)
    return msgspec.structs.replace(
        case, gather=gather, max_num_blocks=needed - 1, tags=(*case.tags, "invalid:P-OUT", "P-OUT:narrow-table")
    )


def unit_of(finding: Finding, broken: dict[int, str]) -> Unit:
    """The test that a finding belongs to; ``broken`` has the preconditions of the steps that are to be refused."""
    condition = broken.get(finding.step)
    if condition is not None:
        return ("refusal", condition)
    if finding.formula in oracle.PROMISES:
        return CONTAINER
    if finding.field is not None and finding.verdict is not Verdict.ACCEPTED:
        return ("field", finding.field)
    return ANSWER
