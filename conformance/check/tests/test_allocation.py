"""What a subject that allocates answers: nothing of it is trusted, and what is wrong is told with step and request."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.campaign.generated import generated_cases, profile_for
from inputmeta.conformance.cases.model import SCHEMA, Allocation, AllocationStep, Case, Config, Sequence
from inputmeta.conformance.cases.request import step_requests
from inputmeta.conformance.check.report import describe
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.verdicts import Signature
from inputmeta.conformance.subjects import (
    ALLOCATED_BLOCKS,
    ALLOCATED_STATES,
    Allocates,
    Rejection,
    SubjectError,
    Unsupported,
    load_subject,
)
from inputmeta.conformance.subjects.base import content_problem
from inputmeta.conformance.subjects.loading import claims_problem
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta.conformance.subjects.paged import PagedSubject

CONFIG = Config(block_size=4, dense_ratios=(1,), window_size=2, swa_block_size=3, max_model_len=32)


def decode(begin: int, end: int) -> Sequence:
    tokens = tuple(range(end))
    return Sequence(seqlen_q=end - begin, seqlen_k=end, token_ids=tokens[: begin + 1], draft_tokens=tokens[begin + 1 :])


PLAN = (
    AllocationStep(requests=(5, 3)),
    AllocationStep(requests=(3, 5)),
    AllocationStep(requests=(5, 8), ended=(3,)),
)
CASE = Case(
    schema=SCHEMA,
    path="decode",
    config=CONFIG,
    steps=((decode(2, 4), decode(0, 3)), (decode(2, 6), decode(4, 5)), (decode(5, 6), decode(0, 8))),
    allocation=Allocation(num_blocks=4, num_states=2, steps=PLAN),
)


class Changing(PagedSubject):
    """The oracle over its own pool, with one step's answer changed."""

    def __init__(self, step: int = 0, *, in_place: bool = False, claims: Allocates = Allocates(), **changes) -> None:  # noqa: B008
        super().__init__("changing")
        self.capabilities = dataclasses.replace(self.capabilities, in_place=in_place, allocates=claims)
        self.changed, self.changes, self.count, self.resets = step, changes, -1, 0

    def reset(self) -> None:
        super().reset()
        self.count, self.resets = -1, self.resets + 1

    def build(self, request):
        self.count += 1
        result = super().build(request)
        return result if self.count != self.changed else {**result, **self.changes}


def found_on(subject, case=CASE):
    return run_case(case, subject).findings


@pytest.mark.parametrize("in_place", [False, True])
def test_a_subject_that_keeps_the_rules_passes_and_is_reset_before_each_pass(in_place: bool) -> None:
    subject = Changing(in_place=in_place)
    outcome = run_case(CASE, subject)
    assert (outcome.findings, outcome.steps, outcome.unsupported) == ([], 3, set())
    assert outcome.cells > 100
    assert subject.resets == (3 if in_place else 1)


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({ALLOCATED_BLOCKS: None}, "block", "allocated_blocks: is missing"),
        ({ALLOCATED_BLOCKS: [[0], [1]]}, "block", "allocated_blocks: is of type list; an array is wanted"),
        ({ALLOCATED_BLOCKS: np.zeros((2, 1), np.float64)}, "block", "is of dtype float64; int32 or int64 is wanted"),
        ({ALLOCATED_BLOCKS: np.zeros((2, 1), object)}, "block", "is of dtype object; int32 or int64 is wanted"),
        ({ALLOCATED_BLOCKS: np.zeros(2, np.int32)}, "block", "has shape [2]; [2, width] is wanted"),
        ({ALLOCATED_BLOCKS: np.zeros((3, 1), np.int32)}, "block", "has shape [3, 1]; [2, width] is wanted"),
        (
            {ALLOCATED_BLOCKS: np.broadcast_to(np.int32(0), (2, 2**24))},
            "block",
            "33554432 cells; at most 16777216 are read",
        ),
        ({ALLOCATED_STATES: np.zeros((2, 1), np.int32)}, "state", "has shape [2, 1]; [2] is wanted"),
        ({ALLOCATED_STATES: np.zeros(2, np.uint8)}, "state", "is of dtype uint8; int32 or int64 is wanted"),
    ],
)
def test_an_answer_of_another_form_is_named(changes, kind: str, says: str) -> None:
    (found,) = found_on(Changing(1, **changes))
    assert found.signature == f"ALLOCATION:decode:A-FORM:-:{kind}"
    assert found.detail.startswith("step 1, ")
    assert says in found.detail


@pytest.mark.parametrize(
    ("changes", "signature"),
    [
        ({ALLOCATED_BLOCKS: np.array([[0, -1], [3, 9]])}, "ALLOCATION:decode:A-RANGE:-:block"),
        ({ALLOCATED_BLOCKS: np.array([[2**40, -1], [3, 1]])}, "ALLOCATION:decode:A-RANGE:-:block"),
        ({ALLOCATED_BLOCKS: np.array([[-2, -1], [3, 1]])}, "ALLOCATION:decode:A-RANGE:-:block"),
        ({ALLOCATED_BLOCKS: np.array([[-1, 2], [3, 1]])}, "ALLOCATION:decode:A-RANGE:-:block"),
        ({ALLOCATED_BLOCKS: np.zeros((2, 0), np.int32)}, "ALLOCATION:decode:A-TABLE:-:block"),
        ({ALLOCATED_BLOCKS: np.array([[2, 1], [3, 1]])}, "ALLOCATION:decode:A-ONCE:-:block"),
        ({ALLOCATED_BLOCKS: np.array([[0, 1], [2, 3]])}, "ALLOCATION:decode:A-KEEP:-:block"),
        ({ALLOCATED_STATES: np.array([0, 0])}, "ALLOCATION:decode:A-ONCE:-:state"),
        ({ALLOCATED_STATES: np.array([1, 0])}, "ALLOCATION:decode:A-KEEP:-:state"),
    ],
)
def test_an_answer_against_a_rule_is_named(changes, signature: str) -> None:
    found = found_on(Changing(1, **changes))
    assert signature in {each.signature for each in found}
    assert all(each.detail.startswith("step 1, request ") for each in found)
    assert Signature.parse(signature).short == "ALLOCATION:{4}:{2}".format(*signature.split(":"))


def test_a_report_shows_the_pool_the_history_and_the_rule() -> None:
    (found,) = found_on(Changing(2, **{ALLOCATED_STATES: np.array([1, 1])}))
    assert describe(found, CASE, "replay it").splitlines()[:6] == [
        "ALLOCATION: step 2, request 8 (sequence 1): state slot 1 is that of request 5 (sequence 0)",
        f"  formula  A-ONCE  {oracle.ALLOCATION['A-ONCE']}",
        "  pool     4 blocks, 2 state slots",
        "  history  step 0: requests 5 [2, 4), 3 [0, 3)",
        "           step 1: requests 3 [2, 6), 5 [4, 5)",
        "           step 2: ended 3; requests 5 [5, 6), 8 [0, 8)",
    ]


def test_a_wrong_field_tells_the_tables_that_it_is_to_be_of() -> None:
    (found,) = found_on(Changing(1, positions=np.zeros(5, np.int32)))
    assert found.signature == "MISMATCH:decode:F-POS:positions:value"
    assert found.detail == "wrong value; it gave request 3 blocks 2 1, slot 0; request 5 blocks 3 0, slot 1"


def test_what_is_not_built_of_a_step_does_not_end_a_history_and_a_step_that_is_not_built_does() -> None:
    field = run_case(CASE, Changing(0, positions=Unsupported("never")))
    assert (field.findings, field.steps) == ([], 3)
    assert field.unsupported == {"positions: never"}

    class Half(Changing):
        def build(self, request):
            if self.count == 0:
                raise Unsupported("one step in two")
            return super().build(request)

    step = run_case(CASE, Half())
    assert (step.findings, step.ran, step.unsupported) == ([], False, {"one step in two"})


def test_a_refusal_for_want_of_blocks_is_told_with_the_pool() -> None:
    class Full(Changing):
        def build(self, request):
            if self.count == 0:
                raise Rejection("A-FIT", 1, "block_table", "none left")
            return super().build(request)

    (found,) = found_on(Full())
    assert found.signature == "ALLOCATION:decode:A-FIT:-:block"
    assert found.detail == (
        "step 1, request 5 (sequence 1): refused, though the pool (4 blocks, 2 state slots) has room for what the live "
        "requests need: none left"
    )


def test_a_reset_that_raises_is_a_finding_and_a_subject_that_is_gone_is_not() -> None:
    class Stuck(Changing):
        error: Exception = ValueError("no reset")

        def reset(self) -> None:
            raise self.error

    (found,) = found_on(Stuck())
    assert (found.signature, found.detail) == ("CRASH:decode:-:-:raised", "reset: raised ValueError: no reset")
    gone = Stuck()
    gone.error = SubjectError("gone")
    with pytest.raises(SubjectError, match="gone"):
        found_on(gone)


def test_who_gives_tables_and_who_is_given_them_are_asked_for_different_cases() -> None:
    given = msgspec.structs.replace(CASE, allocation=None)
    assert run_case(CASE, OracleSubject()).unsupported == {"to give block tables itself"}
    assert run_case(given, Changing()).unsupported == {"block tables that are given"}
    spare = Changing(claims=Allocates(spare_blocks=1))
    assert run_case(CASE, spare).unsupported == {"a pool without 1 spare blocks a request"}


def test_what_is_handed_over_has_no_tables_and_no_states_but_a_placeholder_s() -> None:
    placeholder = Sequence(seqlen_q=1, seqlen_k=1, token_ids=(1,), block_table=(3,), state_id=4, is_placeholder=True)
    case = msgspec.structs.replace(
        CASE,
        steps=((decode(0, 3), placeholder),),
        allocation=Allocation(num_blocks=1, num_states=1, steps=(AllocationStep(requests=(5, -1)),)),
    )
    (request,) = step_requests(case)
    assert [(s.block_table, s.state_id) for s in request.sequences] == [((0,), 0), ((3,), 4)]
    assert [(s.block_table, s.state_id) for s in request.bare().sequences] == [((), 0), ((3,), 4)]
    assert found_on(Changing(), case) == []


def test_claims_that_do_not_fit_are_named() -> None:
    subject = Changing(claims=Allocates(reserved_blocks=2**20))
    wanted = "capabilities.allocates.reserved_blocks is not a number of 0 to 1024"
    assert content_problem(subject.capabilities) == wanted
    plain = OracleSubject()
    plain.capabilities = dataclasses.replace(plain.capabilities, allocates=Allocates())
    assert claims_problem(plain) == "allocates, and has no method reset"
    plain.capabilities = dataclasses.replace(plain.capabilities, allocates=True)
    assert claims_problem(plain) == "capabilities.allocates is not inputmeta.conformance.subjects.Allocates or None"
    assert load_subject("oracle-paged").name == "oracle-paged"


class Sharing(PagedSubject):
    """A request that begins with full blocks of history has those of another one with the same tokens."""

    def __init__(self, *, claimed: bool) -> None:
        super().__init__("sharing")
        claims = Allocates(shares_blocks=claimed)
        self.capabilities = dataclasses.replace(self.capabilities, in_place=False, allocates=claims)
        self.shared = 0

    def build(self, request):
        size, step = request.config.block_size, request.allocation
        self.pool = self.pool or self.new_pool(step.num_blocks, step.num_states)
        for ended in step.ended:
            table = self.pool.tables[ended]
            others = [block for other, held in self.pool.tables.items() if other != ended for block in held]
            self.pool.tables[ended] = [block for block in table if block not in others]
            self.pool.release(ended)
        for whose, sequence in zip(step.requests, request.sequences, strict=True):
            if whose >= 0 and whose not in self.pool.tables and self.pool.free_states:
                full = (sequence.seqlen_k - sequence.seqlen_q) // size
                self.pool.states[whose] = self.pool.free_states.pop()
                self.pool.tables[whose] = self.of_others(request, sequence.token_ids, full)
        return super().build(dataclasses.replace(request, allocation=dataclasses.replace(step, ended=())))

    def of_others(self, request, tokens, full: int) -> list[int]:
        size = request.config.block_size
        for whose, other in zip(request.allocation.requests, request.sequences, strict=True):
            both = min(full, (other.seqlen_k - other.seqlen_q) // size)
            if whose in self.pool.tables and tokens[: size * both] == other.token_ids[: size * both]:
                self.shared += both
                return list(self.pool.tables[whose][:both])
        return []


@pytest.mark.slow
def test_a_subject_that_shares_blocks_passes_if_it_says_so() -> None:
    sharing, silent = Sharing(claimed=True), Sharing(claimed=False)
    cases = generated_cases(profile_for(sharing, ("decode",)), 7, 40)
    assert [found for case in cases for found in found_on(sharing, case)] == []
    assert sharing.shared > 0
    found = [each.signature for case in cases for each in found_on(silent, case)]
    assert set(found) == {"ALLOCATION:decode:A-ONCE:-:block"}
