"""Every planted fault is caught by the corpus, and every formula that a case can show has one."""

from functools import cache

import pytest

from inputmeta import oracle
from inputmeta.conformance.cases.corpus import BUG_CLASSES, bundled_corpus, load_corpus
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.mutants.formulas import FAULTS, Fault, fault_subject
from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.subjects.copies import PatchError, patched_source

NOT_SHOWN_BY_A_FIELD = {"F-STACK", "F-EXTRACT", "F-GATE", "F-COUNT", "F-KLEN", "P-OUT"}
"""Layouts of the ZOS path, plain constants, what F-KS carries, and the caller's buffers."""


@cache
def corpus() -> tuple[Case, ...]:
    return tuple(case for _, case in load_corpus(bundled_corpus()))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_corpus_catches_it(fault: Fault) -> None:
    subject = fault_subject(fault.id)
    tagged = [case for case in corpus() if fault.formula in case.tags]
    others = [case for case in corpus() if fault.formula not in case.tags]
    assert any(run_case(case, subject).findings for case in (*tagged, *others))


def test_every_formula_and_precondition_has_a_fault() -> None:
    wanted = {*oracle.FORMULAS, *oracle.PRECONDITIONS} - NOT_SHOWN_BY_A_FIELD
    assert wanted <= {fault.formula for fault in FAULTS}


def test_fault_ids_are_unique_and_classes_known() -> None:
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)
    assert {fault.bug_class for fault in FAULTS} <= set(BUG_CLASSES)


def test_a_patch_must_stand_exactly_once() -> None:
    with pytest.raises(PatchError, match="holds 0 times"):
        patched_source("common", "no such text", "")


def test_an_unknown_fault_is_named() -> None:
    with pytest.raises(SubjectError, match=r"F-NONE: none of F-POS\.one-late"):
        fault_subject("F-NONE")
