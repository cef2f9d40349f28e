"""A run as one HTML page, by a template: no script, nothing from a network, light and dark as the reader's system is.

Everything that stands in it is escaped, and what moves a cursor or reorders text is taken out first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from inputmeta import oracle
from inputmeta.conformance.campaign.judging import reason_of
from inputmeta.conformance.campaign.summary import CaseResult, CoverageTable, Disagreement, Report, Summary
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.report import locate
from inputmeta.conformance.check.verdicts import Finding, Verdict, meaning_of
from inputmeta.conformance.console import readable
from inputmeta.conformance.generate.coverage import CoverageRow
from inputmeta.conformance.report.model import Bars
from inputmeta.conformance.report.picture import Picture, picture_of

MOST_PICTURES = 12
"""Failures that are drawn; of those after them the message stands alone."""
MOST_FAILURES = 100
MOST_RESULTS = 500
MOST_TEXT = 6000
"""Characters of a message."""
COLOURS = 8
"""Of sequences; after them they begin again."""
GOOD = {Verdict.PASS.value, "fields that agree"}


@dataclass(frozen=True)
class Shown:
    """One failure as the page has it."""

    title: str
    signature: str
    facts: tuple[tuple[str, str], ...]
    """What is said of it: name, text."""
    formula: str
    text: str
    """The message of the command line."""
    picture: Picture | None
    undrawn: str = ""
    """Why there is no picture; empty if there is one, or none is wanted."""


def page(summary: Summary) -> str:
    """The page of a run."""
    environment = Environment(
        loader=PackageLoader("inputmeta.conformance.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=plain,
    )
    environment.filters |= {"number": number, "share": share, "colour": colour}
    environment.tests["bars"] = lambda figure: isinstance(figure, Bars)
    failures = summary.failures[:MOST_FAILURES]
    results = [(part.name, result) for part in summary.parts for result in part.results]
    text: str = environment.get_template("page.html.j2").render(
        summary=summary,
        failures=[failure_shown(each, index < MOST_PICTURES) for index, each in enumerate(failures)],
        disagreements=[
            disagreement_shown(each, index < MOST_PICTURES)
            for index, each in enumerate(summary.disagreements[:MOST_FAILURES])
        ],
        results=worst_first(results)[:MOST_RESULTS],
        results_total=len(results),
        coverages=[(part.name, part.coverage, formulas_of(part.coverage)) for part in summary.parts if part.coverage],
        not_claimed=[(part.name, sorted(part.not_claimed.items())) for part in summary.parts if part.not_claimed],
        good=GOOD,
        most_pictures=MOST_PICTURES,
    )
    return text


def plain(value: object) -> object:
    """What is printed: text of others without what is none to be read; markup of the templates as it is."""
    return readable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def number(value: float) -> str:
    """A number to be read.

    >>> number(1234567), number(12.345), number(0.5)
    ('1,234,567', '12.3', '0.5')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def share(value: float, begin: int, end: int) -> str:
    """A place on an axis in hundredths, as style sheets have it.

    >>> share(5, 0, 40), share(0, 0, 0)
    ('12.5%', '0%')
    """
    return f"{min(100.0, max(0.0, 100 * (value - begin) / max(1, end - begin))):.4g}%"


def colour(sequence: int | None) -> str:
    """The class of the colour of a sequence; empty without one."""
    return "" if sequence is None else f"q{sequence % COLOURS}"


def failure_shown(report: Report, is_drawn: bool) -> Shown:
    """A failure with its facts and, if it is to be drawn, its picture."""
    finding = report.finding
    facts = [("what", finding.detail), *(("raised", frame) for frame in finding.frames)]
    facts += finding_facts(finding, report.case)
    follow = ", ".join(dict.fromkeys(other.field or "-" for other in report.follow))
    facts += [("follow from it", follow)] if follow else []
    facts += [(name, text) for name, text in (("label", report.label), ("replay", report.again)) if text]
    picture, undrawn = drawn(report.case if is_drawn else None, finding)
    return Shown(
        title=f"{finding.verdict} {finding.key or finding.code or finding.formula}",
        signature=finding.signature,
        facts=tuple(facts),
        formula=formula_text(finding),
        text=cut(report.text),
        picture=picture,
        undrawn=undrawn,
    )


def disagreement_shown(way: Disagreement, is_drawn: bool) -> Shown:
    """A way in which parties differ, in the same form."""
    facts = [("how often", f"{way.count} of {way.total} answers"), ("where", way.where)]
    facts += [(" = ".join(group), text) for group, text in zip(way.groups, way.says, strict=True)]
    facts += [("again", way.again)] if way.again else []
    picture, undrawn = drawn(way.case if is_drawn else None, way.finding)
    return Shown(
        title=f"{way.name}: {' | '.join(' = '.join(group) for group in way.groups)}",
        signature="",
        facts=tuple(facts),
        formula=formula_text(way.finding),
        text="",
        picture=picture,
        undrawn=undrawn,
    )


def finding_facts(finding: Finding, case: Case | None) -> Iterable[tuple[str, str]]:
    """The field, the cell, what it is and what it should be."""
    if finding.key is not None:
        yield "field", f"{finding.key}: {meaning_of(finding.key)}"
    if finding.cell is not None and finding.key is not None:
        index = f"[{', '.join(map(str, finding.cell.index))}]"
        yield "cell", index if case is None else locate(case, finding.step, finding.key, finding.cell)
        yield "got", str(finding.cell.got)
        yield "want", str(finding.cell.want)
        yield "differ", f"{finding.differing:,} of {finding.compared:,} defined cells"


def formula_text(finding: Finding) -> str:
    """The formula, precondition or promise that a finding speaks of, with its name."""
    text = (oracle.FORMULAS | oracle.PRECONDITIONS | oracle.PROMISES).get(finding.formula)
    return f"{finding.formula}  {text}" if text else ""


def drawn(case: Case | None, finding: Finding) -> tuple[Picture | None, str]:
    """The picture of the step that a finding is on, or why it cannot be drawn: the rest of the page stands."""
    try:
        return (None if case is None else picture_of(case, finding.step, finding)), ""
    except Exception as error:
        return None, f"The case could not be drawn: {reason_of(error)}"


def cut(text: str) -> str:
    """A message, its end left out if it is very long."""
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n… {len(text) - MOST_TEXT:,} characters more"


def worst_first(results: Sequence[tuple[str, CaseResult]]) -> list[tuple[str, CaseResult]]:
    """Cases with what failed before what passed, otherwise in their order."""
    return sorted(results, key=lambda each: each[1].verdict in GOOD)


def formulas_of(coverage: CoverageTable) -> list[tuple[str, list[tuple[str, CoverageRow, bool]]]]:
    """The boundaries of each formula: name, row, whether it is within the claims."""
    every = [(row, True) for row in coverage.rows] + [(row, False) for row in coverage.outside]
    order = {name: place for place, name in enumerate(dict.fromkeys(row.id.partition(":")[0] for row, _ in every))}
    every.sort(key=lambda each: order[each[0].id.partition(":")[0]])
    groups = groupby(every, key=lambda each: each[0].id.partition(":")[0])
    return [(name, [(row.id.partition(":")[2], row, inside) for row, inside in rows]) for name, rows in groups]
