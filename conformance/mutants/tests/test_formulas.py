"""Every formula that a case can show has a mutant, and each changes one line of the oracle."""

import pytest

from inputmeta import oracle
from inputmeta.conformance.cases.corpus import BUG_CLASSES
from inputmeta.conformance.mutants import MUTANTS
from inputmeta.conformance.subjects.copies import PatchError, patched_source

CHANGED = [mutant for mutant in MUTANTS.values() if mutant.formula]
NOT_SHOWN_BY_A_FIELD = {"F-STACK", "F-EXTRACT", "F-GATE", "F-COUNT", "F-KLEN", "P-OUT"}
"""Layouts of the ZOS path, plain constants, what F-KS carries, and the caller's buffers."""


def test_every_formula_and_precondition_has_a_mutant() -> None:
    wanted = {*oracle.FORMULAS, *oracle.PRECONDITIONS} - NOT_SHOWN_BY_A_FIELD
    assert wanted == {mutant.formula for mutant in CHANGED}


def test_their_classes_are_those_of_real_engines() -> None:
    assert {mutant.kind for mutant in CHANGED} <= set(BUG_CLASSES)


def test_a_patch_must_stand_exactly_once() -> None:
    with pytest.raises(PatchError, match="holds 0 times"):
        patched_source("common", "no such text", "")
    with pytest.raises(PatchError, match=r"holds \d+ times"):
        patched_source("common", "return", "")
