"""Recorded draws handed to Hypothesis, which draws the same cases again and shrinks those that fail.

Hypothesis replays what its database has of earlier runs; choices that were never shrunk are under a key of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hypothesis import database

WRITER = "choices_to_bytes"
"""Name of the module ``database``: of the function that puts choices in its form."""
NOT_SHRUNK = b".secondary"
"""How the key of choices that are still to be shrunk ends."""


KEY = "_hypothesis_internal_database_key"
"""Name of the member of a test: of its key, which it lacks under ``pytest --hypothesis-seed``."""


def keyed(test: Callable[[], None]) -> Callable[[], None]:
    """The test, with a key in its database whatever pytest was told."""
    setattr(test, KEY, b"recorded")
    return test


class Recorded(database.ExampleDatabase):
    """A database that gives recorded choices once, and keeps nothing.

    A Hypothesis without :data:`WRITER`, or with other names than the next two, is given nothing; a test tells.
    """

    def __init__(self, recorded: Iterable[Sequence[int]]) -> None:
        super().__init__()
        write = getattr(database, WRITER, None)
        self._left = [] if write is None else [write(choices) for choices in recorded]

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """All of them, to who first asks for what is to be shrunk."""
        if not key.endswith(NOT_SHRUNK):
            return ()
        given, self._left = self._left, []
        return given

    def save(self, key: bytes, value: bytes) -> None:
        """Keeps nothing."""

    def delete(self, key: bytes, value: bytes) -> None:
        """Nothing is kept."""
