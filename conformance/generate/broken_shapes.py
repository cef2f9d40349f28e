"""P-RATIO, P-LEN, P-TABLE, P-STATE and P-NGRAM, each broken in several ways.

The broken value is one that an unchecked builder would go on with: it divides by it, reads past an array by one, or
writes it.
"""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from inputmeta.conformance.cases.model import Case, Config, Sequence

from .assembly import replaced
from .breaking import BREAKERS, NOWHERE, Breaker, Place, is_decode, is_prompt, on_config, on_sequence
from .configs import lookup_table
from .draws import INT32_MAX, INT32_MIN, chance, pick
from .int32 import block_count

NEGATIVE = (-1, -2, INT32_MIN, -(2**62))
FAR = 2**40


def _with_ratio(draw: st.DrawFn, config: Config, ratio: int) -> Config:
    """The configuration with one more ratio, dense or sparse."""
    if chance(draw, 1, 2):
        return replace(config, sparse_ratios=(*config.sparse_ratios, ratio))
    return replace(config, dense_ratios=(*config.dense_ratios, ratio))


@on_config("P-RATIO:zero")
def _ratio_zero(draw: st.DrawFn, config: Config) -> Config:
    return _with_ratio(draw, config, 0)


@on_config("P-RATIO:negative")
def _ratio_negative(draw: st.DrawFn, config: Config) -> Config:
    return _with_ratio(draw, config, pick(draw, (-1, -config.block_size)))


@on_config("P-RATIO:not-divisor")
def _ratio_not_divisor(draw: st.DrawFn, config: Config) -> Config:
    ratios = (3, 5, 7, config.block_size - 1, config.block_size + 1)
    wrong = [ratio for ratio in ratios if 0 < ratio <= INT32_MAX and config.block_size % ratio]
    return _with_ratio(draw, config, pick(draw, wrong))


@on_config("P-RATIO:none")
def _ratio_none(draw: st.DrawFn, config: Config) -> Config:
    return replace(config, dense_ratios=(), sparse_ratios=())


@on_config("P-RATIO:block-size")
def _block_size(draw: st.DrawFn, config: Config) -> Config:
    return replace(config, block_size=pick(draw, (0, -config.block_size)))


@on_config("P-RATIO:window")
def _window(draw: st.DrawFn, config: Config) -> Config:
    return replace(config, window_size=pick(draw, (0, -1)))


@on_config("P-RATIO:ring")
def _ring(draw: st.DrawFn, config: Config) -> Config:
    return replace(config, swa_block_size=config.window_size - 1)


@on_config("P-RATIO:cp-size")
def _cp_size(draw: st.DrawFn, config: Config) -> Config:
    return replace(config, cp_size=pick(draw, (0, -1)), cp_rank=0)


@on_config("P-RATIO:rank-high")
def _rank_high(draw: st.DrawFn, config: Config) -> Config:
    return replace(config, cp_rank=config.cp_size + pick(draw, (0, 1)))


@on_config("P-RATIO:rank-negative")
def _rank_negative(draw: st.DrawFn, config: Config) -> Config:
    return replace(config, cp_rank=-1)


@on_sequence("P-LEN:q-negative")
def _q_negative(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    return replace(sequence, seqlen_q=pick(draw, NEGATIVE))


@on_sequence("P-LEN:q-over-k")
def _q_over_k(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    return replace(sequence, seqlen_q=sequence.seqlen_k + pick(draw, (1, 2, FAR)))


@on_sequence("P-LEN:drafts", is_decode)
def _drafts(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    if sequence.draft_tokens and chance(draw, 1, 2):
        return replace(sequence, draft_tokens=sequence.draft_tokens[:-1])
    return replace(sequence, draft_tokens=(*sequence.draft_tokens, 1))


@on_sequence("P-LEN:tokens", is_decode)
def _tokens(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    if chance(draw, 1, 2):
        return replace(sequence, token_ids=sequence.token_ids[:-1])
    return replace(sequence, token_ids=(*sequence.token_ids, 1))


@on_sequence("P-LEN:no-history", is_decode)
def _no_history(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    """A padding sequence of length 0 with drafts: seqlen_k is one less than seqlen_q."""
    return replace(sequence, token_ids=(), seqlen_k=sequence.seqlen_q - 1, is_placeholder=True)


@on_sequence("P-LEN:tokens-short", lambda case, sequence: is_prompt(case, sequence) and sequence.seqlen_k > 0)
def _tokens_short(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    """One raw token fewer than keys."""
    return replace(sequence, token_ids=sequence.token_ids[: sequence.seqlen_k - 1])


def _longest(case: Case) -> int:
    return max(sequence.seqlen_k for step in case.steps for sequence in step)


def _over_longest_places(case: Case) -> list[Place]:
    return [(NOWHERE, NOWHERE)] if _longest(case) > 0 else []


def _over_longest(draw: st.DrawFn, case: Case, place: Place) -> Case:
    """The longest context one short of the longest sequence."""
    return replace(case, config=replace(case.config, max_model_len=_longest(case) - 1))


def _without_sequences(draw: st.DrawFn, case: Case, place: Place) -> Case:
    step = place[0]
    return replace(case, steps=(*case.steps[:step], (), *case.steps[step + 1 :]))


def _every_step(case: Case) -> list[Place]:
    return [(step, NOWHERE) for step in range(len(case.steps))]


BREAKERS.append(Breaker("P-LEN:k-over-max", _over_longest_places, _over_longest))
BREAKERS.append(Breaker("P-LEN:no-sequence", _every_step, _without_sequences))


def _needs_blocks(case: Case, sequence: Sequence) -> bool:
    return block_count(case.config, sequence.seqlen_k) > 0


@on_sequence("P-TABLE:short", lambda case, sequence: block_count(case.config, sequence.seqlen_k) > 1)
def _table_short(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    needed = block_count(case.config, sequence.seqlen_k)
    return replace(sequence, block_table=sequence.block_table[: needed - 1])


@on_sequence("P-TABLE:empty", _needs_blocks)
def _table_empty(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    return replace(sequence, block_table=())


@on_sequence("P-TABLE:negative")
def _table_negative(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    """A negative entry anywhere: in a block that is written, one of history only, or one past those needed."""
    table = sequence.block_table
    place = pick(draw, sorted({0, len(table) // 2, max(0, len(table) - 1), len(table)}))
    return replace(sequence, block_table=replaced(table, place, pick(draw, (-1, INT32_MIN))))


@on_sequence("P-STATE:state-id")
def _state_id(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    return replace(sequence, state_id=pick(draw, NEGATIVE))


@on_sequence("P-STATE:valid-start")
def _valid_start(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    return replace(sequence, swa_valid_start=pick(draw, NEGATIVE))


@on_sequence("P-STATE:data-len")
def _data_len(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    return replace(sequence, data_len=pick(draw, NEGATIVE))


def _has_ngrams(case: Case, sequence: Sequence) -> bool:
    return case.config.max_ngram_size > 0


@on_sequence("P-NGRAM:short", lambda case, sequence: case.config.max_ngram_size > 0 and sequence.seqlen_k > 1)
def _history_short(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    """One token of history fewer than keys."""
    known = sequence.seqlen_k - 1
    compressed = sequence.compressed_tokens[:known]
    return replace(
        sequence, compressed_tokens=compressed, recent_tokens=sequence.recent_tokens[: known - len(compressed)]
    )


@on_sequence("P-NGRAM:none", lambda case, sequence: case.config.max_ngram_size > 0 and sequence.seqlen_k > 0)
def _history_none(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    return replace(sequence, compressed_tokens=(), recent_tokens=())


@on_config("P-NGRAM:none", lambda case: case.config.max_ngram_size == 0 and _longest(case) > 0)
def _ngrams_on(draw: st.DrawFn, config: Config) -> Config:
    """N-grams switched on for sequences that bring no history."""
    return replace(config, max_ngram_size=2, lookup_table=lookup_table(config.max_model_len, None))


@on_sequence("P-NGRAM:recent-high", _has_ngrams)
def _recent_high(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    return _with_recent(draw, sequence, len(case.config.lookup_table) + pick(draw, (0, 1)))


@on_sequence("P-NGRAM:recent-negative", _has_ngrams)
def _recent_negative(draw: st.DrawFn, case: Case, sequence: Sequence) -> Sequence:
    return _with_recent(draw, sequence, pick(draw, (-1, INT32_MIN)))


def _with_recent(draw: st.DrawFn, sequence: Sequence, token: int) -> Sequence:
    """The sequence with this recent token at its first or last place, or one past the last."""
    recent = sequence.recent_tokens
    place = pick(draw, sorted({max(0, len(recent) - 1), len(recent), 0}))
    return replace(sequence, recent_tokens=replaced(recent, place, token))
