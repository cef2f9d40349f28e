"""Arrays of a message in shared memory: a region that the suite makes for one batch, and both sides' way to it.

The region is a file without a name (memfd), reached through the suite's own descriptor: nothing is left of it, however
suite and program end. It is sealed against another size, and the suite never maps it: what an answer names is copied
out once, so that a program that writes on changes nothing.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from inputmeta.conformance.protocol.codec import ProtocolError, TooLongError
from inputmeta.conformance.protocol.messages import Array, Build, Memory, ProgramMessage, Reject, ResultAnswer

MAX_REGION = 4 * 2**30
"""Most bytes of a region. Pages that nobody writes take no memory."""
ALIGNMENT = 64
"""Of the arrays that the suite places, bytes."""

Part = TypeVar("Part")
Change = Callable[[Array], Array]


def with_arrays(part: Part, change: Change) -> Part:
    """A message, or a part of one, with each of its arrays changed, in the order of the members."""
    changed: Any = part
    if isinstance(part, Array):
        changed = change(part)
    elif isinstance(part, msgspec.Struct):
        members = {name: getattr(part, name) for name in part.__struct_fields__}
        parts = {name: m for name, m in members.items() if isinstance(m, msgspec.Struct | tuple | dict)}
        changed = msgspec.structs.replace(part, **{name: with_arrays(member, change) for name, member in parts.items()})
    elif isinstance(part, tuple):
        changed = tuple(with_arrays(member, change) for member in part)
    elif isinstance(part, dict):
        changed = {key: with_arrays(member, change) for key, member in part.items()}
    return changed  # type: ignore[no-any-return]


def aligned(offset: int) -> int:
    """The first place for an array from ``offset`` on, bytes."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class Placer:
    """Finds places for arrays, one behind another."""

    def __init__(self, begin: int, limit: int) -> None:
        """Places are from ``begin`` to ``limit``, bytes."""
        self.end = aligned(begin)
        self.limit = limit
        self.placed: list[tuple[int, bytes]] = []
        """Where the cells of an array are to be written."""
        self.left_out = 0
        """Arrays for which there was no room."""

    def __call__(self, array: Array) -> Array:
        """The array in the region, or as it is if there is no room."""
        cells = array.content()
        if self.end + len(cells) > self.limit:
            self.left_out += 1
            return array
        begin, self.end = self.end, aligned(self.end + len(cells))
        self.placed.append((begin, cells))
        return msgspec.structs.replace(array, data=begin)


class Region:
    """The suite's end: a batch in shared memory, with room for the answer. To be closed."""

    def __init__(self, batch: Build, room: int) -> None:
        """Place the arrays of ``batch``, then those of its ``out``, then ``room`` bytes of zeros, as far as they fit.

        Raises:
            TooLongError: the arrays take more than MAX_REGION.
            OSError: the system gives no shared memory.
        """
        place = Placer(0, MAX_REGION)
        inputs = with_arrays(msgspec.structs.replace(batch, out=None), place)
        self.results = place.end
        out = with_arrays(batch.out, place)
        if place.left_out:
            raise TooLongError(f"a batch whose arrays take more than {MAX_REGION} bytes of shared memory")
        self.size = max(ALIGNMENT, min(place.end + aligned(room), MAX_REGION))
        self.descriptor = os.memfd_create("inputmeta", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(self.descriptor, 0o600)
            os.ftruncate(self.descriptor, self.size)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            for begin, cells in place.placed:
                self._write(begin, memoryview(cells))
        except BaseException:
            self.close()
            raise
        memory = Memory(path=f"/proc/{os.getpid()}/fd/{self.descriptor}", size=self.size, results=self.results)
        self.batch = msgspec.structs.replace(inputs, out=out, memory=memory)
        """The batch as it is sent."""

    def close(self) -> None:
        """Give it up. What the program has mapped it keeps."""
        os.close(self.descriptor)

    def read(self, begin: int, end: int) -> bytes:
        """A copy of the bytes from ``begin`` to ``end``."""
        chunks = []
        while begin < end:
            chunk = os.pread(self.descriptor, end - begin, begin)
            if not chunk:
                raise ProtocolError("shared memory that has become shorter")
            chunks.append(chunk)
            begin += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _write(self, begin: int, cells: memoryview) -> None:
        while cells:
            written = os.pwrite(self.descriptor, cells, begin)
            cells, begin = cells[written:], begin + written


def answer_from(answer: ProgramMessage, region: Region | None) -> ProgramMessage:
    """An answer with its arrays out of the region that was offered, copied.

    Raises:
        ProtocolError: no region was offered, or an array lies outside its part for results, or on another.
    """
    placed = [array for array in arrays_in(answer) if isinstance(array.data, int)]
    if not placed:
        return answer
    if region is None:
        raise ProtocolError("an array in shared memory, which was not offered")
    extents = [extent_of(array, region.results, region.size) for array in placed]
    for (_, end), (begin, _) in pairwise(sorted((begin, end) for begin, end in extents if begin < end)):
        if begin < end:
            raise ProtocolError(f"two arrays hold byte {begin} of the shared memory")
    return with_arrays(answer, lambda array: content_of(array, region.read))


def arrays_in(answer: ProgramMessage) -> Iterator[Array]:
    """The arrays of an answer."""
    if isinstance(answer, ResultAnswer):
        yield from (value for value in answer.fields.values() if isinstance(value, Array))
    if isinstance(answer, ResultAnswer | Reject):
        yield from answer.buffers or ()


def extent_of(array: Array, least: int, most: int) -> tuple[int, int]:
    """The bytes of an array in shared memory; raises ProtocolError if they are not within ``least`` to ``most``."""
    assert isinstance(array.data, int)
    begin, end = array.data, array.data + array.size
    if begin < least or end > most:
        raise ProtocolError(f"an array at bytes {begin} to {end} of the shared memory; it may have {least} to {most}")
    return begin, end


def content_of(array: Array, read: Callable[[int, int], bytes]) -> Array:
    """The array with its cells, which ``read`` gives from begin to end.

    Raises:
        ProtocolError: they are none of its dtype.
    """
    if isinstance(array.data, bytes):
        return array
    try:
        return msgspec.structs.replace(array, data=read(array.data, array.data + array.size))
    except ValueError as error:
        raise ProtocolError(f"not a valid array: {error}") from error


@contextmanager
def mapped(memory: Memory | None) -> Iterator[mmap.mmap | None]:
    """A program's end: the region that a batch names, None if it names none.

    Raises:
        ProtocolError: there is no such file of that size.
    """
    if memory is None:
        yield None
        return
    try:
        descriptor = os.open(memory.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size < memory.size:
                raise ProtocolError(f"shared memory of {found.st_size} bytes that is to have {memory.size}")
            region = mmap.mmap(descriptor, memory.size)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise ProtocolError(f"shared memory that cannot be mapped: {error}") from error
    with region:
        yield region


def batch_from(batch: Build, region: mmap.mmap | None) -> Build:
    """A batch with its arrays out of the region that it names, copied.

    Raises:
        ProtocolError: an array lies outside of it, or it names none.
    """

    def read(begin: int, end: int) -> bytes:
        assert region is not None
        return region[begin:end]

    def change(array: Array) -> Array:
        if isinstance(array.data, int):
            if region is None:
                raise ProtocolError("an array in shared memory, which is not named")
            extent_of(array, 0, len(region))
        return content_of(array, read)

    return with_arrays(batch, change)


def answer_into(answer: ProgramMessage, region: mmap.mmap | None, memory: Memory | None) -> ProgramMessage:
    """An answer with its arrays in the region, as far as there is room; those beyond stay as they are."""
    if region is None or memory is None:
        return answer
    place = Placer(memory.results, memory.size)
    answer = with_arrays(answer, place)
    for begin, cells in place.placed:
        region[begin : begin + len(cells)] = cells
    return answer
