"""Where a subject raised: the last frames of its own, as lines that are safe to print."""

from __future__ import annotations

import importlib
import linecache
import os
from collections.abc import Iterator
from types import TracebackType

from inputmeta.conformance.console import plain_text

MOST_FRAMES = 5
MOST_CHARACTERS = 200
"""Of a line."""
MOST_SOURCE_BYTES = 2**22
"""Of a file that a line is read from: the name of a code object may be that of anything."""
SUITE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of the suite."""
SUBJECTS = ("mutants", "examples", os.path.join("subjects", "engine"), os.path.join("subjects", "oracle"))
"""What in it is a subject."""


def frames_of(error: BaseException) -> tuple[str, ...]:
    """The last frames of an exception, the innermost last: ``file:line in function: source line``.

    Frames of the suite itself are left out. At most MOST_FRAMES lines of at most MOST_CHARACTERS characters, control
    characters replaced.
    """
    frames = list(_frames(error.__traceback__))
    own = [frame for frame in frames if not is_suite(frame[0])]
    return tuple(_line(*frame) for frame in own[-MOST_FRAMES:])


def error_text(error: BaseException) -> str:
    """The type and the text of an exception on one line, whatever its ``__str__`` does."""
    return f"{type(error).__name__}: {message_of(error)}"


def message_of(error: BaseException) -> str:
    """The text of an exception on one line, whatever its ``__str__`` does."""
    try:
        return " ".join(str(error).split())
    except Exception:  # a stranger's code may raise anything
        return "its text cannot be had"


def is_suite(file: str) -> bool:
    """Whether a source file is the suite's, and no subject of it; or the importing that the suite asked for."""
    if file.startswith("<frozen importlib") or file == importlib.__file__:
        return True
    path = os.path.abspath(file)
    return path.startswith(SUITE + os.sep) and not path[len(SUITE) + 1 :].startswith(SUBJECTS)


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    """File, line and function of each frame, the outermost first."""
    while trace is not None:
        code = trace.tb_frame.f_code
        yield code.co_filename, trace.tb_lineno, code.co_name
        trace = trace.tb_next


def _line(file: str, number: int, function: str) -> str:
    text = f"{file}:{number} in {function}"
    source = _source(file, number)
    return plain_text(f"{text}: {source}" if source else text)[:MOST_CHARACTERS]


def _source(file: str, number: int) -> str:
    """A line of a source file; empty if it is not at hand."""
    try:
        if not os.path.isfile(file) or os.path.getsize(file) > MOST_SOURCE_BYTES:
            return ""
    except (OSError, ValueError):
        return ""
    return linecache.getline(file, number).strip()
