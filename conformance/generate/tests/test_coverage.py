"""Every feature that a profile can reach is visited, and no other one."""

from __future__ import annotations

from random import Random

import pytest

from inputmeta.conformance.cases.allocated import Allocates
from inputmeta.conformance.generate import FEATURES, Coverage, Profile, RandomDraw, draw_case, features

SEED = 2
SMALL = ("small",)
OF_HISTORIES = Profile(tiers=SMALL, invalid=0, varlen=False, read_only=False, wide_windows=False, allocates=Allocates())
PROFILES = {
    "everything": (Profile(), 2400),
    "plain prompt": (Profile(("prompt",), max_cp_size=1, yoco_modes=("off",), invalid=0, tiers=SMALL), 400),
    "decode": (Profile(("decode",), invalid=0), 400),
    "zos": (Profile(("decode_zos",), max_cp_size=1, invalid=0, tiers=SMALL), 700),
    "compact": (Profile(("prompt",), max_cp_size=2, yoco_modes=("compact",), invalid=0, tiers=SMALL), 400),
    "refusals": (Profile(invalid=1, tiers=SMALL, multi_step=False), 400),
    "one refusal": (Profile(invalid=0.5, tiers=SMALL, refusals=("P-STATE",)), 500),
    "allocates": (OF_HISTORIES, 400),
    "no refusal": (Profile(("decode",), tiers=SMALL, refusals=()), 400),
}


def visited_by(profile: Profile, examples: int) -> Coverage:
    """Coverage of so many cases, the same in every run."""
    coverage, random = Coverage(), Random(SEED)
    for _ in range(examples):
        coverage.add(features(draw_case(RandomDraw(random), profile)))
    return coverage


@pytest.mark.parametrize("name", PROFILES)
def test_what_is_reachable_is_visited_and_nothing_else(name: str) -> None:
    profile, examples = PROFILES[name]
    coverage = visited_by(profile, examples)
    assert [row.id for row in coverage.unvisited(profile)] == []
    assert [row.id for row in coverage.rows() if row.count and not FEATURES[row.id].reachable(profile)] == []


def test_every_formula_has_features() -> None:
    formulas = """POS IDS NGRAM MASK QIDX CPOS CSLOT CDEC BLOCKS RING SWAPLAN PIVOT SWADEC KS CAOFF CAPLAN ZIGZAG
        REVERSE MIRRORKS CLIP VIS COMPACT CONTRIB LIMIT GATHER STACK REMAP VARLEN TAIL"""
    prefixes = {name.partition(":")[0] for name in FEATURES}
    assert {f"F-{formula}" for formula in formulas.split()} <= prefixes
    assert {"P-RATIO", "P-LEN", "P-TABLE", "P-STATE", "P-NGRAM", "P-INT32"} <= prefixes


def test_features_are_declared_in_one_line() -> None:
    for name, feature in FEATURES.items():
        assert name == feature.id
        assert ":" in name
        assert "\n" not in feature.text
        assert 0 < len(feature.text) < 100


def test_cases_are_counted_by_feature() -> None:
    coverage = Coverage()
    assert coverage.add({"F-RING:wrapped", "BUG:RING"}) == {"F-RING:wrapped", "BUG:RING"}
    assert coverage.add({"F-RING:wrapped"}) == frozenset()
    assert coverage.cases == 2
    assert {row.id: row.count for row in coverage.rows() if row.count} == {"F-RING:wrapped": 2, "BUG:RING": 1}
    assert "F-RING:wrapped" not in {row.id for row in coverage.unvisited(Profile())}


def test_undeclared_features_are_refused() -> None:
    with pytest.raises(KeyError, match="F-RING:square"):
        Coverage().add({"F-RING:square"})


def test_reachability_follows_the_profile() -> None:
    def unreachable(profile: Profile) -> set[str]:
        return {name for name, feature in FEATURES.items() if not feature.reachable(profile)}

    assert unreachable(Profile()) == {name for name, feature in FEATURES.items() if feature.allocates}
    assert "F-ZIGZAG:padding" in unreachable(Profile(max_cp_size=1))
    assert "F-ZIGZAG:middle-rank" in unreachable(Profile(max_cp_size=2))
    assert "F-CLIP:inside" in unreachable(Profile(yoco_modes=("off", "mask")))
    assert {"BUG:DTYPE", "P-TABLE:short"} <= unreachable(Profile(invalid=0))
    assert unreachable(Profile(refusals=())) == unreachable(Profile(invalid=0))
    assert {"P-TABLE:short", "REFUSED:placeholder"} <= unreachable(Profile(refusals=("P-RATIO",)))
    assert not {"P-STATE:data-len", "REFUSED:placeholder"} & unreachable(Profile(refusals=("P-STATE",)))
    assert "CONFIG:real" in unreachable(Profile(tiers=("small",)))
    assert "STEPS:shrink" in unreachable(Profile(multi_step=False))
    assert {"F-VARLEN:fewer-rows", "F-TAIL:after-a-fuller-step"} <= unreachable(Profile(varlen=False))
