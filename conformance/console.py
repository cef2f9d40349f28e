"""Output of the command line: results to stdout, notices and progress to stderr, plain where it is no terminal."""

from __future__ import annotations

import errno
import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from inputmeta.conformance.exits import BAD_USAGE, CLOSED_PIPE, TOOL_FAILED

if TYPE_CHECKING:
    import typer
    from rich.progress import Progress

NOT_TEXT = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of what moves the cursor, hides or reorders text."""


PLAIN = str.maketrans({"–": "-", "—": "-", "…": "...", "µ": "u", "·": "*"})
"""How the characters that we print ourselves look in ASCII."""


def plain_text(text: str) -> str:
    """``text`` with every character that is none to be read (a control character, a direction mark) as ``?``."""
    return "".join("?" if unicodedata.category(char) in NOT_TEXT else char for char in text)


def readable(text: str) -> str:
    """``text`` without what a terminal would take for a command: what a subject says is part of it."""
    return "\n".join(line if line.isprintable() else plain_text(line) for line in text.split("\n"))


def say(text: str) -> None:
    """One or more lines to stdout, never wrapped or coloured: they are read by programs too."""
    try:
        write(sys.stdout, readable(text) + "\n")
    except OSError as error:
        # What the interpreter flushes when it ends must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            raise SystemExit(CLOSED_PIPE) from error
        notice(f"stdout: {error.strerror}")
        raise SystemExit(TOOL_FAILED) from error


def notice(text: str) -> None:
    """One line to stderr that ends nothing."""
    with suppress(OSError):  # there is nowhere left to say it
        write(sys.stderr, f"inputmeta: {readable(text)}\n")


def write(stream: TextIO, text: str) -> None:
    """Write and flush; characters that the stream's encoding does not have are replaced.

    Raises:
        OSError: the stream is closed, or its device is full.
    """
    encoding = stream.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(PLAIN).encode(encoding, "replace").decode(encoding)
    stream.write(text)
    stream.flush()


def fail(text: str, code: int = BAD_USAGE) -> typer.Exit:
    """Print one line to stderr and give the exception that ends the command with ``code``."""
    import typer  # noqa: PLC0415 - most of the package needs none of it

    notice(text)
    return typer.Exit(code)


@contextmanager
def progress(total: float | None) -> Iterator[Progress]:
    """A progress bar with one task on stderr; nothing at all where stderr is no terminal."""
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    stderr = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )
    with bar:
        bar.add_task("", total=total)
        yield bar
