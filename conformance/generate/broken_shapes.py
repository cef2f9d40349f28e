"""P-RATIO, P-LEN, P-TABLE, P-STATE and P-NGRAM, each broken in several ways.

The broken value is one that an unchecked builder would go on with: it divides by it, reads past an array by one, or
writes it.
"""

from __future__ import annotations

from msgspec.structs import replace

from inputmeta.conformance.cases.model import Case, Config, Sequence

from .assembly import replaced
from .breaking import (
    BREAKERS,
    NOWHERE,
    Breaker,
    Place,
    is_decode,
    is_prompt,
    on_case,
    on_config,
    on_member,
    on_sequence,
)
from .configs import lookup_table
from .draws import INT32_MAX, INT32_MIN, Draw, chance, pick
from .int32 import block_count

NEGATIVE = (-1, -2, INT32_MIN, -(2**62))
FAR = 2**40


def _with_ratio(draw: Draw, config: Config, ratio: int) -> Config:
    """The configuration with one more ratio, dense or sparse."""
    if chance(draw, 1, 2):
        return replace(config, sparse_ratios=(*config.sparse_ratios, ratio))
    return replace(config, dense_ratios=(*config.dense_ratios, ratio))


def _not_a_divisor(draw: Draw, config: Config) -> Config:
    ratios = (3, 5, 7, config.block_size - 1, config.block_size + 1)
    wrong = [ratio for ratio in ratios if 0 < ratio <= INT32_MAX and config.block_size % ratio]
    return _with_ratio(draw, config, pick(draw, wrong))


on_config("P-RATIO:zero", lambda draw, config: _with_ratio(draw, config, 0))
on_config("P-RATIO:negative", lambda draw, config: _with_ratio(draw, config, pick(draw, (-1, -config.block_size))))
on_config("P-RATIO:not-divisor", _not_a_divisor)
on_config("P-RATIO:none", lambda draw, config: replace(config, dense_ratios=(), sparse_ratios=()))
on_config("P-RATIO:block-size", lambda draw, config: replace(config, block_size=pick(draw, (0, -config.block_size))))
on_config("P-RATIO:window", lambda draw, config: replace(config, window_size=pick(draw, (0, -1))))
on_config("P-RATIO:ring", lambda draw, config: replace(config, swa_block_size=config.window_size - 1))
on_config("P-RATIO:cp-size", lambda draw, config: replace(config, cp_size=pick(draw, (0, -1)), cp_rank=0))
on_config("P-RATIO:rank-high", lambda draw, config: replace(config, cp_rank=config.cp_size + pick(draw, (0, 1))))
on_config("P-RATIO:rank-negative", lambda draw, config: replace(config, cp_rank=-1))

on_member("P-LEN:q-negative", "seqlen_q", lambda draw, case, sequence: pick(draw, NEGATIVE))
on_member("P-LEN:q-over-k", "seqlen_q", lambda draw, case, sequence: sequence.seqlen_k + pick(draw, (1, 2, FAR)))


@on_sequence("P-LEN:drafts", is_decode)
def _drafts(draw: Draw, case: Case, sequence: Sequence) -> Sequence:
    if sequence.draft_tokens and chance(draw, 1, 2):
        return replace(sequence, draft_tokens=sequence.draft_tokens[:-1])
    return replace(sequence, draft_tokens=(*sequence.draft_tokens, 1))


@on_sequence("P-LEN:tokens", is_decode)
def _tokens(draw: Draw, case: Case, sequence: Sequence) -> Sequence:
    if chance(draw, 1, 2):
        return replace(sequence, token_ids=sequence.token_ids[:-1])
    return replace(sequence, token_ids=(*sequence.token_ids, 1))


@on_sequence("P-LEN:no-history", is_decode)
def _no_history(draw: Draw, case: Case, sequence: Sequence) -> Sequence:
    """A padding sequence of length 0 with drafts: seqlen_k is one less than seqlen_q."""
    return replace(sequence, token_ids=(), seqlen_k=sequence.seqlen_q - 1, is_placeholder=True)


on_member(  # one raw token fewer than keys
    "P-LEN:tokens-short",
    "token_ids",
    lambda draw, case, sequence: sequence.token_ids[: sequence.seqlen_k - 1],
    lambda case, sequence: is_prompt(case, sequence) and sequence.seqlen_k > 0,
)


def _longest(case: Case) -> int:
    return max(sequence.seqlen_k for step in case.steps for sequence in step)


@on_case("P-LEN:k-over-max", _longest)
def _over_longest(draw: Draw, case: Case) -> Case:
    """The longest context one short of the longest sequence."""
    return replace(case, config=replace(case.config, max_model_len=_longest(case) - 1))


def _without_sequences(draw: Draw, case: Case, place: Place) -> Case:
    return replace(case, steps=replaced(case.steps, place[0], ()))


def _every_step(case: Case) -> list[Place]:
    return [(step, NOWHERE) for step in range(len(case.steps))]


BREAKERS.append(Breaker("P-LEN:no-sequence", _every_step, _without_sequences))


def _blocks(case: Case, sequence: Sequence) -> int:
    return block_count(case.config, sequence.seqlen_k)


on_member(
    "P-TABLE:short",
    "block_table",
    lambda draw, case, sequence: sequence.block_table[: _blocks(case, sequence) - 1],
    lambda case, sequence: _blocks(case, sequence) > 1,
)
on_member(
    "P-TABLE:empty", "block_table", lambda draw, case, sequence: (), lambda case, sequence: _blocks(case, sequence) > 0
)


@on_sequence("P-TABLE:negative")
def _table_negative(draw: Draw, case: Case, sequence: Sequence) -> Sequence:
    """A negative entry anywhere: in a block that is written, one of history only, or one past those needed."""
    table = sequence.block_table
    place = pick(draw, sorted({0, len(table) // 2, max(0, len(table) - 1), len(table)}))
    return replace(sequence, block_table=replaced(table, place, pick(draw, (-1, INT32_MIN))))


for _name, _member in (("state-id", "state_id"), ("valid-start", "swa_valid_start"), ("data-len", "data_len")):
    on_member(f"P-STATE:{_name}", _member, lambda draw, case, sequence: pick(draw, NEGATIVE))


def _has_ngrams(case: Case, sequence: Sequence) -> bool:
    return case.config.max_ngram_size > 0


@on_sequence("P-NGRAM:short", lambda case, sequence: _has_ngrams(case, sequence) and sequence.seqlen_k > 1)
def _history_short(draw: Draw, case: Case, sequence: Sequence) -> Sequence:
    """One token of history fewer than keys."""
    known = sequence.seqlen_k - 1
    compressed = sequence.compressed_tokens[:known]
    return replace(
        sequence, compressed_tokens=compressed, recent_tokens=sequence.recent_tokens[: known - len(compressed)]
    )


@on_sequence("P-NGRAM:none", lambda case, sequence: _has_ngrams(case, sequence) and sequence.seqlen_k > 0)
def _history_none(draw: Draw, case: Case, sequence: Sequence) -> Sequence:
    return replace(sequence, compressed_tokens=(), recent_tokens=())


on_config(  # n-grams switched on for sequences that bring no history
    "P-NGRAM:none",
    lambda draw, config: replace(config, max_ngram_size=2, lookup_table=lookup_table(config.max_model_len, None)),
    lambda case: case.config.max_ngram_size == 0 and _longest(case) > 0,
)


def _with_recent(draw: Draw, sequence: Sequence, token: int) -> tuple[int, ...]:
    """Recent tokens with this one at the first or last place, or one past the last."""
    recent = sequence.recent_tokens
    place = pick(draw, sorted({max(0, len(recent) - 1), len(recent), 0}))
    return replaced(recent, place, token)


on_member(
    "P-NGRAM:recent-high",
    "recent_tokens",
    lambda draw, case, sequence: _with_recent(draw, sequence, len(case.config.lookup_table) + pick(draw, (0, 1))),
    _has_ngrams,
)
on_member(
    "P-NGRAM:recent-negative",
    "recent_tokens",
    lambda draw, case, sequence: _with_recent(draw, sequence, pick(draw, (-1, INT32_MIN))),
    _has_ngrams,
)
