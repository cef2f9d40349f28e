"""Case files with an allocation: what is no plan is one error with its place. (Old ids: the corpus is linted.)"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given

from inputmeta.conformance.cases.allocated import with_tables
from inputmeta.conformance.cases.files import CaseError, case_id, decode_case, format_case
from inputmeta.conformance.cases.request import complete_case, step_requests, wants_of
from inputmeta.conformance.cases.tests.untrusted import BOUNDED, CASE, case_bytes, is_one_line, mangled

SEQUENCE: dict[str, Any] = {"seqlen_q": 2, "seqlen_k": 3, "token_ids": [7, 8], "draft_tokens": [9]}
LATER: dict[str, Any] = {"seqlen_q": 2, "seqlen_k": 5, "token_ids": [7, 8, 9, 4], "draft_tokens": [9]}
HISTORY: dict[str, Any] = {
    "schema": CASE["schema"],
    "path": "decode",
    "config": CASE["config"],
    "steps": [[SEQUENCE, SEQUENCE], [LATER]],
    "allocation": {"num_blocks": 3, "num_states": 2, "steps": [{"requests": [4, 0]}, {"requests": [0], "ended": [4]}]},
}


def changed(*places: object, to: object) -> bytes:
    """The history with another value at a place."""
    case = copy.deepcopy(HISTORY)
    at: Any = case
    for place in places[:-1]:
        at = at[place]
    at[places[-1]] = to
    return case_bytes(case)


def plan(*places: object, to: object) -> bytes:
    return changed("allocation", *places, to=to)


def blocks(count: int) -> bytes:
    return plan("num_blocks", to=count)


def states(count: int) -> bytes:
    return plan("num_states", to=count)


def test_a_history_is_read_written_and_completed() -> None:
    case = decode_case(case_bytes(HISTORY))
    assert decode_case(format_case(case).encode()) == case
    assert wants_of(case) == "valid"
    completed = complete_case(case)
    assert [step.fields["block_tables"].data for step in completed.expected] == [
        ((0,), (0,), (1,), (1,)),
        ((1, 0),) * 2,
    ]
    assert [step.fields["state_block_idx"].data for step in completed.expected] == [(0, 0, 1, 1), (1, 1)]
    assert decode_case(format_case(completed).encode()) == completed
    assert [request.allocation.ended for request in step_requests(case)] == [(), (4,)]
    assert with_tables(case).allocation is None


def test_an_allocation_is_part_of_the_id() -> None:
    ids = {case_id(decode_case(data)) for data in (case_bytes(HISTORY), blocks(4))}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            blocks(1),
            "at $.allocation.num_blocks: 1, but the live requests need 2",
        ),
        (
            blocks(2**30),
            "num_blocks: 1073741824 of 4 cells each go past int32",
        ),
        (
            states(2**30),
            "num_states: 1073741824 of 3 cells each go past int32",
        ),
        (blocks(2**31), "at $.allocation.num_blocks: Expected `int` <= 1073741824"),
        (plan("steps", to=[]), "at $.allocation.steps: 0 entries for 2 steps"),
        (
            plan("steps", 0, "requests", to=[4]),
            "at $.allocation.steps[0].requests: 1 ids for 2 sequences",
        ),
        (
            plan("steps", 1, "ended", to=[9]),
            "at $.allocation.steps[1].ended[0]: request 9 is not live",
        ),
        (plan("colour", to=1), "Object contains unknown field `colour`"),
        (changed("steps", 0, 1, to=SEQUENCE | {"block_table": [1]}), "at $.steps[0][1]: has a block_table or state_id"),
        (changed("steps", 0, 1, to=SEQUENCE | {"state_id": 1}), "at $.steps[0][1]: has a block_table or state_id"),
        (
            changed("steps", 0, 1, to=SEQUENCE | {"seqlen_q": 3}),
            "at $.steps[0]: breaks a precondition: P-LEN",
        ),
        (changed("steps", 1, 0, to=LATER | {"seqlen_k": 2**20}), "keys in all; with an allocation a case has at most"),
        (changed("config", "block_size", to=0), "at $.config.block_size: 0 is below 1"),
        (changed("config", "window_size", to=0), "at $.steps[0]: breaks a precondition: P-RATIO: window_size"),
        (
            changed("out_fault", to={"key": "positions", "fault": "missing"}),
            "at $.out_fault: does not go with allocation, whose steps are valid",
        ),
    ],
)
def test_what_is_no_history_is_named(data: bytes, says: str) -> None:
    with pytest.raises(CaseError) as caught:
        decode_case(data)
    assert says in str(caught.value)
    assert is_one_line(str(caught.value))


@pytest.mark.slow
@BOUNDED
@given(mangled(HISTORY))
def test_a_history_with_any_value_anywhere(case: Any) -> None:
    error = ""
    try:
        complete_case(decode_case(case_bytes(case)))
    except CaseError as refused:
        error = str(refused)
    assert not error or is_one_line(error)
