"""What ends a run early: a signal, or an output that takes no more. Nothing that was found is lost by it.

Where a run keeps findings it is :func:`held`: a signal is only noted, and :func:`look`, called before every case,
raises it. While a subject builds, which may take for ever, it strikes :func:`at_once`; all that is lost is that one
answer. An exception that strikes within a callback of the interpreter (``__del__``, a weak reference) is dropped there:
the note stays. A second signal ends the process the way it would without us.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TWICE = 1.0
"""Seconds within which a second signal is taken for the same one: ``timeout`` sends it to the process and its group."""


class Interrupted(BaseException):
    """A run is to end. Not an Exception: it is neither a failing example nor an answer of a subject.

    ``code``: the exit code, 128 + the signal's number, or 70 where it was no signal.
    """

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


@dataclass
class _State:
    noted: Interrupted | None = None
    """What is to end the run, from its first sight on."""
    since: float = 0.0
    holding: bool = False


_state = _State()


def note(reason: str, code: int) -> Interrupted:
    """The run is to end at the next :func:`look`; the first reason stands."""
    if _state.noted is None:
        _state.noted = Interrupted(reason, code)
        _state.since = time.monotonic()
    return _state.noted


def noted() -> Interrupted | None:
    """What is to end the run, if anything is."""
    return _state.noted


def look() -> None:
    """Raise what is to end the run, if anything is. Raises Interrupted."""
    if _state.noted is not None:
        raise _state.noted


def is_held() -> bool:
    """Whether a run keeps findings at this moment."""
    return _state.holding


@contextmanager
def held(holding: bool = True) -> Iterator[None]:
    """Within, a signal is noted and raises nothing."""
    before, _state.holding = _state.holding, holding
    try:
        yield
    finally:
        _state.holding = before


@contextmanager
def at_once() -> Iterator[None]:
    """Within, a signal raises :class:`Interrupted` where it strikes, even if the run is :func:`held`.

    It strikes the main thread: in any other nothing is different within.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with held(False):
        look()
        yield


@contextmanager
def watched() -> Iterator[None]:
    """Within, signals that end a process raise :class:`Interrupted`, or are noted. Outside the main thread: nothing."""
    _state.noted, _state.holding = None, False
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _strike) for number in SIGNALS if not _is_ignored(number)}
    hook = sys.unraisablehook

    def drop(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, Interrupted):
            hook(unraisable)

    sys.unraisablehook = drop  # what a callback dropped is noted: the user need not see its traceback
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
        _state.noted, _state.holding = None, False


def _is_ignored(number: signal.Signals) -> bool:
    """Whether whoever started us wants this signal ignored, as ``nohup`` does."""
    return signal.getsignal(number) is signal.SIG_IGN


def _strike(number: int, _frame: FrameType | None) -> None:
    if _state.noted is not None:
        if time.monotonic() - _state.since >= TWICE:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        return
    error = note(f"interrupted ({signal.Signals(number).name})", 128 + number)
    if not _state.holding:
        raise error
