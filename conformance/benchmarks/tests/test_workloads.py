"""The workloads are valid batches, and what numpy builds of them is what the oracle expects."""

from __future__ import annotations

from array import array
from dataclasses import fields

import numpy as np
import pytest

from inputmeta.conformance.benchmarks.workloads import TINY, Workload, workloads
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.reference.tests.differences import differences


def plain(value: object) -> object:
    """A member as the oracle reads it fastest, arrays as ``array('i')``."""
    return array("i", value.tobytes()) if isinstance(value, np.ndarray) else value


def with_plain_members(instance):
    """The dataclass with plain members."""
    return type(instance)(**{field.name: plain(getattr(instance, field.name)) for field in fields(instance)})


@pytest.mark.parametrize("workload", workloads(TINY), ids=lambda workload: workload.name)
def test_workloads_are_valid_and_equal_the_oracle(workload: Workload) -> None:
    sequences = [with_plain_members(sequence) for sequence in workload.sequences]
    request = Request(workload.path, with_plain_members(workload.config), sequences)
    assert request.violations() == []
    assert differences(request) == []
