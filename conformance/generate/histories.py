"""Histories of requests, for a subject that gives block tables and states itself (SPEC.md chapter 14).

Lengths over steps, and a pool with room for them, mostly for no block more: a subject that keeps what ended requests
had runs out. Requests come, wait, change places, lose drafts, end and come again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from inputmeta import oracle
from inputmeta.conformance.cases.allocated import Allocates
from inputmeta.conformance.cases.model import Allocation, AllocationStep, Case, Path, Sequence

from .assembly import Identity, sequence
from .configs import draw_config
from .draws import Draw, chance, pick
from .gather import draw_gather
from .int32 import block_count
from .profile import Profile
from .sequences import Draft, Scope, draft_at, drafts, empty_draft, queries

STEP_COUNTS = (2, 3, 4, 1, 3, 4, 5, 6, 8)
MOST_LIVE = 4
"""Requests that live at once: few blocks go from one to another soon."""
ARRIVALS = (1, 0, 1, 0, 2, 3)
SLACK = (0, 0, 0, 0, 1, 3)
"""Blocks, and state slots, that the pool has beyond what is needed."""
SHARED_BLOCKS = (0, 1, 2)
"""Full blocks of tokens that a request has in common with the first one, for a subject that shares blocks."""


@dataclass(frozen=True)
class Life:
    """A live request."""

    request: int
    index: int
    """What its tokens tell of it: each life has its own, also of an id that comes again."""
    shared: int
    """Raw tokens from position 0 on that are those of the first life."""
    rows: int = 0
    """Query rows of its last step."""
    seqlen_k: int = 0
    begun: bool = False
    """Whether it was in a step before."""


@dataclass
class Cast:
    """The requests of a history as it is drawn, step by step."""

    scope: Scope
    shares: bool
    live: list[Life] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    """Ids that may come again."""
    lives: int = 0
    """Lives so far."""
    ids: int = 0
    """Ids so far."""

    def can_go_on(self, life: Life) -> bool:
        """Whether there is room for another step of it."""
        return life.seqlen_k + max(self.scope.fewest, self.scope.unit) <= self.scope.longest


def draw_history(draw: Draw, profile: Profile, claims: Allocates) -> Case:
    """A valid case with an allocation; ``id`` and ``expected`` are empty. Tags: the tier."""
    path = cast(Path, pick(draw, profile.paths))
    count = pick(draw, STEP_COUNTS if profile.multi_step else (1,))
    blocks_more, states_more = pick(draw, SLACK), pick(draw, SLACK)
    tier = profile.tiers[0]
    config = draw_config(draw, profile, path, tier)
    acting = Cast(Scope.of(profile, path, config, tier), claims.shares_blocks)
    drawn = [draw.part(_step, acting) for _ in range(count)]
    steps, plans = tuple(sequences for sequences, _ in drawn), tuple(plan for _, plan in drawn)
    plan = Allocation(num_blocks=0, num_states=0, steps=plans)
    need = oracle.most_needed(steps, plan, config.block_size, claims.spare_blocks)
    return Case(
        schema="inputmeta-case/1",
        path=path,
        config=config,
        steps=steps,
        gather=tuple(draw_gather(draw, step) for step in steps) if path == "decode_zos" else (),
        allocation=Allocation(num_blocks=need.blocks + blocks_more, num_states=need.states + states_more, steps=plans),
        tags=(f"tier:{tier}",),
    )


def _step(draw: Draw, acting: Cast) -> tuple[tuple[Sequence, ...], AllocationStep]:
    """The next step: who ends, who waits, who comes; then their lengths, in an order of their own."""
    ended = [life for life in acting.live if chance(draw, 1, 4) or not acting.can_go_on(life)]
    acting.live = [life for life in acting.live if life not in ended]
    acting.ended += [life.request for life in ended]
    there = _present(draw, acting)
    each = acting.scope.shared_by(len(there))
    sequences: list[Sequence] = []
    requests: list[int] = []
    for place, life in enumerate(there):
        has_to_work = not (acting.scope.conditions.empty_steps or place)
        draft = draw.part(_draft, each.with_rows() if has_to_work else each, life)
        sequences.append(_sequence(acting, draft, life))
        requests.append(life.request)
        after = replace(life, rows=draft.seqlen_q, seqlen_k=max(life.seqlen_k, draft.seqlen_k), begun=True)
        acting.live = [after if other.index == life.index else other for other in acting.live]
    room = acting.scope.most_sequences > len(there) and acting.scope.path != "prompt"
    if chance(draw, 1, 8) and room and acting.scope.conditions.placeholders and acting.scope.fewest <= 1:
        sequences.append(_placeholder(acting))
        requests.append(oracle.NO_REQUEST)
    return tuple(sequences), AllocationStep(requests=tuple(requests), ended=tuple(life.request for life in ended))


def _present(draw: Draw, acting: Cast) -> list[Life]:
    """The requests of a step, at least one, new ones among them, in the order in which they stand in the batch."""
    most = max(1, min(MOST_LIVE, acting.scope.most_sequences))
    waiting = [chance(draw, 1, 6) for _ in acting.live]
    there = [life for life, waits in zip(acting.live, waiting, strict=True) if not waits]
    arrivals = min(max(pick(draw, ARRIVALS), not there), most - len(acting.live))
    for _ in range(arrivals):
        again = chance(draw, 1, 3)
        place = draw.below(max(1, len(acting.ended)))
        if again and acting.ended:
            request = acting.ended.pop(place)
        else:
            request, acting.ids = acting.ids, acting.ids + 1
        shared = pick(draw, SHARED_BLOCKS) * acting.scope.config.block_size
        life = Life(request, acting.lives, shared if acting.shares else 0)
        acting.lives += 1
        acting.live.append(life)
        there.append(life)
    there = (there or acting.live)[:most]
    turned = draw.below(4)
    if turned == 1:
        return there[::-1]
    return there[turned // 2 :] + there[: turned // 2]


def _draft(draw: Draw, scope: Scope, life: Life) -> Draft:
    """The next lengths of a request: anywhere at its begin, then behind what it has, but for rejected drafts."""
    if not life.begun:
        begins = pick(draw, (True, True, False))
        draft = draft_at(draw, scope, queries(draw, scope), 0) if begins else drafts(draw, scope)
    else:
        lost = pick(draw, (0, 0, 0, 1, 2, 18))
        start = life.seqlen_k - (min(lost, max(0, life.rows - 1)) if scope.path != "prompt" else 0)
        room = replace(scope, rows=max(scope.fewest, min(scope.rows, scope.longest - start)))
        draft = draft_at(draw, room, queries(draw, room), start)
    return replace(draft, is_placeholder=False)


def _sequence(acting: Cast, draft: Draft, life: Life) -> Sequence:
    """The sequence of a request, without table and state."""
    known = draft.seqlen_k if acting.scope.path == "prompt" else draft.q_start + 1
    identity = Identity(life.index, (), 0, None, min(life.shared, known))
    return sequence(acting.scope.path, acting.scope.config, draft, identity)


def _placeholder(acting: Cast) -> Sequence:
    """A placeholder with a table of its own, of ids that others may have: it writes nothing."""
    draft = empty_draft(acting.scope.path)
    blocks = tuple(range(block_count(acting.scope.config, draft.seqlen_k)))
    return sequence(acting.scope.path, acting.scope.config, draft, Identity(acting.lives, blocks, 0, None, 0))
