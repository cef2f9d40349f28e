"""What a run of a command came to: the one structure from which reports are written, whatever their form.

``check``, ``fuzz``, ``replay``, ``trace`` and ``compare`` fill it while they run; ``Run.judge`` adds every failure.
Text of others (names of subjects and files, messages) stands in it as it came.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.known import KnownFailure
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.generate.coverage import CoverageRow
from inputmeta.conformance.version import VERSION

OUTSIDE = "OUTSIDE"
"""What came of a case of steps that were left out: the subject checks none of the preconditions that they break."""


@dataclass(frozen=True)
class Report:
    """What is said of a failure that no entry knows."""

    finding: Finding
    """As it turned out: FLAKY if it does not come back each time."""
    files: tuple[Path, ...]
    """To replay, in order; the last one holds the failing case."""
    text: str
    case: Case | None = None
    """The failing case; None of a batch that no case stands for."""
    label: str = ""
    """How it comes back."""
    again: str = ""
    """The command that replays it."""
    follow: tuple[Finding, ...] = ()
    """Findings that may follow from this one."""

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


@dataclass(frozen=True)
class CaseResult:
    """What came of one case of a file."""

    file: str
    """Empty of one that has none."""
    id: str
    title: str
    verdict: str
    """Of its first finding that is not known; else KNOWN, PASS, UNSUPPORTED or OUTSIDE."""
    signatures: tuple[str, ...] = ()
    """Of all findings."""
    left_out: str = ""
    """What of it the subject does not claim."""
    seconds: float = 0.0


@dataclass(frozen=True)
class CoverageTable:
    """How often each boundary of each formula was visited, ``FORMULA:boundary`` in declared order."""

    rows: tuple[CoverageRow, ...]
    """Those that can be reached."""
    outside: tuple[CoverageRow, ...] = ()
    """Those outside the claims."""
    note: str = ""
    """What keeps it from being whole: a failure ended the campaign."""

    @property
    def visited(self) -> int:
        """Boundaries that some case visited."""
        return sum(1 for row in self.rows if row.count)


@dataclass(frozen=True)
class Part:
    """One part of a run: a corpus, generated cases, the wide tier, a trace."""

    name: str
    ran: int
    """Cases, batches or steps."""
    unit: str
    """Of ``ran``."""
    verdicts: dict[str, int]
    cells: int = 0
    """Defined cells compared."""
    seconds: float = 0.0
    seed: int | None = None
    notes: tuple[str, ...] = ()
    """Further lines on it."""
    not_claimed: dict[str, int] = field(default_factory=dict)
    """Cases by what of them the subject does not claim or build."""
    coverage: CoverageTable | None = None
    results: tuple[CaseResult, ...] = ()
    """Of cases from files."""

    @property
    def per_second(self) -> float | None:
        """Cases, batches or steps a second; None if it took no time that was measured."""
        return self.ran / self.seconds if self.seconds > 0 else None

    @property
    def cells_per_second(self) -> float | None:
        """Defined cells compared a second."""
        return self.cells / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True)
class Disagreement:
    """One way in which parties differ on a field, with the smallest batch that shows it (``compare``)."""

    name: str
    """The field, or ``(answer)``."""
    groups: tuple[tuple[str, ...], ...]
    """Those of one group agree; the oracle's is the first."""
    says: tuple[str, ...]
    """What each group says there."""
    count: int
    total: int
    """How often, of how many answers."""
    where: str
    """The cell or the batch, in words."""
    case: Case
    finding: Finding
    """The same as a finding: what another group has against the first."""
    again: str


@dataclass(frozen=True)
class Pair:
    """How two parties compare (``compare``): fields in which they differ, of how many; the same of batches."""

    one: str
    other: str
    differ: int
    fields: int
    answered_otherwise: int
    batches: int


@dataclass
class Summary:
    """A run of a command."""

    command: str = ""
    subjects: tuple[str, ...] = ()
    """What was tested, with the dialects it is translated from."""
    options: str = ""
    """The options that name it."""
    version: str = VERSION
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    parts: list[Part] = field(default_factory=list)
    failures: list[Report] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Known failures that are out of date, one line each."""
    disagreements: list[Disagreement] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    seconds: float = 0.0
    code: int | None = None
    """The exit code; None while it runs."""
    ended: str = ""
    """What ended it before its time, one line; empty if nothing did."""
    _since: float = field(default_factory=time.monotonic)

    def close(self, code: int, ended: str = "") -> None:
        """The run is over."""
        self.code, self.ended = code, ended
        self.seconds = time.monotonic() - self._since

    @property
    def outcome(self) -> str:
        """What it came to, in words."""
        if self.ended:
            return "ended early"
        words = {exits.CONFORMS: "conforms", exits.DIFFERS: "differs", exits.NOTHING_RAN: "nothing was checked"}
        return words.get(self.code or exits.CONFORMS, "failed")


def verdict_of(outcome: Outcome, new: Sequence[str]) -> str:
    """What came of a case: ``new`` are the signatures of the findings that no entry knows."""
    if new:
        return new[0].partition(":")[0]
    if outcome.findings:
        return Verdict.KNOWN.value
    if outcome.ran:
        return Verdict.PASS.value
    return OUTSIDE if outcome.all_outside else Verdict.UNSUPPORTED.value


def counts_of(results: Iterable[CaseResult]) -> dict[str, int]:
    """Cases by what came of them."""
    return dict(Counter(result.verdict for result in results))
