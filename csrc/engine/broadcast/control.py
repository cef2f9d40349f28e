"""The control channel: how the ranks of a broadcast agree, over point-to-point messages of a gloo group.

A round is a star: every rank reports to the group's first rank, the coordinator, and gets back one verdict for all. So
all ranks stop for the same reason, and a rank that died is named. When a wait runs out of time, gloo closes the
connections of that process; the others then fail at once rather than wait.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, TypeVar

import msgspec
import torch
import torch.distributed as dist

from inputmeta.engine.broadcast.errors import (
    BroadcastError,
    Failure,
    RefusedError,
    UnsendableTypeError,
    brief,
    error_of,
)
from inputmeta.engine.broadcast.manifest import MAX_MANIFEST_BYTES

ResultT = TypeVar("ResultT")

_PROTOCOL = 2
_TAG = 0x1A7A
_LENGTH_BYTES = 2
# A failure's text at its longest with each character escaped, and the numbers.
_FRAME_BYTES = 2048


class Deadline:
    """The end of a call: all its waits together take at most `timeout`."""

    def __init__(self, timeout: timedelta) -> None:
        self.timeout = timeout
        self._end = time.monotonic() + timeout.total_seconds()

    def remaining(self, reserve: float = 0.0) -> timedelta:
        """What is left, less a `reserve` (0 to 1) of the whole; at least 1 ms, as torch takes 0 for "for ever"."""
        seconds = self._end - reserve * self.timeout.total_seconds() - time.monotonic()
        return timedelta(seconds=max(seconds, 0.001))

    @property
    def expired(self) -> bool:
        """Whether the time is over; 5 ms early, because torch cuts a wait to whole milliseconds."""
        return time.monotonic() >= self._end - 0.005

    def __str__(self) -> str:
        return f"{self.timeout.total_seconds():g} s"


class _Frame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report or a verdict. `length` is the manifest's, bytes: the source reports it, the verdict passes it on."""

    protocol: int
    phase: str
    src: int
    length: Annotated[int, msgspec.Meta(ge=0, le=MAX_MANIFEST_BYTES)]
    failure: Failure | None


class ControlChannel:
    """One rank's end of the channel for one broadcast from `src`. Ranks are global; `group` None is the default group.

    With one rank, or without torch.distributed, nothing is sent. Raises BroadcastError when this process is not in the
    group, or the group is not gloo's.
    """

    def __init__(self, group: dist.ProcessGroup | None, src: int, deadline: Deadline) -> None:
        self.group = group
        self.src = src
        self.deadline = deadline
        self.rank, self.ranks = membership(group)
        if self.rank not in self.ranks:
            raise BroadcastError(self.rank, None, "is not in the control group")
        if self.peers and "cpu:gloo" not in dist.get_backend_config(group):
            raise BroadcastError(self.rank, None, "the control group's backend for the CPU is not gloo")

    @property
    def peers(self) -> list[int]:
        """All ranks but this one."""
        return [rank for rank in self.ranks if rank != self.rank]

    def settle(
        self, phase: str, step: Callable[[], ResultT], length_of: Callable[[ResultT], int] = lambda _: 0
    ) -> tuple[ResultT, int]:
        """Runs `step` and one round of agreement: its result, and `length_of(result)` on the source.

        Raises BroadcastError on every rank: the same when the step of some rank raised, or a rank is gone or takes part
        in another broadcast; each its own when the coordinator is gone, or the time is over.
        """
        try:
            result = step()
        except Exception as error:  # whatever it is, the others must not wait for this rank
            if not (isinstance(error, BroadcastError) and self.deadline.expired):  # else nobody can be told any more
                self._agree(phase, self._failure_of(error))
            raise
        return result, self._agree(phase, None, length_of(result))

    def share(self, payload: bytes, length: int) -> bytes:
        """The source's `payload`, of `length` bytes, on every rank that can be reached. Raises BroadcastError; on the
        source after it has served the others, so that they too learn in the next round who is gone.
        """
        if length == 0:
            return b""
        if self.rank != self.src:
            return self._receive(self.src, "manifest", length)()
        lost: dict[int, Failure] = {}
        sends = {}
        for peer in self.peers:
            with self._noting(lost, peer):
                sends[peer] = self._send(peer, "manifest", payload)
        for peer, finish in sends.items():
            with self._noting(lost, peer):
                finish()
        if lost:
            raise error_of(next(iter(lost.values())))
        return payload

    def _failure_of(self, error: Exception) -> Failure:
        if isinstance(error, BroadcastError):
            return error.failure
        if isinstance(error, RefusedError):
            kind = UnsendableTypeError if error.is_type else BroadcastError
            return kind(self.rank, error.path, error.rule).failure
        return BroadcastError(self.rank, None, brief(error)).failure

    def _agree(self, phase: str, failure: Failure | None, length: int = 0) -> int:
        report = _Frame(_PROTOCOL, phase, self.src, length, failure)
        verdict = self._lead(report) if self.rank == self.ranks[0] else self._follow(report)
        if verdict.failure is not None:
            raise error_of(verdict.failure)
        return verdict.length

    def _follow(self, report: _Frame) -> _Frame:
        leader = self.ranks[0]
        receipt = self._receive(leader, report.phase, _FRAME_BYTES)
        self._send(leader, report.phase, _pack(report))()
        return self._unpack(leader, receipt())

    def _lead(self, report: _Frame) -> _Frame:
        """Collects the reports, answers all ranks that still can be reached."""
        lost: dict[int, Failure] = {}
        frames = {self.rank: report}
        receipts = {}
        for peer in self.peers:
            with self._noting(lost, peer):
                receipts[peer] = self._receive(peer, report.phase, _FRAME_BYTES)
        for peer, receipt in receipts.items():
            with self._noting(lost, peer):
                frames[peer] = self._unpack(peer, receipt())
        failure = next(iter(lost.values()), None) or _disagreement(frames)
        length = frames[self.src].length if self.src in frames else 0
        verdict = msgspec.structs.replace(report, length=length, failure=failure)
        unanswered: dict[int, Failure] = {}
        for peer in self.peers:
            if peer not in lost:
                with self._noting(unanswered, peer):
                    self._send(peer, report.phase, _pack(verdict))()
        if failure is None and unanswered:
            return msgspec.structs.replace(verdict, failure=next(iter(unanswered.values())))
        return verdict

    @contextmanager
    def _noting(self, lost: dict[int, Failure], peer: int) -> Iterator[None]:
        """Notes a peer as lost; but when the time is over, no other peer can be reached any more."""
        try:
            yield
        except BroadcastError as error:
            if self.deadline.expired:
                raise
            lost[peer] = error.failure

    def _send(self, peer: int, phase: str, payload: bytes) -> Callable[[], None]:
        """Starts to send; what it gives waits for the end. Both raise BroadcastError."""
        buffer = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        with self._talking_to(peer, phase):
            work = dist.isend(buffer, peer, group=self.group, tag=_TAG)

        def finish() -> None:
            with self._talking_to(peer, phase):
                self._wait(work)

        return finish

    def _receive(self, peer: int, phase: str, length: int) -> Callable[[], bytes]:
        """Starts to receive `length` bytes; what it gives waits for them. Both raise BroadcastError."""
        buffer = torch.empty(length, dtype=torch.uint8)
        with self._talking_to(peer, phase):
            work = dist.irecv(buffer, peer, group=self.group, tag=_TAG)

        def finish() -> bytes:
            with self._talking_to(peer, phase):
                self._wait(work)
            return buffer.numpy().tobytes()

        return finish

    def _wait(self, work: dist.Work | None) -> None:
        if work is None or not work.wait(self.deadline.remaining()):
            raise RuntimeError("the message was given up")

    @contextmanager
    def _talking_to(self, peer: int, phase: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            rule = f"no answer to rank {self.rank} within {self.deadline} (phase {phase})"
            if not self.deadline.expired:
                rule = f"died or gave up (phase {phase}, seen by rank {self.rank}: {brief(error)})"
            if self.rank != self.ranks[0]:
                rule += f"; the error on rank {self.ranks[0]} may name the cause"
            raise BroadcastError(peer, None, rule, groups_broken=True) from error

    def _unpack(self, peer: int, message: bytes) -> _Frame:
        length = int.from_bytes(message[:_LENGTH_BYTES], "little")
        try:
            return msgspec.json.decode(message[_LENGTH_BYTES : _LENGTH_BYTES + length], type=_Frame)
        except msgspec.DecodeError as error:
            raise BroadcastError(peer, None, f"malformed frame: {error}", groups_broken=True) from error


def membership(group: dist.ProcessGroup | None) -> tuple[int, list[int]]:
    """This process's rank and the ranks of `group`, all global; 0 and [0] without torch.distributed."""
    if not dist.is_available() or not dist.is_initialized():
        return 0, [0]
    if group is not None and not isinstance(group, dist.ProcessGroup):  # torch's mark of a process that is not in it
        return dist.get_rank(), []
    return dist.get_rank(), dist.get_process_group_ranks(group or dist.group.WORLD)


def _pack(frame: _Frame) -> bytes:
    payload = msgspec.json.encode(frame)
    return (len(payload).to_bytes(_LENGTH_BYTES, "little") + payload).ljust(_FRAME_BYTES, b"\0")


def _disagreement(frames: dict[int, _Frame]) -> Failure | None:
    """The first failure reported, or the first rank that takes part in another broadcast than the first rank."""
    leader, first = next(iter(frames.items()))
    for rank, frame in frames.items():
        for name in ("protocol", "phase", "src"):
            mine, its = getattr(first, name), getattr(frame, name)
            if mine != its:
                return Failure(rank, None, f"{name} is {its}, on rank {leader} it is {mine}", name == "phase")
    return next((frame.failure for frame in frames.values() if frame.failure is not None), None)
