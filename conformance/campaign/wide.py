"""The wide tier as a part of ``fuzz`` and ``check``: its share, what is said of it, how its failures are judged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from inputmeta import oracle
from inputmeta.conformance import exits
from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.campaign.judging import Run, tell
from inputmeta.conformance.campaign.reducing import REDUCER
from inputmeta.conformance.campaign.summary import Part, Report
from inputmeta.conformance.campaign.wide_cases import reduce_batch
from inputmeta.conformance.cases.files import CaseError
from inputmeta.conformance.cases.model import Origin, Path
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.console import notice, remark, say
from inputmeta.conformance.interrupts import Interrupted, noted
from inputmeta.conformance.subjects.base import SubjectError
from inputmeta.conformance.wide.forms import Batch, Claims, Form, draw_batch, forms_of
from inputmeta.conformance.wide.process import Wide, run_wide

SHARE = 0.2
"""Of the seconds of ``fuzz``."""
LEAST_SECONDS = 4.0
"""A shorter share is left out: it would go by in starting processes."""
CHECK_BATCHES, CHECK_SECONDS = 6, 1.0
"""Batches that ``check`` runs to a round of generated cases, and seconds: as many of them as there is time for."""
LEAST_ROUNDS = 5
"""With fewer rounds ``check`` leaves them out."""
TELL_SECONDS = 40.0
"""To reduce what a batch shows and to label it, where nothing else is said."""
REDUCE_SHARE = 0.7
"""Of the time to tell what was found; the rest is for labelling."""
REPLAYS = 2
"""Of a batch that no case stands for."""
UNTESTED = "refusals, neutral tails, a second build, F-EXTRACT"
"""What the wide tier does not test."""


@dataclass(frozen=True)
class Told:
    """What became of the wide tier: its summary, the exit code it asks for, whether any batch was compared."""

    text: str
    code: int = exits.CONFORMS
    ran: bool = False


@dataclass(frozen=True)
class Tier:
    """The wide tier of a run, on some of the paths that the subject claims."""

    run: Run
    paths: tuple[Path, ...]
    seed: int

    @property
    def claims(self) -> Claims:
        """What its batches may be."""
        return Claims(self.run.subject.capabilities, self.paths)

    def test(
        self,
        *,
        first: int = 0,
        count: int | None = None,
        seconds: float | None = None,
        late: float | None = None,
    ) -> Told:
        """Run batches ``first`` …, as :func:`run_wide` has it, and tell what they show.

        ``late``: seconds that telling may add to ``seconds``; None: it takes :data:`TELL_SECONDS` at most.
        """
        forms = forms_of(self.claims)
        if not forms:
            return Told("wide: nothing to draw: no form has the paths and the constants that are claimed")
        limits = [] if count is None else [f"{count} batches" if count > 1 else f"batch {first}"]
        limits += [] if seconds is None else [f"at most {seconds:.3g} s"]
        names = ", ".join(form.name for form in forms)
        remark(f"wide: seed {self.seed}, {', '.join(limits)}; forms: {names}; not tested: {UNTESTED}")
        end = time.monotonic() + (seconds or 0.0)
        wide = self.batches(first, count, seconds)
        text = summary(wide)
        remark(f"{text}\n{forms_text(wide, forms)}")
        self.run.summary.parts.append(part_of(wide, forms))
        code = exits.CONFORMS
        now = time.monotonic()
        self.run.deadline = now + TELL_SECONDS if late is None else max(end, now + late)
        for found in wide.found:
            code = max(code, self.tell(draw_batch(self.claims, self.seed, found.index), found.findings))
        self.run.deadline = None
        if wide.lost is not None:
            notice(f"wide: the subject could not be started: {wide.lost}")
        return Told(text, code, wide.counts.batches > 0 or bool(wide.found))

    def batches(self, first: int, count: int | None, seconds: float | None = None) -> Wide:
        """Run batches to the first one that shows something new."""
        run = self.run
        return run_wide(
            run.target, run.subject, self.paths, self.seed, first=first, count=count, seconds=seconds, ends=self.is_new
        )

    def is_new(self, findings: Sequence[Finding]) -> bool:
        """Whether no entry of the known failures covers some finding; the suite's own failures have none."""
        return any(found.verdict is Verdict.SUITE or not self.run.known.covering(found, None) for found in findings)

    def tell(self, batch: Batch, findings: Sequence[Finding]) -> int:
        """Tell what a batch shows; the exit code.

        A finding that an ordinary case shows too is judged as any other; one that the batch alone shows is told with
        the command that runs it. SUITE accuses no subject.
        """
        code = exits.CONFORMS
        new = []
        for finding in findings:
            if finding.verdict is Verdict.SUITE:
                self.tell_batch(batch, finding, "a fault of the suite: please report it")
                code = exits.TOOL_FAILED
                continue
            entry = self.run.known.match(finding, None, batch.steps[finding.step].config)
            if entry is None:
                new.append(finding)
            else:
                remark(str(self.run.saw_known(finding.signature, entry)))
            self.run.fails(finding.signature)
        if new:
            code = max(code, exits.DIFFERS)
            self.tell_new(batch, new)
        return code

    def tell_new(self, batch: Batch, findings: Sequence[Finding]) -> None:
        """Tell findings on the smallest case that shows them; those that no case shows, or none in time, as a batch."""
        failures: dict[str, Failure] = {}
        alone: list[tuple[Finding, str]] = []
        end = time.monotonic() + REDUCE_SHARE * self.seconds_left()
        for index, finding in enumerate(findings):
            if finding.signature in failures:
                continue
            now = time.monotonic()
            seen, told = self.reduced(batch, finding, now + (end - now) / (len(findings) - index))
            failures |= {failure.finding.signature: failure for failure in reversed(seen)}
            if not seen:
                alone.append((finding, told))
        origin = Origin(found_by="fuzz --wide", seed=batch.seed, minimised_by=REDUCER)
        tell(self.run, list(failures.values()), origin=origin, aside=f"found as wide batch {batch.seed}:{batch.index}")
        for finding, told in alone:
            label = self.label(batch, finding) + f"; {told}" * bool(told)
            self.tell_batch(batch, finding, label)

    def tell_batch(self, batch: Batch, finding: Finding, label: str) -> None:
        """Tell a finding of which no case is kept."""
        again = self.command(batch)
        text = wide_text(finding, batch, again, label)
        self.run.summary.failures.append(Report(finding, (), text, label=label, again=again))
        say(f"\n{text}")

    def reduced(self, batch: Batch, finding: Finding, deadline: float) -> tuple[list[Failure], str]:
        """As :func:`reduce_batch`; nothing once the run is to end, or if the subject does not come up again."""
        if noted() is not None or time.monotonic() >= deadline:
            return [], "not reduced: time was up"
        try:
            return reduce_batch(self.run.session, batch, finding, deadline, is_known=self.run.is_known)
        except (Interrupted, CaseError, SubjectError) as error:  # what was found is told all the same
            return [], f"not reduced: {error}"

    def seconds_left(self) -> float:
        """Until what was found is to be told."""
        return TELL_SECONDS if self.run.deadline is None else self.run.deadline - time.monotonic()

    def command(self, batch: Batch) -> str:
        """The command that runs a batch alone."""
        claimed = tuple(path for path in oracle.PATHS if path in self.run.subject.capabilities.paths)
        options = [self.run.target.options, *(f"--path {path}" for path in self.paths if self.paths != claimed)]
        return " ".join([f"inputmeta fuzz --wide {batch.seed}:{batch.index}", *options])

    def label(self, batch: Batch, finding: Finding) -> str:
        """How often the signature comes back when the batch alone is run again, in fresh workers."""
        count = 0
        for _ in range(REPLAYS):
            if noted() is not None:
                return "not replayed: the run was to end"
            wide = self.batches(batch.index, 1)
            count += any(each.signature == finding.signature for found in wide.found for each in found.findings)
        where = "in this process" if self.run.session.isolated is None else "in fresh workers"
        return f"{'deterministic' if count == REPLAYS else 'not deterministic'}: {count} of {REPLAYS} {where}"


def tier_of(run: Run, paths: Sequence[str], seed: int) -> Tier:
    """The wide tier on those of the paths that the subject claims."""
    return Tier(run, tuple(path for path in oracle.PATHS if path in paths), seed)


def part_of(wide: Wide, forms: Sequence[Form]) -> Part:
    """The wide tier as a part of a run."""
    counts = wide.counts
    failed = Counter(found.findings[0].verdict.value for found in wide.found)
    return Part(
        "wide",
        counts.batches,
        "batches",
        {"PASS": max(0, counts.batches - len(wide.found)), **failed},
        counts.cells,
        wide.seconds,
        wide.seed,
        (summary(wide), forms_text(wide, forms)),
    )


def summary(wide: Wide) -> str:
    """One line: counts and speed, then what was not compared."""
    counts = wide.counts
    speed = counts.sequences / wide.seconds if wide.seconds else 0.0
    where = f"{wide.workers} process" + "es" * (wide.workers > 1)
    text = (
        f"wide: {counts.batches} batches, {counts.sequences} sequences ({speed:,.0f}/s, {where}), {counts.cells} cells "
    )
    text += f"compared, {counts.audited} batches audited by the oracle, {len(wide.found)} failed"
    if counts.unsupported:
        text += f"; {counts.unsupported} beyond the subject or a limit"
    if wide.late:
        text += f"; {wide.late} without an answer in time, which says nothing of the subject"
    return text


def forms_text(wide: Wide, forms: Sequence[Form]) -> str:
    """One line: how many batches of each form were compared, and the forms of which none was."""
    ran = ", ".join(f"{form.name} {wide.forms[form.name]}" for form in forms if wide.forms[form.name])
    missing = ", ".join(form.name for form in forms if not wide.forms[form.name])
    return f"wide forms: {ran or 'none'}" + f"; not visited: {missing}" * bool(missing)


def wide_text(finding: Finding, batch: Batch, again: str, label: str) -> str:
    """The message of a finding whose batch is no case file."""
    sizes = ", ".join(
        f"{len(request.sequences)} sequences of {sum(each.seqlen_q for each in request.sequences)} rows"
        for request in batch.steps
    )
    lines = [f"{finding.signature}: {finding.detail}"]
    if finding.cell is not None:
        place = ", ".join(map(str, finding.cell.index))
        lines.append(f"  cell     [{place}] of {finding.key}: got {finding.cell.got}, want {finding.cell.want}")
    lines.append(f"  batch    {batch.index} of seed {batch.seed}, {batch.form}, {batch.steps[0].path}: {sizes}")
    lines += [f"  label    {label}", f"  replay   {again}"]
    return "\n".join(lines)
