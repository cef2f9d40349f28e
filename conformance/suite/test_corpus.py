"""The corpus: one test a case, named by the id of its content."""

from __future__ import annotations

import pytest

from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.cases.files import CaseError
from inputmeta.conformance.console import plain_text
from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.suite.judgement import Judgement, Record, fail
from inputmeta.conformance.suite.options import corpus_folder
from inputmeta.conformance.suite.session import (
    CASE_PROPERTY,
    CONTAINERS_PROPERTY,
    CorpusCase,
    SuiteSession,
    corpus_cases,
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cases of the chosen folder."""
    try:
        cases = corpus_cases(corpus_folder(metafunc.config))
    except CaseError as error:
        raise pytest.Collector.CollectError(str(error)) from error
    metafunc.parametrize("case", cases, ids=[case.name for case in cases])


def test_case(inputmeta_suite: SuiteSession, record_property: Record, case: CorpusCase) -> None:
    """Every step of the case conforms: its fields are what the oracle says, or it is refused as it should be."""
    record_property(CASE_PROPERTY, case.id)
    record_property("title", case.case.title)
    inputmeta_suite.require(case.case.path)
    try:
        judgement = judged(inputmeta_suite, case, record_property)
    except SubjectError as error:
        fail([f"the subject could not be started again: {error}"])
    known = inputmeta_suite.setup.run.known
    stale = [entry for entry in known.of_case(case.id) if known.is_stale(entry)]
    judgement.messages += [f"[XPASS(strict)] {known.complaint(each)}" for each in stale if each.name in known.matched]
    if judgement.messages:
        judgement.messages.insert(0, f"{plain_text(case.file.name)}: {case.case.title}")
    judgement.close(record_property)
    if stale:
        fail([f"[XPASS(strict)] {known.complaint(entry)}" for entry in stale])


def judged(suite: SuiteSession, case: CorpusCase, record: Record) -> Judgement:
    """Run the case; skip the test if the subject does not claim it."""
    run = suite.setup.run
    outcome = run.session.run(case.case)
    if not outcome.ran:
        pytest.skip(plain_text(f"not claimed: {outcome.left_out}"))
    run.known.saw(case.case)
    mark = run.session.mark()
    if outcome.container:
        record(CONTAINERS_PROPERTY, 1)
    judgement = Judgement()
    for finding in outcome.findings:
        judgement.add(run.judge(Failure.seen(finding, case.case, mark), file=case.file))
    return judgement
