"""The one way from a failing case to what is said of it: examine, known?, store, describe.

``fuzz``, ``check``, ``replay``, ``trace``, the pytest suite and the stages on a GPU all judge through :class:`Run`.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from inputmeta.conformance.campaign.examine import TIMES, Examined, Examiner
from inputmeta.conformance.campaign.failures import Failure, roots, seen_on
from inputmeta.conformance.campaign.journal import Journal, recover
from inputmeta.conformance.campaign.known import KnownFailure, KnownFailures
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.campaign.summary import (
    CaseResult,
    Known,
    Part,
    Report,
    Summary,
    counts_of,
    verdict_of,
)
from inputmeta.conformance.cases import budget
from inputmeta.conformance.cases.files import CaseError, case_id
from inputmeta.conformance.cases.model import Case, Origin
from inputmeta.conformance.cases.request import store_case
from inputmeta.conformance.check.report import MOST_NAMES, describe, describe_briefly
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.console import notice, plain_text, remark, say
from inputmeta.conformance.exits import OutOfMemory, code_for
from inputmeta.conformance.interrupts import Interrupted, held, is_held, note, noted
from inputmeta.conformance.subjects import Subject, SubjectError
from inputmeta.conformance.version import VERSION
from inputmeta.conformance.workers.target import Target

NOT_SAVED = "not saved: the case stands below"
MOST_CASE = 8000
"""Characters of a case that is told because it could not be saved."""
MOST_DESCRIBED = 3
"""Findings on one case that are described; of those after them only the signature is said."""


@dataclass
class Run:
    """One run of a command: what is tested, what is known of it, what it does wrong now."""

    session: Session
    target: Target
    save_dir: Path
    known: KnownFailures = field(default_factory=KnownFailures)
    failing: dict[str, set[str]] = field(default_factory=dict)
    """Keys of a known-failures file that would cover what failed: signatures of generated cases, to nothing; ids of the
    others, to the signatures that they showed."""
    labelled: set[str] = field(default_factory=set)
    """Signatures of which a case from a file was replayed in full."""
    deadline: float | None = None
    """When labelling has to end, by the monotonic clock; None: whenever it does."""
    summary: Summary = field(default_factory=Summary)
    """What the run came to so far: every failure that was judged is in it."""

    def __post_init__(self) -> None:
        """What is known may hang on the subject's version."""
        self.known.version = str(getattr(self.subject, "version", ""))
        self.summary.subjects = (f"{self.subject.name}{self.subject.capabilities.under}",)
        self.summary.options = self.target.options

    @property
    def subject(self) -> Subject:
        """What is tested."""
        return self.session.subject

    def is_known(self, finding: Finding, case: Case) -> bool:
        """Whether some entry covers a finding on a case; it is not noted as met."""
        return bool(self.known.covering(finding, case))

    def fails(self, *signatures: str, file: Path | None = None) -> None:
        """Note signatures of generated cases; what cases of files show is noted by their ids."""
        if file is None:
            self.failing |= {text: set() for text in signatures}

    def saw_known(self, signature: str, entry: KnownFailure) -> Known:
        """Note a failure that an entry covers, and give what is said of it."""
        known = Known(signature, entry)
        self.summary.known.append(known)
        return known

    def finish(self, write: Path | None) -> None:
        """Write the present failures, if that is wanted and the run came to its end; raises KnownFailuresError."""
        if write is not None and noted() is not None:
            notice(f"{write}: not written, since the run did not come to its end")
        elif write is not None:
            self.known.write(self.failing, write)

    def judge(
        self,
        failure: Failure,
        *,
        origin: Origin | None = None,
        file: Path | None = None,
        examine: bool = True,
        follow: Sequence[Finding] = (),
        briefly: bool = False,
        aside: str = "",
        seconds: float | None = None,
    ) -> Report | Known:
        """The report on a failure, its case saved; or that it is known, as seen or as what it turns out to be.

        Whatever fails on the way, examining, saving or describing, the failure is told, and so is what failed.

        ``file``: where the case is already. ``origin``: what found a case that is none of a file; ``found_by`` is the
        command. ``examine`` False: neither replayed nor labelled, the case is stored as it is. ``follow``: findings
        that may follow from this one. ``briefly``: its case was described with another finding. ``aside``: to be said
        behind the label. ``seconds``: to examine it; None: as long as it takes.
        """
        entry = self.known.match(failure.finding, failure.case)
        if entry is not None:
            return self.saw_known(failure.finding.signature, entry)
        aside = "; ".join(text for text in (failure.reduced, aside) if text)
        if not examine:
            files = self._stored([*failure.before, failure.case]) if file is None else [file]
            return self._report(failure.finding, failure.case, files, aside, follow, briefly=briefly)
        examined = self._examined(failure, from_file=file is not None, seconds=seconds)
        if examined.finding.verdict is Verdict.FLAKY:
            entry = self.known.match(examined.finding, failure.case)
            if entry is not None:
                return self.saw_known(examined.finding.signature, entry)
        label = f"{examined.label}: {examined.note}" + f"; {aside}" * bool(aside)
        same = examined.case == failure.case and not examined.before
        briefly = briefly and same
        if file is not None and same:
            return self._report(examined.finding, failure.case, [file], label, follow, briefly=briefly)
        case = titled(examined, self.subject.name, origin or Origin(found_by="check"))
        files = self._stored([*examined.before, case])
        return self._report(examined.finding, case, files, label, follow, briefly=briefly)

    def _examined(self, failure: Failure, *, from_file: bool, seconds: float | None) -> Examined:
        """The label of a failure. Of files that show one signature the first is replayed in full, the others once."""
        signature = failure.finding.signature
        times = 1 if from_file and signature in self.labelled else TIMES
        if from_file:
            self.labelled.add(signature)
        try:
            return Examiner(self.session, times=times, total=seconds).examine(failure)
        except (Exception, Interrupted, OutOfMemory) as error:
            return Examined(failure.finding, failure.case, "not examined", reason_of(error))

    def _stored(self, cases: Sequence[Case]) -> list[Path]:
        """Files of the cases; of none if one of them cannot be saved, which is said."""
        try:
            return [store_case(case, self.save_dir) for case in cases]
        except (Exception, Interrupted, OutOfMemory) as error:
            unsaved(error)
            if self.session.journal is not None:
                self.session.journal.unsaved = True
            return []

    def _report(
        self,
        finding: Finding,
        case: Case,
        files: Sequence[Path],
        label: str,
        follow: Sequence[Finding],
        *,
        briefly: bool,
    ) -> Report:
        again = replay_command(files, self.target) if files else NOT_SAVED
        try:
            if briefly:
                text = describe_briefly(finding, case, label, follow)
            else:
                text = describe(finding, case, again, label, follow)
        except (Exception, Interrupted, OutOfMemory) as error:
            notice(f"a failure could not be described: {reason_of(error)}")
            text = f"{finding.signature}: {finding.detail}\n  replay   {again}"
        if not files:
            text += f"\n  case     {as_line(case)}"
        report = Report(finding, tuple(files), text, case, label, again, tuple(follow))
        self.summary.failures.append(report)
        return report


def reason_of(error: BaseException) -> str:
    """Why something could not be done, in one line; the type too, unless its text is made to be read."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, (CaseError, SubjectError, Interrupted)) else f"{type(error).__name__}: {text}"


def unsaved(error: BaseException) -> None:
    """A failing case could not be saved: it is told all the same, and a failure of the tool, which ends the run."""
    reason = f"a failing case could not be saved: {reason_of(error)}"
    if is_held():
        note(reason, code_for(error))
    else:
        notice(reason)


def as_line(case: Case) -> str:
    """The case as JSON on one line, for whoever has no file of it; its size alone if that is more than a screen."""
    try:
        text = msgspec.json.encode(msgspec.structs.replace(case, expected=())).decode()
    except (MemoryError, msgspec.MsgspecError) as error:
        return reason_of(error)
    return text if len(text) <= MOST_CASE else f"{len(text)} characters of JSON, more than {MOST_CASE}"


@contextmanager
def opened(target: Target, save_dir: Path, known: KnownFailures) -> Iterator[Run]:
    """A run with a journal in ``save_dir``, after what killed runs have left there is saved.

    From then on signals are held: whoever runs cases has them raised by the next one.

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
        with Journal(save_dir) as journal, held():
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
    names = " ".join(plain_text(shlex.quote(str(file))) for file in files)
    return f"inputmeta {budget.options()}replay {names} {target.options}"


@dataclass
class CaseCounts:
    """Cases by what came of them, and the defined cells compared."""

    passed: int = 0
    failed: int = 0
    unsupported: int = 0
    outside: int = 0
    """Cases of steps that were left out: the subject claims to check none of the preconditions that they break."""
    known: int = 0
    cells: int = 0
    containers: int = 0
    """Cases of which a container was held to its promises."""
    signatures: Counter[str] = field(default_factory=Counter)
    """Findings that no entry knows."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Cases by what of them the subject does not claim or build."""

    @property
    def ran(self) -> int:
        """Cases that said something about the subject."""
        return self.passed + self.failed + self.known

    @property
    def total(self) -> int:
        """All cases."""
        return self.ran + self.unsupported + self.outside

    def __str__(self) -> str:
        """``12 passed, 0 failed, 1 unsupported``."""
        text = f"{self.passed} passed, {self.failed} failed, {self.unsupported} unsupported"
        text += f", {self.outside} outside the claims" if self.outside else ""
        text += f", {self.known} known" if self.known else ""
        return text + (f"; containers: {self.containers} checked" if self.containers else "")


OnCase = Callable[[Path | None, Case, Outcome], None]
"""Called with every case that was run and its file, if it has one."""


def run_cases(
    run: Run,
    cases: Iterable[tuple[Path | None, Case]],
    *,
    paths: Sequence[str] | None = None,
    examine: bool = True,
    on_case: OnCase = lambda _file, _case, _outcome: None,
    part: str = "cases",
) -> CaseCounts:
    """Run cases and report every finding as it comes, until the run is to end.

    ``paths``: cases of other paths are left out. ``part``: what they are called in the summary of the run.
    """
    counts = CaseCounts()
    results: list[CaseResult] = []
    began = time.monotonic()
    for file, case in cases:
        before = time.monotonic()
        try:
            outcome = Outcome() if paths is not None and case.path not in paths else run.session.run(case)
        except Interrupted:
            break
        run.known.saw(case, ran=outcome.ran)
        counts.cells += outcome.cells
        counts.containers += outcome.container
        if outcome.findings:
            run.failing[case_id(case)] = {str(finding.identity) for finding in outcome.findings}
        new = report_findings(run, file, case, outcome, examine=examine)
        counts.signatures.update(new)
        counts.reasons.update(outcome.unsupported)
        counts.outside += outcome.all_outside
        counts.unsupported += not outcome.ran and not outcome.all_outside
        counts.failed += bool(new)
        counts.known += bool(outcome.findings) and not new
        counts.passed += outcome.ran and not outcome.findings
        on_case(file, case, outcome)
        results.append(result_of(file, case, outcome, new, time.monotonic() - before))
    run.summary.parts.append(
        Part(
            part,
            len(results),
            "cases",
            counts_of(results),
            counts.cells,
            time.monotonic() - began,
            not_claimed=dict(counts.reasons),
            results=tuple(results),
        )
    )
    return counts


def result_of(file: Path | None, case: Case, outcome: Outcome, new: Sequence[str], seconds: float) -> CaseResult:
    """What came of one case, for the summary; ``new``: signatures that no entry knows."""
    return CaseResult(
        "" if file is None else str(file),
        case_id(case),
        case.title,
        verdict_of(outcome, new),
        tuple(found.signature for found in outcome.findings),
        outcome.left_out,
        seconds,
    )


def report_findings(run: Run, file: Path | None, case: Case, outcome: Outcome, *, examine: bool) -> list[str]:
    """Report the findings on a case, those that are known in a line; the signatures of the others."""
    failures = seen_on(case, outcome.findings, run.session.mark())
    heading = f"{plain_text(file.name)}: {case.title}" if examine and file is not None else ""
    return tell(run, failures, file=file, examine=examine, heading=heading)


def tell(
    run: Run,
    failures: Sequence[Failure],
    *,
    origin: Origin | None = None,
    file: Path | None = None,
    examine: bool = True,
    heading: str = "",
    aside: str = "",
) -> list[str]:
    """Report failures: those that are known in a line, those that may follow from another with it.

    Of several on one case the first is described in full, the next ones briefly, and the rest are named. ``heading``:
    said before the first. The other arguments as of :meth:`Run.judge`. Returns the signatures that no entry knows.
    """
    known: list[Failure] = []
    unknown: list[Failure] = []
    for failure in failures:
        (unknown if run.known.match(failure.finding, failure.case) is None else known).append(failure)
    new: list[str] = []
    described: Counter[str] = Counter()
    unsaid: list[str] = []
    told_apart: list[tuple[Failure, Sequence[Failure]]] = [
        *((failure, ()) for failure in known),
        *((root.failure, root.follow) for root in roots(unknown)),
    ]
    for index, (failure, follow) in enumerate(told_apart):
        shown = case_id(failure.case)
        same = described[shown]
        told = run.judge(
            failure,
            origin=origin,
            file=file,
            examine=examine,
            follow=[other.finding for other in follow],
            briefly=same > 0,
            aside=aside,
            seconds=None if run.deadline is None else (run.deadline - time.monotonic()) / (len(told_apart) - index),
        )
        if isinstance(told, Known):
            run.fails(told.signature, file=file)
            remark(f"{told} ({plain_text(str(file))})" if file is not None else str(told))
            new += tell(run, follow, origin=origin, file=file, examine=examine, aside=aside)
            continue
        if heading and not new:
            say(heading)
        signatures = [told.finding.signature if file is None else failure.finding.signature]
        signatures += [other.finding.signature for other in follow]
        run.fails(*signatures, file=file)
        new += signatures
        described[shown] += 1
        if same < MOST_DESCRIBED:
            say(f"\n{told}" if file is None and not same else str(told))
        else:
            unsaid.append(told.finding.signature)
    if unsaid:
        say(f"and {len(unsaid)} more: {', '.join(unsaid[:MOST_NAMES])}" + ", …" * (len(unsaid) > MOST_NAMES))
    return new
