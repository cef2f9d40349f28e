"""Output of the command line: results to stdout, notices and progress to stderr, plain where it is no terminal."""

from __future__ import annotations

import errno
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from inputmeta.conformance import interrupts
from inputmeta.conformance.exits import BAD_USAGE, CLOSED_PIPE, TOOL_FAILED

if TYPE_CHECKING:
    import typer
    from rich.console import RenderableType
    from rich.progress import Progress

NOT_TEXT = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of what moves the cursor, hides or reorders text."""


PLAIN = str.maketrans(
    {"–": "-", "—": "-", "…": "...", "µ": "u", "·": "*", "≠": "/="} | dict(zip("░▒▓█", ".:+#", strict=True))
)
"""How the characters that we print ourselves look in ASCII."""


def plain_text(text: str) -> str:
    """``text`` with every character that is none to be read (a control character, a direction mark) as ``?``."""
    return "".join("?" if unicodedata.category(char) in NOT_TEXT else char for char in text)


def readable(text: str) -> str:
    """``text`` without what a terminal would take for a command: what a subject says is part of it."""
    return "\n".join(line if line.isprintable() else plain_text(line) for line in text.split("\n"))


@dataclass
class _Manner:
    """How things are said."""

    quiet: bool = False
    styles: Mapping[str, str] = field(default_factory=dict)
    lost: interrupts.Interrupted | None = None
    """What ends the run in which stdout takes no more: until its end what is to be said goes to stderr."""


_manner = _Manner()


@contextmanager
def quieted(quiet: bool = True) -> Iterator[None]:
    """Within, :func:`remark` and progress say nothing if ``quiet``."""
    before, _manner.quiet = _manner.quiet, quiet
    try:
        yield
    finally:
        _manner.quiet = before


@contextmanager
def coloured(styles: Mapping[str, str]) -> Iterator[None]:
    """Within, what matches a pattern has its style, on a terminal that has colours."""
    before, _manner.styles = _manner.styles, styles
    try:
        yield
    finally:
        _manner.styles = before


def is_quiet() -> bool:
    """Whether only failures and the last line are wanted."""
    return _manner.quiet


def remark(text: str) -> None:
    """What is said unless only failures are wanted."""
    if not _manner.quiet:
        say(text)


def conclusion(text: str) -> None:
    """The last line where only failures are wanted; otherwise remarks have said as much."""
    if _manner.quiet:
        say(text)


def in_colour(text: str) -> str:
    """``text`` with the present styles, if stdout is a terminal with colours and ``NO_COLOR`` is not set."""
    if not _manner.styles or not sys.stdout.isatty():
        return text
    from rich.console import Console  # noqa: PLC0415 - most calls need none of it
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=sys.stdout, highlight=False)
    if console.color_system is None or console.no_color:
        return text
    body = Text(text)
    for pattern, style in _manner.styles.items():
        body.highlight_regex(pattern, style)
    with console.capture() as captured:
        console.print(body, soft_wrap=True, end="")
    return captured.get()


def say(text: str) -> None:
    """One or more lines to stdout, never wrapped, and coloured on a terminal alone: they are read by programs too."""
    _put(text, in_colour(readable(text)))


def show(draw: Callable[[int], RenderableType]) -> None:
    """What ``draw`` makes for so many columns, to stdout: as wide as the terminal, in its colours if it has any.

    Whoever draws sees to it that text of others is plain (:func:`plain_text`).
    """
    from rich.console import Console  # noqa: PLC0415 - as above

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(draw(console.width))
    text = "\n".join(line.rstrip() for line in captured.get().rstrip().split("\n"))
    _put(text, text)


def _put(text: str, shown: str) -> None:
    """Lines to stdout as they are ``shown`` there.

    A stdout that takes no more ends the run; where it keeps findings, what is still to be said goes to stderr.
    """
    if _manner.lost is not None and _manner.lost is interrupts.noted():
        notice(text)
        return
    try:
        write(sys.stdout, shown + "\n")
    except OSError as error:
        # What the interpreter flushes when it ends must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        closed = error.errno == errno.EPIPE
        ended = interrupts.note(f"stdout: {error.strerror}", CLOSED_PIPE if closed else TOOL_FAILED)
        if not interrupts.is_held():
            if not closed:
                notice(str(ended))
            raise SystemExit(ended.code) from error
        _manner.lost = ended
        notice(text)


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
        disable=_manner.quiet or not stderr.is_terminal,
    )
    with bar:
        bar.add_task("", total=total)
        yield bar
