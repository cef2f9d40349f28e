"""Recorded draws: Hypothesis draws the same cases from them, and shrinks what fails."""

from __future__ import annotations

from random import Random
from unittest import SkipTest

import pytest
from hypothesis import Phase, core, database, given, settings

from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.generate import Profile, RandomDraw, batches, draw_case
from inputmeta.conformance.generate.recorded import WRITER, Recorded, keyed

PROFILE = Profile()


def drawn(count: int) -> tuple[list[Case], list[list[int]]]:
    """Cases of a random generator, and their draws."""
    random, cases, recorded = Random(1), [], []
    for _ in range(count):
        draw = RandomDraw(random)
        cases.append(draw_case(draw, PROFILE))
        recorded.append(draw.choices)
    return cases, recorded


def replayed(recorded: list[list[int]]) -> list[Case]:
    """The cases that Hypothesis draws from recorded draws."""
    seen: list[Case] = []

    def see(case: Case) -> None:
        seen.append(case)

    replay = settings(database=Recorded(recorded), phases=(Phase.reuse,), deadline=None, max_examples=len(recorded))
    keyed(replay(given(batches(PROFILE))(see)))()
    return seen


def test_hypothesis_draws_the_same_cases() -> None:
    cases, recorded = drawn(40)
    assert sorted(map(repr, replayed(recorded))) == sorted(map(repr, cases))


def test_so_it_does_under_a_seed_of_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--hypothesis-seed`` takes the database of every test away."""
    monkeypatch.setattr(core, "global_force_seed", 7)
    cases, recorded = drawn(2)
    assert sorted(map(repr, replayed(recorded))) == sorted(map(repr, cases))


def test_a_hypothesis_without_its_form_of_choices_is_given_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(database, WRITER)
    with pytest.raises(SkipTest):
        replayed(drawn(2)[1])
