"""``inputmeta subject``: which subjects there are, and whether an adapter keeps the protocol and its own claims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.commands.options import command_app
from inputmeta.conformance.console import fail, say
from inputmeta.conformance.subjects.base import SubjectError
from inputmeta.conformance.subjects.entry_points import distribution_name, installed
from inputmeta.conformance.subjects.loading import BUNDLED
from inputmeta.conformance.workers.process import Worker
from inputmeta.conformance.workers.target import Target

app = command_app(
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
def check_subject(
    subject: Annotated[str, typer.Option("--subject", "-s", help="what is tested")] = "engine",
    subject_command: Annotated[
        str | None, typer.Option(help="a program that speaks the protocol, instead of --subject")
    ] = None,
    subject_json: Annotated[bool, typer.Option("--subject-json", help="the program speaks lines of JSON")] = False,
    timeout: Annotated[float, typer.Option(min=0.01, help="seconds for one answer")] = 10.0,
    memory_limit: Annotated[int, typer.Option(min=1, help="MiB for the program")] = 8192,
    as_json: JsonOption = False,
) -> None:
    """Test an adapter: does it keep the protocol and what it claims, whatever the values are?

    One line a check: `ok`, `FAILED` with what was found, or `skipped` with the reason. Exit code 1 if one failed.

    Example: `inputmeta subject check --subject-command './my_builder --fast'`
    """
    from inputmeta.conformance.workers.contract import run_checks, sending  # noqa: PLC0415 - brings the oracle's batches along

    if subject_json and subject_command is None:
        raise fail("--subject-json: belongs to --subject-command")
    target = Target(
        subject=subject, command=subject_command, json=subject_json, timeout=timeout, memory_limit=memory_limit
    )

    def start() -> Worker:
        worker = target.start()
        worker.wire = sending(worker.wire)
        return worker

    failed = False
    results = []
    try:
        for result in run_checks(start):
            failed = failed or bool(result.problems)
            results.append(dataclasses.asdict(result))
            if not as_json:
                show(result.name, result.meaning, result.problems, result.skipped, say)
    except SubjectError as error:
        raise fail(str(error), exits.NO_SUBJECT) from error
    if as_json:
        say(json.dumps(results, indent=1))
    raise typer.Exit(exits.DIFFERS if failed else exits.CONFORMS)


def show(name: str, meaning: str, problems: tuple[str, ...], skipped: str | None, write: Callable[[str], None]) -> None:
    """One check as lines of text."""
    state = "FAILED" if problems else "ok" if skipped is None else "skipped"
    note = f" ({skipped})" if skipped is not None else ""
    write(f"{state:8}{name:18}{' '.join(meaning.split())}{note}")
    for problem in problems:
        write(f"        - {problem}")
