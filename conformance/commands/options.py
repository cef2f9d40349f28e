"""Options that several commands share, declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.known import KnownFailures, KnownFailuresError
from inputmeta.conformance.cases.files import CaseError, check_folder, check_output
from inputmeta.conformance.commands.main import HELP_NAMES
from inputmeta.conformance.console import fail
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
SubjectOption = Annotated[str | None, typer.Option("--subject", "-s", help="what is tested", show_default="engine")]
CommandOption = Annotated[
    str | None,
    typer.Option("--subject-command", help="a program that speaks the protocol, instead of --subject"),
]
JsonOption = Annotated[bool, typer.Option("--subject-json", help="the program speaks lines of JSON")]
InProcessOption = Annotated[
    bool, typer.Option("--in-process/--isolated", help="run a --subject in this process, or in a worker")
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.01, help="seconds a worker has for a batch")]
MemoryOption = Annotated[int, typer.Option("--memory-limit", min=1, help="MiB a worker may have resident")]
KnownOption = Annotated[
    Path | None,
    typer.Option("--known-failures", metavar="FILE", help="lines of `case id or signature – reason – issue`"),
]
WriteKnownOption = Annotated[
    Path | None,
    typer.Option(
        "--write-known-failures",
        metavar="FILE",
        help="write the present failures as such a file",
        callback=checked(check_output),
    ),
]
SaveDirOption = Annotated[
    Path, typer.Option(help="where failing cases and the journal are", callback=checked(check_folder))
]

SAVE_DIR = Path("inputmeta-failures")


def command_app(help: str | None = None) -> typer.Typer:
    """The application of one file of commands."""
    return typer.Typer(
        no_args_is_help=help is not None,
        add_completion=False,
        rich_markup_mode="markdown",
        help=help,
        context_settings=HELP_NAMES,
    )


def known_in(file: Path | None) -> KnownFailures:
    """The known failures of a file, none without one; raises KnownFailuresError."""
    return KnownFailures() if file is None else KnownFailures.load(file)


def with_target(*, in_process: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command with a parameter ``target``: the options that say what is tested, where, within what.

    ``in_process``: whether a ``--subject`` runs in this process if neither is asked for. What the command cannot go on
    with ends it in one line.
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
            "in_process": (InProcessOption, in_process),
            "timeout": (TimeoutOption, target.TIMEOUT),
            "memory_limit": (MemoryOption, target.MEMORY_LIMIT),
        }

        @wraps(command)
        def run(**given: Any) -> None:  # noqa: ANN401 - values of options
            chosen = {name: given.pop(name) for name in options}
            if chosen["command"] is not None and chosen["subject"] is not None:
                raise fail("--subject and --subject-command: give one of them")
            if chosen["json"] and chosen["command"] is None:
                raise fail("--subject-json: belongs to --subject-command")
            chosen["subject"] = chosen["subject"] or target.SUBJECT
            if in_process and chosen["command"] is not None:
                chosen["in_process"] = False  # it was not asked for
            with one_line_errors():
                command(target=Target(**chosen), **given)

        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in options.items()
        ]
        parameters = [*(p for p in own if p.default is p.empty), added[0]]
        parameters += [p for p in own if p.default is not p.empty] + added[1:]
        parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Whatever a command cannot go on with, as one line on stderr and an exit code."""
    try:
        yield
    except SubjectError as error:
        raise fail(str(error), exits.NO_SUBJECT) from error
    except (CaseError, KnownFailuresError) as error:
        raise fail(str(error), exits.code_for(error)) from error
