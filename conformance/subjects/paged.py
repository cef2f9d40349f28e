"""The oracle over tables that it gives itself, out of a pool with a free list: a subject that allocates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from inputmeta.conformance.cases.allocated import Allocates
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import ALLOCATED_BLOCKS, ALLOCATED_STATES, Rejection, Result
from inputmeta.conformance.subjects.oracle import OracleSubject


class PagedPool:
    """Blocks and state slots, handed out the last freed first; none is shared."""

    def __init__(self, num_blocks: int, num_states: int) -> None:
        self.free_blocks = list(range(num_blocks))
        self.free_states = list(range(num_states))
        self.tables: dict[int, list[int]] = {}
        self.states: dict[int, int] = {}

    def release(self, request: int) -> None:
        """A request ended: what it had is free."""
        self.free_blocks += self.tables.pop(request)
        self.free_states.append(self.states.pop(request))

    def grow(self, request: int, blocks: int, sequence: int) -> None:
        """Have a request, new or not, hold at least so many blocks, and a state.

        Raises:
            Rejection: the pool has none left (A-FIT), at this sequence of the batch.
        """
        if request not in self.states:
            if not self.free_states:
                raise Rejection("A-FIT", sequence, "state_id", "no state slot is free")
            self.states[request], self.tables[request] = self.free_states.pop(), []
        table = self.tables[request]
        while len(table) < blocks:
            if not self.free_blocks:
                raise Rejection("A-FIT", sequence, "block_table", "no block is free")
            table.append(self.free_blocks.pop())


class PagedSubject(OracleSubject):
    """Every field of every path, for tables and states of its own."""

    def __init__(self, name: str = "oracle-paged") -> None:
        super().__init__(name=name)
        self.capabilities = dataclasses.replace(self.capabilities, varlen=False, allocates=Allocates())
        self.pool: PagedPool | None = None

    def reset(self) -> None:
        """See :meth:`inputmeta.conformance.subjects.base.AllocatingSubject.reset`."""
        self.pool = None

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        assert request.allocation is not None
        if self.pool is None:
            self.pool = self.new_pool(request.allocation.num_blocks, request.allocation.num_states)
        for ended in request.allocation.ended:
            self.pool.release(ended)
        for place, (whose, sequence) in enumerate(zip(request.allocation.requests, request.sequences, strict=True)):
            if whose >= 0:
                self.pool.grow(whose, -(-sequence.seqlen_k // request.config.block_size), place)
        return self.answer(request, self.pool)

    def new_pool(self, num_blocks: int, num_states: int) -> PagedPool:
        """The pool of a history."""
        return PagedPool(num_blocks, num_states)

    def answer(self, request: Request, pool: PagedPool) -> Result:
        """The fields for the tables and states of the pool, and these."""
        assert request.allocation is not None
        sequences = [
            sequence
            if whose < 0
            else dataclasses.replace(sequence, block_table=tuple(pool.tables[whose]), state_id=pool.states[whose])
            for whose, sequence in zip(request.allocation.requests, request.sequences, strict=True)
        ]
        fields = super().build(dataclasses.replace(request, sequences=sequences, allocation=None))
        return {
            **fields,
            ALLOCATED_BLOCKS: padded(sequence.block_table for sequence in sequences),
            ALLOCATED_STATES: np.array([sequence.state_id for sequence in sequences], dtype=np.int32),
        }


def padded(tables: Iterable[Sequence[int]]) -> np.ndarray:
    """Block tables as rows of int32 [n, longest], -1 behind the ids of each.

    >>> padded([(4, 2), ()]).tolist()
    [[4, 2], [-1, -1]]
    """
    rows = [list(table) for table in tables]
    width = max(map(len, rows), default=0)
    return np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int32).reshape(len(rows), width)
