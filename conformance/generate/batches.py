"""The strategy: a case of one or several steps on one set of buffers."""

from __future__ import annotations

from typing import cast

from hypothesis import strategies as st
from msgspec.structs import replace

from inputmeta.conformance.cases.model import Case, Gather, Path, Sequence

from .assembly import steps
from .configs import draw_config
from .draws import Draw, pick, strategy_of
from .extremes import draw_extreme
from .gather import draw_gather, draw_varlen
from .histories import draw_history
from .int32 import block_count
from .invalid import broken, draw_breaker
from .profile import Profile
from .sequences import Scope, takes_idle_steps

SMALL_WEIGHT = 9
"""How many times as often as from any other tier cases are drawn from the first one of a profile."""

FEW_STEPS = (1, 1, 1, 1, 1, 1, 1, 1, 2)
STEP_COUNTS = {"small": (*(1,) * 12, 2, 2, 3, 4, 5, 6), "real": FEW_STEPS, "many": FEW_STEPS}
"""Without gaps: shrinking takes steps away one by one."""
SIZES = {"small": (1, 2, 3, 4, 5), "real": (1, 2, 3), "many": (1, 2, 3, 4, 5, 5, 5, 5)}
"""Sequences of a step that are drawn."""
TOTALS = {"small": (0,), "real": (0,), "many": (33, 40, 64, 65, 130)}
"""Sequences of a step, no fewer than are drawn: further ones are like these, with blocks and tokens of their own."""
WIDTHS = (None, None, None, 0, 1, 2, 7)
"""Columns of the caller's block tables beyond those that are needed; None: no such buffer is given."""
IDLE = 0
"""A step without work: one sequence without rows in a prompt, a placeholder's row in a decode."""


def batches(profile: Profile) -> st.SearchStrategy[Case]:
    """Cases within the profile; ``id`` and ``expected`` are empty.

    Tags: the tier, and for an invalid case ``invalid:P-...`` and the id of the feature that names what was broken.
    """
    # Hypothesis follows every drawn example by up to six copies with one part repeated elsewhere. Such a copy hardly
    # ever reaches another border, so we spend the time on fresh draws: parts of a unique collection are not repeated.
    return st.lists(strategy_of(draw_case)(profile), min_size=1, max_size=1, unique_by=_constant).map(_first)


def _constant(case: Case) -> int:
    """One key for every case: the list holds one."""
    return 0


def _first(cases: list[Case]) -> Case:
    return cases[0]


def draw_case(draw: Draw, profile: Profile) -> Case:
    """The draw behind ``batches``: what decides the form of the rest comes first, so that it survives shrinking."""
    if profile.allocates is not None:
        surplus = pick(draw, WIDTHS)
        case = draw_history(draw, profile, profile.allocates)
        return replace(case, max_num_blocks=_buffer_width(case, surplus, profile.max_table_columns))
    path = cast(Path, pick(draw, profile.paths))
    tier = _tier(draw, profile)
    is_broken = draw.below(100) >= 100 - round(100 * profile.invalid)
    breaker = draw_breaker(draw)
    extreme = draw_extreme(draw, profile)
    width = pick(draw, WIDTHS)
    count = pick(draw, STEP_COUNTS[tier] if profile.multi_step else (1,))
    config = draw_config(draw, profile, path, tier)
    case = Case(
        schema="inputmeta-case/1",
        path=path,
        config=config,
        steps=_steps(draw, Scope.of(profile, path, config, tier), count),
        tags=(f"tier:{tier}",),
    )
    valid = extreme(draw, replace(case, max_num_blocks=_buffer_width(case, width, profile.max_table_columns)))
    gather = tuple(draw_gather(draw, step) for step in valid.steps) if path == "decode_zos" else ()
    case = broken(draw, valid, breaker, profile) if is_broken else valid
    if profile.varlen:  # last, so that no other draw depends on it
        gather = tuple(draw_varlen(draw, valid.config, *of_step) for of_step in zip(valid.steps, gather, strict=False))
    return replace(case, gather=_without_refused(gather, case, valid))


def _tier(draw: Draw, profile: Profile) -> str:
    """Real constants and many sequences are rarer: their batches cost more."""
    return pick(draw, (*profile.tiers[:1] * SMALL_WEIGHT, *profile.tiers[1:]))


def _steps(draw: Draw, scope: Scope, count: int) -> tuple[tuple[Sequence, ...], ...]:
    """So many steps, each with a number of sequences of its own: buffers grow and shrink."""
    most = scope.most_sequences
    sizes = tuple(size for size in SIZES[scope.tier] if size <= most)
    totals = tuple(total for total in TOTALS[scope.tier] if total <= most) or (0,)
    if count > 1 and takes_idle_steps(scope):
        sizes = (*sizes, IDLE)
    return tuple(draw.part(steps, scope, sizes, totals) for _ in range(count))


def _buffer_width(case: Case, surplus: int | None, most: int | None) -> int | None:
    """Decode: columns of the caller's block table buffer, none given mostly, else as wide as needed or wider (I-4)."""
    if case.path == "prompt" or surplus is None:
        return None
    needed = max(block_count(case.config, sequence.seqlen_k) for step in case.steps for sequence in step)
    return max(1, needed) + (surplus if most is None else min(surplus, most - max(1, needed)))


def _without_refused(gather: tuple[Gather, ...], case: Case, valid: Case) -> tuple[Gather | None, ...]:
    """Inputs of F-GATHER of the steps that a break left as they were; none for a step that is refused."""
    if case.out_fault is not None or case.max_num_blocks != valid.max_num_blocks:
        return (None,) * len(gather)
    same_config = case.config == valid.config
    kept = [same_config and step is before for step, before in zip(case.steps, valid.steps, strict=True)]
    return tuple(inputs if kept[step] else None for step, inputs in enumerate(gather))
