"""The commands around case files: ``oracle``, ``replay``, ``fields``, ``corpus``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from inputmeta import oracle
from inputmeta.conformance import exits
from inputmeta.conformance.campaign.known import KnownFailures
from inputmeta.conformance.campaign.runs import known_text, replay_command
from inputmeta.conformance.cases.corpus import add_case, bundled_corpus, format_corpus, lint_corpus, load_corpus
from inputmeta.conformance.cases.files import CaseError, case_id, load_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import affordable_expansions, field_array, step_request
from inputmeta.conformance.check.report import describe
from inputmeta.conformance.check.runner import Outcome, run_case
from inputmeta.conformance.console import fail, say, stderr
from inputmeta.conformance.workers.target import Target

PRINTED_CELLS = 2**22
"""Largest expansion, in cells, that the command `oracle` prints."""


def print_oracle(path: Path, output: Path, step: int | None) -> int:
    """Write what the oracle expects of one step of a case; returns the exit code.

    Raises:
        CaseError: the file cannot be used, or the step is not there or not said.
    """
    case = load_case(path)
    if step is None and len(case.steps) > 1:
        raise CaseError(f"{path}: has {len(case.steps)} steps; say which with --step")
    if step is not None and step >= len(case.steps):
        raise CaseError(f"{path}: step {step}, but there are {len(case.steps)}")
    request = step_request(case, step or 0)
    broken = request.violations()
    if broken:
        for error in broken:
            fail(f"{path}: {error}")
        return exits.REFUSED
    expand = affordable_expansions(request.config, request.sequences, PRINTED_CELLS)
    request = dataclasses.replace(request, expand=expand)
    for name in sorted(set(oracle.EXPANSIONS) - expand):
        stderr.print(f"{name}: left out, it has more than {PRINTED_CELLS} cells", highlight=False, soft_wrap=True)
    fields = {key: msgspec.to_builtins(field_array(field)) for key, field in request.expected().items()}
    lines = (f" {json.dumps(key)}: {json.dumps(array)}" for key, array in fields.items())
    text = "{\n" + ",\n".join(lines) + "\n}"
    if output == Path("-"):
        say(text)
    else:
        try:
            output.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise CaseError(f"{output}: {error.strerror}") from error
    return exits.CONFORMS


def run_replay(paths: list[Path], target: Target, known: KnownFailures, write: Path | None = None) -> int:
    """Run case files, in order and in one worker, and describe every finding; returns the exit code.

    All files are read before the first is run, so that a bad one costs nothing. ``write``: file for the present
    failures.
    """
    cases = [(path, load_case(path)) for path in paths]
    code = exits.NOTHING_RAN
    failing = set()
    with target.open() as subject:
        for path, case in cases:
            outcome = run_case(case, subject)
            known.saw(case, ran=outcome.ran)
            if outcome.findings:
                failing.add(case_id(case))
            new = tell(outcome, path, case, known, replay_command([path], target))
            if new:
                code = exits.DIFFERS
            elif outcome.ran and code == exits.NOTHING_RAN:
                code = exits.CONFORMS
            if not outcome.ran:
                say(f"UNSUPPORTED {path}: {subject.name} does not claim {', '.join(sorted(outcome.unsupported))}")
            elif not outcome.findings:
                left = f"; not claimed: {', '.join(sorted(outcome.unsupported))}" if outcome.unsupported else ""
                say(f"PASS {path}: {outcome.steps} steps, {len(outcome.keys)} fields, {outcome.cells} cells{left}")
    for entry in known.passing():
        say(known.complaint(entry))
        code = exits.DIFFERS
    if write is not None:
        known.rewritten(failing).save(write)
    return code


def tell(outcome: Outcome, path: Path, case: Case, known: KnownFailures, command: str) -> int:
    """Describe the findings on a case, the known ones in a line; the number of the others."""
    new = 0
    for finding in outcome.findings:
        entry = known.match(finding, case)
        if entry is not None:
            say(f"{known_text(finding.signature, entry)} ({path})")
            continue
        new += 1
        say(describe(finding, case, command))
    return new


def print_fields(paths: frozenset[str], *, as_json: bool) -> None:
    """List the declarations of the fields that exist on one of ``paths``."""
    chosen = [field for field in oracle.FIELDS.values() if paths & frozenset(field.paths)]
    if as_json:
        say(json.dumps([field_facts(field) for field in chosen], indent=1))
        return
    for field in chosen:
        bucket = f".<{field.bucket} ratio>" if field.bucket else ""
        say(f"{field.name}{bucket}  {field.dtype}[{', '.join(field.shape)}]  {field.formula}  {', '.join(field.paths)}")
        say(f"    {field.meaning} Unit: {field.unit}. Defined: {field.defined}.")


def field_facts(field: oracle.Field) -> dict[str, object]:
    """A declaration as JSON values."""
    of = ("name", "formula", "formulas", "paths", "dtype", "rows", "shape", "columns", "bucket", "neutral", "defined")
    return {name: getattr(field, name) for name in (*of, "unit", "meaning")}


corpus_app = typer.Typer(no_args_is_help=True, help="Work on the corpus: cases as JSON files.")
FolderOption = Annotated[
    Path | None, typer.Option("--corpus", help="folder of cases; the installed corpus if left out")
]


@corpus_app.command()
def add(
    cases: Annotated[list[Path], typer.Argument(metavar="CASE…", help="case files to take in")],
    corpus: FolderOption = None,
    title: Annotated[str | None, typer.Option(help="what the case guards; replaces its title")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="formula, precondition or bug class; may be repeated")] = None,
) -> None:
    """Complete cases (id, expectation, layout) and store them in the corpus."""
    try:
        for case in [load_case(path) for path in cases]:
            changes = {"title": title or case.title, "tags": tuple(tag or case.tags)}
            say(str(add_case(msgspec.structs.replace(case, **changes), corpus or bundled_corpus())))
    except CaseError as error:
        raise fail(str(error)) from error


@corpus_app.command()
def lint(corpus: FolderOption = None) -> None:
    """Check files, ids, titles, tags, expectations and layout; one line a problem."""
    try:
        problems = lint_corpus(corpus or bundled_corpus())
    except CaseError as error:
        raise fail(str(error)) from error
    for problem in problems:
        say(problem)
    raise typer.Exit(exits.DIFFERS if problems else exits.CONFORMS)


@corpus_app.command()
def fmt(
    corpus: FolderOption = None,
    check: Annotated[bool, typer.Option("--check", help="change nothing; exit 1 if something would change")] = False,
) -> None:
    """Bring ids, expectations, layout and the schema up to date; prints the files that change."""
    try:
        changed = format_corpus(corpus or bundled_corpus(), check=check)
    except CaseError as error:
        raise fail(str(error)) from error
    for path in changed:
        say(str(path))
    raise typer.Exit(exits.DIFFERS if check and changed else exits.CONFORMS)


@corpus_app.command("list")
def list_cases(
    corpus: FolderOption = None,
    tag: Annotated[str | None, typer.Option(help="only cases with this tag")] = None,
) -> None:
    """List the cases: id, path, tags, title."""
    try:
        for _, case in load_corpus(corpus or bundled_corpus()):
            if tag is None or tag in case.tags:
                say(f"{case.id}  {case.path:10}  {','.join(case.tags):24}  {case.title}")
    except CaseError as error:
        raise fail(str(error)) from error
