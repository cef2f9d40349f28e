"""Cases of a subject that allocates (SPEC.md chapter 14): whether they are a plan, and the same with tables given.

The sequences of such a case have no tables and states: whoever needs some, for shapes, expectations or features, takes
those of :func:`inputmeta.oracle.first_fit`, one right answer of many.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from msgspec.structs import replace

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case, Sequence, oracle_config, oracle_sequences

MOST_KEYS = 2**20
"""Of all steps of a case together: what tables are made for."""
SPARE_IDS = 2**10
"""Ids that a subject may keep for itself."""


@dataclass(frozen=True)
class Allocates:
    """What a subject claims that gives block tables and state slots itself (SPEC.md chapter 14).

    It has a method ``reset``, is asked over steps of one history, each with an ``allocation``, and never otherwise. Its
    pool has ``allocation.num_blocks`` blocks and ``allocation.num_states`` slots beside those that it keeps for itself.
    Where it has too few it raises ``Rejection("A-FIT", sequence, "block_table", message)``.
    """

    reserved_blocks: int = 0
    """Its own block ids, the first ones: the pool begins behind them. 1: a null block 0."""
    reserved_states: int = 0
    """The same of state slots."""
    spare_blocks: int = 0
    """Blocks that it may hold for a request beyond those that its tokens need: for drafts to come, or in groups."""
    shares_blocks: bool = False
    """Full blocks of history may be in several tables (A-ONCE)."""
    states: bool = True
    """Gives state slots; False: it has none, and no field that it claims speaks of them."""


def allocates_problem(claims: Allocates) -> str | None:
    """What is wrong with claims of unknown origin: ``NAME is not …``, or None.

    >>> allocates_problem(Allocates(reserved_blocks=-1))
    'reserved_blocks is not a number of 0 to 1024'
    """
    for each in fields(Allocates):
        value: object = getattr(claims, each.name)
        kind = bool if each.type == "bool" else int
        if not isinstance(value, int) or type(value) is not kind or not 0 <= value <= SPARE_IDS:
            return f"{each.name} is not {'a bool' if kind is bool else f'a number of 0 to {SPARE_IDS}'}"
    return None


def allocation_problem(case: Case) -> str | None:
    """Why a case with an allocation cannot be used, with its place; None if it can, or has none."""
    allocation = case.allocation
    if allocation is None:
        return None
    return _form_problem(case) or _plan_problem(case) or _broken_step(case)


def _form_problem(case: Case) -> str | None:
    """What of a case does not go with an allocation."""
    assert case.allocation is not None
    if case.out_fault is not None:
        return "out_fault: does not go with allocation, whose steps are valid"
    if any(gather is not None and gather.varlen is not None for gather in case.gather):
        return "gather: varlen does not go with allocation"
    if len(case.allocation.steps) != len(case.steps):
        return f"allocation.steps: {len(case.allocation.steps)} entries for {len(case.steps)} steps"
    for index, sequences in enumerate(case.steps):
        for place, sequence in enumerate(sequences):
            if not sequence.is_placeholder and (sequence.block_table or sequence.state_id):
                return f"steps[{index}][{place}]: has a block_table or state_id, which the subject is to give"
    return None


def _plan_problem(case: Case) -> str | None:
    """Why the requests and the pool are no plan (A-LIFE, A-NEED)."""
    assert case.allocation is not None
    keys = sum(max(0, sequence.seqlen_k) for step in case.steps for sequence in step)
    if keys > MOST_KEYS:
        return f"steps: {keys} keys in all; with an allocation a case has at most {MOST_KEYS}"
    if case.config.block_size < 1:
        return f"config.block_size: {case.config.block_size} is below 1"
    ratio = min((*case.config.dense_ratios, *case.config.sparse_ratios), default=case.config.block_size)
    sizes = (
        ("num_blocks", case.allocation.num_blocks, case.config.block_size // max(1, ratio)),
        ("num_states", case.allocation.num_states, case.config.swa_block_size),
    )
    for name, count, cells in sizes:
        if (count + SPARE_IDS) * cells > 2**31:
            return f"allocation.{name}: {count} of {cells} cells each go past int32, {SPARE_IDS} reserved ones counted"
    problem = next(oracle.plan_problems(case.config.block_size, case.steps, case.allocation), None)
    return None if problem is None else f"allocation.{problem}"


def _broken_step(case: Case) -> str | None:
    """Which step breaks a precondition, with tables of first fit."""
    config = oracle_config(case.config)
    for index, step in enumerate(with_tables(case).steps):
        for error in oracle.violations(case.path, config, oracle_sequences(step), case.max_num_blocks):
            return f"steps[{index}]: breaks a precondition: {error}"
    return None


def with_tables(case: Case) -> Case:
    """The case as one whose tables and states are given, those of first fit; itself if they are."""
    if case.allocation is None:
        return case
    granted = oracle.first_fit(case.config.block_size, case.steps, case.allocation)
    steps = tuple(
        tuple(_given(*each) for each in zip(step, grants, strict=True))
        for step, grants in zip(case.steps, granted, strict=True)
    )
    return replace(case, steps=steps, allocation=None)


def _given(sequence: Sequence, grant: oracle.Grant | None) -> Sequence:
    return sequence if grant is None else replace(sequence, block_table=grant.block_table, state_id=grant.state_id)
