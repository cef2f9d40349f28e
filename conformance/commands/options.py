"""Options that several commands share, declared once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.known import KnownFailures, KnownFailuresError
from inputmeta.conformance.cases.files import CaseError
from inputmeta.conformance.console import fail
from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.workers import target


class ConstructionPath(StrEnum):
    """The paths by which metadata is built, as choices of the command line."""

    PROMPT = "prompt"
    DECODE = "decode"
    DECODE_ZOS = "decode_zos"


PathOption = Annotated[
    list[ConstructionPath] | None,
    typer.Option("--path", "-p", help="construction path; may be repeated; all that the subject claims if left out"),
]
SubjectOption = Annotated[str, typer.Option("--subject", "-s", help="what is tested")]
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
    typer.Option("--write-known-failures", metavar="FILE", help="write the present failures as such a file"),
]
SaveDirOption = Annotated[Path, typer.Option(help="where failing cases and the journal are")]

TIMEOUT = target.TIMEOUT
MEMORY_LIMIT = target.MEMORY_LIMIT
SAVE_DIR = Path("inputmeta-failures")


def command_app(help: str | None = None) -> typer.Typer:
    """The application of one file of commands."""
    return typer.Typer(no_args_is_help=help is not None, add_completion=False, rich_markup_mode="markdown", help=help)


def known_in(file: Path | None) -> KnownFailures:
    """The known failures of a file, none without one; raises KnownFailuresError."""
    return KnownFailures() if file is None else KnownFailures.load(file)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Whatever a command cannot go on with, as one line on stderr and an exit code."""
    try:
        yield
    except SubjectError as error:
        raise fail(str(error), exits.NO_SUBJECT) from error
    except (CaseError, KnownFailuresError) as error:
        raise fail(str(error)) from error
