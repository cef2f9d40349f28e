"""What the suite did, as a summary, and when that is a failure although no test failed.

A run in which nothing ran fails: a subject that claims nothing, or a selection that selects nothing, is no success.
Runs where the tests are reported: the only process, or the one that distributes the work of pytest-xdist.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from inputmeta import oracle
from inputmeta.conformance.campaign.known import KnownFailures, KnownFailuresError
from inputmeta.conformance.console import plain_text
from inputmeta.conformance.suite.options import SUITE, corpus_folder
from inputmeta.conformance.suite.session import (
    CASE_PROPERTY,
    CONTAINERS_PROPERTY,
    DIALECTS_PROPERTY,
    all_fields,
    all_refusals,
    corpus_cases,
)
from inputmeta.conformance.version import VERSION

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.protocol import Scheduling


class Tally:
    """Counts the suite's reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        """Skipped tests by reason."""
        self.containers = 0
        """Cases of which a container was held to its promises."""
        self.under = ""
        """What is said of the subject's dialects."""
        self.problems: list[str] = []
        """Why the run fails although its tests may have passed."""
        self.notes: list[str] = []
        file = config.getoption("known_failures")
        try:
            self.known = KnownFailures.load(file) if file else KnownFailures()
        except KnownFailuresError as error:
            raise pytest.UsageError(str(error)) from error

    def pytest_report_header(self) -> str:
        """What is tested."""
        option = self.config.getoption
        what = option("subject") or option("subject_command")
        generated = f"{option('subject_examples')} batches a path, seed {option('subject_seed')}"
        return plain_text(f"inputmeta {VERSION}: subject {what}, {generated}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> Scheduling | None:
        """Share out the tests by the batches that they need, unless the user chose another way than the usual."""
        if config.getoption("dist") != "load":
            return None
        from inputmeta.conformance.suite.scheduling import SuiteScheduling  # noqa: PLC0415 - pytest-xdist may not be installed

        return SuiteScheduling(config, log)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one report. A test that failed before or after its call failed."""
        if not report.nodeid.startswith(SUITE + "/"):
            return
        self.known.matched.update(str(value) for name, value in report.user_properties if name == "known_failure")
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.counts["skipped"] += 1
            self.skipped[reason.removeprefix("Skipped: ")] += 1
            self._note_case(report, ran=False)
        elif report.failed:
            self.counts["failed"] += 1
        elif report.when == "call":
            self.counts["known" if report.skipped else "passed"] += 1
        if report.when == "call":
            self.containers += sum(int(str(n)) for name, n in report.user_properties if name == CONTAINERS_PROPERTY)
        self.under = next((str(v) for name, v in report.user_properties if name == DIALECTS_PROPERTY), self.under)
        if report.when == "call" and not report.skipped:
            self._note_case(report, ran=True)

    def _note_case(self, report: pytest.TestReport, *, ran: bool) -> None:
        ids = {str(value) for name, value in report.user_properties if name == CASE_PROPERTY}
        (self.known.ran if ran else self.known.left_out).update(ids)

    @property
    def ran(self) -> int:
        """Tests that said something about the subject."""
        return self.counts.total() - self.counts["skipped"]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Turn a run that shows nothing into a failure."""
        ended = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self.config.getoption("collectonly") or exitstatus not in ended:
            return
        if not self.ran:
            self.problems.append("nothing ran: no test of the suite could say anything about the subject")
        stale = [self.known.complaint(entry) for entry in self.known.unused() if entry.key not in self.known.ran]
        (self.problems if self._whole() else self.notes).extend(stale)
        if self.problems:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _whole(self) -> bool:
        """Whether every test of the suite was reported: a part cannot show that an entry matches nothing."""
        if not self.known:
            return False
        cases = len(corpus_cases(corpus_folder(self.config)))
        return self.counts.total() >= cases + len(all_fields()) + len(all_refusals()) + len(oracle.PATHS)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Counts, the reasons of what was skipped, and what makes the run fail."""
        terminalreporter.section("inputmeta")
        parts = ", ".join(f"{self.counts[name]} {name}" for name in ("passed", "failed", "known", "skipped"))
        terminalreporter.line(f"tests that ran{self.under}: {self.ran} ({parts})")
        if self.containers:
            terminalreporter.line(f"containers: {self.containers} checked")
        for reason, count in sorted(self.skipped.items()):
            terminalreporter.line(f"  {count:4} skipped: {reason}")
        for note in self.notes:
            terminalreporter.line(f"  not met by this part of the suite: {note}")
        for problem in self.problems:
            terminalreporter.line(f"FAILED {problem}", red=True)
