"""From drafts to sequences: physical blocks, state ids and token values.

Physical ids are distinct over all sequences of a step and nearly no table is the identity, so that a lost indirection,
or a neighbour's table, shows. In some steps the sequences have a prefix in common, as after a hit in a prefix cache:
blocks of history that are full in each of them are one physical block, with the same tokens (SPEC.md M-2: what a step
writes, nobody shares).
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import accumulate
from math import gcd

from inputmeta.conformance.cases.model import Config, Path, Sequence

from .configs import RAW_SENTINEL, SENTINEL_ENTRY
from .draws import INT32_MAX, INT32_MIN, Draw, T, chance, pick
from .int32 import block_count
from .sequences import Draft, Scope, drafts, empty_draft, lowest
from .tokens import compressed_history, raw_tokens, recent_history

Tables = list[tuple[int, ...]]


@dataclass(frozen=True)
class Identity:
    """What tells the sequences of a step apart."""

    index: int
    block_table: tuple[int, ...]
    state_id: int
    odd_token: int | None
    """Stands in for the last raw token that the first sequence reads."""
    shared: int
    """Raw tokens, from position 0 on, that are those of the first sequence."""


def steps(draw: Draw, scope: Scope, sizes: Items[int], totals: Items[int]) -> tuple[Sequence, ...]:
    """One step of one of these sizes: sequences that are drawn, 0 for a step without work.

    They are repeated up to one of ``totals``, with blocks, states and tokens of their own. How many are drawn does not
    hang on how many there are: so shrinking can leave the one that matters before it leaves the large total.
    """
    size, block_size = pick(draw, sizes), scope.config.block_size
    wanted = pick(draw, totals)
    total = max(size, wanted) if size else 1
    layout = pick(draw, (0, 1, 2, 0, 1, 2, 3))
    first_state = lowest(pick(draw, (1, 1, 6, 1_001, 0)), _highest_first(scope, total))
    odd_token = pick(draw, (None, None, None, None, 0, -1, INT32_MAX, INT32_MIN))
    shares = chance(draw, 1, 4)
    each = scope.shared_by(total)
    distinct: list[Draft] = []
    for left in reversed(range(size)):
        has_to_work = left == 0 and not scope.conditions.empty_steps and not any(draft.seqlen_q for draft in distinct)
        distinct.append(draw.part(drafts, each.with_rows() if has_to_work else each))
    distinct = distinct or [empty_draft(scope.path)]
    drawn = with_blocks(scope, [distinct[index % len(distinct)] for index in range(total)])
    lengths = [table_length(scope, draft) for draft in drawn]
    tables = block_tables(lengths, layout if _fit(scope, 2 * sum(lengths) - 1) else 3)
    common = shared_blocks(scope.config, drawn) if shares else [0] * len(drawn)
    last_state = first_state + len(drawn) - 1
    identities = [
        Identity(index, with_prefix(table, tables[0], blocks), last_state - index, odd_token, blocks * block_size)
        for index, (table, blocks) in enumerate(zip(tables, common, strict=True))
    ]
    pairs = zip(drawn, identities, strict=True)
    return tuple(sequence(scope.path, scope.config, draft, identity) for draft, identity in pairs)


def table_length(scope: Scope, draft: Draft) -> int:
    """Entries of a sequence's block table."""
    return block_count(scope.config, draft.seqlen_k) + draft.more_blocks


def with_blocks(scope: Scope, drawn: list[Draft]) -> list[Draft]:
    """As many of the sequences, from the first on, as there are physical blocks for; the first in any case."""
    highest = scope.conditions.highest_block(scope.config.block_size)
    if highest is None:
        return drawn
    ends = accumulate(table_length(scope, draft) for draft in drawn)
    return drawn[: max(1, sum(end <= highest + 1 for end in ends))]


def _highest_first(scope: Scope, total: int) -> int | None:
    """Highest state id of the first of ``total`` sequences; None: any."""
    largest = scope.conditions.largest_state
    return None if largest is None else max(0, largest - total + 1)


def _fit(scope: Scope, block: int) -> bool:
    """Whether a physical block id is within the conditions."""
    highest = scope.conditions.highest_block(scope.config.block_size)
    return highest is None or block <= highest


def shared_blocks(config: Config, drawn: Items[Draft]) -> list[int]:
    """Blocks of each sequence that can be the first sequence's: full ones of the history of both."""
    full = [draft.q_start // config.block_size for draft in drawn]
    return [0, *(min(full[0], blocks) for blocks in full[1:])]


def with_prefix(table: tuple[int, ...], first: tuple[int, ...], blocks: int) -> tuple[int, ...]:
    """A table with so many blocks of the first sequence's in front.

    >>> with_prefix((7, 8, 9), (1, 2), 1)
    (1, 8, 9)
    """
    return (*first[:blocks], *table[blocks:])


def block_tables(lengths: Items[int], layout: int) -> Tables:
    """Tables of the given lengths, blocks, with distinct ids in [total, 2 * total): no id is its logical block.

    Layout 0: descending; 1: interleaved over the sequences; 2: scattered; 3: descending to block 0, in [0, total).

    >>> block_tables([2, 1], 0), block_tables([2, 1], 1), block_tables([3, 2], 2), block_tables([2, 1], 3)
    ([(5, 4), (3,)], [(3, 5), (4,)], [(6, 9, 7), (5, 8)], [(2, 1), (0,)])
    """
    total = sum(lengths)
    begins = [0, *accumulate(lengths)]
    if layout in {0, 3}:
        last = (2 * total if layout == 0 else total) - 1
        return [tuple(range(last - b, last - b - n, -1)) for b, n in zip(begins, lengths, strict=False)]
    if layout == 1:
        return _interleaved(lengths, total)
    step = next(step for step in range(max(1, total * 3 // 5), 2 * total + 2) if gcd(step, total) == 1)
    return [
        tuple(total + (block * step + 1) % total for block in range(begin, begin + length))
        for begin, length in zip(begins, lengths, strict=False)
    ]


def _interleaved(lengths: Items[int], total: int) -> Tables:
    """Ascending ids handed out block by block, as to sequences that grow together."""
    tables: list[list[int]] = [[] for _ in lengths]
    following = total
    for block in range(max(lengths, default=0)):
        for table, length in zip(tables, lengths, strict=True):
            if block < length:
                table.append(following)
                following += 1
    return [tuple(table) for table in tables]


def sequence(path: Path, config: Config, draft: Draft, identity: Identity) -> Sequence:
    """The drafted sequence with its values."""
    index, longest = identity.index, config.max_model_len
    known = draft.seqlen_k + draft.more_tokens if path == "prompt" else draft.q_start + 1
    tokens = raw_tokens(index, known, longest)
    if identity.shared:
        tokens = (*raw_tokens(0, identity.shared, longest), *tokens[identity.shared :])
    if identity.odd_token is not None and index == 0 and known > 0:
        last = draft.seqlen_k - 1 if path == "prompt" else known - 1
        tokens = replaced(tokens, max(last, 0), identity.odd_token)
    compressed, recent = _history(config, draft, index)
    return Sequence(
        seqlen_q=draft.seqlen_q,
        seqlen_k=draft.seqlen_k,
        block_table=identity.block_table,
        state_id=identity.state_id,
        is_placeholder=draft.is_placeholder,
        swa_valid_start=draft.swa_valid_start,
        token_ids=tokens,
        draft_tokens=() if path == "prompt" else raw_tokens(index, draft.seqlen_q - 1, longest, known),
        compressed_tokens=compressed,
        recent_tokens=recent,
        data_len=draft.data_len,
    )


def replaced(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    """The values with one of them changed.

    >>> replaced((1, 2, 3), 1, 9)
    (1, 9, 3)
    """
    return (*values[:place], value, *values[place + 1 :])


def _history(config: Config, draft: Draft, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """compressed_tokens and recent_tokens, with the image token and the raw sentinel where they were drawn."""
    if config.max_ngram_size == 0:
        return (), ()
    border = draft.compressed_len
    compressed = compressed_history(index, border, config.max_model_len)
    recent = recent_history(index, border, max(0, draft.seqlen_k - border) + draft.more_history)
    if draft.raw_sentinel_at is not None:
        recent = replaced(recent, draft.raw_sentinel_at - border, RAW_SENTINEL)
    image, sentinel = draft.sentinel_at, config.image_sentinel
    if image is None or sentinel is None:
        return compressed, recent
    if image < border:
        return replaced(compressed, image, sentinel), recent
    return compressed, replaced(recent, image - border, SENTINEL_ENTRY)
