"""Expansions too wide for a case (131,072 columns at ratio 1 and 128 K of context), engine against oracle."""

import dataclasses

from hypothesis import HealthCheck, Phase, given, settings

from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import affordable_expansions, step_request
from inputmeta.conformance.check.compare import Wanted, compare_fields
from inputmeta.conformance.generate import Profile, batches
from inputmeta.conformance.subjects.engine import EngineSubject

MOST_CELLS = 2**22
REAL = Profile(invalid=0, tiers=("real",), multi_step=False, wide_windows=False, varlen=False)
BOUNDED = settings(
    max_examples=20,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_the_engine_expands_what_cases_leave_out() -> None:
    subject = EngineSubject()
    widest = 0

    @BOUNDED
    @given(batches(REAL))
    def check(case: Case) -> None:
        nonlocal widest
        request = step_request(case, 0, in_place=False)
        expand = affordable_expansions(request.config, request.sequences, MOST_CELLS)
        request = dataclasses.replace(request, expand=expand)
        wanted = {key: Wanted.of(field) for key, field in request.expected().items()}
        assert compare_fields(wanted, subject.build(request)) == []
        widest = max([widest, *(want.field.shape[1] for key, want in wanted.items() if key.startswith("kv_ca_index."))])

    check()
    assert widest == 131_072
