"""P-INT32 broken: one past the bound, or an input array that does not fit (I-10)."""

from __future__ import annotations

from math import lcm

from msgspec.structs import replace

from inputmeta.conformance.cases.model import Case, Config, Sequence

from .assembly import replaced
from .breaking import is_decode, on_case, on_config, on_member, on_sequence
from .draws import INT32_MAX, INT32_MIN, Draw, pick
from .extremes import border_blocks, with_wide_blocks, with_wide_window
from .int32 import ca_ratios, highest_block_id, highest_new_row, highest_state_id

OUTSIDE = (INT32_MAX + 1, INT32_MIN - 1, 2**40)


def _raisable_blocks(case: Case, sequence: Sequence) -> list[int]:
    """Logical blocks of which the step writes a slot that a larger id takes out of int32."""
    blocks = border_blocks(case.config, sequence)
    return [block for block in blocks if highest_block_id(case.path, case.config, sequence, block) < INT32_MAX]


@on_sequence("P-INT32:slot", lambda case, sequence: bool(_raisable_blocks(case, sequence)))
def _slot(draw: Draw, case: Case, sequence: Sequence) -> Sequence:
    """A block id one past the largest whose slots fit; the id itself fits."""
    block = pick(draw, _raisable_blocks(case, sequence))
    highest = highest_block_id(case.path, case.config, sequence, block)
    return replace(sequence, block_table=replaced(sequence.block_table, block, highest + 1))


@on_sequence("P-INT32:state")
def _state(draw: Draw, case: Case, sequence: Sequence) -> Sequence:
    """A state id one past the largest whose ring slots fit, or one that does not fit itself."""
    highest = highest_state_id(case.path, case.config, sequence)
    return replace(sequence, state_id=pick(draw, sorted({highest + 1, INT32_MAX + 1})))


def _one_outside(draw: Draw, values: tuple[int, ...], last: int, outside: tuple[int, ...] = OUTSIDE) -> tuple[int, ...]:
    """The values with one outside int32 at a place up to ``last``; at their length: one more."""
    place = draw.below(last + 1)
    return replaced(values, place, pick(draw, outside))


on_member(
    "P-INT32:table-entry",
    "block_table",
    lambda draw, case, q: _one_outside(draw, q.block_table, len(q.block_table), (INT32_MAX + 1, 2**40)),
)


@on_sequence("P-INT32:token", lambda case, sequence: len(sequence.token_ids) > 0)
def _token(draw: Draw, case: Case, sequence: Sequence) -> Sequence:
    """Any raw token: one of the chunk, or one that this step never reads."""
    place = pick(draw, sorted({0, len(sequence.token_ids) - 1}))
    return replace(sequence, token_ids=replaced(sequence.token_ids, place, pick(draw, OUTSIDE)))


on_member(
    "P-INT32:history",
    "compressed_tokens",
    lambda draw, case, q: _one_outside(draw, q.compressed_tokens, len(q.compressed_tokens)),
)
on_member(  # history that nobody reads, n-grams being off: with them on, P-NGRAM would be broken too
    "P-INT32:history",
    "recent_tokens",
    lambda draw, case, sequence: (pick(draw, OUTSIDE),),
    lambda case, sequence: case.config.max_ngram_size == 0,
)


def _lookup(draw: Draw, config: Config) -> Config:
    table = config.lookup_table
    place = pick(draw, sorted({max(0, len(table) - 1), 2 if len(table) > 2 else 0}))
    return replace(config, lookup_table=replaced(table, place, pick(draw, OUTSIDE)))


on_config("P-INT32:lookup", _lookup)
on_config("P-INT32:pad-token", lambda draw, config: replace(config, pad_token=pick(draw, OUTSIDE)))
on_config("P-INT32:sentinel", lambda draw, config: replace(config, image_sentinel=pick(draw, OUTSIDE)))


# What a case offers no place for becomes the next one: a prompt, which has no drafts, gets a window, and a decode,
# which has no window to widen, the product.
on_member(
    "P-INT32:draft",
    "draft_tokens",
    lambda draw, case, q: _one_outside(draw, q.draft_tokens, len(q.draft_tokens) - 1),
    lambda case, sequence: is_decode(case, sequence) and len(sequence.draft_tokens) > 0,
)


def _is_one_prompt_of_several(case: Case) -> bool:
    """One step only: another one with a window of 2**30 would be valid, and larger than memory."""
    return case.path == "prompt" and len(case.steps) == 1 and len(case.steps[0]) > 1


@on_case("P-INT32:window-total", _is_one_prompt_of_several)
def _window(draw: Draw, case: Case) -> Case:
    """total_k_swa = n_seq * W past int32."""
    window = -(-(INT32_MAX + 1) // len(case.steps[0]))
    return replace(case, config=replace(case.config, window_size=window, swa_block_size=window))


def _window_of_pivots(case: Case) -> int:
    """Smallest W with which a pivot of the one step of a prompt passes int32 while total_k_swa fits; 0 if none."""
    if case.path != "prompt" or len(case.steps) != 1:
        return 0
    [step] = case.steps
    window = -(-(INT32_MAX + 1 - (highest_new_row(case.config, step) or 0)) // len(step))
    return window if len(step) * window <= INT32_MAX else 0


@on_case("P-INT32:pivot", _window_of_pivots)
def _pivot(draw: Draw, case: Case) -> Case:
    """The last row that a window names past int32, behind histories that fit."""
    return with_wide_window(case, _window_of_pivots(case))


def _product_size(case: Case) -> int:
    """Smallest block size, tokens, with which the product of F-LIMIT passes int32; 0 if there is none."""
    if case.path == "prompt" or not case.config.dense_ratios:
        return 0
    rows = max(sum(sequence.seqlen_q for sequence in step) for step in case.steps) * (case.max_num_blocks or 1)
    per_block = INT32_MAX // rows + 1
    unit = lcm(*ca_ratios(case.config))
    size = -(-per_block * min(case.config.dense_ratios) // unit) * unit
    return size if case.config.max_model_len <= size <= INT32_MAX else 0


@on_case("P-INT32:product", _product_size)
def _product(draw: Draw, case: Case) -> Case:
    """Dense offsets past int32, though every slot of every table may fit."""
    return with_wide_blocks(case, _product_size(case))
