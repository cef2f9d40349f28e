"""The command ``compare``: several subjects and the oracle on the same cases."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from inputmeta import oracle
from inputmeta.conformance import exits
from inputmeta.conformance.campaign.agreement import ANSWER, ORACLE, Agreement, Example, Groups, Tally
from inputmeta.conformance.campaign.generated import claimed_paths, for_each_case, profile_for
from inputmeta.conformance.campaign.judging import unsaved
from inputmeta.conformance.campaign.summary import Disagreement, Pair, Part, Summary
from inputmeta.conformance.cases.files import CaseError
from inputmeta.conformance.cases.model import Case, Origin
from inputmeta.conformance.cases.request import load_wanted, store_case
from inputmeta.conformance.check.report import locate
from inputmeta.conformance.check.verdicts import Cell, Finding, Verdict
from inputmeta.conformance.commands import options
from inputmeta.conformance.commands.reports import reported
from inputmeta.conformance.console import conclusion, fail, plain_text, progress, quieted, remark, say
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.interrupts import Interrupted, held
from inputmeta.conformance.subjects import Subject
from inputmeta.conformance.version import VERSION
from inputmeta.conformance.workers.target import MEMORY_LIMIT, TIMEOUT, Target

MAX_TITLE = 4000
"""Characters of a case's title."""


app = options.command_app()


@app.command()
def compare(
    cases: Annotated[list[Path] | None, typer.Argument(metavar="CASE…", help="case files; generated if none")] = None,
    subject: Annotated[list[str] | None, typer.Option("--subject", "-s", help="what is compared; repeat it")] = None,
    command: Annotated[
        list[str] | None, typer.Option("--subject-command", help="a program that speaks the protocol; may be repeated")
    ] = None,
    json: options.JsonOption = False,
    seed: Annotated[int, typer.Option(min=0, help="of the generated cases")] = 0,
    count: Annotated[int, typer.Option("--cases", min=1, help="how many cases to generate")] = 300,
    save_dir: options.SaveDirOption = options.SAVE_DIR,
    in_process: options.InProcessOption = False,
    timeout: options.TimeoutOption = TIMEOUT,
    memory_limit: options.MemoryOption = MEMORY_LIMIT,
    valid_only: options.ValidOnlyOption = False,
    html: options.HtmlOption = None,
    quiet: options.QuietOption = False,
) -> None:
    """Say who agrees with whom, field by field: the oracle and every subject on the same cases.

    Each answers on buffers of its own. For every field that is not the same everywhere the groups of those that agree
    are listed, with the smallest case of each grouping and the cell that tells them apart. Exit code 1 if anyone
    differs.

    Example: `inputmeta compare --subject engine --subject my_engine.adapter:build --cases 500`
    """
    limits = (timeout, memory_limit, valid_only)
    targets = [Target(name, None, False, in_process, *limits) for name in subject or []]
    targets += [Target("", words, json, False, *limits) for words in command or []]
    if not targets:
        raise fail("nothing to compare: give --subject or --subject-command, once for each")
    with quieted(quiet), options.one_line_errors(), ExitStack() as stack:
        agreement = Agreement(labelled([stack.enter_context(target.open()) for target in targets]))
        stack.enter_context(held())
        summary = Summary(subjects=tuple(agreement.parties), options=" ".join(target.options for target in targets))
        with reported(summary, "compare", html=html):
            began = time.monotonic()
            run(agreement, cases or [], seed, count)
            summary.parts.append(part_of(agreement, None if cases else seed, time.monotonic() - began))
            conclude(agreement, summary, save_dir, "compare" if cases else f"compare, seed {seed}")
            differs = exits.DIFFERS if agreement.differs else exits.CONFORMS
            summary.code = differs if agreement.compared else exits.NOTHING_RAN
        raise typer.Exit(summary.code)


def labelled(subjects: Sequence[Subject]) -> dict[str, Subject]:
    """The subjects by name; a name that is taken gets a number."""
    found: dict[str, Subject] = {}
    for subject in subjects:
        label, number = subject.name, 2
        while label == ORACLE or label in found:
            label, number = f"{subject.name}#{number}", number + 1
        found[label] = subject
    return found


def run(agreement: Agreement, files: Sequence[Path], seed: int, count: int) -> None:
    """Run the files, all read before the first is run; or generated cases within what any of the subjects claims."""
    loaded = [load_wanted(file) for file in files]
    if loaded:
        with suppress(Interrupted):
            for case in loaded:
                agreement.run(case)
        return
    profiles = [
        profile_for(subject, paths) for subject in agreement.subjects.values() if (paths := claimed_paths(subject))
    ]
    shares = spanned(profiles)
    with progress(count) as bar:
        task = bar.task_ids[0]

        def use(case: Case) -> None:
            agreement.run(case)
            bar.update(task, completed=agreement.cases, description=f"comparing {agreement.cases} cases")

        with suppress(Interrupted):
            for number, profile in enumerate(shares):
                for_each_case(profile, seed, len(range(number, count, len(shares))), use)


def spanned(profiles: Sequence[Profile]) -> list[Profile]:
    """What the profiles of subjects with the same conditions and sizes span together, one for each of these."""
    groups: dict[tuple[object, ...], list[Profile]] = {}
    for each in profiles:
        key = (each.conditions, each.max_total_q, each.max_num_reqs, each.max_table_columns)
        groups.setdefault(key if each.limited else (), []).append(each)
    return [
        replace(
            group[0],
            paths=tuple({path: None for p in group for path in p.paths}),
            max_cp_size=max(p.max_cp_size for p in group),
            yoco_modes=tuple({mode: None for p in group for mode in p.yoco_modes}),
            refusals=tuple({name: None for p in group for name in p.refusals}),
            invalid=Profile.invalid,
            varlen=True,
            read_only=True,
        )
        for group in groups.values()
    ]


def part_of(agreement: Agreement, seed: int | None, seconds: float) -> Part:
    """All cases as a part of a run."""
    notes = [f"{label} does not claim {steps} steps" for label, steps in agreement.unsupported.items()]
    notes += [
        f"{label} claims no refusal of {steps} steps that break a precondition"
        for label, steps in agreement.outside.items()
    ]
    answers = sum(tally.counts.total() for tally in agreement.fields.values())
    wrong = sum(bool(tally.examples) for tally in agreement.fields.values())
    verdicts = {"fields that agree": len(agreement.fields) - wrong, "fields that differ": wrong}
    told = f"{agreement.cases} cases, {answers} answers"
    return Part("compared", agreement.cases, "cases", verdicts, 0, seconds, seed, (told, *notes))


def conclude(agreement: Agreement, summary: Summary, save_dir: Path, found_by: str) -> None:
    """Print who agrees with whom, and for each way in which they do not the smallest case, which is saved."""
    counted, *notes = summary.parts[-1].notes
    told = f"compare {', '.join(agreement.parties)}: {counted}"
    remark(told)
    for note in notes:
        remark(note)
    summary.pairs += pairs_of(agreement)
    for pair in summary.pairs:
        remark(pair_line(pair))
    for name, tally in agreement.fields.items():
        if tally.examples:
            found = list(disagreements(name, tally, summary.options, save_dir, found_by))
            summary.disagreements += found
            say("\n" + "\n".join(field_lines(name, tally, found)))
    wrong = sum(bool(tally.examples) for tally in agreement.fields.values())
    conclusion(f"{told}, {wrong} of {len(agreement.fields)} fields differ")


def pairs_of(agreement: Agreement) -> Iterator[Pair]:
    """Each two parties: in how many of the fields they differ."""
    for one, other in combinations(agreement.parties, 2):
        between = {name: tally.between(one, other) for name, tally in agreement.fields.items()}
        answered = between.pop(ANSWER, (0, 0))
        shared = sum(1 for _, both in between.values() if both)
        wrong = sum(1 for differ, _ in between.values() if differ)
        yield Pair(one, other, wrong, shared, *answered)


def pair_line(pair: Pair) -> str:
    """One line on two parties."""
    if not pair.fields and not pair.batches:
        return f"{pair.one}, {pair.other}: nothing that both answered"
    differs = bool(pair.differ or pair.answered_otherwise)
    parts = [f"{pair.differ} of {pair.fields} fields differ" if pair.differ else f"{pair.fields} fields agree"]
    parts += [f"{pair.answered_otherwise} of {pair.batches} batches answered otherwise"] * bool(pair.answered_otherwise)
    return f"{pair.one} {'|' if differs else '='} {pair.other}: {', '.join(parts)}"


def grouping(groups: Groups) -> str:
    """``oracle = a | b``."""
    return " | ".join(" = ".join(group) for group in groups)


def disagreements(name: str, tally: Tally, targets: str, save_dir: Path, found_by: str) -> Iterator[Disagreement]:
    """Each way in which parties differ on a field, the most frequent first, its smallest case saved."""
    for groups, count in tally.counts.most_common():
        if groups not in tally.examples:
            continue
        example = tally.examples[groups]
        title = plain_text(f"{example.key}: {grouping(groups)}")[:MAX_TITLE]
        case = msgspec.structs.replace(example.case, title=title, origin=Origin(found_by=found_by, version=VERSION))
        try:
            again = f"inputmeta compare {store_case(case, save_dir)} {targets}"
        except CaseError as error:
            unsaved(error)
            again = ""
        yield Disagreement(
            name,
            groups,
            example.says,
            count,
            tally.counts.total(),
            place_of(example),
            case,
            finding_of(example),
            again,
        )


def field_lines(name: str, tally: Tally, found: Sequence[Disagreement]) -> Iterator[str]:
    """One field on which not all agree: how often who did, then the smallest case of each way in which they do not."""
    yield f"{name}  {oracle.FIELDS[name].formula}" if name in oracle.FIELDS else name
    ways = {way.groups: way for way in found}
    for groups, count in tally.counts.most_common():
        yield f"  {count} of {tally.counts.total()}: {grouping(groups)}"
        if groups in ways:
            way = ways[groups]
            yield f"    {way.where}"
            yield from (f"      {' = '.join(group)}: {text}" for group, text in zip(groups, way.says, strict=True))
            yield f"    again  {way.again}" if way.again else "    not saved"


def place_of(example: Example) -> str:
    """The cell that tells the groups apart, or the batch, in words."""
    case, step = example.case, example.step
    where = f"step {step} of {len(case.steps)}, " if len(case.steps) > 1 else ""
    if example.index is not None:
        return where + f"{example.key}{locate(case, step, example.key, Cell(example.index, 0, 0))}"
    return where + f"{case.path}, sequences: {len(case.steps[step])}"


def finding_of(example: Example) -> Finding:
    """What differs, as a finding: it says what is drawn."""
    if example.differs is not None:
        return example.differs.on_path(example.case.path)
    key = None if example.key == ANSWER else example.key
    return Finding(Verdict.MISMATCH, example.step, key, "-", example.says[1], path=example.case.path)
