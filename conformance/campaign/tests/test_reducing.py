"""Reducing on a subject: what is told fails in a fresh worker, by itself or after the cases that are kept with it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from inputmeta.conformance.campaign.failures import Failure
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
