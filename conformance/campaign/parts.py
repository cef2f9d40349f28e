"""A case taken apart, so that what belongs together is cut together: a sequence, its blocks, its rows of F-GATHER.

Positions are cut at the end (rows) or at the front (context); every array of a sequence follows, so that a valid case
stays one. What still breaks a precondition the reducer sees, and does not run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from inputmeta import oracle
from inputmeta.conformance.cases.model import Allocation, AllocationStep, Case, Gather
from inputmeta.conformance.cases.model import Sequence as CaseSequence

NO_SLACK = oracle.Need(0, 0)
Place = tuple[int, int]
"""Step and sequence."""


@dataclass(frozen=True)
class Part:
    """A sequence with what F-GATHER has of it."""

    sequence: CaseSequence
    fresh: tuple[int, ...] = ()
    """``fresh_input_ids`` of its query rows."""
    remap: int = -1
    rows: int | None = None
    """Rows that the step has of it (F-VARLEN); None in a step of fixed length."""
    request: int | None = None
    """Whose it is (A-LIFE), -1 of a placeholder; None where tables are given."""

    def changed(self, **changes: Any) -> Part:  # noqa: ANN401 - fields of the sequence
        """With other fields of the sequence."""
        return replace(self, sequence=msgspec.structs.replace(self.sequence, **changes))


@dataclass(frozen=True)
class Step:
    """The parts of a step; ``previous``: what F-GATHER and F-VARLEN have of the last step, None without F-GATHER."""

    parts: tuple[Part, ...]
    previous: Gather | None = None
    ended: tuple[int, ...] = ()
    """Requests that ended since the last step."""


@dataclass(frozen=True)
class Parts:
    """A case taken apart. ``head``: path, configuration, table width; its steps and gather inputs do not count."""

    head: Case
    steps: tuple[Step, ...]
    slack: oracle.Need = NO_SLACK
    """Blocks and states that its pool has beyond A-NEED: fewer requests get a smaller pool."""

    @classmethod
    def of(cls, case: Case) -> Parts:
        """The parts of a case."""
        gathers = case.gather or (None,) * len(case.steps)
        steps = tuple(_apart(*each) for each in zip(case.steps, gathers, strict=True))
        plan = case.allocation
        if plan is None:
            return cls(case, steps)
        steps = tuple(_owned(*each) for each in zip(steps, plan.steps, strict=True))
        need = oracle.most_needed(case.steps, plan, case.config.block_size)
        return cls(case, steps, oracle.Need(plan.num_blocks - need.blocks, plan.num_states - need.states))

    def case(self) -> Case:
        """The parts as a case again, without id and expectation."""
        steps = tuple(tuple(part.sequence for part in step.parts) for step in self.steps)
        gather = tuple(_gather(step) for step in self.steps)
        gather = gather if any(gather) else ()
        case = msgspec.structs.replace(self.head, id="", steps=steps, gather=gather, expected=())
        return case if case.allocation is None else msgspec.structs.replace(case, allocation=self._allocation(case))

    def _allocation(self, case: Case) -> Allocation:
        """The plan of the requests, and a pool with as much slack as it had."""
        plans = tuple(
            AllocationStep(requests=tuple(-1 if p.request is None else p.request for p in step.parts), ended=step.ended)
            for step in self.steps
        )
        plan = Allocation(num_blocks=0, num_states=0, steps=plans)
        need = oracle.most_needed(case.steps, plan, max(1, case.config.block_size))
        sizes = (max(0, need.blocks + self.slack.blocks), max(0, need.states + self.slack.states))
        return msgspec.structs.replace(plan, num_blocks=sizes[0], num_states=sizes[1])

    @property
    def requests(self) -> list[int]:
        """The requests, each once, in the order in which they come."""
        found = (part.request for step in self.steps for part in step.parts)
        return list(dict.fromkeys(request for request in found if request is not None and request >= 0))

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Step and request of every end."""
        return [(index, request) for index, step in enumerate(self.steps) for request in step.ended]

    def with_ends(self, kept: Collection[tuple[int, int]]) -> Parts:
        """With these ends alone; the other requests go on living."""
        steps = (
            replace(step, ended=tuple(request for request in step.ended if (index, request) in kept))
            for index, step in enumerate(self.steps)
        )
        return replace(self, steps=tuple(steps))

    def renumbered(self) -> Parts:
        """With requests 0, 1, … in the order in which they come."""
        numbers = {request: number for number, request in enumerate(self.requests)}
        steps = (
            replace(
                step,
                parts=tuple(replace(part, request=numbers.get(part.request or 0, part.request)) for part in step.parts),
                ended=tuple(numbers[request] for request in step.ended),
            )
            for step in self.steps
        )
        return replace(self, steps=tuple(steps)) if self.head.allocation else self

    def mended(self) -> Parts:
        """A history that is one again: who is not live does not end, and none goes on past the keys that it has had."""
        if self.head.allocation is None:
            return self
        most: dict[int, int] = {}
        steps = []
        for step in self.steps:
            ended = tuple(request for request in step.ended if request in most)
            for request in ended:
                del most[request]
            parts = tuple(_going_on(self.head, part, most) for part in step.parts)
            steps.append(replace(step, parts=parts, ended=ended))
        return replace(self, steps=tuple(steps))

    @property
    def places(self) -> list[Place]:
        """Of every sequence, in order."""
        return [(index, place) for index, step in enumerate(self.steps) for place in range(len(step.parts))]

    def part(self, place: Place) -> Part:
        """The part at a place."""
        return self.steps[place[0]].parts[place[1]]

    def only(self, places: Collection[Place]) -> Parts:
        """With these sequences alone; steps without any are left out."""
        kept = set(places)
        steps = []
        ended: tuple[int, ...] = ()
        for index, step in enumerate(self.steps):
            parts = tuple(part for place, part in enumerate(step.parts) if (index, place) in kept)
            ended = tuple(dict.fromkeys((*ended, *step.ended)))
            if parts:
                steps.append(replace(step, parts=parts, ended=ended))
                ended = ()
        return replace(self, steps=tuple(steps))

    def with_parts(self, changes: Mapping[Place, Part]) -> Parts:
        """With other parts at some places."""
        steps = tuple(
            replace(step, parts=tuple(changes.get((index, place), part) for place, part in enumerate(step.parts)))
            for index, step in enumerate(self.steps)
        )
        return replace(self, steps=steps)

    def every(self, change: Callable[[Part], Part]) -> Parts:
        """With every part changed in one way."""
        return self.with_parts({place: change(self.part(place)) for place in self.places})

    def configured(self, **changes: Any) -> Parts:  # noqa: ANN401 - fields of the configuration
        """With another configuration; block tables and known tokens as long as it asks for."""
        config = msgspec.structs.replace(self.head.config, **changes)
        changed = replace(self, head=msgspec.structs.replace(self.head, config=config))
        return changed.every(lambda part: with_blocks(changed.head, part))


def _apart(step: tuple[CaseSequence, ...], gather: Gather | None) -> Step:
    if gather is None:
        return Step(tuple(Part(sequence) for sequence in step))
    rows: tuple[int | None, ...] = (None,) * len(step)
    varlen = gather.varlen
    if varlen is not None and len(varlen.seqlens_q) == len(step):  # what does not fit, of a broken step, stays whole
        rows, varlen = varlen.seqlens_q, msgspec.structs.replace(varlen, seqlens_q=())
    parts, begin = [], 0
    for sequence, remap, count in zip(step, gather.remap, rows, strict=True):
        end = begin + max(0, sequence.seqlen_q)
        parts.append(Part(sequence, gather.fresh_input_ids[begin:end], remap, count))
        begin = end
    return Step(tuple(parts), msgspec.structs.replace(gather, fresh_input_ids=(), remap=(), varlen=varlen))


def _owned(step: Step, plan: AllocationStep) -> Step:
    """The parts as those of their requests."""
    owned = (replace(part, request=request) for part, request in zip(step.parts, plan.requests, strict=True))
    return replace(step, parts=tuple(owned), ended=plan.ended)


def _going_on(head: Case, part: Part, most: dict[int, int]) -> Part:
    """The part, its context cut to the most keys that its request has had, which are noted."""
    request = part.request
    if request is None or request < 0:
        return part
    sequence = part.sequence
    known = most.get(request)
    if known is not None and sequence.seqlen_k - sequence.seqlen_q > known:
        part = with_context(head, part, known)
    most[request] = max(known or 0, part.sequence.seqlen_k)
    return part


def _gather(step: Step) -> Gather | None:
    if step.previous is None:
        return None
    fresh = tuple(token for part in step.parts for token in part.fresh)
    remap = tuple(part.remap for part in step.parts)
    rows = tuple(part.rows for part in step.parts if part.rows is not None)
    varlen = step.previous.varlen
    if varlen is not None and len(rows) == len(step.parts):
        varlen = msgspec.structs.replace(varlen, seqlens_q=rows)
    return msgspec.structs.replace(step.previous, fresh_input_ids=fresh, remap=remap, varlen=varlen)


def with_previous(step: Step, kept: Sequence[int]) -> Step:
    """The step with only these rows of the last step; what continues from another continues from the last one kept."""
    assert step.previous is not None
    changes = {name: _chosen(getattr(step.previous, name), kept) for name in ("prev_sampled", "prev_predict")}
    previous = msgspec.structs.replace(step.previous, **changes)
    if previous.varlen is not None:
        names = ("prev_seqlens_q", "prev_num_accepted_tokens")
        counts = {name: _chosen(getattr(previous.varlen, name), kept) for name in names}
        previous = msgspec.structs.replace(previous, varlen=msgspec.structs.replace(previous.varlen, **counts))
    place = {old: new for new, old in enumerate(kept)}
    last = len(kept) - 1
    parts = tuple(replace(p, remap=place.get(p.remap, last)) if p.remap >= 0 else p for p in step.parts)
    return replace(step, parts=parts, previous=previous)


def without_unread(parts: Parts) -> Parts:
    """Without the rows of the last step from which no sequence continues."""

    def read(step: Step) -> Step:
        if step.previous is None:
            return step
        return with_previous(step, sorted({part.remap for part in step.parts if part.remap >= 0}))

    return replace(parts, steps=tuple(map(read, parts.steps)))


def _chosen(items: tuple[Any, ...], kept: Sequence[int]) -> tuple[Any, ...]:
    return tuple(items[place] for place in kept if place < len(items))


def blocks_needed(head: Case, seqlen_k: int) -> int:
    """Blocks that a sequence needs (F-BLOCKS); 0 where the configuration has no sense."""
    config = head.config
    smallest = min((*config.dense_ratios, *config.sparse_ratios), default=0)
    if smallest < 1 or config.block_size < smallest:
        return 0
    return -(-(max(0, seqlen_k) // smallest) // (config.block_size // smallest))


def with_blocks(head: Case, part: Part) -> Part:
    """The part with blocks enough: those that were missing get the smallest ids that it has not."""
    table = part.sequence.block_table
    missing = blocks_needed(head, part.sequence.seqlen_k) - len(table)
    if missing <= 0 or (part.request is not None and part.request >= 0):
        return part
    taken = set(table)
    free = [block for block in range(len(table) + missing) if block not in taken]
    return part.changed(block_table=table + tuple(free[:missing]))


def drafts_given(head: Case) -> bool:
    """Whether a row is a draft: on every path but prompts."""
    return head.path != "prompt"


def with_rows(head: Case, part: Part, rows: int) -> Part:
    """The part with so many query rows, fewer than it has: the last ones are gone."""
    sequence = part.sequence
    length = sequence.seqlen_k - sequence.seqlen_q + rows
    changes: dict[str, Any] = {"seqlen_q": rows, "seqlen_k": length}
    if drafts_given(head):
        changes["draft_tokens"] = sequence.draft_tokens[: max(0, rows - 1)]
    else:
        changes["token_ids"] = _without(sequence.token_ids, length, sequence.seqlen_k)
    spare = max(0, len(sequence.block_table) - blocks_needed(head, sequence.seqlen_k))
    changes["block_table"] = sequence.block_table[: blocks_needed(head, length) + spare]
    gone = sequence.seqlen_q - rows
    recent = sequence.recent_tokens
    changes["recent_tokens"] = recent[: max(0, len(recent) - gone)]
    if len(recent) < gone:
        compressed = sequence.compressed_tokens
        changes["compressed_tokens"] = compressed[: max(0, len(compressed) + len(recent) - gone)]
    left = None if part.rows is None else min(part.rows, rows)
    return replace(part.changed(**changes), fresh=part.fresh[:rows], rows=left)


def with_context(head: Case, part: Part, context: int) -> Part:
    """The part with so many tokens before its first row, fewer than it has: the first ones are gone."""
    sequence = part.sequence
    gone = sequence.seqlen_k - sequence.seqlen_q - context
    length = sequence.seqlen_k - gone
    blocks = blocks_needed(head, sequence.seqlen_k) - blocks_needed(head, length)
    recent_gone = max(0, gone - len(sequence.compressed_tokens))
    return part.changed(
        seqlen_k=length,
        token_ids=sequence.token_ids[gone:],
        block_table=sequence.block_table[blocks:],
        compressed_tokens=sequence.compressed_tokens[gone:],
        recent_tokens=sequence.recent_tokens[recent_gone:],
        swa_valid_start=max(min(0, sequence.swa_valid_start), sequence.swa_valid_start - gone),
        data_len=max(min(0, sequence.data_len), sequence.data_len - gone),
    )


def with_rows_known(part: Part, rows: int) -> Part:
    """The part with so many query rows, fewer than it has: the first ones are context. For prompts."""
    return part.changed(seqlen_q=rows)


def _without(items: tuple[int, ...], begin: int, end: int) -> tuple[int, ...]:
    return items[: max(0, begin)] + items[max(0, end) :]


def concentrated(parts: Parts, step: int, first: int, last: int, *, context: str) -> Parts:
    """The sequences ``first`` to ``last`` of a step as one with all of their rows, behind the last one's context.

    ``context``: ``last``, or ``all`` for the contexts of all of them. The longest length of the model grows with it.
    """
    chosen = parts.steps[step].parts[first : last + 1]
    end = chosen[-1].sequence
    rows = sum(max(0, part.sequence.seqlen_q) for part in chosen)
    contexts = [max(0, part.sequence.seqlen_k - part.sequence.seqlen_q) for part in chosen]
    behind = sum(contexts) if context == "all" else contexts[-1]
    tokens = behind + (1 if drafts_given(parts.head) else rows)
    drafts = tuple(token for part in chosen for token in (0, *part.sequence.draft_tokens))[1:rows]
    merged = chosen[-1].changed(
        seqlen_q=rows,
        seqlen_k=behind + rows,
        token_ids=_filled(tuple(t for part in chosen for t in part.sequence.token_ids), tokens),
        draft_tokens=_filled(drafts, rows - 1) if drafts_given(parts.head) else (),
        compressed_tokens=end.compressed_tokens[: behind + rows],
        recent_tokens=_filled(end.recent_tokens, behind + rows) if parts.head.config.max_ngram_size else (),
        is_placeholder=False,
    )
    left = None if chosen[-1].rows is None else sum(part.rows or 0 for part in chosen)
    merged = replace(merged, fresh=tuple(token for part in chosen for token in part.fresh), rows=left)
    merged = with_blocks(parts.head, merged)
    here = parts.steps[step]
    previous = here.previous
    if previous is not None:
        wide = tuple(_filled(row, max(len(row), rows - 1)) for row in previous.prev_predict)
        previous = msgspec.structs.replace(previous, prev_predict=wide)
    kept = (*here.parts[:first], merged, *here.parts[last + 1 :])
    steps = (*parts.steps[:step], replace(here, parts=kept, previous=previous), *parts.steps[step + 1 :])
    longest = max(parts.head.config.max_model_len, behind + rows)
    head = parts.head
    if longest != head.config.max_model_len:
        config = msgspec.structs.replace(head.config, max_model_len=longest)
        head = msgspec.structs.replace(head, config=config)
    return replace(parts, head=head, steps=steps)


def _filled(items: tuple[int, ...], count: int) -> tuple[int, ...]:
    return items[:count] + (0,) * max(0, count - len(items))
