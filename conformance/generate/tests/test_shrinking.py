"""What a failing case shrinks to."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import Phase, find, settings

from inputmeta.conformance.cases.model import Case, Config
from inputmeta.conformance.generate import Profile, batches, features

SEARCH = settings(max_examples=1500, database=None, deadline=None, phases=(Phase.generate, Phase.shrink))


def smallest(condition: Callable[[Case], bool], profile: Profile | None = None) -> Case:
    """What Hypothesis shrinks to, the same in every run."""
    return find(batches(profile or Profile()), condition, settings=SEARCH, random=Random(2))


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
