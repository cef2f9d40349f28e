"""Pages for the tests: what a run came to, made by hand or by judging cases."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.judging import Run, run_cases
from inputmeta.conformance.campaign.known_file import KnownFailure
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.campaign.summary import CoverageTable, Known, Part, Report, Summary
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.console import quieted
from inputmeta.conformance.generate.coverage import Coverage
from inputmeta.conformance.subjects import load_subject
from inputmeta.conformance.workers.target import Target

VOID = {"meta", "link", "br", "img", "input"}
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202eevil\x1b[31m{{ 7 * 7 }}'
"""What a subject, a file or a message may be called."""


def judged(cases: list[tuple[Case, str]], folder: Path) -> Summary:
    """The summary of replaying cases, each on a wrong subject."""
    whole = Summary(command="replay", subjects=tuple(mutant for _, mutant in cases))
    for case, mutant in cases:
        subject = load_subject(f"mutant:{mutant}")
        run = Run(Session(subject), Target(f"mutant:{mutant}", in_process=True), folder, summary=Summary())
        with quieted():
            run_cases(run, [(folder / "case.json", case)], examine=False)
        whole.parts += run.summary.parts
        whole.failures += run.summary.failures
    whole.close(exits.DIFFERS)
    return whole


def hostile() -> Summary:
    """A run in which every text is hostile."""
    finding = Finding(Verdict.CRASH, 0, None, "-", HOSTILE, code="raised", frames=(HOSTILE,), path="prompt")
    entry = KnownFailure("CRASH:prompt:-:-:raised", HOSTILE, HOSTILE)
    coverage = Coverage()
    coverage.add(["F-RING:wrapped"])
    table = CoverageTable(tuple(coverage.rows()[:40]), tuple(coverage.rows()[40:50]), HOSTILE)
    part = Part(HOSTILE, 3, "cases", {"PASS": 1, HOSTILE: 2}, 4, 5.0, 6, (HOSTILE,), {HOSTILE: 7}, table)
    whole = Summary("check", (HOSTILE,), HOSTILE, parts=[part], complaints=[HOSTILE])
    whole.failures += [Report(finding, (Path(HOSTILE),), HOSTILE, None, HOSTILE, HOSTILE, (finding,))]
    whole.known += [Known(HOSTILE, entry)]
    whole.close(exits.DIFFERS, HOSTILE)
    return whole


class Parsed(HTMLParser):
    """The elements of a page, their nesting, and every address in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name in {"href", "src", "srcset", "action", "data", "poster", "formaction", "xlink:href"}:
                self.addresses.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        self.text += data
