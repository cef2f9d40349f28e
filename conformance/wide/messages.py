"""What the parent and a process that runs the wide loop say to each other, in frames of the protocol."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.protocol.codec import MAX_FRAME, encode
from inputmeta.conformance.protocol.messages import Bye, ErrorAnswer, Hello, HelloAnswer
from inputmeta.conformance.wide.loop import Counts
from inputmeta.conformance.workers.wire import Wire, garbage, split_frame


class Batches(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="batches"):
    """Run ``count`` batches of a seed on some paths, from ``first`` on; fewer if ``seconds`` are over or one fails."""

    seed: int
    first: int
    count: int
    seconds: float
    paths: tuple[str, ...]


class Done(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="done"):
    """The first ``done`` batches of those asked for were run; ``findings`` are those of the last one."""

    done: int
    counts: Counts
    forms: dict[str, int]
    """Batches by form."""
    findings: tuple[Finding, ...] = ()


_parent: msgspec.msgpack.Decoder[Hello | Batches | Bye] = msgspec.msgpack.Decoder(Hello | Batches | Bye)
_loop: msgspec.msgpack.Decoder[HelloAnswer | Done | ErrorAnswer] = msgspec.msgpack.Decoder(
    HelloAnswer | Done | ErrorAnswer
)


def framed(message: object) -> bytes:
    """A message as a frame."""
    return encode(cast(Any, message))


def from_parent(body: bytes) -> Hello | Batches | Bye:
    """The parent's message in the body of a frame."""
    return _parent.decode(body)


def from_loop(body: bytes) -> Any:  # noqa: ANN401 - as a wire of the protocol has it
    """The answer in the body of a frame; raises SubjectFailure (garbage) if it is none."""
    try:
        return _loop.decode(body)
    except msgspec.MsgspecError as error:
        raise garbage(str(error)) from error


WIDE = Wire(framed, split_frame, MAX_FRAME, 8, from_loop)
"""The frames of the protocol with these messages in them."""
