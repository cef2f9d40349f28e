"""`inputmeta fuzz` and `inputmeta check`: campaigns with their output and exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import Progress

from inputmeta import oracle
from inputmeta.conformance import exits
from inputmeta.conformance.campaign.examine import TIMES, Examined, Examiner
from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.campaign.fuzz import ROUND_EXAMPLES, Campaign, fuzz, reported_case
from inputmeta.conformance.campaign.journal import Journal, recover
from inputmeta.conformance.campaign.known import KnownFailure, KnownFailures
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.corpus import load_corpus
from inputmeta.conformance.cases.files import case_id
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import store_case
from inputmeta.conformance.check.report import describe
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.console import notice, progress, say
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.subjects import Subject
from inputmeta.conformance.workers.target import Target


@dataclass
class Run:
    """One run of a command: what is tested, what is known of it, what it does wrong now."""

    session: Session
    target: Target
    save_dir: Path
    known: KnownFailures
    failing: set[str] = field(default_factory=set)
    """Keys of a known-failures file that would cover what failed: ids of cases, signatures of generated ones."""

    @property
    def subject(self) -> Subject:
        """What is tested."""
        return self.session.subject

    def finish(self, write: Path | None) -> None:
        """Write the present failures, if that is wanted; raises KnownFailuresError."""
        if write is not None:
            self.known.rewritten(self.failing).save(write)


@contextmanager
def opened(target: Target, save_dir: Path, known: KnownFailures) -> Iterator[Run]:
    """A run with a journal in ``save_dir``, after what killed runs have left there is saved.

    Raises:
        SubjectError: the subject cannot be had.
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


def claimed_paths(subject: Subject, paths: Sequence[str] | None) -> tuple[str, ...]:
    """The paths that the subject claims, cut down to ``paths`` if any are given."""
    wanted = frozenset(paths or oracle.PATHS) & subject.capabilities.paths
    return tuple(path for path in oracle.PATHS if path in wanted)


def profile_for(subject: Subject, paths: tuple[str, ...]) -> Profile:
    """The generator's profile: what the subject claims, on ``paths``, at least one."""
    able = subject.capabilities
    return Profile(
        paths=paths,
        max_cp_size=min(8, able.max_cp_size),
        yoco_modes=tuple(mode for mode in ("off", "mask", "compact") if mode in able.yoco_modes),
    )


def run_fuzz(run: Run, seconds: float, seed: int, paths: Sequence[str] | None, *, full_coverage: bool) -> int:
    """Fuzz one subject; prints the result and returns the exit code."""
    subject = run.subject
    claimed = claimed_paths(subject, paths)
    if not claimed:
        say(f"nothing to fuzz: {subject.name} claims none of the paths {', '.join(paths or oracle.PATHS)}")
        return exits.NOTHING_RAN
    profile = profile_for(subject, claimed)
    say(f"fuzz {subject.name}: seed {seed}, {seconds:g} s, paths {', '.join(profile.paths)}")
    with progress(seconds) as bar:
        campaign = fuzz(run.session, profile, seed_value=seed, seconds=seconds, known=run.known, on_case=show_on(bar))
    say(summary(campaign))
    say(coverage_text(campaign, full=full_coverage))
    code = conclude(campaign, run)
    for entry in run.known.unused():
        notice(run.known.complaint(entry))
    return code


def run_check(run: Run, corpus: Path, *, examples: int, seed: int, paths: Sequence[str] | None) -> int:
    """Corpus, then generated cases; prints the result and returns the exit code."""
    subject = run.subject
    claimed = claimed_paths(subject, paths)
    counts = check_corpus(run, corpus, claimed)
    say(f"corpus {corpus.name}: {counts}")
    rounds = -(-examples // ROUND_EXAMPLES)
    code = exits.DIFFERS if counts.failed else exits.CONFORMS
    ran = counts.passed + counts.known
    if rounds and claimed:
        profile = profile_for(subject, claimed)
        with progress(rounds * ROUND_EXAMPLES) as bar:
            shown = show_on(bar, by_cases=True)
            campaign = fuzz(run.session, profile, seed_value=seed, rounds=rounds, known=run.known, on_case=shown)
        say(f"generated, seed {seed}: " + summary(campaign))
        say(coverage_text(campaign, full=False))
        code = max(code, conclude(campaign, run))
        ran += campaign.cases - campaign.verdicts[Verdict.UNSUPPORTED]
    for entry in run.known.unused():
        say(run.known.complaint(entry))
        code = exits.DIFFERS
    return exits.NOTHING_RAN if code == exits.CONFORMS and not ran else code


@dataclass
class CorpusCounts:
    """Cases of a corpus by what came of them."""

    passed: int = 0
    failed: int = 0
    unsupported: int = 0
    known: int = 0

    def __str__(self) -> str:
        """``12 passed, 0 failed, 1 unsupported``."""
        text = f"{self.passed} passed, {self.failed} failed, {self.unsupported} unsupported"
        return text + (f", {self.known} known" if self.known else "")


def check_corpus(run: Run, folder: Path, paths: Sequence[str]) -> CorpusCounts:
    """Run the cases of a corpus; failures are described as they come."""
    counts = CorpusCounts()
    labelled: set[str] = set()
    for path, case in load_corpus(folder):
        outcome = run.session.run(case) if case.path in paths else None
        ran = outcome is not None and outcome.ran
        run.known.saw(case, ran=ran)
        if outcome is None or not ran:
            counts.unsupported += 1
            continue
        mark = run.session.mark()
        new = [found for found in outcome.findings if not is_known(run, found, case)]
        if outcome.findings:
            run.failing.add(case_id(case))
        if new:
            say(f"{path.name}: {case.title}")
        told = [tell_corpus_failure(run, Failure(found, case, mark, case, mark), path, labelled) for found in new]
        counts.failed += any(told)
        counts.known += bool(outcome.findings) and not any(told)
        counts.passed += not outcome.findings
    return counts


def tell_corpus_failure(run: Run, failure: Failure, path: Path, labelled: set[str]) -> bool:
    """Label and describe a failing corpus case; False if what it turns out to be is known.

    The first case of a signature is replayed in full, the others once.
    """
    signature = failure.finding.signature
    examined = Examiner(run.session, times=1 if signature in labelled else TIMES).examine(failure)
    labelled.add(signature)
    if examined.finding.verdict is Verdict.FLAKY and is_known(run, examined.finding, failure.case):
        return False
    files = [path] if examined.case == failure.case and not examined.before else stored(examined, examined.case, run)
    say(described(examined, examined.case, files, run.target))
    return True


def is_known(run: Run, finding: Finding, case: Case) -> bool:
    """Whether a finding is a known failure; says so."""
    entry = run.known.match(finding, case)
    if entry is not None:
        say(known_text(finding.signature, entry))
    return entry is not None


def known_text(signature: str, entry: KnownFailure) -> str:
    """One line on a known failure that was seen."""
    return f"KNOWN {signature}: {entry.reason} – {entry.issue}"


def stored(examined: Examined, case: Case, run: Run) -> list[Path]:
    """Save a case and those that must be run before it; returns the files in the order to run."""
    return [store_case(each, run.save_dir) for each in (*examined.before, case)]


def described(examined: Examined, case: Case, files: Sequence[Path], target: Target) -> str:
    """The message on a failure, with its label."""
    return describe(examined.finding, case, replay_command(files, target), f"{examined.label}: {examined.note}")


def replay_command(files: Sequence[Path], target: Target) -> str:
    """The command that runs case files, in order, in one worker."""
    return f"inputmeta replay {' '.join(map(str, files))} {target.options}"


def show_on(bar: Progress, *, by_cases: bool = False) -> Callable[[Campaign], None]:
    """Progress of a campaign on a bar: by seconds, or by cases."""
    task = bar.task_ids[0]

    def show(campaign: Campaign) -> None:
        done = campaign.cases if by_cases else bar.tasks[0].elapsed
        state = "shrinking" if campaign.failures else "fuzzing"
        bar.update(task, completed=done or 0, description=f"{state} {campaign.cases} cases {verdict_counts(campaign)}")

    return show


def verdict_counts(campaign: Campaign) -> str:
    """``PASS 12 MISMATCH 1``."""
    return " ".join(f"{verdict} {campaign.verdicts[verdict]}" for verdict in Verdict if campaign.verdicts[verdict])


def summary(campaign: Campaign) -> str:
    """One line a campaign, and one for what the subject does not claim."""
    speed = f"{campaign.cases} cases in {campaign.seconds:.1f} s, {campaign.cells} cells compared"
    line = f"{speed}: {verdict_counts(campaign)}"
    if campaign.unsupported:
        names = ", ".join(f"{name} ({count})" for name, count in sorted(campaign.unsupported.items()))
        line += f"\nnot claimed by {campaign.subject.name}, in cases: {names}"
    return line


def coverage_text(campaign: Campaign, *, full: bool) -> str:
    """The coverage table: a line a formula (or a feature), then every reachable feature that was not visited.

    A campaign that ended at a failure gets the first line alone.
    """
    rows = campaign.coverage.rows(campaign.profile)
    unvisited = [] if campaign.failures else campaign.coverage.unvisited(campaign.profile)
    lines = [f"coverage: {sum(1 for row in rows if row.count)} of {len(rows)} features visited"]
    if campaign.failures:
        lines[0] += " before the first failure"
    elif full:
        lines += [f"  {row.count:8}  {row.id}  {row.text}" for row in rows]
    else:
        groups: dict[str, list[str]] = {}
        for row in rows:
            group, _, name = row.id.partition(":")
            groups.setdefault(group, []).append(f"{name} {row.count}")
        lines += [f"  {group:11} {', '.join(names)}" for group, names in groups.items()]
    lines += [f"  not visited, though reachable: {row.id}  {row.text}" for row in unvisited]
    return "\n".join(lines)


def conclude(campaign: Campaign, run: Run) -> int:
    """Label, save and describe the failures; the exit code of the campaign."""
    for signature, entry in sorted(campaign.known_seen.items()):
        say(known_text(signature, entry))
    run.failing |= campaign.known_seen.keys()
    examiner = Examiner(run.session)
    new = 0
    for failure in sorted(campaign.failures.values(), key=lambda f: f.size):
        examined = examiner.examine(failure)
        run.failing.add(examined.finding.signature)
        if examined.finding.verdict is Verdict.FLAKY and is_known(run, examined.finding, examined.case):
            continue
        new += 1
        case = reported_case(examined, campaign)
        files = stored(examined, case, run)
        say("")
        say(described(examined, case, files, run.target))
    if campaign.lost is not None:
        say(f"the subject could not be started again: {campaign.lost}")
    if new:
        return exits.DIFFERS
    return exits.CONFORMS if campaign.cases > campaign.verdicts[Verdict.UNSUPPORTED] else exits.NOTHING_RAN
