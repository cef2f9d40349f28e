"""How a campaign is shown: progress while it runs, then its counts and the coverage table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto

from rich.progress import Progress

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.fuzz import Campaign
from inputmeta.conformance.campaign.judging import Run, tell
from inputmeta.conformance.campaign.known_counts import Seen
from inputmeta.conformance.campaign.reducing import REDUCE_SECONDS, REDUCER, reduce_roots
from inputmeta.conformance.campaign.summary import CoverageTable, Part
from inputmeta.conformance.cases.model import Origin
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.console import remark, say
from inputmeta.conformance.generate.profile import REFUSALS
from inputmeta.conformance.subjects import Subject

REDUCE_SHARE = 0.4
"""Of the time that is left behind shrinking."""


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


def reasons_text(subject: Subject, reasons: Counter[str]) -> str:
    """What a subject does not claim or build, with the number of cases; empty if that is nothing."""
    names = ", ".join(f"{name} ({count})" for name, count in sorted(reasons.items()))
    return f"not claimed by {subject.name}, in cases: {names}" if names else ""


def seen_in(campaign: Campaign) -> Seen:
    """What generated cases did not build, as known failures record it."""
    return Seen("generated", campaign.coverage.cases, campaign.not_built, campaign.seed)


def part_of(campaign: Campaign) -> Part:
    """Generated cases as a part of a run."""
    return Part(
        "generated",
        campaign.cases,
        "cases",
        {verdict.value: count for verdict, count in campaign.verdicts.items() if count},
        campaign.cells,
        campaign.seconds,
        campaign.seed,
        (f"paths {', '.join(campaign.profile.paths)}", *summary(campaign).splitlines()),
        dict(campaign.unsupported),
        CoverageTable(
            tuple(campaign.coverage.rows(campaign.profile)),
            tuple(campaign.coverage.outside(campaign.profile)),
            "A failure ended the campaign: what was visited before it." if campaign.failures else "",
        ),
    )


def summary(campaign: Campaign) -> str:
    """One line a campaign, and one for what the subject does not claim."""
    speed = f"{campaign.cases} cases in {campaign.seconds:.1f} s, {campaign.cells} cells compared"
    line = f"{speed}: {verdict_counts(campaign)}"
    line += f"; containers: {campaign.containers} checked" if campaign.containers else ""
    if campaign.unsupported:
        line += f"\n{reasons_text(campaign.subject, campaign.unsupported)}"
    outside = [name for name in REFUSALS if name not in campaign.profile.refusals]
    if outside:
        line += f"\noutside the claims, so not drawn: batches that break {', '.join(outside)}"
    return line


class Detail(Enum):
    """How much of the coverage is printed: how many features were visited, or that and a line a formula or feature."""

    COUNT = auto()
    FORMULAS = auto()
    FEATURES = auto()


NOT_VISITED = {False: "not visited, though reachable", True: "not visited; conditions may exclude it"}
"""What is said of a feature, by whether the claims have conditions: what several exclude together is not declared."""


def coverage_text(campaign: Campaign, detail: Detail) -> str:
    """The coverage table, then every reachable feature that was not visited, and those outside the claims.

    A campaign that ended at a failure gets the first line alone.
    """
    rows = campaign.coverage.rows(campaign.profile)
    brief = campaign.failures or detail is Detail.COUNT
    unvisited = [] if brief else campaign.coverage.unvisited(campaign.profile)
    outside = campaign.coverage.outside(campaign.profile)
    lines = [f"coverage: {sum(1 for row in rows if row.count)} of {len(rows)} features visited"]
    lines[0] += f", {len(outside)} outside the claims" * bool(outside)
    if campaign.failures:
        lines[0] += " before the first failure"
    elif detail is Detail.FEATURES:
        lines += [f"  {row.count:8}  {row.id}  {row.text}" for row in rows]
    elif detail is Detail.FORMULAS:
        groups: dict[str, list[str]] = {}
        for row in rows:
            group, _, name = row.id.partition(":")
            groups.setdefault(group, []).append(f"{name} {row.count}")
        lines += [f"  {group:11} {', '.join(names)}" for group, names in groups.items()]
    lines += [f"  {NOT_VISITED[campaign.profile.limited]}: {row.id}  {row.text}" for row in unvisited]
    if detail is Detail.FEATURES and not campaign.failures:
        lines += [f"  outside the claims: {row.id}  {row.text}" for row in outside]
    return "\n".join(lines)


def reduce_seconds(deadline: float | None) -> float:
    """Of the time until what failed is to be told, the rest being for labelling."""
    if deadline is None:
        return REDUCE_SECONDS
    return min(REDUCE_SECONDS, REDUCE_SHARE * (deadline - time.monotonic()))


def conclude(campaign: Campaign, run: Run) -> int:
    """Judge the failures of a campaign, the smallest case first; its exit code."""
    for signature, entry in sorted(campaign.known_seen.items()):
        remark(str(run.saw_known(signature, entry)))
    run.fails(*campaign.known_seen)
    origin = Origin(found_by="fuzz", seed=campaign.seed, minimised_by=f"hypothesis, {REDUCER}")
    run.deadline = campaign.deadline
    aside = ""
    if campaign.cut_short:
        aside = f"not fully shrunk: {campaign.interrupted or 'time was up'}"
    seconds = reduce_seconds(run.deadline)
    failures = reduce_roots(run.session, campaign.failures.by_size(), seconds, is_known=run.is_known)
    new = tell(run, failures, origin=origin, aside=aside)
    run.deadline = None
    if campaign.lost is not None:
        say(f"the subject could not be started again: {campaign.lost}")
    if campaign.broke is not None:
        raise campaign.broke
    if new:
        return exits.DIFFERS
    return exits.CONFORMS if campaign.ran else exits.NOTHING_RAN
