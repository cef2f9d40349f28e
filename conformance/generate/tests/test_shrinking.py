"""What a failing case shrinks to."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import Phase, find, settings

from inputmeta.conformance.cases.model import Case, Config
from inputmeta.conformance.generate import Profile, batches, features
from inputmeta.conformance.generate.repeatable import repeatable_draws

pytestmark = pytest.mark.slow

SEARCH = settings(max_examples=1500, database=None, deadline=None, phases=(Phase.generate, Phase.shrink))


def smallest(condition: Callable[[Case], bool], profile: Profile | None = None, seed: int = 1) -> Case:
    """What Hypothesis shrinks to, the same in every run, whatever other tests have imported before."""
    with repeatable_draws():
        return find(batches(profile or Profile()), condition, settings=SEARCH, random=Random(seed))


def test_the_simplest_case() -> None:
    case = smallest(lambda case: True)
    assert case.path == "prompt"
    assert case.config == Config(block_size=4, dense_ratios=(1,), window_size=2, swa_block_size=2, max_model_len=16)
    [[sequence]] = case.steps
    assert (sequence.seqlen_q, sequence.seqlen_k, sequence.block_table, sequence.state_id) == (0, 0, (), 1)


@pytest.mark.parametrize(
    ("feature", "most_tokens"),
    [
        ("F-RING:wrapped", 3),
        ("F-PIVOT:past-row", 1),
        ("F-NGRAM:sentinel-recent", 1),
        ("F-CSLOT:later-block", 5),
        ("F-ZIGZAG:padding", 1),
        ("F-CLIP:inside", 3),
        ("P-TABLE:short", 5),
        ("P-INT32:state", 0),
        ("F-CSLOT:int32-bound", 4),
    ],
)
def test_one_small_sequence_is_left(feature: str, most_tokens: int) -> None:
    case = smallest(lambda case: feature in features(case))
    [[sequence]] = case.steps
    assert sequence.seqlen_k <= most_tokens
    assert case.config.block_size == 4
    assert case.config.max_model_len <= 16


def is_many_and_a_later_one_is_short(case: Case) -> bool:
    """Of 33 and more sequences, and none of the first that are drawn has the fault."""
    return "tier:many" in case.tags and "REFUSED:later-sequence" in features(case)


def is_real_and_off_the_marks(case: Case) -> bool:
    """A length that no boundary names: it was drawn in another way than most."""
    return "tier:real" in case.tags and any(500 < s.seqlen_k < 4_000 for step in case.steps for s in step)


@pytest.mark.parametrize(("is_large", "seed"), [(is_many_and_a_later_one_is_short, 7), (is_real_and_off_the_marks, 3)])
def test_a_large_case_becomes_a_small_one(is_large: Callable[[Case], bool], seed: int) -> None:
    """The first case that is found is a large one; from then on its fault alone counts. The seeds are hard ones."""
    found: list[Case] = []

    def condition(case: Case) -> bool:
        if "P-TABLE:short" not in features(case):
            return False
        found.extend([case] if found or is_large(case) else [])
        return bool(found)

    tiers = ("small", "many", *("real",) * 8)
    case = smallest(condition, Profile(("prompt",), refusals=("P-TABLE",), invalid=0.9, tiers=tiers), seed)
    assert is_large(found[0])
    [[sequence]] = case.steps
    assert (sequence.seqlen_k, case.config.max_model_len, case.tags[0]) == (5, 16, "tier:small")


def test_unrelated_options_are_off() -> None:
    case = smallest(lambda case: "F-SWAPLAN:split" in features(case))
    config = case.config
    assert (config.max_ngram_size, config.cp_size, config.yoco_mode, config.force_load_balance) == (0, 1, "off", False)
    assert (config.dense_ratios, config.sparse_ratios) == ((1,), ())
    assert case.max_num_blocks is None
    assert not case.steps[0][0].is_placeholder


def test_two_sequences_are_left_where_two_are_needed() -> None:
    case = smallest(lambda case: "F-KS:after-nothing" in features(case))
    [step] = case.steps
    assert [sequence.seqlen_q for sequence in step] == [0, 1]


def test_two_steps_are_left_where_two_are_needed() -> None:
    case = smallest(lambda case: "F-STACK:smaller-replay" in features(case))
    assert [sum(sequence.seqlen_q for sequence in step) for step in case.steps] == [2, 1]
