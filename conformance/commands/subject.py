"""``inputmeta subject``: which subjects there are, and whether an adapter keeps the protocol and its own claims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.commands import options
from inputmeta.conformance.console import conclusion, fail, remark, say
from inputmeta.conformance.subjects.entry_points import distribution_name, installed
from inputmeta.conformance.subjects.frames import error_text
from inputmeta.conformance.subjects.loading import BUNDLED, attribute_of
from inputmeta.conformance.workers.process import Worker
from inputmeta.conformance.workers.target import Target

if TYPE_CHECKING:
    from inputmeta.conformance.dialects import Dialect

app = options.command_app(
    help="""List subjects, and test an adapter before it is tested itself.

A subject is `engine`, `oracle` or `reference` (bundled), `mutant:NAME` (wrong on purpose, in one way),
`package.module:name`, the name of an entry point in the group `inputmeta.subjects`, or any program
(`--subject-command`).
`PROTOCOL.md` in the package is the contract; its `examples` holds one of each to copy."""
)
JsonOption = Annotated[bool, typer.Option("--json", help="as JSON")]


@app.command("list")
def list_subjects(as_json: JsonOption = False) -> None:
    """List the subjects with a name of their own: bundled ones and installed entry points. Nothing is imported.

    Example: `inputmeta subject list --json`
    """
    rows = [{"name": name, "value": value, "from": "inputmeta"} for name, value in BUNDLED.items()]
    rows += [{"name": p.name, "value": p.value, "from": distribution_name(p)} for p in installed()]
    if as_json:
        say(json.dumps(rows, indent=1))
        return
    widths = [max(len(row[column]) for row in rows) for column in ("name", "value")]
    for row in rows:
        say(f"{row['name']:{widths[0]}}  {row['value']:{widths[1]}}  {row['from']}")


@app.command("check")
@options.with_target(without=["in_process"])
def check_subject(
    target: Target,
    robust: Annotated[
        bool, typer.Option("--robust", help="also send messages that are not valid: it must answer and go on")
    ] = False,
    dialect: Annotated[
        str | None,
        typer.Option("--dialect", metavar="NAME[,NAME]", help="instead: do these dialects hide a fault?"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Test an adapter: does it keep the protocol and what it claims, whatever the values are?

    One line a check: `ok`, `FAILED` with what was found, or `skipped` with the reason. Exit code 1 if one failed.

    With `--dialect`: faults of every class, in the fields that the adapter claims, are put in the engine's form and
    translated back. One line a class: how many were seen, and how many are declared invisible. Exit code 1 if one is
    hidden, 4 if there was none to see. `package.module:NAME` is a dialect of the adapter's own.

    Example: `inputmeta subject check --subject-command './my_builder --fast'`
    """
    if dialect is not None:
        raise typer.Exit(tell_dialects(target, dialect.split(","), as_json=as_json))
    from inputmeta.conformance.workers.contract import run_checks  # noqa: PLC0415 - brings the oracle's batches along
    from inputmeta.conformance.workers.contract_batches import sending  # noqa: PLC0415

    failed = False
    results = []
    with target.starting() as start_worker:

        def start() -> Worker:
            worker = start_worker()
            worker.wire = sending(worker.wire)
            return worker

        for result in run_checks(start, robust=robust, valid_only=target.valid_only):
            failed = failed or bool(result.problems)
            results.append(dataclasses.asdict(result))
            if not as_json:
                write = say if result.problems else remark
                show(result.name, result.meaning, result.problems, result.skipped, write)
    if as_json:
        say(json.dumps(results, indent=1))
    else:
        wrong = sum(bool(result["problems"]) for result in results)
        left = sum(result["skipped"] is not None for result in results)
        conclusion(f"{len(results)} checks: {len(results) - wrong - left} passed, {wrong} failed, {left} skipped")
    raise typer.Exit(exits.DIFFERS if failed else exits.CONFORMS)


def tell_dialects(target: Target, names: list[str], *, as_json: bool) -> int:
    """What the faults of every class come to under dialects; returns the exit code."""
    from inputmeta.conformance.mutants.dialect_check import check_dialects  # noqa: PLC0415 - brings every mutant along

    dialects = named_dialects(names)
    with target.open() as tested:
        claims, name = tested.capabilities, tested.name
    report = check_dialects(dialects, claims)
    if as_json:
        say(json.dumps(dataclasses.asdict(report), indent=1))
        return exits.DIFFERS if report.hidden else exits.CONFORMS if report.lines else exits.NOTHING_RAN
    for each in dialects:
        remark(f"{each.name}: {each.says}" + (f"; {each.no_inverse}" if each.no_inverse else ""))
    for line in report.lines:
        state = f"{line.seen} seen, {line.invisible} declared invisible, {line.hidden} hidden"
        remark(f"{line.kind:14}{line.faults:4} faults on {line.applied:6} batches: {state}")
    for what, told in (("invisible", report.invisible), ("invisible on some batches", report.partly)):
        for reason, faults in told.items():
            remark(f"declared {what} ({reason}): {', '.join(faults)}")
    if report.without_form:
        remark(f"without a form in the dialect, so not put to it: {', '.join(report.without_form)}")
    for text in report.hidden:
        say(f"HIDDEN {text}")
    total = sum(line.faults for line in report.lines)
    seen, invisible = (sum(getattr(line, what) for line in report.lines) for what in ("seen", "invisible"))
    counted = f"{total} faults: {seen} seen, {invisible} declared invisible, {len(report.hidden)} hidden"
    concluded = f"{name} under {', '.join(each.name for each in dialects)}: {counted}"
    remark(concluded)
    conclusion(concluded)
    if not total:
        say(f"nothing was checked: no fault is in a field that {name} claims and a dialect touches")
    return exits.DIFFERS if report.hidden else exits.CONFORMS if total else exits.NOTHING_RAN


def named_dialects(names: list[str]) -> tuple[Dialect, ...]:
    """The dialects with these names; behind them, next to the engine, an adapter's own: ``package.module:NAME``."""
    from inputmeta.conformance.dialects import Dialect, UnknownDialectError, dialects_of  # noqa: PLC0415 - rarely needed

    try:
        known = dialects_of([name for name in names if ":" not in name])
    except UnknownDialectError as error:
        raise fail(f"--dialect: {error}") from error
    own = []
    for place in (name for name in names if ":" in name):
        try:
            found = attribute_of(place)
        except Exception as error:  # importing a stranger's module may raise anything
            raise fail(f"--dialect: {place}: {error_text(error)}", exits.NO_SUBJECT) from error
        if not isinstance(found, Dialect):
            raise fail(f"--dialect: {place} is {type(found).__name__}, not inputmeta.conformance.dialects.Dialect")
        own.append(found)
    return (*known, *own)


def show(name: str, meaning: str, problems: tuple[str, ...], skipped: str | None, write: Callable[[str], None]) -> None:
    """One check as lines of text."""
    state = "FAILED" if problems else "ok" if skipped is None else "skipped"
    note = f" ({skipped})" if skipped is not None else ""
    write(f"{state:8}{name:18}{' '.join(meaning.split())}{note}")
    for problem in problems:
        write(f"        - {problem}")
