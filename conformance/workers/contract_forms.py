"""Checks of the forms of arrays that a program says it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec

from inputmeta.conformance.cases.inputs import Inputs
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import PATTERNS, Arena
from inputmeta.conformance.check.compare import tensor_shapes
from inputmeta.conformance.protocol.convert import build_message
from inputmeta.conformance.protocol.messages import Array
from inputmeta.conformance.protocol.region import Region, with_arrays
from inputmeta.conformance.subjects.base import Result
from inputmeta.conformance.workers.contract_batches import described, with_extreme_tokens
from inputmeta.conformance.workers.contract_session import Session, Skipped, copied, differences, invalid_problems
from inputmeta.conformance.workers.exchange import room_for

ELSEWHERE = "is another in shared memory"


def check_int32_arrays(session: Session) -> Iterator[str]:
    """Arrays of integers mean the same as int32 and as int64, up to the bounds of int32."""
    if not session.hello.int32_arrays:
        raise Skipped("int32_arrays is not claimed")
    for request in map(with_extreme_tokens, session.valid()):
        before = copied(session.ask(request, int32=False))
        yield from differences(session, request, before, session.ask(request), "is another of int32 arrays")


def check_refills(session: Session) -> Iterator[str]:
    """A batch in the input arrays of another, refilled, is built as in arrays of its own."""
    if not session.hello.refills:
        raise Skipped("only fresh inputs are claimed" if session.claims.fresh_inputs else "refills is not claimed")
    for request in session.valid():
        before = copied(session.ask(request))
        inputs = Inputs()
        for other in (*session.valid(), request):
            refilled = session.ask(other.handed(inputs))
        yield from differences(session, request, before, refilled, "is another in arrays that were refilled")


def check_shared_memory(session: Session) -> Iterator[str]:
    """Batches and results mean the same in shared memory and in frames; a place outside of it is not read."""
    if session.forms.share_from is None:
        raise Skipped("shared_memory is not claimed")
    for request in session.valid():
        before = copied(session.ask(request, share_from=None))
        yield from differences(session, request, before, session.ask(request, share_from=0), ELSEWHERE)
        if session.claims.in_place:
            yield from shared_buffers_problems(session, request, before)
    if session.robust:
        request = session.valid()[0]
        region = Region(build_message(request, 10**6, int32=session.forms.int32), room_for(request))
        try:
            yield from invalid_problems(session, request, invalid_regions(session, region))
        finally:
            region.close()


def shared_buffers_problems(session: Session, request: Request, before: Result) -> Iterator[str]:
    """What is wrong with the caller's buffers where they are shared, guards included."""
    shapes = tensor_shapes(session.claimed(request))
    arena = Arena([shapes], PATTERNS[0])
    fences = arena.outside(shapes)
    filled = session.ask(dataclasses.replace(request, out=arena.views(shapes)), share_from=0)
    yield from differences(session, request, before, filled, f"of the caller's buffers {ELSEWHERE}")
    for key, fence in fences.items():
        if arena.rows[key].written_outside(fence, shapes[key][1]):
            yield f"{described(request)}: {key}: wrote outside its buffer in shared memory"


def invalid_regions(session: Session, region: Region) -> Iterator[tuple[str, bytes]]:
    """Batches whose shared memory, or a place in it, is not right."""
    build = region.batch
    assert build.memory is not None
    size = region.size

    def moved(array: Array) -> Array:
        return msgspec.structs.replace(array, data=size - 4 * bool(array.size))

    elsewhere = msgspec.structs.replace(build.memory, path="/proc/self/fd/-1")
    bad: dict[str, dict[str, Any]] = {
        "an array beyond the end of the shared memory": {"sequences": with_arrays(build.sequences, moved)},
        "an array in shared memory that is not named": {"memory": None},
        "shared memory that is not there": {"memory": elsewhere},
        "shared memory that is shorter than it says": {"memory": msgspec.structs.replace(build.memory, size=2 * size)},
    }
    for what, change in bad.items():
        yield what, session.worker.wire.encode(msgspec.structs.replace(build, **change))
