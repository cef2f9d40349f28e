"""Steps come in the same input arrays, refilled: who keeps something by the identity of an array is seen."""

import dataclasses

import numpy as np
import pytest

from inputmeta.conformance.cases.inputs import Inputs
from inputmeta.conformance.check.runner import REFILLED, run_case
from inputmeta.conformance.check.tests.test_runner import case, sequence
from inputmeta.conformance.mutants.history import ConvertsAnArrayOnce, PlansAListOnce
from inputmeta.conformance.subjects import Request, Result
from inputmeta.conformance.subjects.oracle import OracleSubject

SAME_SHAPE = case((sequence(7, 3),), (sequence(9, 4),))
ONE = case((sequence(7, 3),))
OTHER_TABLES = case((sequence(7, 3),), (sequence(7, 3, block_table=(6, 2, 4)),))


class Positions(OracleSubject):
    """Positions of its own, out of an array of lengths that it hands to a builder which keeps what it made."""

    def __init__(self, *, fresh_inputs: bool = False) -> None:
        super().__init__()
        self.capabilities = dataclasses.replace(
            self.capabilities, fields=frozenset({"positions"}), in_place=False, fresh_inputs=fresh_inputs
        )
        self.made: list[tuple[np.ndarray, np.ndarray]] = []
        self.handed: list[type] = []

    def build(self, request: Request) -> Result:
        self.handed.append(type(request.sequences[0].token_ids))
        lengths = np.array([[s.seqlen_q, s.seqlen_k] for s in request.sequences])
        right = np.asarray(super().build(dataclasses.replace(request, expand=frozenset()))["positions"])
        return {"positions": self.kept(request.refilled("lengths", lengths), right)}

    def kept(self, lengths: np.ndarray, right: np.ndarray) -> np.ndarray:
        """By identity: ``right`` for a new array, for one that it knows what it was at first."""
        for known, positions in self.made:
            if known is lengths:
                return positions.copy()
        self.made.append((lengths, right.copy()))
        return right


class Stateless(Positions):
    def kept(self, lengths: np.ndarray, right: np.ndarray) -> np.ndarray:
        return right


def test_steps_come_in_the_same_objects_and_single_ones_in_their_own() -> None:
    subject = Stateless()
    assert run_case(SAME_SHAPE, subject).findings == []
    assert subject.handed == [list, list]
    subject = Stateless()
    run_case(ONE, subject)
    assert subject.handed == [tuple]


def test_a_result_kept_by_the_identity_of_a_subjects_own_array_is_seen() -> None:
    (finding,) = run_case(SAME_SHAPE, Positions()).findings
    assert (finding.signature, finding.step) == ("MISMATCH:prompt:F-POS:positions:shape", 1)
    assert finding.detail.endswith(REFILLED)


def test_who_declines_gets_fresh_inputs_and_the_head_says_so() -> None:
    subject = Positions(fresh_inputs=True)
    assert run_case(SAME_SHAPE, subject).findings == []
    assert subject.handed == [tuple, tuple]
    assert subject.capabilities.under == " under: fresh inputs"


@pytest.mark.parametrize("mutant", [ConvertsAnArrayOnce, PlansAListOnce])
def test_a_result_kept_by_the_identity_of_a_given_array_is_seen(mutant: type) -> None:
    assert run_case(ONE, mutant("m")).findings == []
    found = run_case(OTHER_TABLES, mutant("m")).findings
    assert found
    assert all(finding.step > 0 and finding.detail.endswith(REFILLED) for finding in found)


def test_another_fault_is_not_blamed_on_refilled_arrays() -> None:
    class Late(Stateless):
        def kept(self, lengths: np.ndarray, right: np.ndarray) -> np.ndarray:
            return right + 1

    (finding,) = run_case(SAME_SHAPE, Late()).findings
    assert finding.detail == "wrong value"


def test_a_list_that_is_written_to_is_seen() -> None:
    class Writes(Stateless):
        def build(self, request: Request) -> Result:
            fields = super().build(request)
            if request.inputs is not None:
                request.sequences[-1].block_table[-1] += 1  # type: ignore[index]
            return fields

    (finding,) = run_case(SAME_SHAPE, Writes()).findings
    assert (finding.verdict, finding.code) == ("OUT_OF_BOUNDS", "input")


def test_arrays_are_kept_by_name_shape_and_dtype() -> None:
    torch = pytest.importorskip("torch")
    inputs = Inputs()
    for make in (np.array, torch.tensor):
        first = inputs.filled("a", make([1, 2]))
        assert inputs.filled("a", make([3, 4])) is first
        assert first.tolist() == [3, 4]
        assert inputs.filled("b", make([5, 6])) is not first
        assert inputs.filled("a", make([5, 6, 7])) is not first
        assert inputs.filled("a", make([5.0, 6.0])) is not first
