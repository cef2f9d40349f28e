"""The command ``inputmeta``. The help text is the contract.

A command is a module of this package with an ``app``, imported when it is called: the help of all imports none.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from inputmeta.conformance import exits
from inputmeta.conformance.console import fail, notice, say
from inputmeta.conformance.version import VERSION

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
COMMANDS = {
    "fuzz": "Generate batches until the time is up or the subject differs from the oracle.",
    "check": "Run the corpus, then generated cases: the same ones for the same seed.",
    "replay": "Run case files, in order and in one worker, and describe every difference.",
    "reduce": "Make failing cases smaller until no single step further fails, and say from which sizes on they fail.",
    "compare": "Say who agrees with whom, field by field: the oracle and every subject on the same cases.",
    "trace": "Replay a request trace through a continuous-batching scheduler, every step checked against the oracle.",
    "explain": "Say how one cell comes about: formulas in symbols, then numbers, down to the inputs.",
    "oracle": "Print every expected field of a case as JSON.",
    "show": "Draw a case: sequences, block tables, rings, key ranges, ranks, and what a subject has wrong of it.",
    "fields": "List the declared fields: name, formula, dtype, shape, paths, where they are defined.",
    "subject": "List subjects, and test an adapter before it is tested itself.",
    "engines": "List public engines, and get them to be judged.",
    "corpus": "Work on the corpus: cases as JSON files.",
}
"""Every command, in the order of the help, and what it does."""


_Context: Any = TyperGroup.context_class
"""Of the click that typer brings along: its types have no public name."""
_UNBREAKABLE = "\u2011"


class WholeWords(_Context.formatter_class):  # type: ignore[misc]
    """Help whose lines end at spaces alone: no name of an option is broken at a hyphen."""

    def write_text(self, text: str) -> None:
        """A paragraph."""
        super().write_text(text.replace("-", _UNBREAKABLE))

    def write_dl(self, rows: Any, *args: Any, **options: Any) -> None:
        """A list of names and what they mean."""
        kept = [tuple(text.replace("-", _UNBREAKABLE) for text in row) for row in rows]
        super().write_dl(kept, *args, **options)

    def getvalue(self) -> str:
        """All of it."""
        return str(super().getvalue()).replace(_UNBREAKABLE, "-")


class HelpContext(_Context):  # type: ignore[misc]
    """The context of every command."""

    formatter_class = WholeWords


class Commands(TyperGroup):
    """The commands of :data:`COMMANDS`, each imported when it is called."""

    context_class = HelpContext
    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; while they are listed, its name and what it does."""
        if cmd_name not in COMMANDS:
            return None
        if self._listing:
            return TyperCommand(cmd_name, short_help=COMMANDS[cmd_name])
        module = importlib.import_module(f"inputmeta.conformance.commands.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        command.context_class = HelpContext
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of all, without importing any."""
        with self._listed():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """What a shell offers for the name of a command, without importing any."""
        with self._listed():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listed(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False


def defaults(values: dict[str, Any], command: Any) -> dict[str, Any]:
    """What the settings say of a command's options, by parameter; of a group's commands each their own."""
    if isinstance(command, TyperGroup):
        return {name: defaults(values, part) for name, part in command.commands.items()}
    found: dict[str, Any] = {}
    for parameter in command.params:
        names = [name.removeprefix("--") for name in parameter.opts if name.startswith("--")]
        # `compare` has several subjects, and names them itself.
        if parameter.name != "subject" or not parameter.multiple:
            found.update((str(parameter.name), values[name]) for name in names if name in values)
    return found


def use_settings(context: Any, case_budget: float) -> None:
    """Make the settings of the repository the defaults of the command that is called."""
    from inputmeta.conformance import settings  # noqa: PLC0415 - the help of all imports nothing

    try:
        file = settings.find(Path.cwd())
        if file is None:
            return
        found = settings.load(file)
    except settings.SettingsError as error:
        raise fail(str(error)) from error
    if found.case_budget is not None and case_budget == 1:
        allow_cases(found.case_budget)
    name = context.invoked_subcommand
    command = context.command.get_command(context, name)
    context.default_map = {name: defaults(settings.of_command(found, name), command)}


app = typer.Typer(
    name="inputmeta",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # its panels break words and cut names at 80 columns
    pretty_exceptions_enable=False,
)


def print_version(asked: bool) -> None:
    """End with the version, if that was asked for."""
    if asked:
        say(f"inputmeta {VERSION}")
        raise typer.Exit


def allow_cases(factor: float) -> None:
    """Set what a case may cost, if that was asked for."""
    if factor != 1:
        from inputmeta.conformance.cases import budget  # noqa: PLC0415 - the help of all imports nothing

        try:
            budget.allow(factor)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error


@app.callback(
    context_settings=HELP_NAMES,
    help=f"""Differential conformance tests for the input metadata of LLM inference engines.

A subject builds the integer tensors of a batch; the oracle says what every defined cell must be. Subjects: `engine`
(the bundled C++ engine), `engine-cuda` (the same on a GPU), `oracle` itself, `reference` (the
formulas again, in numpy), `mutant:NAME` (wrong in one known way), `package.module:name`, an installed entry point, or
any program that speaks the protocol (`--subject-command`).

A subject runs in a worker process that may crash, hang or grow without harm: it is killed and replaced, and what it did
is the verdict. Every case is in a journal in `--save-dir` before it is handed over; what a killed run leaves there is
saved as case files by the next.

Exit codes:

\b
{exits.EXPLANATION}""",
)
def inputmeta(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=print_version)
    ] = False,
    case_budget: Annotated[
        float,
        typer.Option(
            help="what a case may cost (cells, steps, sequences, seconds), so many times; over it, it is refused",
            callback=allow_cases,
        ),
    ] = 1,
) -> None:
    """The options of the command itself, and the settings of the repository."""
    use_settings(context, case_budget)


def main() -> None:
    """Entry point of the command; a failure of its own is told from one of the subject by its exit code."""
    try:
        app()
    except (MemoryError, exits.OutOfMemory) as error:
        notice(str(error) if isinstance(error, exits.OutOfMemory) else "out of memory")
        sys.exit(exits.TOOL_FAILED)
    except OSError as error:
        notice(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        sys.exit(exits.code_for(error))
