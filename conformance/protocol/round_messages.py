"""What the suite and a worker of its own say to each other of cases that are drawn in the worker.

These messages are private to the suite: a program that speaks the protocol knows nothing of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.protocol.codec import refused
from inputmeta.conformance.protocol.messages import ProgramMessage, SuiteMessage

AT = "%010d.%06d"
"""How the place and the number of its build that is under way (0: none) are written: as long whatever they are."""


class DrawnCases(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="drawn"):
    """Draw ``count`` cases of a random round from place ``first`` on and run them, to the first that fails.

    Fewer if ``seconds`` are over. As each build begins, its place and number are written into a file.
    """

    profile: dict[str, Any]
    """Members of :class:`inputmeta.conformance.generate.Profile`."""
    seed: int
    round: int
    first: int
    count: int
    seconds: float
    refuses: tuple[str, ...]
    """Preconditions that the subject is asked to check."""
    ids: tuple[str, ...] = ()
    """Ids of cases that something is known of."""
    journal: str
    offset: int
    """Of the place in it, in bytes."""


class RanCases(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ran"):
    """The first ``done`` cases of those asked for were run. ``failing``: what the last one shows; it is not counted."""

    done: int
    passed: int = 0
    cells: int = 0
    containers: int = 0
    unsupported: dict[str, int] = {}
    """Cases by what the subject does not claim of them."""
    visited: dict[str, int] = {}
    """Cases by the features that they visit."""
    seen: dict[str, bool] = {}
    """Ids among those known; whether anything of the case was run."""
    slowest: float = 0.0
    """Seconds of the slowest answer."""
    failing: Outcome | None = None


_suite: msgspec.msgpack.Decoder[SuiteMessage | DrawnCases] = msgspec.msgpack.Decoder(SuiteMessage | DrawnCases)
_program: msgspec.msgpack.Decoder[ProgramMessage | RanCases] = msgspec.msgpack.Decoder(ProgramMessage | RanCases)


def from_suite(body: bytes) -> SuiteMessage | DrawnCases:
    """The suite's message in the body of a frame; raises ProtocolError."""
    try:
        return _suite.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise refused(error) from error


def from_worker(body: bytes) -> ProgramMessage | RanCases:
    """The worker's message in the body of a frame; raises ProtocolError."""
    try:
        return _program.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise refused(error) from error
