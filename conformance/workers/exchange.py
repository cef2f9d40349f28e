"""One batch to a worker and its answer back: which form its arrays take is settled here, by what the program says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.protocol.codec import ProtocolError
from inputmeta.conformance.protocol.convert import build_message, roots_of
from inputmeta.conformance.protocol.messages import Array, Build, HelloAnswer, ProgramMessage, SuiteMessage
from inputmeta.conformance.protocol.region import ALIGNMENT, Region, answer_from
from inputmeta.conformance.workers.process import Worker
from inputmeta.conformance.workers.wire import Wire, garbage

ANSWER_CELL_BYTES = 8
"""Room for a cell of an answer in shared memory, of whatever dtype it may be."""
FIELD_BYTES = 300
"""Of a field in an answer beside its cells, at most: its name, dtype and shape."""
MANY_ROWS = 1024
"""Query rows from which on an answer is looked at for its size: it may be large where what was sent is not."""


@dataclass(frozen=True)
class Forms:
    """The forms of arrays that a program takes."""

    int32: bool = False
    """Integers that fit."""
    share_from: int | None = None
    """Bytes of a batch from which on it comes in shared memory; None: never."""
    refills: bool = False
    """Batches in the objects of those before."""

    @classmethod
    def of(cls, hello: HelloAnswer, wire: Wire) -> Forms:
        """What a program says it takes, over a wire that may have none of shared memory."""
        return cls(hello.int32_arrays, hello.shared_memory if wire.shares else None, hello.refills)


def ask(
    worker: Worker,
    request: Request,
    number: int,
    *,
    forms: Forms,
    message_of: Callable[[Build], SuiteMessage] = lambda batch: batch,
    timeout: float | None = None,
) -> tuple[ProgramMessage, Build]:
    """Send a message about a batch, with the id ``number``; the answer, and the batch as one that holds its arrays.

    Raises:
        SubjectFailure: there is no answer, or one whose arrays lie outside what was offered; the worker is dead.
        BeyondInt64Error, ProtocolError: the batch cannot be sent; nothing was.
    """
    batch = build_message(request, number, int32=forms.int32, refills=forms.refills)
    region = offered(batch, request, forms)
    try:
        answer = worker.call(message_of(batch if region is None else region.batch), timeout)
        try:
            return answer_from(answer, region), batch
        except ProtocolError as error:
            worker.kill()
            raise garbage(str(error)) from error
    finally:
        if region is not None:
            region.close()


def offered(batch: Build, request: Request, forms: Forms) -> Region | None:
    """The batch in shared memory, with room for its answer; None if it is to come in a frame.

    Raises:
        ProtocolError: it is too large for either.
    """
    if forms.share_from is None:
        return None
    weight = sum(array.size for array in arrays_of(batch))
    many = sum(max(0, sequence.seqlen_q) for sequence in request.sequences) >= MANY_ROWS
    if weight < forms.share_from and not many:
        return None
    room = 0 if batch.out is not None else room_for(request)
    if weight + room < forms.share_from:
        return None
    try:
        return Region(batch, room)
    except OSError:  # where the system gives none, a frame may do
        return None


def arrays_of(batch: Build) -> Iterator[Array]:
    """The arrays of a batch that may be large."""
    yield batch.config.lookup_table
    for sequence in batch.sequences:
        yield from (getattr(sequence, name) for name in oracle.SEQUENCE_ARRAYS)
    yield from () if batch.out is None else batch.out.buffers


def room_for(request: Request) -> int:
    """Bytes that an answer takes in shared memory at most."""
    cells, arrays = most_cells(request)
    return cells * ANSWER_CELL_BYTES + arrays * ALIGNMENT


def most_cells(request: Request) -> tuple[int, int]:
    """Cells of a right answer at most, the caller's buffers left out, and how many arrays and scalars it has."""
    shapes = oracle.field_shapes(request.path, request.config, request.sequences, request.max_num_blocks)
    unasked = set(oracle.EXPANSIONS) - request.expand
    asked = [shape for field, shape in shapes.values() if field.name not in unasked]
    cells = sum(math.prod(max(0, size) for size in shape) for shape in asked)
    return cells * (2 if request.config.yoco_mode == "compact" else 1), len(shapes)


def may_exceed(request: Request, wire: Wire) -> bool:
    """Whether a right answer to a valid batch, as wide as its cells may get, is larger than a message may be."""
    if request.violations():
        return False
    cells, fields = most_cells(request)
    cells += sum(root.size for root in roots_of(request.out or {}))
    return cells * wire.cell_bytes + fields * FIELD_BYTES > wire.limit
