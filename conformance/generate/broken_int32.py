"""P-INT32 broken: one past the bound, or an input array that does not fit (I-10)."""

from __future__ import annotations

from math import lcm

from hypothesis import strategies as st
from msgspec.structs import replace

from inputmeta.conformance.cases.model import Case, Config, Sequence

from .assembly import replaced
from .breaking import BREAKERS, NOWHERE, Breaker, Place, is_decode, on_config, on_sequence
from .draws import INT32_MAX, INT32_MIN, pick
from .extremes import border_blocks, with_wide_blocks
from .int32 import ca_ratios, highest_block_id, highest_state_id

OUTSIDE = (INT32_MAX + 1, INT32_MIN - 1, 2**40)


def _raisable_blocks(case: Case, sequence: Sequence) -> list[int]:
    """Logical blocks of which the step writes a slot that a larger id takes out of int32."""
    blocks = border_blocks(case.config, sequence)
    return [block for block in blocks if highest_block_id(case.path, case.config, sequence, block) < INT32_MAX]


@on_sequence("P-INT32:slot", lambda case, sequence: bool(_raisable_blocks(case, sequence)))
def _slot(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    """A block id one past the largest whose slots fit; the id itself fits."""
    block = pick(draw, _raisable_blocks(case, sequence))
    highest = highest_block_id(case.path, case.config, sequence, block)
    return replace(sequence, block_table=replaced(sequence.block_table, block, highest + 1))


@on_sequence("P-INT32:state")
def _state(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    """A state id one past the largest whose ring slots fit, or one that does not fit itself."""
    highest = highest_state_id(case.path, case.config, sequence)
    return replace(sequence, state_id=pick(draw, sorted({highest + 1, INT32_MAX + 1})))


@on_sequence("P-INT32:table-entry")
def _table_entry(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    place = draw(st.integers(0, len(sequence.block_table)))
    wrong = pick(draw, (INT32_MAX + 1, 2**40))
    return replace(sequence, block_table=replaced(sequence.block_table, place, wrong))


@on_sequence("P-INT32:token", lambda case, sequence: len(sequence.token_ids) > 0)
def _token(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    """Any raw token: one of the chunk, or one that this step never reads."""
    place = pick(draw, sorted({0, len(sequence.token_ids) - 1}))
    return replace(sequence, token_ids=replaced(sequence.token_ids, place, pick(draw, OUTSIDE)))


@on_sequence("P-INT32:draft", lambda case, sequence: is_decode(case, sequence) and len(sequence.draft_tokens) > 0)
def _draft(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    place = draw(st.integers(0, len(sequence.draft_tokens) - 1))
    return replace(sequence, draft_tokens=replaced(sequence.draft_tokens, place, pick(draw, OUTSIDE)))


@on_sequence("P-INT32:history")
def _compressed(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    place = draw(st.integers(0, len(sequence.compressed_tokens)))
    return replace(sequence, compressed_tokens=replaced(sequence.compressed_tokens, place, pick(draw, OUTSIDE)))


@on_sequence("P-INT32:history", lambda case, sequence: case.config.max_ngram_size == 0)
def _recent(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    """History that nobody reads, n-grams being off: with them on, P-NGRAM would be broken too."""
    return replace(sequence, recent_tokens=(pick(draw, OUTSIDE),))


@on_config("P-INT32:lookup")
def _lookup(draw: st.DrawFn, config: Config) -> Config:
    table = config.lookup_table
    place = pick(draw, sorted({max(0, len(table) - 1), 2 if len(table) > 2 else 0}))
    return replace(config, lookup_table=replaced(table, place, pick(draw, OUTSIDE)))


@on_config("P-INT32:pad-token")
def _pad_token(draw: st.DrawFn, config: Config) -> Config:
    return replace(config, pad_token=pick(draw, OUTSIDE))


@on_config("P-INT32:sentinel")
def _sentinel(draw: st.DrawFn, config: Config) -> Config:
    return replace(config, image_sentinel=pick(draw, OUTSIDE))


def _product_size(case: Case) -> int:
    """Smallest block size, tokens, with which the product of F-LIMIT passes int32; 0 if there is none."""
    if case.path == "prompt" or not case.config.dense_ratios:
        return 0
    rows = max(sum(sequence.seqlen_q for sequence in step) for step in case.steps) * (case.max_num_blocks or 1)
    per_block = INT32_MAX // rows + 1
    unit = lcm(*ca_ratios(case.config))
    size = -(-per_block * min(case.config.dense_ratios) // unit) * unit
    return size if case.config.max_model_len <= size <= INT32_MAX else 0


def _product_places(case: Case) -> list[Place]:
    return [(NOWHERE, NOWHERE)] if _product_size(case) else []


def _product(draw: st.DrawFn, case: Case, place: Place) -> Case:
    """Dense offsets past int32, though every slot of every table may fit."""
    return with_wide_blocks(case, _product_size(case))


def _window_places(case: Case) -> list[Place]:
    """One step only: another one with a window of 2**30 would be valid, and larger than memory."""
    one_step = case.path == "prompt" and len(case.steps) == 1
    return [(NOWHERE, NOWHERE)] if one_step and len(case.steps[0]) > 1 else []


def _window(draw: st.DrawFn, case: Case, place: Place) -> Case:
    """total_k_swa = n_seq * W past int32."""
    window = -(-(INT32_MAX + 1) // len(case.steps[0]))
    return replace(case, config=replace(case.config, window_size=window, swa_block_size=window))


BREAKERS.append(Breaker("P-INT32:product", _product_places, _product))
BREAKERS.append(Breaker("P-INT32:window-total", _window_places, _window))
