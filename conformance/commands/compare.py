"""The command ``compare``: several subjects and the oracle on the same cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
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
from inputmeta.conformance.cases.files import CaseError
from inputmeta.conformance.cases.model import Case, Origin
from inputmeta.conformance.cases.request import load_wanted, store_case
from inputmeta.conformance.check.report import locate
from inputmeta.conformance.check.verdicts import Cell
from inputmeta.conformance.commands import options
from inputmeta.conformance.console import conclusion, fail, plain_text, progress, quieted, remark, say
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.interrupts import Interrupted, held
from inputmeta.conformance.subjects import Subject
from inputmeta.conformance.version import VERSION
from inputmeta.conformance.workers.target import MEMORY_LIMIT, STARTUP_SECONDS, TIMEOUT, Target

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
    python: Annotated[
        list[str] | None,
        typer.Option(
            "--subject-python",
            metavar="PATH",
            help="the interpreter that every --subject runs in; repeated, that of each in their order, - for this one",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the generated cases")] = 0,
    count: Annotated[int, typer.Option("--cases", min=1, help="how many cases to generate")] = 300,
    save_dir: options.SaveDirOption = options.SAVE_DIR,
    in_process: options.InProcessOption = False,
    timeout: options.TimeoutOption = TIMEOUT,
    memory_limit: options.MemoryOption = MEMORY_LIMIT,
    startup: options.StartupOption = STARTUP_SECONDS,
    valid_only: options.ValidOnlyOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Say who agrees with whom, field by field: the oracle and every subject on the same cases.

    Each answers on buffers of its own. For every field that is not the same everywhere the groups of those that agree
    are listed, with the smallest case of each grouping and the cell that tells them apart. Exit code 1 if anyone
    differs.

    Example: `inputmeta compare --subject engine --subject my_engine.adapter:build --cases 500`
    """
    limits = partial(Target, timeout=timeout, memory_limit=memory_limit, startup=startup, valid_only=valid_only)
    names = subject or []
    pythons = interpreters(names, python or [])
    targets = [limits(name, in_process=in_process, python=where) for name, where in zip(names, pythons, strict=True)]
    targets += [limits("", words, json) for words in command or []]
    if not targets:
        raise fail("nothing to compare: give --subject or --subject-command, once for each")
    with quieted(quiet), options.one_line_errors(), ExitStack() as stack:
        agreement = Agreement(labelled([stack.enter_context(target.open()) for target in targets]))
        stack.enter_context(held())
        run(agreement, cases or [], seed, count)
        conclude(
            agreement,
            again(targets),
            save_dir,
            "compare" if cases else f"compare, seed {seed}",
        )
        if not agreement.compared:
            raise typer.Exit(exits.NOTHING_RAN)
        raise typer.Exit(exits.DIFFERS if agreement.differs else exits.CONFORMS)


def interpreters(subjects: Sequence[str], pythons: Sequence[str]) -> list[str | None]:
    """The interpreter of each subject: one for all of them, or one each, ``-`` for ours; typer.Exit if neither."""
    if len(pythons) > 1 and len(pythons) != len(subjects):
        given = f"given {len(pythons)} times for {len(subjects)} times --subject"
        raise fail(f"--subject-python: {given}; want once, or once for each")
    if pythons and not subjects:
        raise fail("--subject-python: belongs to --subject; a --subject-command is run as it is")
    each = pythons if len(pythons) > 1 else [*pythons] * len(subjects) or ["-"] * len(subjects)
    return [None if name == "-" else name for name in each]


def again(targets: Sequence[Target]) -> str:
    """The options that name the targets; where one has an interpreter of its own, every ``--subject`` has one named."""
    named = any(target.python is not None for target in targets)
    here = {True: " --subject-python -", False: ""}
    return " ".join(
        target.options + here[named and target.command is None and target.python is None] for target in targets
    )


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


def conclude(agreement: Agreement, targets: str, save_dir: Path, found_by: str) -> None:
    """Print who agrees with whom, and for each way in which they do not the smallest case, which is saved."""
    answers = sum(tally.counts.total() for tally in agreement.fields.values())
    told = f"compare {', '.join(agreement.parties)}: {agreement.cases} cases, {answers} answers"
    remark(told)
    for label, steps in agreement.unsupported.items():
        remark(f"{label} does not claim {steps} steps")
    for label, steps in agreement.outside.items():
        remark(f"{label} claims no refusal of {steps} steps that break a precondition")
    for line in pair_lines(agreement):
        remark(line)
    for name, tally in agreement.fields.items():
        if tally.examples:
            say("\n" + "\n".join(field_lines(name, tally, targets, save_dir, found_by)))
    wrong = sum(bool(tally.examples) for tally in agreement.fields.values())
    conclusion(f"{told}, {wrong} of {len(agreement.fields)} fields differ")


def pair_lines(agreement: Agreement) -> Iterator[str]:
    """One line a pair of parties: in how many of the fields they differ."""
    for one, other in combinations(agreement.parties, 2):
        between = {name: tally.between(one, other) for name, tally in agreement.fields.items()}
        answered = between.pop(ANSWER, (0, 0))
        shared = sum(1 for _, both in between.values() if both)
        wrong = sum(1 for differ, _ in between.values() if differ)
        if not shared and not answered[1]:
            yield f"{one}, {other}: nothing that both answered"
            continue
        parts = [f"{wrong} of {shared} fields differ" if wrong else f"{shared} fields agree"]
        parts += [f"{answered[0]} of {answered[1]} batches answered otherwise"] * bool(answered[0])
        yield f"{one} {'|' if wrong or answered[0] else '='} {other}: {', '.join(parts)}"


def grouping(groups: Groups) -> str:
    """``oracle = a | b``."""
    return " | ".join(" = ".join(group) for group in groups)


def field_lines(name: str, tally: Tally, targets: str, save_dir: Path, found_by: str) -> Iterator[str]:
    """One field on which not all agree: how often who did, then the smallest case of each way in which they do not."""
    yield f"{name}  {oracle.FIELDS[name].formula}" if name in oracle.FIELDS else name
    for groups, count in tally.counts.most_common():
        yield f"  {count} of {tally.counts.total()}: {grouping(groups)}"
        if groups in tally.examples:
            example = tally.examples[groups]
            yield from example_lines(groups, example)
            title = plain_text(f"{example.key}: {grouping(groups)}")[:MAX_TITLE]
            origin = Origin(found_by=found_by, version=VERSION)
            try:
                path = store_case(msgspec.structs.replace(example.case, title=title, origin=origin), save_dir)
            except CaseError as error:
                unsaved(error)
                yield "    not saved"
                continue
            yield f"    again  inputmeta compare {path} {targets}"


def example_lines(groups: Groups, example: Example) -> Iterator[str]:
    """What each group says of a batch, or has in the cell that tells them apart."""
    case, step = example.case, example.step
    where = f"step {step} of {len(case.steps)}, " if len(case.steps) > 1 else ""
    if example.index is not None:
        where += f"{example.key}{locate(case, step, example.key, Cell(example.index, 0, 0))}"
    else:
        where += f"{case.path}, sequences: {len(case.steps[step])}"
    yield f"    {where}"
    for group, text in zip(groups, example.says, strict=True):
        yield f"      {' = '.join(group)}: {text}"
