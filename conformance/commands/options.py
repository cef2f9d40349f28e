"""Options that several commands share, declared once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.known import KnownFailures, KnownFailuresError
from inputmeta.conformance.cases.files import CaseError, check_folder, check_output
from inputmeta.conformance.cases.request import WantsError
from inputmeta.conformance.check.verdicts import NO_FAILURES, Verdict
from inputmeta.conformance.commands.main import HELP_NAMES, HelpContext
from inputmeta.conformance.console import coloured, fail, notice, quieted
from inputmeta.conformance.generate import NothingToDrawError
from inputmeta.conformance.interrupts import Interrupted, noted, watched
from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.workers import target
from inputmeta.conformance.workers.target import Target


def checked(check: Callable[[Path], None]) -> Callable[[Path | None], Path | None]:
    """Callback of an option that names what will be written: what cannot be used is said before anything is run."""

    def run(path: Path | None) -> Path | None:
        if path is not None:
            with one_line_errors():
                check(path)
        return path

    return run


class ConstructionPath(StrEnum):
    """The paths by which metadata is built, as choices of the command line."""

    PROMPT = "prompt"
    DECODE = "decode"
    DECODE_ZOS = "decode_zos"


PathOption = Annotated[
    list[ConstructionPath] | None,
    typer.Option("--path", "-p", help="construction path; may be repeated; all that the subject claims if left out"),
]
SubjectOption = Annotated[str | None, typer.Option("--subject", "-s", help="what is tested; engine if left out")]
CommandOption = Annotated[
    str | None,
    typer.Option("--subject-command", help="a program that speaks the protocol, instead of --subject"),
]
PythonOption = Annotated[
    str | None,
    typer.Option("--subject-python", metavar="PATH", help="the interpreter that a --subject runs in; this one without"),
]
JsonOption = Annotated[bool, typer.Option("--subject-json", help="the program speaks lines of JSON")]
InProcessOption = Annotated[
    bool, typer.Option("--in-process/--isolated", help="run a --subject in this process, or in a worker")
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.01, help="seconds a worker has for a batch")]
MemoryOption = Annotated[int, typer.Option("--memory-limit", min=1, help="MiB a worker may have resident")]
ValidOnlyOption = Annotated[
    bool, typer.Option("--valid-only", help="leave out whatever breaks a precondition: no refusal is asked for")
]


def check_known_target(file: Path) -> None:
    """Whether known failures can be written there: nothing, or known failures. Raises CaseError, KnownFailuresError."""
    check_output(file)
    if file.exists():
        KnownFailures.load(file)


KnownOption = Annotated[
    Path | None,
    typer.Option("--known-failures", metavar="FILE", help="a TOML file of known failures, or old lines of text"),
]
WriteKnownOption = Annotated[
    Path | None,
    typer.Option(
        "--write-known-failures",
        metavar="FILE",
        help="write the present failures as TOML; reasons and issues that stand in the file stay",
        callback=checked(check_known_target),
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="write a report to look at: one page, no network", callback=checked(check_output)
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="say nothing but failures and a last line")]
SaveDirOption = Annotated[
    Path, typer.Option(help="where failing cases and the journal are", callback=checked(check_folder))
]

SAVE_DIR = Path("inputmeta-failures")

_WRONG = "|".join(verdict for verdict in Verdict if verdict not in NO_FAILURES)
VERDICT_STYLES = {
    rf"(?m)^(?:{_WRONG})(?=:)|^FAILED\b": "bold red",
    rf"\b(?:{_WRONG}) [1-9]\d*|\b[1-9]\d* failed\b": "red",
    r"(?m)^PASS\b|^ok\b|\bPASS [1-9]\d*|\b[1-9]\d* passed\b": "green",
    r"(?m)^(?:KNOWN|UNSUPPORTED)\b": "yellow",
}
"""How a terminal shows what is right and what is wrong, by patterns."""


class Group(TyperGroup):
    """Commands of one file; a list of them has the whole first paragraph of each, which would be cut otherwise."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer names no type for it
        """The command of a name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            command.short_help = " ".join(command.help.partition("\n\n")[0].split())
            command.context_class = HelpContext
        return command


def command_app(help: str | None = None) -> typer.Typer:
    """The application of one file of commands."""
    return typer.Typer(
        cls=Group,
        no_args_is_help=help is not None,
        add_completion=False,
        rich_markup_mode=None,
        help=help,
        context_settings=HELP_NAMES,
    )


def known_in(file: Path | None) -> KnownFailures:
    """The known failures of a file, none without one; raises KnownFailuresError."""
    return KnownFailures() if file is None else KnownFailures.load(file)


def with_target(
    *, in_process: bool = False, without: Collection[str] = (), needed: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command with a parameter ``target``: the options that say what is tested, where, within what.

    ``in_process``: whether a ``--subject`` runs in this process if neither is asked for. ``without``: fields of Target
    that the command has no option for. ``needed``: without it the target is None where none is named, in place of the
    engine. What the command cannot go on with ends it in one line.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            p.replace(annotation=hints[name]) for name, p in signature(command).parameters.items() if name != "target"
        ]
        options = {
            "subject": (SubjectOption, None),
            "command": (CommandOption, None),
            "json": (JsonOption, False),
            "python": (PythonOption, None),
            "in_process": (InProcessOption, in_process),
            "timeout": (TimeoutOption, target.TIMEOUT),
            "memory_limit": (MemoryOption, target.MEMORY_LIMIT),
            "valid_only": (ValidOnlyOption, False),
        }
        options = {name: option for name, option in options.items() if name not in without}

        @wraps(command)
        def run(**given: Any) -> None:  # noqa: ANN401 - values of options
            chosen = {name: given.pop(name) for name in options}
            leave_settings(given.pop("context"), chosen)
            if chosen["command"] is not None and chosen["subject"] is not None:
                raise fail("--subject and --subject-command: give one of them")
            if chosen["json"] and chosen["command"] is None:
                raise fail("--subject-json: belongs to --subject-command")
            named = needed or not chosen["subject"] is chosen["command"] is None
            chosen["subject"] = chosen["subject"] or target.SUBJECT
            if in_process and (chosen["command"] is not None or chosen.get("python") is not None):
                chosen["in_process"] = False  # it was not asked for
            with quieted(given.pop("quiet")), one_line_errors():
                command(target=Target(**chosen) if named else None, **given)

        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in (options | {"quiet": (QuietOption, False)}).items()
        ]
        parameters = [*(p for p in own if p.default is p.empty), added[0]]
        parameters += [p for p in own if p.default is not p.empty] + added[1:]
        parameters.append(Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context))
        parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def leave_settings(context: typer.Context, chosen: dict[str, Any]) -> None:
    """A subject of the command line wins over another kind of subject of the settings."""
    named = {name for name in ("subject", "command") if is_set(context, name, "COMMANDLINE")}
    for name in {"subject", "command", "json", "python"} & set(chosen):
        if named and name not in named and is_set(context, name, "DEFAULT_MAP"):
            chosen[name] = False if name == "json" else None


def is_set(context: typer.Context, name: str, source: str) -> bool:
    """Whether an option has its value from there."""
    found = context.get_parameter_source(name)
    return found is not None and found.name == source


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Whatever a command cannot go on with, as one line on stderr and an exit code. Verdicts have their colours.

    A signal, or a stdout that takes no more, decides the exit code, whatever else is known by then.
    """
    with watched():
        try:
            with coloured(VERDICT_STYLES):
                yield
        except (Interrupted, typer.Exit, SubjectError, CaseError, KnownFailuresError, NothingToDrawError) as error:
            ended = noted()
            if ended is not None:
                if ended.code != exits.CLOSED_PIPE:
                    notice(str(ended))
                raise typer.Exit(ended.code) from error
            if isinstance(error, typer.Exit):
                raise
            raise fail(str(error), exit_code(error)) from error


def exit_code(error: BaseException) -> int:
    """The exit code of a command that ends with this."""
    if isinstance(error, SubjectError):
        return exits.NO_SUBJECT
    return exits.REFUSED if isinstance(error, WantsError) else exits.code_for(error)
