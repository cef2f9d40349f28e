"""The one way from a failing case to what is said of it: examine, known?, store, describe.

``fuzz``, ``check``, ``replay``, ``trace``, the pytest suite and the stages on a GPU all judge through :class:`Run`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from inputmeta.conformance.campaign.examine import TIMES, Examined, Examiner
from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.campaign.journal import Journal, recover
from inputmeta.conformance.campaign.known import KnownFailure, KnownFailures
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.files import case_id
from inputmeta.conformance.cases.model import Case, Origin
from inputmeta.conformance.cases.request import store_case
from inputmeta.conformance.check.report import describe
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.console import notice, plain_text, say
from inputmeta.conformance.subjects import Subject
from inputmeta.conformance.version import VERSION
from inputmeta.conformance.workers.target import Target


@dataclass(frozen=True)
class Report:
    """What is said of a failure that no entry knows."""

    finding: Finding
    """As it turned out: FLAKY if it does not come back each time."""
    files: tuple[Path, ...]
    """To replay, in order; the last one holds the failing case."""
    text: str

    def __str__(self) -> str:
        """The message: several lines."""
        return self.text


@dataclass(frozen=True)
class Known:
    """A failure that an entry of the known failures covers."""

    signature: str
    """As it was seen, or as it turned out to be."""
    entry: KnownFailure

    def __str__(self) -> str:
        """One line: that it is known, why, and where it is tracked."""
        return f"KNOWN {self.signature}: {self.entry.reason} – {self.entry.issue}"


@dataclass
class Run:
    """One run of a command: what is tested, what is known of it, what it does wrong now."""

    session: Session
    target: Target
    save_dir: Path
    known: KnownFailures = field(default_factory=KnownFailures)
    failing: set[str] = field(default_factory=set)
    """Keys of a known-failures file that would cover what failed: ids of cases, signatures of generated ones."""
    labelled: set[str] = field(default_factory=set)
    """Signatures of which a case from a file was replayed in full."""

    @property
    def subject(self) -> Subject:
        """What is tested."""
        return self.session.subject

    def finish(self, write: Path | None) -> None:
        """Write the present failures, if that is wanted; raises KnownFailuresError."""
        if write is not None:
            self.known.write(self.failing, write)

    def judge(
        self, failure: Failure, *, origin: Origin | None = None, file: Path | None = None, examine: bool = True
    ) -> Report | Known:
        """The report on a failure, its case saved; or that it is known, as seen or as what it turns out to be.

        ``file``: where the case is already. ``origin``: what found a case that is none of a file; ``found_by`` is the
        command. ``examine`` False: neither replayed nor labelled, the case is stored as it is.

        Raises:
            SubjectError: the subject cannot be started any more.
            CaseError: the case cannot be saved.
        """
        entry = self.known.match(failure.finding, failure.case)
        if entry is not None:
            return Known(failure.finding.signature, entry)
        if not examine:
            files = [store_case(failure.case, self.save_dir)] if file is None else [file]
            text = describe(failure.finding, failure.case, replay_command(files, self.target))
            return Report(failure.finding, tuple(files), text)
        examined = self._examined(failure, from_file=file is not None)
        if examined.finding.verdict is Verdict.FLAKY:
            entry = self.known.match(examined.finding, failure.case)
            if entry is not None:
                return Known(examined.finding.signature, entry)
        if file is not None and examined.case == failure.case and not examined.before:
            return self._report(examined, failure.case, [file])
        case = titled(examined, self.subject.name, origin or Origin(found_by="check"))
        return self._report(examined, case, [store_case(each, self.save_dir) for each in (*examined.before, case)])

    def _examined(self, failure: Failure, *, from_file: bool) -> Examined:
        """The label of a failure. Of files that show one signature the first is replayed in full, the others once."""
        signature = failure.finding.signature
        times = 1 if from_file and signature in self.labelled else TIMES
        if from_file:
            self.labelled.add(signature)
        return Examiner(self.session, times=times).examine(failure)

    def _report(self, examined: Examined, case: Case, files: Sequence[Path]) -> Report:
        label = f"{examined.label}: {examined.note}"
        text = describe(examined.finding, case, replay_command(files, self.target), label)
        return Report(examined.finding, tuple(files), text)


@contextmanager
def opened(target: Target, save_dir: Path, known: KnownFailures) -> Iterator[Run]:
    """A run with a journal in ``save_dir``, after what killed runs have left there is saved.

    Raises:
        SubjectError: the subject cannot be loaded.
        CaseError: the journal cannot be written.
    """
    with target.open(spares=1) as subject:
        files, problems = recover(save_dir)
        for path in files:
            notice(f"a run was interrupted; one of its cases is saved as {path}")
        for problem in problems:
            notice(problem)
        with Journal(save_dir) as journal:
            yield Run(Session(subject, journal), target, save_dir, known)


def titled(examined: Examined, subject: str, origin: Origin) -> Case:
    """The failing case as it is saved: title and origin say what found it, and how it comes back."""
    finding = examined.finding
    title = f"{finding.verdict} {finding.code or finding.formula}" + (f" {finding.key}" if finding.key else "")
    found_by = plain_text(f"{origin.found_by} {subject}; {examined.label}: {examined.note}")
    origin = msgspec.structs.replace(origin, found_by=found_by, version=VERSION)
    return msgspec.structs.replace(examined.case, title=f"{title}, {examined.label}", origin=origin)


def replay_command(files: Sequence[Path], target: Target) -> str:
    """The command that runs case files, in order, in one worker, quoted as for a shell and on one line."""
    return f"inputmeta replay {' '.join(plain_text(shlex.quote(str(file))) for file in files)} {target.options}"


@dataclass
class CaseCounts:
    """Cases by what came of them, and the defined cells compared."""

    passed: int = 0
    failed: int = 0
    unsupported: int = 0
    known: int = 0
    cells: int = 0
    signatures: Counter[str] = field(default_factory=Counter)
    """Findings that no entry knows."""

    @property
    def ran(self) -> int:
        """Cases that said something about the subject."""
        return self.passed + self.failed + self.known

    def __str__(self) -> str:
        """``12 passed, 0 failed, 1 unsupported``."""
        text = f"{self.passed} passed, {self.failed} failed, {self.unsupported} unsupported"
        return text + (f", {self.known} known" if self.known else "")


OnCase = Callable[[Path | None, Case, Outcome], None]
"""Called with every case that was run and its file, if it has one."""


def run_cases(
    run: Run,
    cases: Iterable[tuple[Path | None, Case]],
    *,
    paths: Sequence[str] | None = None,
    examine: bool = True,
    on_case: OnCase = lambda _file, _case, _outcome: None,
) -> CaseCounts:
    """Run cases and report every finding as it comes. ``paths``: cases of other paths are left out."""
    counts = CaseCounts()
    for file, case in cases:
        outcome = Outcome() if paths is not None and case.path not in paths else run.session.run(case)
        run.known.saw(case, ran=outcome.ran)
        counts.cells += outcome.cells
        if outcome.findings:
            run.failing.add(case_id(case))
        new = report_findings(run, file, case, outcome, examine=examine)
        counts.signatures.update(new)
        counts.unsupported += not outcome.ran
        counts.failed += bool(new)
        counts.known += bool(outcome.findings) and not new
        counts.passed += outcome.ran and not outcome.findings
        on_case(file, case, outcome)
    return counts


def report_findings(run: Run, file: Path | None, case: Case, outcome: Outcome, *, examine: bool) -> list[str]:
    """Report the findings on a case, those that are known in a line; the signatures of the others."""
    mark = run.session.mark()
    new: list[str] = []
    for finding in outcome.findings:
        told = run.judge(Failure.seen(finding, case, mark), file=file, examine=examine)
        if isinstance(told, Known):
            say(f"{told} ({plain_text(str(file))})" if file is not None else str(told))
            continue
        if not new and examine and file is not None:
            say(f"{plain_text(file.name)}: {case.title}")
        say(str(told))
        new.append(finding.signature)
    return new
