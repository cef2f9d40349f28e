"""Faults of an engine that gives block tables and state slots itself (SPEC.md chapter 14)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.allocated import Allocates
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Mutant, add, name_of
from inputmeta.conformance.subjects.base import ALLOCATED_BLOCKS, ALLOCATED_STATES, Result
from inputmeta.conformance.subjects.paged import PagedPool, PagedSubject


class WrongPool(PagedSubject):
    """The oracle over a pool that is wrong in one way."""

    pool_kind: ClassVar[type[PagedPool]] = PagedPool
    claims: ClassVar[Allocates] = Allocates()
    in_place: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        super().__init__(f"mutant:{name}")
        self.capabilities = dataclasses.replace(self.capabilities, allocates=self.claims, in_place=self.in_place)

    def new_pool(self, num_blocks: int, num_states: int) -> PagedPool:
        return self.pool_kind(num_blocks, num_states)


PoolKind = TypeVar("PoolKind", bound=type[PagedPool])
SubjectKind = TypeVar("SubjectKind", bound=type[WrongPool])


def wrong_pool(declared: str, stands_for: str) -> Callable[[PoolKind], PoolKind]:
    """Decorator: a subject over this pool is a mutant, by the pool's name."""

    def enter(pool: PoolKind) -> PoolKind:
        name = name_of(pool)
        kind = type(pool.__name__, (WrongPool,), {"pool_kind": pool})
        add(Mutant(name, "ALLOCATION", declared, stands_for, lambda: kind(name)))
        return pool

    return enter


def wrong_allocation(
    declared: str, stands_for: str, label: str = "deterministic", paths: tuple[str, ...] = oracle.PATHS
) -> Callable[[SubjectKind], SubjectKind]:
    """Decorator: the subject is a mutant, by its own name."""

    def enter(kind: SubjectKind) -> SubjectKind:
        name = name_of(kind)
        add(Mutant(name, "ALLOCATION", declared, stands_for, lambda: kind(name), label, paths))
        return kind

    return enter


@wrong_pool("ALLOCATION:block:A-ONCE", "the head of the free list moves late: two that grow in one step get one block")
class TwiceGivenBlock(PagedPool):
    late: tuple[int, ...] = ()

    def grow(self, request: int, blocks: int, sequence: int) -> None:
        self.late = () if sequence == 0 else self.late
        free = len(self.free_blocks)
        super().grow(request, blocks, sequence)
        if len(self.free_blocks) < free:
            table = self.tables[request]
            first, self.late = table[-1], (*self.late, table[-1])
            if self.late[0] != first:
                self.free_blocks.append(first)
                table[-1] = self.late[0]


@wrong_pool("ALLOCATION:block:A-FIT", "the last block of a request that ends is never given back")
class LeakedBlock(PagedPool):
    def release(self, request: int) -> None:
        self.tables[request] = self.tables[request][:-1]
        super().release(request)


@wrong_pool("ALLOCATION:state:A-FIT", "a request that ends gives its blocks back, and not its state slot")
class LeakedState(PagedPool):
    def release(self, request: int) -> None:
        self.free_blocks += self.tables.pop(request)
        del self.states[request]


@wrong_pool("ALLOCATION:block:A-RANGE", "ids count from 1, the pool from 0: the last block lies past it")
class BlockPastThePool(PagedPool):
    def __init__(self, num_blocks: int, num_states: int) -> None:
        super().__init__(num_blocks, num_states)
        self.free_blocks = [block + 1 for block in self.free_blocks]


@wrong_pool("ALLOCATION:state:A-ONCE", "a state slot is the request's id modulo their number")
class SharedState(PagedPool):
    def grow(self, request: int, blocks: int, sequence: int) -> None:
        new = request not in self.states
        slots = len(self.free_states) + len(self.states)
        super().grow(request, blocks, sequence)
        if new:
            self.states[request] = request % slots

    def release(self, request: int) -> None:
        self.states[request] = next(iter(set(range(64)) - set(self.free_states)))
        super().release(request)


@wrong_pool("ALLOCATION:block:A-KEEP", "a table that grows is made anew: its last block goes back, another is taken")
class ReplacedAtGrowth(PagedPool):
    def grow(self, request: int, blocks: int, sequence: int) -> None:
        table = self.tables.get(request, [])
        if table and len(table) < blocks:
            self.free_blocks.insert(0, table.pop())
        super().grow(request, blocks, sequence)


@wrong_pool("ALLOCATION:block:A-ONCE or ALLOCATION:block:A-KEEP", "an id that comes again has its first life's table")
class TableOfTheFirstLife(PagedPool):
    def __init__(self, num_blocks: int, num_states: int) -> None:
        super().__init__(num_blocks, num_states)
        self.first: dict[int, list[int]] = {}

    def release(self, request: int) -> None:
        self.first[request] = list(self.tables[request])
        super().release(request)

    def grow(self, request: int, blocks: int, sequence: int) -> None:
        super().grow(request, blocks, sequence)
        old = self.first.get(request, [])
        self.tables[request][: len(old)] = old[: len(self.tables[request])]


@wrong_allocation("ALLOCATION:block:A-ONCE", "a request that is not in the batch is taken for one that has ended")
class FreedWhileItWaits(WrongPool):
    def build(self, request: Request) -> Result:
        if self.pool is not None and request.allocation is not None:
            for waiting in self.pool.tables.keys() - set(request.allocation.requests) - set(request.allocation.ended):
                self.pool.free_blocks += self.pool.tables[waiting]
        return super().build(request)


@wrong_allocation("MISMATCH or UNWRITTEN", "a row of the table tensor is written as its table grows: a swap leaves it")
class StaleRowAfterASwap(WrongPool):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.rows: dict[int, tuple[int, ...]] = {}
        self.sizes: dict[int, int] = {}

    def reset(self) -> None:
        super().reset()
        self.rows, self.sizes = {}, {}

    def answer(self, request: Request, pool: PagedPool) -> Result:
        right = super().answer(dataclasses.replace(request, out=None), pool)
        assert request.allocation is not None
        sequences = []
        for place, (whose, sequence) in enumerate(zip(request.allocation.requests, request.sequences, strict=True)):
            table = tuple(pool.tables.get(whose, sequence.block_table))
            row = self.rows.get(place, ())
            if len(table) != self.sizes.get(whose):
                row = table
            self.rows[place] = (*row, *table[len(row) :])
            self.sizes[whose] = len(table)
            state = pool.states.get(whose, sequence.state_id)
            sequences.append(dataclasses.replace(sequence, block_table=self.rows[place], state_id=state))
        fields = super(PagedSubject, self).build(dataclasses.replace(request, sequences=sequences, allocation=None))
        return {**fields, **{key: right[key] for key in (ALLOCATED_BLOCKS, ALLOCATED_STATES)}}


@wrong_allocation("ALLOCATION:state", "reset forgets tables, not the slots of who lived", label="after earlier cases")
class SlotsOutliveAReset(WrongPool):
    in_place = False
    states: int = 0

    def reset(self) -> None:
        self.states = 0 if self.pool is None else self.states + len(self.pool.states)
        super().reset()

    def new_pool(self, num_blocks: int, num_states: int) -> PagedPool:
        pool = super().new_pool(num_blocks, num_states)
        pool.free_states = pool.free_states[: max(0, num_states - self.states)]
        return pool


@wrong_allocation("ALLOCATION:block:A-RANGE", "the null block 0 is on the free list")
class NullBlockGiven(WrongPool):
    claims = Allocates(reserved_blocks=1)


@wrong_allocation("ALLOCATION:block:A-TABLE", "the last block of a table is not handed over")
class ShortTables(WrongPool):
    def answer(self, request: Request, pool: PagedPool) -> Result:
        result = super().answer(request, pool)
        return {**result, ALLOCATED_BLOCKS: np.asarray(result[ALLOCATED_BLOCKS])[:, :-1]}


@wrong_allocation("ALLOCATION:block:A-FORM", "tables come as floating point")
class FloatTables(WrongPool):
    def answer(self, request: Request, pool: PagedPool) -> Result:
        result = super().answer(request, pool)
        return {**result, ALLOCATED_BLOCKS: np.asarray(result[ALLOCATED_BLOCKS]).astype(np.float32)}
