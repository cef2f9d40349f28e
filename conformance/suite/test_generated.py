"""Generated batches, the same for the same seed: one test a path and field, a path and precondition, and two a path."""

from __future__ import annotations

import pytest

from inputmeta import oracle
from inputmeta.conformance.suite.generated import ANSWER
from inputmeta.conformance.suite.judgement import Record
from inputmeta.conformance.suite.session import SuiteSession, all_fields, all_refusals


@pytest.mark.parametrize("path", oracle.PATHS)
def test_answer(inputmeta_suite: SuiteSession, record_property: Record, path: str) -> None:
    """Every valid batch is answered: not refused, no exception, no crash, no hang."""
    inputmeta_suite.require(path)
    inputmeta_suite.judge(path, ANSWER, "no valid batch was within what the subject claims", record_property)


@pytest.mark.parametrize("path", oracle.PATHS)
def test_container(inputmeta_suite: SuiteSession, record_property: Record, path: str) -> None:
    """A container of every batch keeps what SPEC.md chapter 11 promises."""
    inputmeta_suite.require(path)
    inputmeta_suite.judge_containers(path, record_property)


@pytest.mark.parametrize(("path", "field"), all_fields())
def test_field(inputmeta_suite: SuiteSession, record_property: Record, path: str, field: str) -> None:
    """Every defined cell of the field, or pair of the key set, is what the oracle says, on every batch that has it."""
    inputmeta_suite.require(path, field)
    unchecked = "no batch within what the subject claims has the field"
    inputmeta_suite.judge(path, ("field", field), unchecked, record_property)


@pytest.mark.parametrize(("path", "condition"), all_refusals())
def test_refusal(inputmeta_suite: SuiteSession, record_property: Record, path: str, condition: str) -> None:
    """Every batch that breaks the precondition is refused for it, with nothing written before."""
    inputmeta_suite.require(path, condition=condition)
    unchecked = "no batch within what the subject claims breaks the precondition"
    inputmeta_suite.judge(path, ("refusal", condition), unchecked, record_property)
