"""Chapter 14: each rule on answers worked out by hand, what is no plan, and that first fit keeps the rules."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from inputmeta.oracle import ALLOCATION, MetadataConfig, Need, Pool, SequenceMetadata, first_fit, most_needed
from inputmeta.oracle.allocation import plan_problems

CONFIG = MetadataConfig(block_size=4, window_size=2, swa_block_size=2, max_model_len=64, dense_ratios=(2,))


@dataclass(frozen=True)
class Step:
    requests: tuple[int, ...]
    ended: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    num_blocks: int
    num_states: int
    steps: tuple[Step, ...]


def given(begin: int, end: int, table: tuple[int, ...] = (), state: int = 0, base: int = 0) -> SequenceMetadata:
    """A sequence of rows [begin, end), with what it was given."""
    tokens = tuple(range(base, base + end))
    return SequenceMetadata(seqlen_q=end - begin, seqlen_k=end, block_table=table, state_id=state, token_ids=tokens)


def of(breaches) -> list[tuple[str, str, int]]:
    return [(breach.rule, breach.what, breach.request) for breach in breaches]


def test_an_answer_that_keeps_the_rules_breaks_none() -> None:
    pool = Pool(CONFIG, 4, 2)
    assert pool.take([given(0, 5, (2, 0), 1), given(0, 4, (3,), 0)], (7, 8), ()) == []
    assert pool.take([given(4, 9, (3, 1, 2), 0), given(5, 6, (2, 0), 1)][1:], (7,), ()) == []
    assert pool.take([given(4, 9, (3, 2, 0), 0)], (8,), (7,)) == []


@pytest.mark.parametrize(
    ("table", "state", "wanted"),
    [
        ((0,), 0, [("A-TABLE", "block", 7)]),
        ((0, 4), 0, [("A-RANGE", "block", 7)]),
        ((0, -1, 2), 0, [("A-RANGE", "block", 7)]),
        ((0, 1), 2, [("A-RANGE", "state", 7)]),
        ((0, 1), -1, [("A-RANGE", "state", 7)]),
        ((1, 1), 0, [("A-ONCE", "block", 7)]),
        ((0, 1, 2, 3), 1, []),
    ],
)
def test_one_answer(table: tuple[int, ...], state: int, wanted: list[tuple[str, str, int]]) -> None:
    assert of(Pool(CONFIG, 4, 2).take([given(0, 6, table, state)], (7,), ())) == wanted


def test_the_null_block_and_the_ids_past_it() -> None:
    pool = Pool(CONFIG, 2, 1, reserved_blocks=1, reserved_states=1)
    (null,) = pool.take([given(0, 8, (2, 0), 1)], (7,), ())
    assert str(null) == "request 7 (sequence 0): block 0 at place 1 of its table; the pool is 1 … 2"
    assert of(Pool(CONFIG, 2, 1, reserved_blocks=1).take([given(0, 8, (1, 2), 0)], (7,), ())) == []


def test_two_live_requests_share_nothing() -> None:
    pool = Pool(CONFIG, 4, 2)
    block, state = pool.take([given(0, 5, (2, 0), 1), given(0, 4, (0,), 1)], (7, 8), ())
    assert (
        str(block)
        == "request 8 (sequence 1): block 0 at place 0 of its table is that of request 7 (sequence 0), place 1"
    )
    assert str(state) == "request 8 (sequence 1): state slot 1 is that of request 7 (sequence 0)"


def test_a_request_that_waits_keeps_the_blocks_of_its_keys_and_no_others() -> None:
    pool = Pool(CONFIG, 4, 2)
    assert pool.take([given(0, 4, (0, 1), 0)], (7,), ()) == []  # a block more than it needs
    assert pool.take([given(0, 4, (1,), 1)], (8,), ()) == []
    (breach,) = pool.take([given(4, 5, (1, 0), 1)], (8,), ())
    assert (
        breach.detail
        == "block 0 at place 1 of its table is that of request 7, which lives and was last in step 0, place 0"
    )
    assert of(Pool(CONFIG, 4, 2).take([given(0, 5, (1, 0), 1)], (8,), (7,))) == []


def test_blocks_of_history_and_the_slot_stay() -> None:
    pool = Pool(CONFIG, 6, 2)
    assert pool.take([given(0, 10, (0, 1, 2), 0)], (7,), ()) == []
    block, state = pool.take([given(6, 9, (0, 3, 2), 1)], (7,), ())
    assert block.detail == "block 1 at place 1 of its table, of step 0, is now block 3"
    assert state.detail == "state slot 0, of step 0, is now slot 1"
    assert pool.take([given(4, 12, (0, 5, 4), 1)], (7,), ()) == []  # position 4 on is written anew


def test_an_id_that_comes_again_is_a_new_request() -> None:
    pool = Pool(CONFIG, 4, 2)
    assert pool.take([given(0, 8, (0, 1), 0)], (7,), ()) == []
    assert pool.take([given(0, 8, (3, 2), 1)], (7,), (7,)) == []


def test_blocks_are_shared_where_that_is_claimed_and_full_of_the_same_history() -> None:
    first, same = given(4, 5, (0, 1), 0), given(4, 6, (0, 2), 1)
    assert of(Pool(CONFIG, 4, 2).take([first, same], (7, 8), ())) == [("A-ONCE", "block", 8)]
    assert Pool(CONFIG, 4, 2, shares_blocks=True).take([first, same], (7, 8), ()) == []
    for other in (given(4, 6, (0, 2), 1, base=1), given(3, 6, (0, 2), 1), given(8, 9, (2, 0, 3), 1)):
        assert of(Pool(CONFIG, 4, 2, shares_blocks=True).take([first, other], (7, 8), ())) == [("A-ONCE", "block", 8)]


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (Plan(3, 2, (Step((0, 1)), Step((1,)))), "num_blocks: 3, but the live requests need 4 (A-NEED)"),
        (Plan(4, 1, (Step((0, 1)), Step((1,)))), "num_states: 1, but the live requests need 2 (A-NEED)"),
        (Plan(4, 2, (Step((0, 0)), Step((0,)))), "steps[0].requests[1]: request 0 has two sequences"),
        (Plan(4, 2, (Step((0,)), Step((0,)))), "steps[0].requests: 1 ids for 2 sequences"),
        (Plan(4, 2, (Step((0, 1)), Step((1,), (2,)))), "steps[1].ended[0]: request 2 is not live"),
        (Plan(4, 2, (Step((0, 1)), Step((1,), (0, 0)))), "steps[1].ended[1]: request 0 is not live"),
        (Plan(4, 2, (Step((0, 1)), Step((0,)))), "requests[0]: request 0 goes on at position 6, and has had 4 keys"),
        (
            Plan(4, 2, (Step((0, -2)), Step((1,)))),
            "request -2; ids are 0 and higher, -1 for a placeholder",
        ),
        (Plan(4, 2, (Step((0, -1)), Step((1,)))), "steps[0].requests[1]: request -1, and is_placeholder is False"),
    ],
)
def test_what_is_no_plan_is_named(plan: Plan, says: str) -> None:
    steps = ([given(0, 4), given(0, 6)], [given(6, 9)])
    assert next(plan_problems(4, steps, plan)).endswith(says)


def test_first_fit_keeps_the_rules_and_needs_no_more_than_is_needed() -> None:
    random = Random(14)
    for _ in range(200):
        steps, plans, live = [], [], {}
        for _ in range(6):
            ended = tuple(request for request in live if random.random() < 0.3)
            live = {request: keys for request, keys in live.items() if request not in ended}
            there = random.sample(range(4), random.randint(1, 3))
            rows = [(live.get(request, random.randrange(9)), random.randint(0, 6)) for request in there]
            steps.append([given(begin, begin + count) for begin, count in rows])
            live |= {
                request: max(live.get(request, 0), begin + count)
                for request, (begin, count) in zip(there, rows, strict=True)
            }
            plans.append(Step(tuple(there), ended))
        need = most_needed(steps, Plan(0, 0, tuple(plans)), 4)
        plan = Plan(*need, tuple(plans))
        assert next(plan_problems(4, steps, plan), None) is None
        pool = Pool(CONFIG, *need)
        for sequences, grants, step in zip(steps, first_fit(4, steps, plan), plans, strict=True):
            tables = [
                SequenceMetadata(**{**vars(sequence), "block_table": grant.block_table, "state_id": grant.state_id})
                for sequence, grant in zip(sequences, grants, strict=True)
            ]
            assert pool.take(tables, step.requests, step.ended) == []


def test_spare_blocks_are_needed_by_each_request() -> None:
    plan = Plan(0, 0, (Step((0, 1)), Step((1,))))
    assert most_needed(([given(0, 4), given(0, 6)], [given(6, 9)]), plan, 4, spare=2) == Need(8, 2)


def test_every_rule_has_a_text() -> None:
    assert list(ALLOCATION) == ["A-FORM", "A-TABLE", "A-RANGE", "A-ONCE", "A-KEEP", "A-FIT"]
