"""Output of the command line: results to stdout, notices and progress to stderr, plain where it is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from inputmeta.conformance.cases.files import plain_text
from inputmeta.conformance.exits import BAD_USAGE

stderr = Console(stderr=True)


def readable(text: str) -> str:
    """``text`` without what a terminal would take for a command: what a subject says is part of it."""
    return "\n".join(line if line.isprintable() else plain_text(line) for line in text.split("\n"))


def say(text: str) -> None:
    """One or more lines to stdout, never wrapped or coloured: they are read by programs too."""
    sys.stdout.write(readable(text) + "\n")
    sys.stdout.flush()


def notice(text: str) -> None:
    """One line to stderr that ends nothing."""
    sys.stderr.write(f"inputmeta: {readable(text)}\n")


def fail(text: str, code: int = BAD_USAGE) -> typer.Exit:
    """Print one line to stderr and give the exception that ends the command with ``code``."""
    notice(text)
    return typer.Exit(code)


@contextmanager
def progress(total: float | None) -> Iterator[Progress]:
    """A progress bar with one task on stderr; nothing at all where stderr is no terminal."""
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
