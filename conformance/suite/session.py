"""What the tests of one pytest process share: the subject, the known failures, what the generated batches gave."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol

import pytest

from inputmeta import oracle
from inputmeta.conformance.campaign.known import KnownFailure, KnownFailures, KnownFailuresError
from inputmeta.conformance.campaign.runs import Run, opened
from inputmeta.conformance.cases.corpus import load_corpus
from inputmeta.conformance.cases.files import CaseError, case_id
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.console import readable
from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.workers.target import Target

if TYPE_CHECKING:
    from inputmeta.conformance.suite.generated import PathResults, Unit


@dataclass(frozen=True)
class Setup:
    """What is tested, and how much."""

    run: Run
    seed: int
    examples: int
    """Generated batches a path."""
    shrink_seconds: float


@dataclass
class Judgement:
    """What is to be said of the failures of one test."""

    messages: list[str] = field(default_factory=list)
    """On those that no entry knows."""
    known: list[KnownFailure] = field(default_factory=list)

    def close(self, record: Record) -> None:
        """End the test as failed or as failing the way it is known to; return if nothing failed."""
        for entry in self.known:
            record("known_failure", entry.key)
        if self.messages:
            fail(self.messages)
        if self.known:
            texts = dict.fromkeys(f"KNOWN {entry}" for entry in self.known)
            pytest.xfail("; ".join(texts))


@dataclass
class SuiteSession:
    """One process's run of the suite."""

    setup: Setup
    results: dict[str, PathResults] = field(default_factory=dict)
    labelled: set[str] = field(default_factory=set)
    """Signatures of corpus cases of which one was replayed in full."""

    def generated(self, path: str) -> PathResults:
        """What the generated batches of a path gave; they are run the first time that a test asks."""
        from inputmeta.conformance.suite.generated import PathResults  # noqa: PLC0415 - it needs this module's types

        if path not in self.results:
            self.results[path] = PathResults(self.setup, path).run()
        return self.results[path]

    def require(self, path: str, field_name: str | None = None) -> None:
        """Skip the test if the subject does not claim the path, or the field."""
        able = self.setup.run.subject.capabilities
        if path not in able.paths:
            pytest.skip(f"not claimed: path {path}")
        if field_name is not None and field_name not in able.fields:
            pytest.skip("not claimed: the field")

    def judge(self, path: str, unit: Unit, unchecked: str, record: Record) -> None:
        """End the test of one unit of the generated batches: passed, failed, known, or skipped as ``unchecked``."""
        try:
            results = self.generated(path)
            judgement = results.judgement(unit)
        except SubjectError as error:
            fail([f"the subject could not be started again: {error}"])
        judgement.close(record)
        if results.checked[unit]:
            return
        if results.unanswered:
            fail([f"no batch was answered of those that could show it; test_answer[{path}] says why"])
        pytest.skip(unchecked)


class Record(Protocol):
    """pytest's ``record_property``."""

    def __call__(self, name: str, value: object) -> None:
        """Add a property to the test's report."""


def fail(messages: Iterable[str]) -> NoReturn:
    """Fail the test with the suite's own messages: a traceback through the suite would say nothing more."""
    pytest.fail(readable("\n\n".join(messages)), pytrace=False)


class CorpusCase(NamedTuple):
    """A case of the corpus with its file."""

    id: str
    """Of its content: the file's own may be missing."""
    file: Path
    case: Case


def corpus_cases(folder: Path) -> list[CorpusCase]:
    """The cases of a corpus in the order of their files.

    Raises:
        CaseError: a file that cannot be used, or two with the same content.

    """
    cases: dict[str, CorpusCase] = {}
    for file, case in load_corpus(folder):
        found = CorpusCase(case_id(case), file, case)
        if found.id in cases:
            raise CaseError(f"{file}: the same case as {cases[found.id].file}")
        cases[found.id] = found
    return list(cases.values())


def start(config: pytest.Config, resources: ExitStack) -> SuiteSession:
    """The session that pytest's options ask for; ``resources`` is what it ends with.

    Raises:
        CollectError: the subject cannot be had, or a file cannot be used.
    """
    option = config.getoption
    target = Target(
        subject=option("subject") or "",
        command=option("subject_command"),
        json=option("subject_json"),
        in_process=option("subject_in_process"),
        timeout=option("subject_timeout"),
        memory_limit=option("subject_memory_limit"),
    )
    file = option("known_failures")
    try:
        known = KnownFailures.load(file) if file else KnownFailures()
        run = resources.enter_context(opened(target, option("subject_save_dir"), known))
    except (KnownFailuresError, SubjectError, CaseError) as error:
        raise pytest.Collector.CollectError(str(error)) from error
    return SuiteSession(Setup(run, option("subject_seed"), option("subject_examples"), option("subject_shrink")))


def all_fields() -> list[tuple[str, str]]:
    """Path and field name of every test of a field, whatever a subject claims: names of tests do not come and go."""
    return [(path, name) for path in oracle.PATHS for name, f in oracle.FIELDS.items() if path in f.paths]


def all_refusals() -> list[tuple[str, str]]:
    """Path and precondition of every test of a refusal. A prompt's buffers have no width that a batch may exceed."""
    pairs = [(path, condition) for path in oracle.PATHS for condition in oracle.PRECONDITIONS]
    return [pair for pair in pairs if pair != ("prompt", "P-OUT")]
