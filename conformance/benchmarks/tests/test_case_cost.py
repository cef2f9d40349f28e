"""The cases whose cost is measured are run whole; the times themselves are nobody's test."""

import msgspec
import pytest

from inputmeta.conformance.benchmarks.case_cost import cases
from inputmeta.conformance.cases.files import decode_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.subjects.oracle import OracleSubject


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in cases(32)])
def test_a_measured_case_is_valid_and_runs(case: Case) -> None:
    assert decode_case(msgspec.json.encode(case)) == case
    outcome = run_case(case, OracleSubject())
    assert outcome.findings == []
    assert outcome.steps == len(case.steps)
    assert "P-TABLE" not in {condition for broken in outcome.broken.values() for condition in broken}
