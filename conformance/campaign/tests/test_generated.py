"""The rounds of a seed: the same cases whoever draws them; what fails in a random round is shrunk."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from inputmeta.conformance.campaign import generated
from inputmeta.conformance.campaign.generated import generated_cases, run_round
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.generate import Profile, features
from inputmeta.conformance.generate.rounds import CONTAINERS_EVERY, HYPOTHESIS_EVERY, ROUND_EXAMPLES, on_containers

PROFILE = Profile()


class WrappedError(Exception):
    """Stands for one signature."""


class DecodeError(Exception):
    """Stands for another one."""


def test_a_case_that_fails_in_a_random_round_is_shrunk_and_raised() -> None:
    seen: list[Case] = []

    def use(case: Case) -> None:
        seen.append(case)
        if "F-RING:wrapped" in features(case):
            raise WrappedError

    with pytest.raises(WrappedError):
        run_round(PROFILE, 5, 2, use, shrink=True)
    [[sequence]] = seen[-1].steps
    assert sequence.seqlen_k <= 3
    assert (seen[-1].config.block_size, seen[-1].config.max_ngram_size) == (4, 0)


def test_every_class_that_fails_in_a_random_round_is_shrunk_and_raised() -> None:
    def use(case: Case) -> None:
        raise WrappedError if case.path == "prompt" else DecodeError

    with pytest.raises(ExceptionGroup) as raised:
        run_round(PROFILE, 5, 2, use, shrink=True)
    assert {type(error) for error in raised.value.exceptions} == {WrappedError, DecodeError}


def test_what_does_not_fail_again_is_raised_all_the_same() -> None:
    calls = Counter[str]()

    def fail_once(case: Case) -> None:
        calls["all"] += 1
        if calls["all"] == 3:
            raise WrappedError

    with pytest.raises(WrappedError):
        run_round(PROFILE, 5, 1, fail_once, shrink=True)
    assert calls["all"] == generated.LEAST_LOOKS + 1


def test_without_shrinking_what_fails_ends_the_round() -> None:
    calls = Counter[str]()

    def fail(case: Case) -> None:
        calls["all"] += 1
        raise WrappedError

    with pytest.raises(WrappedError):
        run_round(PROFILE, 5, 1, fail)
    assert calls["all"] == 1


def test_a_round_does_not_depend_on_the_others_or_on_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "ROUND_EXAMPLES", 10)
    third = generated_cases(PROFILE, 3, 30)[20:]
    seen: list[Case] = []
    run_round(PROFILE, 3, 2, seen.append, examples=10, shrink=True)
    assert seen == third
    assert len({repr(case) for case in third}) == 10


def test_one_round_in_some_is_of_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def note(profile: Profile, number: int, *rest: Any, **named: Any) -> None:
        runs.append(number)

    monkeypatch.setattr(generated, "_hypothesis_run", note)
    for index in range(2 * HYPOTHESIS_EVERY):
        run_round(PROFILE, 0, index, lambda case: None, examples=1)
    assert runs == [0, HYPOTHESIS_EVERY]


def test_containers_are_asked_for_in_the_whole_first_round_and_then_in_a_share() -> None:
    asked = [index for index in range(2 * ROUND_EXAMPLES) if on_containers(index)]
    assert asked == [*range(ROUND_EXAMPLES), *range(ROUND_EXAMPLES, 2 * ROUND_EXAMPLES, CONTAINERS_EVERY)]
