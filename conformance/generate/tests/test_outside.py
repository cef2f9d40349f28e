"""What is said to lie outside conditions is in no batch within them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from inputmeta.conformance.cases.conditions import ANY, Conditions
from inputmeta.conformance.generate import FEATURES, Coverage, Profile, RandomDraw, draw_case, drawable, features
from inputmeta.conformance.generate.features.outside import RULES, outside

SEED, CASES = 3, 80
CONDITIONS: list[dict[str, Any]] = [
    {"placeholders": False, "history": False},
    {"empty_steps": False, "valid_starts": "visible", "least_keep": 1, "least_ngram_size": 2},
    {"least_seqlen_q": 2, "other_data_len": False, "ring_is_window": True},
    {"most_seqlen_q": 1, "largest_state": 2**19},
    {"valid_starts": "zero", "cp_chunks": "at-least-2p"},
    {"cp_chunks": "multiples-of-2p", "sparse_ratios": set(), "largest_block": 2**19},
    {"dense_ratios": set(), "most_seqlen_k": 65_536},
    {"dense_ratios": {1}, "sparse_ratios": {1}, "block_sizes": {16}},
    {"dense_ratios": {4}, "window_sizes": {64}},
]


@pytest.mark.parametrize("claimed", CONDITIONS, ids="-".join)
def test_what_is_outside_is_not_drawn(claimed):
    profile = drawable(Profile(invalid=0, conditions=Conditions(**claimed)))
    coverage, random = Coverage(), Random(SEED)
    for _ in range(CASES):
        coverage.add(features(draw_case(RandomDraw(random), profile)))
    visited = {row.id for row in coverage.rows() if row.count}
    assert sorted(visited & outside(profile.conditions)) == []
    assert {row.id for row in coverage.outside(profile)} >= outside(profile.conditions)


def test_every_rule_is_looked_at_and_names_features():
    assert all(any(rule.holds(Conditions(**claimed)) for claimed in CONDITIONS) for rule in RULES)
    assert set().union(*(rule.without for rule in RULES)) <= FEATURES.keys()
    assert not any(rule.holds(ANY) for rule in RULES)
