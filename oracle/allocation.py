"""Chapter 14: what an engine that allocates owes the requests it serves (A-…).

A subject that allocates is given lengths over steps and the size of a pool, and answers each step with the block tables
and state slots that it gave. :class:`Pool` holds these answers to the rules, step by step, from a reset on; the
formulas of the other chapters are then asked with the tables of the answer. :func:`first_fit` is one right answer of
many, for whoever needs any: shapes, expectations, features. :func:`plan_problems` says what is no plan at all.

Decided here: a request needs ``cdiv(seqlen_k, block_size)`` blocks for the most keys that it had (A-NEED), whatever the
ratios; it may stand still in a step and keeps its blocks then; an id that ended may come again as a new request; blocks
of rejected drafts may be kept or given back; a placeholder is no request, and its table is given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Literal, NamedTuple, Protocol

from .blocks import block_count
from .inputs import MetadataConfig, SequenceMetadata
from .units import Token, ceiling_division

NO_REQUEST = -1
"""In place of a request's id: the sequence is a placeholder."""

ALLOCATION: dict[str, str] = {
    "A-FORM": "allocated_blocks: integers [n_seq, width], ids, then -1 to the end; allocated_states: integers [n_seq]",
    "A-TABLE": "a table has an entry for every block that F-BLOCKS counts, of every sequence that is no placeholder",
    "A-RANGE": "every block and state given lies in the pool, behind the reserved ids: none past it, no null block",
    "A-ONCE": "no block in the tables of two live requests, nor twice in one; no state slot of two live requests",
    "A-KEEP": "blocks that hold positions below q_start stay in their places from step to step, and so does the state",
    "A-FIT": "the pool holds what the live requests need: a step is not refused for want of blocks or slots",
}
"""Rule of an answer -> its text, in the order in which they are checked."""


class AllocationStep(Protocol):
    """Whose the sequences of a step are."""

    @property
    def requests(self) -> Sequence[int]:
        """[n_seq] the request of each sequence, stable over steps; :data:`NO_REQUEST` for a placeholder."""

    @property
    def ended(self) -> Sequence[int]:
        """Requests that ended since the last step: their blocks and states are free before this step takes any."""


class Allocation(Protocol):
    """A pool and the requests of every step, from a reset on."""

    @property
    def num_blocks(self) -> int:
        """Blocks that requests can have, reserved ones left out."""

    @property
    def num_states(self) -> int:
        """State slots that requests can have, reserved ones left out."""

    @property
    def steps(self) -> Sequence[AllocationStep]:
        """One entry a step."""


class Lengths(Protocol):
    """What of a sequence an allocation goes by."""

    @property
    def seqlen_q(self) -> int:
        """Query rows."""

    @property
    def seqlen_k(self) -> int:
        """Keys after the step, tokens."""

    @property
    def is_placeholder(self) -> bool:
        """Whether it is no request's."""


class Need(NamedTuple):
    """What live requests need together."""

    blocks: int
    states: int


class Grant(NamedTuple):
    """What a sequence was given."""

    block_table: tuple[int, ...]
    state_id: int


def blocks_needed(seqlen_k: int, block_size: int) -> int:
    """A-NEED ``cdiv(seqlen_k, block_size)``: blocks of a request that has had so many keys at most.

    It is never fewer than F-BLOCKS counts, and one more where the last tokens fill no compressed one yet.

    >>> [blocks_needed(keys, 16) for keys in (0, 1, 16, 17)]
    [0, 1, 1, 2]
    """
    return ceiling_division(seqlen_k, block_size)


def most_keys(steps: Sequence[Sequence[Lengths]], allocation: Allocation) -> Iterator[dict[int, int]]:
    """By live request, the most keys that it has had: the dict of every step, in order, as of behind that step."""
    live: dict[int, int] = {}
    for sequences, plan in zip(steps, allocation.steps, strict=True):
        for request in plan.ended:
            live.pop(request, None)
        for request, sequence in zip(plan.requests, sequences, strict=True):
            if request != NO_REQUEST:
                live[request] = max(live.get(request, 0), sequence.seqlen_k)
        yield dict(live)


def most_needed(steps: Sequence[Sequence[Lengths]], allocation: Allocation, block_size: int, spare: int = 0) -> Need:
    """A-NEED: the most blocks and states that live requests need at any step; ``spare``: blocks more for each."""
    blocks = states = 0
    for live in most_keys(steps, allocation):
        blocks = max(blocks, sum(blocks_needed(keys, block_size) + spare for keys in live.values()))
        states = max(states, len(live))
    return Need(blocks, states)


def plan_problems(block_size: int, steps: Sequence[Sequence[Lengths]], allocation: Allocation) -> Iterator[str]:
    """A-LIFE, A-NEED: why steps and a pool are no plan, each with its place (``steps[1].requests[0]: …``)."""
    live: dict[int, int] = {}
    for index, (sequences, plan) in enumerate(zip(steps, allocation.steps, strict=False)):
        where = f"steps[{index}]"
        if len(plan.requests) != len(sequences):
            yield f"{where}.requests: {len(plan.requests)} ids for {len(sequences)} sequences"
            return
        for place, request in enumerate(plan.ended):
            if request not in live:
                yield f"{where}.ended[{place}]: request {request} is not live"
            live.pop(request, None)
        seen: set[int] = set()
        for place, (request, sequence) in enumerate(zip(plan.requests, sequences, strict=True)):
            yield from (f"{where}.requests[{place}]: {text}" for text in _misplaced(request, sequence, live, seen))
            if request != NO_REQUEST:
                seen.add(request)
                live[request] = max(live.get(request, 0), sequence.seqlen_k)
    need = most_needed(steps, allocation, block_size)
    for name, needed in (("num_blocks", need.blocks), ("num_states", need.states)):
        if getattr(allocation, name) < needed:
            yield f"{name}: {getattr(allocation, name)}, but the live requests need {needed} (A-NEED)"


def _misplaced(request: int, sequence: Lengths, live: dict[int, int], seen: Collection[int]) -> Iterator[str]:
    """Why a sequence cannot be this request's."""
    if request < NO_REQUEST:
        yield f"request {request}; ids are 0 and higher, {NO_REQUEST} for a placeholder"
    if sequence.is_placeholder != (request == NO_REQUEST):
        yield f"request {request}, and is_placeholder is {sequence.is_placeholder}"
    if request in seen:
        yield f"request {request} has two sequences"
    start = sequence.seqlen_k - sequence.seqlen_q
    if start > live.get(request, start):
        yield f"request {request} goes on at position {start}, and has had {live[request]} keys"


def first_fit(block_size: int, steps: Sequence[Sequence[Lengths]], allocation: Allocation) -> list[list[Grant | None]]:
    """One right answer to a plan: the lowest free ids first; None for a placeholder. Ids from 0 on.

    Blocks that a request has had it keeps to its end.
    """
    blocks, states = _LowestFirst(), _LowestFirst()
    live: dict[int, Grant] = {}
    answers: list[list[Grant | None]] = []
    for sequences, plan in zip(steps, allocation.steps, strict=True):
        for request in plan.ended:
            gone = live.pop(request)
            blocks.give(gone.block_table)
            states.give([gone.state_id])
        answer: list[Grant | None] = []
        for request, sequence in zip(plan.requests, sequences, strict=True):
            if request == NO_REQUEST:
                answer.append(None)
                continue
            held = live[request] if request in live else Grant((), states.take())
            missing = blocks_needed(sequence.seqlen_k, block_size) - len(held.block_table)
            taken = [blocks.take() for _ in range(missing)]
            live[request] = Grant((*held.block_table, *taken), held.state_id)
            answer.append(live[request])
        answers.append(answer)
    return answers


class _LowestFirst:
    """Ids from 0 on, the lowest free one first; as many as are asked for."""

    def __init__(self) -> None:
        self._given_back: list[int] = []
        self._next = 0

    def take(self) -> int:
        if self._given_back:
            return heappop(self._given_back)
        self._next += 1
        return self._next - 1

    def give(self, ids: Sequence[int]) -> None:
        for each in ids:
            heappush(self._given_back, each)


@dataclass(frozen=True)
class Breach:
    """A rule that an answer breaks. ``what``: of blocks or of state slots; ``sequence``: its place in the step."""

    rule: str
    what: Literal["block", "state"]
    sequence: int
    request: int
    detail: str

    def __str__(self) -> str:
        """Request, sequence and what is wrong; the rule is told by its name."""
        return f"request {self.request} (sequence {self.sequence}): {self.detail}"


@dataclass(frozen=True)
class Holding:
    """What a live request holds, as of the last step that it was in."""

    request: int
    step: int
    block_table: tuple[int, ...]
    state_id: int
    seqlen_k: int
    q_start: int
    """Positions below it are history: nobody writes them any more."""
    token_ids: Sequence[int]

    @property
    def waits(self) -> Holding:
        """As of a step that it is not in: all its positions are history."""
        return replace(self, q_start=self.seqlen_k)


class Pool:
    """The blocks and states of a subject, by its answers since a reset."""

    def __init__(
        self,
        config: MetadataConfig,
        num_blocks: int,
        num_states: int,
        *,
        reserved_blocks: int = 0,
        reserved_states: int = 0,
        shares_blocks: bool = False,
    ) -> None:
        """``reserved_…``: ids below these are the engine's own, and the pool begins behind them.

        ``shares_blocks``: a full block of history may be in several tables, at the same place, behind the same tokens.
        """
        self.config = config
        self.blocks = range(reserved_blocks, reserved_blocks + num_blocks)
        self.states = range(reserved_states, reserved_states + num_states)
        self.shares_blocks = shares_blocks
        self.live: dict[int, Holding] = {}
        self.step = -1

    def take(
        self, sequences: Sequence[SequenceMetadata], requests: Sequence[int], ended: Sequence[int]
    ) -> list[Breach]:
        """Go on to the next step, whose answer ``sequences`` hold; the rules that it breaks, A-FORM and A-FIT aside."""
        self.step += 1
        for request in ended:
            self.live.pop(request, None)
        mine = [
            (place, request, sequence)
            for place, (request, sequence) in enumerate(zip(requests, sequences, strict=True))
            if request != NO_REQUEST
        ]
        breaches = [breach for each in mine for breach in self._of_table(*each)]
        breaches += [breach for each in mine for breach in self._of_range(*each)]
        kept = [breach for each in mine for breach in self._of_change(*each)]
        for request, held in list(self.live.items()):
            self.live[request] = held.waits
        for _, request, sequence in mine:
            self.live[request] = Holding(
                request=request,
                step=self.step,
                block_table=tuple(sequence.block_table),
                state_id=sequence.state_id,
                seqlen_k=sequence.seqlen_k,
                q_start=sequence.seqlen_k - sequence.seqlen_q,
                token_ids=sequence.token_ids,
            )
        return [*breaches, *self._of_owners({request: place for place, request, _ in mine}), *kept]

    def _of_table(self, place: int, request: int, sequence: SequenceMetadata) -> Iterator[Breach]:
        """A-TABLE."""
        needed = block_count(Token(sequence.seqlen_k), self.config.block, self.config.ca_ratios[0])
        length = len(sequence.block_table)
        if length < needed:
            detail = f"a table of {length} blocks for {sequence.seqlen_k} keys, which need {needed}"
            yield Breach("A-TABLE", "block", place, request, detail)

    def _of_range(self, place: int, request: int, sequence: SequenceMetadata) -> Iterator[Breach]:
        """A-RANGE."""
        for logical, block in enumerate(sequence.block_table):
            if block not in self.blocks:
                detail = f"block {block} at place {logical} of its table; the pool is {_ids(self.blocks)}"
                yield Breach("A-RANGE", "block", place, request, detail)
                break
        if sequence.state_id not in self.states:
            detail = f"state slot {sequence.state_id}; the pool is {_ids(self.states)}"
            yield Breach("A-RANGE", "state", place, request, detail)

    def _of_change(self, place: int, request: int, sequence: SequenceMetadata) -> Iterator[Breach]:
        """A-KEEP."""
        before = self.live.get(request)
        if before is None:
            return
        history = min(sequence.seqlen_k - sequence.seqlen_q, before.seqlen_k)
        full = blocks_needed(history, self.config.block_size)
        pairs = zip(before.block_table[:full], sequence.block_table, strict=False)
        for logical, (old, new) in enumerate(pairs):
            if old != new:
                detail = f"block {old} at place {logical} of its table, of step {before.step}, is now block {new}"
                yield Breach("A-KEEP", "block", place, request, detail)
                break
        if sequence.state_id != before.state_id:
            detail = f"state slot {before.state_id}, of step {before.step}, is now slot {sequence.state_id}"
            yield Breach("A-KEEP", "state", place, request, detail)

    def _of_owners(self, places: dict[int, int]) -> Iterator[Breach]:
        """A-ONCE. ``places``: of the requests of this step; the others wait, and hold what has tokens in it."""
        owners: dict[int, tuple[int, int]] = {}
        slots: dict[int, int] = {}
        waiting = [request for request in self.live if request not in places]
        for request in (*waiting, *places):
            place, held = places.get(request, -1), self.live[request]
            table = held.block_table
            if place < 0:
                table = table[: blocks_needed(held.seqlen_k, self.config.block_size)]
            for logical, block in enumerate(table):
                other, at = owners.setdefault(block, (request, logical))
                if (other, at) == (request, logical) or self._may_share(other, at, request, logical):
                    continue
                if other == request:
                    detail = f"block {block} at places {at} and {logical} of its table"
                else:
                    detail = (
                        f"block {block} at place {logical} of its table is {self._owner(other, places)}, place {at}"
                    )
                yield Breach("A-ONCE", "block", place, request, detail)
                break
            other = slots.setdefault(held.state_id, request)
            if other != request:
                detail = f"state slot {held.state_id} is {self._owner(other, places)}"
                yield Breach("A-ONCE", "state", place, request, detail)

    def _owner(self, request: int, places: dict[int, int]) -> str:
        """Whose a block or slot is, in words."""
        if request in places:
            return f"that of request {request} (sequence {places[request]})"
        return f"that of request {request}, which lives and was last in step {self.live[request].step}"

    def _may_share(self, one: int, at: int, other: int, logical: int) -> bool:
        """Whether two requests may have one block: full of history in both, behind the same tokens."""
        if not self.shares_blocks or one == other or at != logical:
            return False
        first, second = self.live[one], self.live[other]
        end = (logical + 1) * self.config.block_size
        full = end <= min(first.q_start, second.q_start)
        return full and tuple(first.token_ids[:end]) == tuple(second.token_ids[:end])


def _ids(ids: range) -> str:
    """The ids of a pool in words.

    >>> _ids(range(1, 5))
    '1 … 4'
    """
    return f"{ids.start} … {ids.stop - 1}"
