"""`inputmeta fuzz` and `inputmeta check`: campaigns with their output and exit codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.progress import Progress

import oracle
from conformance import exits
from conformance.batch import store_case
from conformance.console import progress, say
from conformance.corpus_tools import load_corpus
from conformance.fuzz import ROUND_EXAMPLES, Campaign, fuzz, reported_case
from conformance.generate import Profile
from conformance.report import describe
from conformance.runner import run_case
from conformance.subjects import Subject
from conformance.verdicts import Verdict


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


def run_fuzz(
    subject: Subject, seconds: float, seed: int, paths: Sequence[str] | None, save_dir: Path, *, full_coverage: bool
) -> int:
    """Fuzz one subject; prints the result and returns the exit code."""
    claimed = claimed_paths(subject, paths)
    if not claimed:
        say(f"nothing to fuzz: {subject.name} claims none of the paths {', '.join(paths or oracle.PATHS)}")
        return exits.NOTHING_RAN
    profile = profile_for(subject, claimed)
    say(f"fuzz {subject.name}: seed {seed}, {seconds:g} s, paths {', '.join(profile.paths)}")
    with progress(seconds) as bar:
        campaign = fuzz(subject, profile, seed_value=seed, seconds=seconds, on_case=show_on(bar))
    say(summary(campaign))
    say(coverage_text(campaign, full=full_coverage))
    return conclude(campaign, save_dir)


def run_check(
    subject: Subject, corpus: Path, *, examples: int, seed: int, paths: Sequence[str] | None, save_dir: Path
) -> int:
    """Corpus, then generated cases; prints the result and returns the exit code."""
    claimed = claimed_paths(subject, paths)
    passed, unsupported, failed = check_corpus(subject, corpus, claimed)
    say(f"corpus {corpus.name}: {passed} passed, {failed} failed, {unsupported} unsupported")
    rounds = -(-examples // ROUND_EXAMPLES)
    code = exits.DIFFERS if failed else exits.CONFORMS
    if rounds and claimed:
        profile = profile_for(subject, claimed)
        with progress(rounds * ROUND_EXAMPLES) as bar:
            campaign = fuzz(subject, profile, seed_value=seed, rounds=rounds, on_case=show_on(bar, by_cases=True))
        say(f"generated, seed {seed}: " + summary(campaign))
        say(coverage_text(campaign, full=False))
        code = max(code, conclude(campaign, save_dir))
        passed += campaign.verdicts[Verdict.PASS]
    return exits.NOTHING_RAN if code == exits.CONFORMS and not passed else code


def check_corpus(subject: Subject, folder: Path, paths: Sequence[str]) -> tuple[int, int, int]:
    """Counts of cases that passed, that the subject does not claim, and that failed (described as they come)."""
    passed = unsupported = failed = 0
    for path, case in load_corpus(folder):
        outcome = run_case(case, subject) if case.path in paths else None
        if outcome is None or not outcome.ran:
            unsupported += 1
        elif outcome.findings:
            failed += 1
            say(f"{path.name}: {case.title}")
            for finding in outcome.findings:
                say(describe(finding, case, replay_command(path, subject)))
        else:
            passed += 1
    return passed, unsupported, failed


def replay_command(path: Path, subject: Subject) -> str:
    """The command that runs one case file against one subject."""
    return f"inputmeta replay {path} --subject {subject.name}"


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


def conclude(campaign: Campaign, save_dir: Path) -> int:
    """Save and describe the failures; the exit code of the campaign."""
    for failure in sorted(campaign.failures.values(), key=lambda f: f.size):
        path = store_case(reported_case(failure, campaign), save_dir)
        say("")
        say(describe(failure.finding, failure.case, replay_command(path, campaign.subject)))
    if campaign.failures:
        return exits.DIFFERS
    return exits.CONFORMS if campaign.cases > campaign.verdicts[Verdict.UNSUPPORTED] else exits.NOTHING_RAN
