"""Reducing on a subject: what is told fails in a fresh worker, by itself or after the cases that are kept with it."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest

from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.campaign.fuzz import fuzz
from inputmeta.conformance.campaign.generated import profile_for
from inputmeta.conformance.campaign.reducing import reduce_failure, reduce_roots
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.mutants import mutant_subject
from inputmeta.conformance.mutants.mutant import Fields, Wrong
from inputmeta.conformance.subjects.base import Subject
from inputmeta.conformance.workers.tests.test_failures import CONFIG, GOOD, PADDED, prompt


class Remembering:
    """A worker without its process: renewed, the subject is a new one."""

    timeout = slowest = 1.0

    def __init__(self, make: Callable[[], Subject]) -> None:
        self.make = make
        self.generation = self.calls = 0
        self.renew()

    def renew(self) -> None:
        self.generation += 1
        self.subject = self.make()
        self.name, self.capabilities, self.build = self.subject.name, self.subject.capabilities, self.subject.build

    def ensure(self) -> None:
        pass


def session_on(make: Callable[[], Subject]) -> Session:
    worker = Remembering(make)
    session = Session(worker)
    session.isolated = worker
    return session


def mutant(name: str) -> Session:
    return session_on(lambda: mutant_subject(name))


def failing(session: Session, *cases: Case) -> tuple[Finding, Case]:
    """The finding on the last of the cases, in a fresh worker."""
    session.isolated.renew()
    return [run_case(case, session.subject).findings for case in cases][-1][0], cases[-1]


def steps(*cases: Case) -> Case:
    return msgspec.structs.replace(cases[0], steps=tuple(step for case in cases for step in case.steps))


def test_a_fault_that_remembers_is_not_reduced_to_what_passes_alone() -> None:
    session = mutant("wrong-after-a-large-batch")
    case = steps(prompt(1), prompt(7, 2), prompt(3), prompt(2))
    smaller = reduce_failure(session, Failure.seen(*failing(session, case)))
    # In either order: the steps are run three times over.
    assert sorted(sum(sequence.seqlen_q for sequence in step) for step in smaller.case.steps) == [0, 6]
    assert "2 steps fail, one fewer passes" in smaller.reduced
    assert failing(session, smaller.case)[0].signature == smaller.finding.signature


def test_the_cases_that_it_needs_before_it_are_reduced_too() -> None:
    session = mutant("wrong-after-a-large-batch")
    other = msgspec.structs.replace(prompt(7, 9), config=msgspec.structs.replace(CONFIG, window_size=1))
    found, case = failing(session, other, prompt(2, 1))
    failure = Failure(found, case, None, case, None, before=(other,))
    smaller = reduce_failure(session, failure)
    (before,) = smaller.before
    assert [sum(sequence.seqlen_q for sequence in each.steps[0]) for each in (before, smaller.case)] == [6, 0]
    assert failing(session, before, smaller.case)[0].signature == found.signature


class TwoFaults(Wrong):
    """Positions are wrong in batches of three rows and more, state slots in all."""

    def after(self, request: object, fields: Fields) -> None:
        if len(fields["positions"]) > 2:
            fields["positions"][-1] += 1
        else:
            fields["state_block_idx"][-1] += 1


def test_another_fault_is_not_slipped_to_unless_it_may() -> None:
    session = session_on(lambda: TwoFaults("two"))
    found, case = failing(session, prompt(4, 2))
    assert found.field == "positions"
    kept = reduce_failure(session, Failure.seen(found, case))
    assert (kept.finding.field, kept.case.steps[0][0].seqlen_q) == ("positions", 3)
    slipped = reduce_failure(session, Failure.seen(found, case), any_signature=True)
    assert (slipped.finding.field, slipped.case.steps[0][0].seqlen_q) == ("state_block_idx", 0)


def test_what_does_not_fail_alone_stays_as_it_is() -> None:
    session = mutant("raises")
    found, case = failing(session, msgspec.structs.replace(GOOD, steps=((PADDED,),)))
    passing = Failure.seen(found, GOOD)
    assert reduce_failure(session, passing) is passing
    assert reduce_failure(session, Failure.seen(found, case), 0).reduced == ""


def test_what_a_fuzzer_leaves_large_becomes_small() -> None:
    """22 sequences in 6 steps, where 4 in one step fail."""

    class Four(Wrong):
        def after(self, request: object, fields: Fields) -> None:
            if int(fields["num_reqs"]) > 3:
                fields["state_block_idx"][-1] += 1

    session = session_on(lambda: Four("four"))
    large = steps(prompt(2, 3), prompt(1, 2, 3), prompt(2, 2, 2), *[prompt(1, 2, 1, 2, 1)] * 2, prompt(2, 2, 2, 2))
    (smaller,) = reduce_roots(session, [Failure.seen(*failing(session, large))])
    assert [len(step) for step in smaller.case.steps] == [4]
    assert "4 sequences fail, one fewer passes" in smaller.reduced
    assert smaller.case.title == "reduced from 22 sequences in 6 steps to 4 sequences in 1 steps"


class WrongLater(Wrong):
    """A state slot is wrong wherever a sequence has three rows or more."""

    def after(self, request: object, fields: Fields) -> None:
        if any(sequence.seqlen_q >= 3 for sequence in request.sequences):
            fields["state_block_idx"][-1] += 1


def run_by(session: Session) -> list[Case]:
    """The cases that a session runs from now on."""
    ran: list[Case] = []
    run = session.run

    def noted(case: Case, **options: bool):
        ran.append(case)
        return run(case, **options)

    session.run = noted
    return ran


def test_the_sequence_at_fault_alone_is_run_first_and_the_whole_case_is_not() -> None:
    session = session_on(lambda: WrongLater("later"))
    whole = steps(prompt(1, 1), prompt(2, 1, 4), prompt(1, 2))
    finding, case = failing(session, whole)
    ran = run_by(session)
    smaller = reduce_failure(session, Failure.seen(finding, case))
    assert [[sequence.seqlen_q for sequence in step] for step in ran[0].steps] == [[4]]
    assert whole not in ran
    assert [[sequence.seqlen_q for sequence in step] for step in smaller.case.steps] == [[3]]


def test_a_whole_case_of_which_no_part_fails_alone_is_run() -> None:
    session = mutant("wrong-after-a-large-batch")
    finding, case = failing(session, steps(prompt(7, 2), prompt(2)))
    ran = run_by(session)
    reduce_failure(session, Failure.seen(finding, case))
    assert case in ran


@pytest.mark.slow
def test_what_fails_on_a_slow_subject_is_the_reducers() -> None:
    """A case of four tenths of a second in a campaign of eight seconds: Hypothesis would take hundreds."""
    session = Session(WrongLater("later"))
    run = session.run

    def slow(case: Case, **options: bool):
        time.sleep(0.4)
        return run(case, **options)

    session.run = slow
    profile = profile_for(session.subject, ("prompt",))
    campaign = fuzz(session, profile, seed_value=1, seconds=8.0)
    assert campaign.failures
    assert campaign.unshrunk
    assert campaign.coverage.cases == campaign.cases  # none was run to shrink it
    session.run = run
    quick = fuzz(session, profile, seed_value=1, seconds=8.0)
    assert quick.failures
    assert not quick.unshrunk
    assert quick.coverage.cases < quick.cases
