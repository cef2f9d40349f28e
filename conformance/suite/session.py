"""What the tests of one pytest process share: the subject, the known failures, what the generated batches gave."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from inputmeta import oracle
from inputmeta.conformance.campaign.generated import claimed_paths, profile_for
from inputmeta.conformance.campaign.judging import opened
from inputmeta.conformance.campaign.known import KnownFailures, KnownFailuresError
from inputmeta.conformance.cases.corpus import load_corpus, slug
from inputmeta.conformance.cases.files import CaseError, case_id
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.containers import inspector_of
from inputmeta.conformance.console import readable
from inputmeta.conformance.generate import NothingToDrawError
from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.suite.generated import CONTAINER, PathResults, Unit
from inputmeta.conformance.suite.judgement import Record, Setup, fail
from inputmeta.conformance.workers.target import Target

MAX_TITLE = 48
"""Characters of a case's title in the name of its test."""
SHORT_ID = 8
"""Characters of a case's id there."""
CASE_PROPERTY = "case"
"""Property of a test's report that holds the whole id."""

CONTAINERS_PROPERTY = "containers"
"""Property of a test's report that holds how many cases had a container held to its promises."""

DIALECTS_PROPERTY = "dialects"
"""Property of a test's report that holds what the summary says of the subject's dialects."""


@dataclass
class SuiteSession:
    """One process's run of the suite."""

    setup: Setup
    results: dict[str, PathResults] = field(default_factory=dict)

    def generated(self, path: str) -> PathResults:
        """What the generated batches of a path gave; they are run the first time that a test asks."""
        if path not in self.results:
            self.results[path] = PathResults(self.setup, path).run()
        return self.results[path]

    def require(self, path: str, field_name: str | None = None, condition: str | None = None) -> None:
        """Skip the test if the subject does not claim the path, the field, or to check the precondition."""
        able = self.setup.run.subject.capabilities
        if path not in able.paths:
            pytest.skip(f"not claimed: path {path}")
        if field_name is not None and field_name not in able.fields_of(path):
            pytest.skip("not claimed: the field")
        if condition is not None and condition not in able.refuses:
            pytest.skip(f"outside the claims: batches that break {condition}")

    def judge_containers(self, path: str, record: Record) -> None:
        """End the test of the containers of the generated batches; their number is noted for the summary."""
        if inspector_of(self.setup.run.subject) is None:
            pytest.skip("not claimed: it has no containers to inspect")
        try:
            record(CONTAINERS_PROPERTY, self.generated(path).checked[CONTAINER])
        except SubjectError as error:
            fail([f"the subject could not be started again: {error}"])
        self.judge(path, CONTAINER, "of no batch within what the subject claims could a container be inspected", record)

    def judge(self, path: str, unit: Unit, unchecked: str, record: Record) -> None:
        """End the test of one unit of the generated batches: passed, failed, known, or skipped as ``unchecked``."""
        try:
            results = self.generated(path)
            judgement = results.judgement(unit)
        except SubjectError as error:
            fail([f"the subject could not be started again: {error}"])
        record(DIALECTS_PROPERTY, self.setup.run.subject.capabilities.under)
        judgement.close(record)
        if results.checked[unit]:
            return
        if results.unanswered:
            fail([f"no batch was answered of those that could show it; test_answer[{path}] says why"])
        pytest.skip(unchecked)


class CorpusCase(NamedTuple):
    """A case of the corpus with its file."""

    id: str
    """Of its content: the file's own may be missing."""
    file: Path
    case: Case

    @property
    def name(self) -> str:
        """What its test is called: its title and the beginning of its id, ASCII, at most 57 characters."""
        return f"{slug(self.case.title, MAX_TITLE) or 'case'}-{self.id[:SHORT_ID]}"


def corpus_cases(folder: Path) -> list[CorpusCase]:
    """The cases of a corpus in the order of their files.

    Raises:
        CaseError: a file that cannot be used, or two with the same content.

    """
    cases: dict[str, CorpusCase] = {}
    for file, case in load_corpus(folder):
        found = CorpusCase(case_id(case), file, case)
        # 32 bits of the id tell apart what people collect; two that they do not are as good as the same to a reader.
        if found.id[:SHORT_ID] in cases:
            raise CaseError(f"{file}: the same case as {cases[found.id[:SHORT_ID]].file}")
        cases[found.id[:SHORT_ID]] = found
    return list(cases.values())


def start(config: pytest.Config, resources: ExitStack) -> SuiteSession:
    """The session that pytest's options ask for; ``resources`` is what it ends with.

    Raises:
        CollectError: the subject cannot be loaded, or claims nothing that could be drawn; a file cannot be used.
    """
    option = config.getoption
    target = Target(
        subject=option("subject") or "",
        command=option("subject_command"),
        json=option("subject_json"),
        in_process=option("subject_in_process"),
        timeout=option("subject_timeout"),
        memory_limit=option("subject_memory_limit"),
        startup=option("subject_startup_seconds"),
        valid_only=option("subject_valid_only"),
    )
    file = option("known_failures")
    try:
        known = KnownFailures.load(file) if file else KnownFailures()
        run = resources.enter_context(opened(target, option("subject_save_dir"), known))
        for path in claimed_paths(run.subject):
            profile_for(run.subject, (path,))
    except (KnownFailuresError, SubjectError, CaseError, NothingToDrawError) as error:
        raise pytest.Collector.CollectError(readable(str(error))) from error
    return SuiteSession(Setup(run, option("subject_seed"), option("subject_examples"), option("subject_shrink")))


def all_fields() -> list[tuple[str, str]]:
    """Path and name of every test of a field or key set, whatever a subject claims: names do not come and go."""
    names = (*oracle.FIELDS, *oracle.KEY_SETS)
    return [
        (path, name)
        for path in oracle.PATHS
        for name in names
        if name in oracle.KEY_SETS or path in oracle.FIELDS[name].paths
    ]


def all_refusals() -> list[tuple[str, str]]:
    """Path and precondition of every test of a refusal."""
    return [(path, condition) for path in oracle.PATHS for condition in oracle.PRECONDITIONS]
