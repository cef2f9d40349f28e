"""The corpus: one test a case, named by the id of its content."""

from __future__ import annotations

import pytest

from inputmeta.conformance.campaign.examine import TIMES, Examiner
from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.campaign.known import KnownFailure
from inputmeta.conformance.campaign.runs import described, stored
from inputmeta.conformance.campaign.session import Mark
from inputmeta.conformance.cases.files import CaseError
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.suite.plugin import corpus_folder
from inputmeta.conformance.suite.session import CorpusCase, Judgement, Record, SuiteSession, corpus_cases, fail


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cases of the chosen folder."""
    try:
        cases = corpus_cases(corpus_folder(metafunc.config))
    except CaseError as error:
        raise pytest.Collector.CollectError(str(error)) from error
    metafunc.parametrize("case", cases, ids=[case.id for case in cases])


def test_case(inputmeta_suite: SuiteSession, record_property: Record, case: CorpusCase) -> None:
    """Every step of the case conforms: its fields are what the oracle says, or it is refused as it should be."""
    record_property("title", case.case.title)
    inputmeta_suite.require(case.case.path)
    try:
        judgement = judged(inputmeta_suite, case)
    except SubjectError as error:
        fail([f"the subject could not be started again: {error}"])
    if judgement.messages:
        judgement.messages.insert(0, f"{case.file.name}: {case.case.title}")
    judgement.close(record_property)
    known = inputmeta_suite.setup.run.known
    if case.id in known.entries:
        fail([f"[XPASS(strict)] {known.complaint(known.entries[case.id])}"])


def judged(suite: SuiteSession, case: CorpusCase) -> Judgement:
    """Run the case; skip the test if the subject does not claim it."""
    run = suite.setup.run
    outcome = run.session.run(case.case)
    if not outcome.ran:
        pytest.skip(f"not claimed: {', '.join(sorted(outcome.unsupported))}")
    run.known.saw(case.case)
    mark = run.session.mark()
    judgement = Judgement()
    for finding in outcome.findings:
        told = run.known.match(finding, case.case) or message(suite, case, finding, mark)
        if isinstance(told, KnownFailure):
            judgement.known.append(told)
        else:
            judgement.messages.append(told)
    return judgement


def message(suite: SuiteSession, case: CorpusCase, finding: Finding, mark: Mark) -> str | KnownFailure:
    """The message on a finding, or the entry that knows it as what it turns out to be.

    The first case of a signature is replayed in full, the others once.

    """
    run = suite.setup.run
    times = 1 if finding.signature in suite.labelled else TIMES
    suite.labelled.add(finding.signature)
    examined = Examiner(run.session, times=times).examine(Failure(finding, case.case, mark, case.case, mark))
    if examined.finding.verdict is Verdict.FLAKY:
        entry = run.known.match(examined.finding, case.case)
        if entry is not None:
            return entry
    alone = examined.case == case.case and not examined.before
    return described(
        examined, examined.case, [case.file] if alone else stored(examined, examined.case, run), run.target
    )
