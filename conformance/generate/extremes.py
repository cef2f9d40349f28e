"""Valid batches at the int32 bound: none of these ids or sizes needs memory behind it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from math import lcm

from msgspec.structs import replace

from inputmeta.conformance.cases.model import Case, Config, Sequence

from .assembly import replaced
from .draws import INT32_MAX, Draw, chance, pick
from .int32 import block_count, ca_ratios, highest_block_id, highest_new_row, highest_state_id
from .profile import Profile

Edit = Callable[[Draw, Case, Profile], Case]


def draw_extreme(draw: Draw, profile: Profile) -> Callable[[Draw, Case], Case]:
    """An edit that mostly does nothing; else it takes a block id, a state id, block size or W to the int32 bound.

    Ids go as far as the profile's conditions allow; what is beyond these as a whole is left as it was.
    """
    windows = (_wide_window, _wide_window) if profile.wide_windows else (_unchanged, _unchanged)
    edits = (_high_block, _high_block, _high_state, _wide_blocks, _largest_block, *windows)
    edit = pick(draw, (*(_unchanged,) * 8, *edits))

    def within(draw: Draw, case: Case) -> Case:
        edited = edit(draw, case, profile)
        return edited if edited is case or profile.takes(edited) else case

    return within


def _unchanged(draw: Draw, case: Case, profile: Profile) -> Case:
    return case


def edit_sequence(case: Case, step: int, index: int, sequence: Sequence) -> Case:
    """The case with one sequence of one step changed."""
    return replace(case, steps=replaced(case.steps, step, replaced(case.steps[step], index, sequence)))


def border_blocks(config: Config, sequence: Sequence) -> list[int]:
    """Logical blocks worth a high id: the first, the one that the chunk begins in, the last; [] without blocks."""
    count = block_count(config, sequence.seqlen_k)
    begin = (sequence.seqlen_k - sequence.seqlen_q) // config.block_size
    return sorted({0, min(begin, count - 1), count - 1}) if count else []


def _high_block(draw: Draw, case: Case, profile: Profile) -> Case:
    """One block id raised as far as its written slots allow."""
    steps = enumerate(case.steps)
    places = [(s, i) for s, step in steps for i, q in enumerate(step) if block_count(case.config, q.seqlen_k) > 0]
    if not places:
        return case
    place = pick(draw, places)
    sequence = case.steps[place[0]][place[1]]
    block = pick(draw, border_blocks(case.config, sequence))
    limit = profile.conditions.highest_block(case.config.block_size)
    highest = highest_block_id(case.path, case.config, sequence, block)
    highest = highest if limit is None else min(highest, limit)
    return edit_sequence(case, *place, replace(sequence, block_table=replaced(sequence.block_table, block, highest)))


def _high_state(draw: Draw, case: Case, profile: Profile) -> Case:
    """One state id raised as far as its written ring slots allow."""
    step = draw.below(len(case.steps))
    index = draw.below(len(case.steps[step]))
    sequence = case.steps[step][index]
    limit = profile.conditions.largest_state
    highest = highest_state_id(case.path, case.config, sequence)
    highest = highest if limit is None else min(highest, limit)
    return edit_sequence(case, step, index, replace(sequence, state_id=highest))


def _wide_blocks(draw: Draw, case: Case, profile: Profile) -> Case:
    """Blocks so large that the products of F-LIMIT come near the bound; every sequence then needs at most one."""
    size = wide_block_size(case, draw.below(2))
    if size < case.config.max_model_len:
        return case
    return with_wide_blocks(case, size)


def _largest_block(draw: Draw, case: Case, profile: Profile) -> Case:
    """Decode: one row of one sequence and a block of 2**31 - 1 tokens, where the product of F-LIMIT is its bound."""
    if case.path == "prompt":
        return _wide_blocks(draw, case, profile)
    sequence = case.steps[0][0]
    row = replace(sequence, seqlen_q=1, seqlen_k=sequence.seqlen_k - sequence.seqlen_q + 1, draft_tokens=())
    config = replace(case.config, dense_ratios=(1,), sparse_ratios=())
    return with_wide_blocks(replace(case, config=config, steps=((row,),), max_num_blocks=None), INT32_MAX)


def _wide_window(draw: Draw, case: Case, profile: Profile) -> Case:
    """Prompt: W as large as total_k_swa and the pivots allow; with one sequence they are at the bound itself."""
    alone = chance(draw, 2, 3)
    if case.path != "prompt":
        return _largest_block(draw, case, profile)
    if alone:
        sequence = case.steps[0][0]
        rows = min(sequence.seqlen_q, 1)
        length = sequence.seqlen_k - sequence.seqlen_q + rows
        row = replace(sequence, seqlen_q=rows, seqlen_k=length, swa_valid_start=0, data_len=0)
        case = replace(case, steps=((row,),))
    window = min((INT32_MAX - (highest_new_row(case.config, step) or 0)) // len(step) for step in case.steps)
    return with_wide_window(case, window)


def with_wide_window(case: Case, window: int) -> Case:
    """The case with W and B of this many tokens, a prompt: state ids descending to 0, for a ring is as long."""
    config = replace(case.config, window_size=window, swa_block_size=window)
    steps = (tuple(replace(s, state_id=len(step) - 1 - i) for i, s in enumerate(step)) for step in case.steps)
    return replace(case, config=config, steps=tuple(steps))


def wide_block_size(case: Case, units_less: int = 0) -> int:
    """Largest block size that keeps F-LIMIT's product and all slots in int32, less some units of the ratios' lcm."""
    ratios = ca_ratios(case.config)
    unit = lcm(*ratios)
    rows = max(_blocks_named(case, sequences) for sequences in case.steps)
    largest = min((INT32_MAX // rows) * ratios[0], INT32_MAX)
    return (largest // unit - units_less) * unit


def with_wide_blocks(case: Case, block_size: int) -> Case:
    """The case with this block size, tokens, at least max_model_len: one block a sequence, ids descending to 0."""
    config = replace(case.config, block_size=block_size)
    steps = tuple(tuple(_one_block(config, sequences, i) for i in range(len(sequences))) for sequences in case.steps)
    return replace(case, config=config, steps=steps)


def _one_block(config: Config, sequences: Items[Sequence], index: int) -> Sequence:
    """Sequence ``index`` with the table that a very large block size needs."""
    needed = block_count(config, sequences[index].seqlen_k)
    return replace(sequences[index], block_table=(len(sequences) - 1 - index,) * needed)


def _blocks_named(case: Case, sequences: Items[Sequence]) -> int:
    """Physical blocks whose cells the step numbers: its sequences' own, and in decode total_q x max_num_blocks."""
    if case.path == "prompt":
        return len(sequences)
    return sum(sequence.seqlen_q for sequence in sequences) * (case.max_num_blocks or 1)
