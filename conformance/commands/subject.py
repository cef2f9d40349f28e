"""``inputmeta subject``: which subjects there are, and whether an adapter keeps the protocol and its own claims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.commands import options
from inputmeta.conformance.console import conclusion, remark, say
from inputmeta.conformance.subjects.entry_points import distribution_name, installed
from inputmeta.conformance.subjects.loading import BUNDLED
from inputmeta.conformance.workers.process import Worker
from inputmeta.conformance.workers.target import Target

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
    as_json: JsonOption = False,
) -> None:
    """Test an adapter: does it keep the protocol and what it claims, whatever the values are?

    One line a check: `ok`, `FAILED` with what was found, or `skipped` with the reason. Exit code 1 if one failed.

    Example: `inputmeta subject check --subject-command './my_builder --fast'`
    """
    from inputmeta.conformance.workers.contract import run_checks  # noqa: PLC0415 - brings the oracle's batches along
    from inputmeta.conformance.workers.contract_batches import sending  # noqa: PLC0415

    def start() -> Worker:
        worker = target.start()
        worker.wire = sending(worker.wire)
        return worker

    failed = False
    results = []
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


def show(name: str, meaning: str, problems: tuple[str, ...], skipped: str | None, write: Callable[[str], None]) -> None:
    """One check as lines of text."""
    state = "FAILED" if problems else "ok" if skipped is None else "skipped"
    note = f" ({skipped})" if skipped is not None else ""
    write(f"{state:8}{name:18}{' '.join(meaning.split())}{note}")
    for problem in problems:
        write(f"        - {problem}")
