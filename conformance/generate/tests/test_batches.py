"""What the strategy draws: valid or broken in exactly one tagged way, within the profile, and fit for a case file."""

from __future__ import annotations

from itertools import chain

import msgspec
import pytest
from hypothesis import given, settings

from inputmeta.conformance.cases.model import Case, Sequence
from inputmeta.conformance.generate import Profile, batches, features

from .common import REPEATABLE, oracle_conditions, tagged_condition

NARROW = Profile(paths=("prompt",), max_cp_size=1, yoco_modes=("off",), invalid=0, tiers=("small",), multi_step=False)


@settings(REPEATABLE, max_examples=300)
@given(batches(Profile()))
def test_a_case_breaks_what_its_tag_says_and_nothing_else(case: Case) -> None:
    by_step = [oracle_conditions(case, step) for step in case.steps]
    assert set(chain.from_iterable(by_step)) == tagged_condition(case)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=300)
@given(batches(Profile(invalid=True)))
def test_every_case_of_an_invalid_profile_is_refused_and_features_agree_why(case: Case) -> None:
    [condition] = tagged_condition(case)
    way = case.tags[-1]
    visited = features(case)
    assert any(oracle_conditions(case, step) == {condition} for step in case.steps)
    assert way in visited
    assert {name.partition(":")[0] for name in visited if name.startswith("P-")} == {condition}


@settings(REPEATABLE, max_examples=150)
@given(batches(Profile()))
def test_a_case_survives_its_file(case: Case) -> None:
    assert msgspec.json.decode(msgspec.json.encode(case), type=Case) == case


@settings(REPEATABLE, max_examples=150)
@given(batches(Profile(invalid=True, refusals=("P-NGRAM",))))
def test_only_preconditions_of_the_profile_are_broken(case: Case) -> None:
    """Where the case offers no place for any of them, it stays valid."""
    assert tagged_condition(case) == ({"P-NGRAM"} if case.config.max_ngram_size else set())


@settings(REPEATABLE, max_examples=150)
@given(batches(Profile(invalid=0)))
def test_sequences_of_a_step_share_no_state_and_no_block_but_full_ones_of_a_common_history(case: Case) -> None:
    for step in case.steps:
        assert len({sequence.state_id for sequence in step}) == len(step)
        holders: dict[int, list[tuple[Sequence, int]]] = {}
        for sequence in step:
            for place, block in enumerate(sequence.block_table):
                holders.setdefault(block, []).append((sequence, place))
        for held in holders.values():
            if len(held) > 1:
                ends = {(place + 1) * case.config.block_size for _, place in held}
                assert len(ends) == 1
                [end] = ends
                assert all(end <= sequence.seqlen_k - sequence.seqlen_q for sequence, _ in held)
                assert len({sequence.token_ids[:end] for sequence, _ in held}) == 1


@settings(REPEATABLE, max_examples=200)
@given(batches(Profile(paths=("decode_zos",), invalid=0)))
def test_gather_inputs_fit_their_step(case: Case) -> None:
    assert len(case.gather) == len(case.steps)
    for inputs, step in zip(case.gather, case.steps, strict=True):
        assert inputs is not None
        assert len(inputs.fresh_input_ids) == sum(sequence.seqlen_q for sequence in step)
        assert len(inputs.remap) == len(step)
        continuing = [row for row in inputs.remap if row >= 0]
        assert all(continuing.count(row) <= 2 for row in continuing)
        assert all(row < len(inputs.prev_sampled) == len(inputs.prev_predict) for row in continuing)
        drafts = max(sequence.seqlen_q for sequence in step) - 1
        assert all(len(predicted) >= drafts for predicted in inputs.prev_predict)


@settings(REPEATABLE, max_examples=200)
@given(batches(NARROW))
def test_a_narrow_profile_is_kept(case: Case) -> None:
    assert case.path == "prompt"
    assert (case.config.cp_size, case.config.yoco_mode, len(case.steps)) == (1, "off", 1)
    assert case.tags == ("tier:small",)


@settings(REPEATABLE, max_examples=100)
@given(batches(Profile(tiers=("real",), invalid=0)))
def test_real_constants_come_with_few_rows(case: Case) -> None:
    assert case.config.window_size == 128 or case.config.window_size > 2**20
    assert all(sum(sequence.seqlen_q for sequence in step) <= 64 for step in case.steps)


def test_the_same_draws_come_again() -> None:
    def drawn() -> list[Case]:
        cases: list[Case] = []

        def keep(case: Case) -> None:
            cases.append(case)

        settings(REPEATABLE, max_examples=20)(given(batches(Profile()))(keep))()
        return cases

    assert drawn() == drawn()


@pytest.mark.parametrize(
    "wrong",
    [
        {"paths": ("prefill",)},
        {"paths": ()},
        {"yoco_modes": ("clip",)},
        {"tiers": ()},
        {"max_cp_size": 0},
        {"invalid": 1.5},
    ],
)
def test_a_profile_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Profile(**wrong)
