"""What of a case has a size: lengths, ids, the configuration; in the order in which they are cut."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from inputmeta.conformance.campaign.column import (
    clipped,
    largest,
    of_config,
    of_field,
    of_ids,
    of_length,
    of_option,
    of_previous,
    of_sequences,
    toward_zero,
)
from inputmeta.conformance.campaign.parts import (
    Part,
    Parts,
    Step,
    blocks_needed,
    drafts_given,
    with_blocks,
    with_context,
    with_previous,
    with_rows,
    with_rows_known,
)
from inputmeta.conformance.cases.model import Case, Gather

MODES = ("off", "mask", "compact")


def _spare_tokens(head: Case, part: Part) -> int:
    return 0 if drafts_given(head) else max(0, len(part.sequence.token_ids) - part.sequence.seqlen_k)


def _spare_blocks(head: Case, part: Part) -> int:
    return max(0, len(part.sequence.block_table) - blocks_needed(head, part.sequence.seqlen_k))


def _known_needed(head: Case, part: Part) -> int:
    return max(0, part.sequence.seqlen_k) if head.config.max_ngram_size > 0 else 0


def _spare_known(head: Case, part: Part) -> int:
    known = len(part.sequence.compressed_tokens) + len(part.sequence.recent_tokens)
    return max(0, known - _known_needed(head, part))


def _cut_known(head: Case, part: Part, cap: int) -> Part:
    sequence = part.sequence
    known = cap + _known_needed(head, part)
    return part.changed(
        compressed_tokens=sequence.compressed_tokens[:known],
        recent_tokens=sequence.recent_tokens[: max(0, known - len(sequence.compressed_tokens))],
    )


def _cut_compressed(head: Case, part: Part, cap: int) -> Part:
    sequence = part.sequence
    gone = len(sequence.compressed_tokens) - cap
    recent = (0,) * gone + sequence.recent_tokens if head.config.max_ngram_size > 0 else sequence.recent_tokens
    return part.changed(compressed_tokens=sequence.compressed_tokens[:cap], recent_tokens=recent)


def _ids_of(gather: Gather) -> int:
    return max(largest(gather.prev_sampled), *map(largest, gather.prev_predict), 0)


def _cut_ids(step: Step, cap: int) -> Step:
    assert step.previous is not None
    rows = tuple(clipped(row, cap) for row in step.previous.prev_predict)
    sampled = clipped(step.previous.prev_sampled, cap)
    return replace(step, previous=msgspec.structs.replace(step.previous, prev_sampled=sampled, prev_predict=rows))


def _rows_of(step: Step) -> int:
    return 0 if step.previous is None else len(step.previous.prev_sampled)


def _cut_rows(step: Step, cap: int) -> Step:
    return with_previous(step, range(cap))


def _left_out(_: Case, part: Part) -> int:
    return 0 if part.rows is None else max(0, part.sequence.seqlen_q - part.rows)


def _cut_left_out(_: Case, part: Part, cap: int) -> Part:
    return replace(part, rows=part.sequence.seqlen_q - cap)


def _varies(step: Step) -> int:
    return int(step.previous is not None and step.previous.varlen is not None)


def _cut_varlen(step: Step, _: int) -> Step:
    assert step.previous is not None
    previous = msgspec.structs.replace(step.previous, varlen=None)
    return Step(tuple(replace(part, rows=None) for part in step.parts), previous)


def _verified(step: Step) -> list[tuple[int, int]]:
    """Rejected and accepted drafts of every row of the last step."""
    varlen = None if step.previous is None else step.previous.varlen
    if varlen is None:
        return []
    pairs = zip(varlen.prev_seqlens_q, varlen.prev_num_accepted_tokens, strict=False)
    return [(rows - 1 - accepted, accepted) for rows, accepted in pairs]


def _most_rejected(step: Step) -> int:
    return max((rejected for rejected, _ in _verified(step)), default=0)


def _most_accepted(step: Step) -> int:
    return max((accepted for _, accepted in _verified(step)), default=0)


def _cut_verified(step: Step, *, rejected: int | None = None, accepted: int | None = None) -> Step:
    """At most so many rejected or accepted drafts of every row of the last step."""
    assert step.previous is not None
    assert step.previous.varlen is not None
    lost, taken = (
        [value if most is None else min(value, most) for value in values]
        for values, most in zip(zip(*_verified(step), strict=True), (rejected, accepted), strict=True)
    )
    varlen = msgspec.structs.replace(
        step.previous.varlen,
        prev_seqlens_q=tuple(1 + a + b for a, b in zip(lost, taken, strict=True)),
        prev_num_accepted_tokens=tuple(taken),
    )
    return replace(step, previous=msgspec.structs.replace(step.previous, varlen=varlen))


def _width_of(step: Step) -> int:
    return 0 if step.previous is None else max(map(len, step.previous.prev_predict), default=0)


def _cut_width(step: Step, cap: int) -> Step:
    assert step.previous is not None
    rows = tuple(row[:cap] for row in step.previous.prev_predict)
    return replace(step, previous=msgspec.structs.replace(step.previous, prev_predict=rows))


def _cut_group(parts: Parts, cap: int) -> Parts:
    rank = parts.head.config.cp_rank
    return parts.configured(cp_size=cap, cp_rank=min(rank, cap - 1) if rank >= 0 else rank)


def _unit(parts: Parts) -> int:
    ratios = [ratio for ratio in (*parts.head.config.dense_ratios, *parts.head.config.sparse_ratios) if ratio > 0]
    return math.lcm(*ratios)


def _cut_sentinel(parts: Parts, cap: int) -> Parts:
    sentinel = parts.head.config.image_sentinel or 0
    return parts.configured(image_sentinel=None if cap == 0 else toward_zero(sentinel, cap - 1))


def _cut_width_of_tables(parts: Parts, cap: int) -> Parts:
    return replace(parts, head=msgspec.structs.replace(parts.head, max_num_blocks=cap or None))


def _sentinel(parts: Parts) -> int:
    sentinel = parts.head.config.image_sentinel
    return 0 if sentinel is None else abs(sentinel) + 1


FEATURES = (
    of_previous("inputs of F-GATHER", lambda _: 1, lambda step, _: replace(step, previous=None), told=""),
    of_previous("variable length", _varies, _cut_varlen, told=""),
    of_config(
        "truncation mode",
        lambda parts: MODES.index(parts.head.config.yoco_mode),
        lambda parts, cap: parts.configured(yoco_mode=MODES[cap]),
        told="",
    ),
    of_option("yoco_prefill_keep_tokens"),
    of_config("cp_size", lambda parts: parts.head.config.cp_size, _cut_group, least=1),
    of_option("cp_rank"),
    of_option("force_load_balance"),
    of_option("max_ngram_size"),
    of_config("table columns", lambda parts: parts.head.max_num_blocks or 0, _cut_width_of_tables),
    of_field("is_placeholder"),
)
"""What may be left out, and all that comes of it."""

ROWS = of_sequences(
    "query rows",
    lambda head, part: 0 if drafts_given(head) else max(0, part.sequence.seqlen_q),
    with_rows,
    told="from row {less} of a chunk on: {value} {name}{where} fail, {less} pass",
)
DRAFTED_ROWS = of_sequences(
    "query rows",
    lambda head, part: max(0, part.sequence.seqlen_q) if drafts_given(head) else 0,
    with_rows,
    least=1,
    told=ROWS.told,
)
LENGTHS = (
    of_sequences("spare tokens", _spare_tokens, lambda _, part, cap: _spare_cut(part, "token_ids", cap)),
    of_sequences(
        "spare blocks",
        _spare_blocks,
        lambda head, part, cap: part.changed(
            block_table=part.sequence.block_table[: cap + blocks_needed(head, part.sequence.seqlen_k)]
        ),
    ),
    of_sequences("spare n-gram tokens", _spare_known, _cut_known),
    ROWS,
    DRAFTED_ROWS,
    of_sequences(
        "rows, the first ones as context",
        lambda head, part: 0 if drafts_given(head) else max(0, part.sequence.seqlen_q),
        lambda _, part, cap: with_rows_known(part, cap),
        told="",
    ),
    of_sequences(
        "tokens of context", lambda _, part: max(0, part.sequence.seqlen_k - part.sequence.seqlen_q), with_context
    ),
    of_sequences("compressed tokens", lambda _, part: len(part.sequence.compressed_tokens), _cut_compressed),
    of_sequences("rows left out by F-VARLEN", _left_out, _cut_left_out),
    of_previous("rejected drafts of the last step", _most_rejected, lambda s, cap: _cut_verified(s, rejected=cap)),
    of_previous("accepted drafts of the last step", _most_accepted, lambda s, cap: _cut_verified(s, accepted=cap)),
    of_previous("draft columns of the last step", _width_of, _cut_width),
    of_previous("sequences of the last step", _rows_of, _cut_rows),
)
SIZES = (
    of_config(
        "block_size / lcm of the ratios",
        lambda parts: max(0, parts.head.config.block_size) // _unit(parts),
        lambda parts, cap: parts.configured(block_size=cap * _unit(parts)),
        least=1,
    ),
    of_option("window_size", least=1),
    of_option("swa_block_size", least=1),
    of_option("max_model_len", least=1),
    of_option("pad_token"),
    of_config("image_sentinel + 1", _sentinel, _cut_sentinel),
    of_config(
        "length of lookup_table",
        lambda parts: len(parts.head.config.lookup_table),
        lambda parts, cap: parts.configured(lookup_table=parts.head.config.lookup_table[:cap]),
    ),
)
IDS = (
    *(of_field(name) for name in ("state_id", "swa_valid_start", "data_len")),
    *(of_ids(name) for name in ("block_table", "token_ids", "draft_tokens", "compressed_tokens", "recent_tokens")),
    of_sequences("fresh_input_ids", lambda _, part: largest(part.fresh), lambda _, p, cap: _fresh(p, cap)),
    of_sequences("remap + 1", lambda _, part: max(0, part.remap + 1), lambda _, p, cap: replace(p, remap=cap - 1)),
    of_previous("ids of the last step", lambda s: 0 if s.previous is None else _ids_of(s.previous), _cut_ids),
    of_config(
        "entries of lookup_table",
        lambda parts: largest(parts.head.config.lookup_table),
        lambda parts, cap: parts.configured(lookup_table=clipped(parts.head.config.lookup_table, cap)),
    ),
)
SLACK = (
    of_config(
        "blocks to spare",
        lambda parts: parts.slack.blocks,
        lambda parts, cap: replace(parts, slack=parts.slack._replace(blocks=cap)),
    ),
    of_config(
        "state slots to spare",
        lambda parts: parts.slack.states,
        lambda parts, cap: replace(parts, slack=parts.slack._replace(states=cap)),
    ),
)
COLUMNS = (*FEATURES, *SLACK, *LENGTHS, *SIZES, *IDS)
"""In the order in which they are cut."""
BROKEN_COLUMNS = (
    *(of_field(name) for name in ("seqlen_q", "seqlen_k")),
    *(of_length(n) for n in ("token_ids", "draft_tokens", "block_table", "compressed_tokens", "recent_tokens")),
    of_option("block_size"),
)
"""More of them, for batches that break a precondition: what belongs together may be apart there."""


def _fresh(part: Part, cap: int) -> Part:
    return replace(part, fresh=clipped(part.fresh, cap))


def _spare_cut(part: Part, name: str, cap: int) -> Part:
    return part.changed(**{name: getattr(part.sequence, name)[: cap + part.sequence.seqlen_k]})


def ratio_sets(parts: Parts) -> list[Callable[[], Parts]]:
    """Smaller sets of ratios, each as what makes the parts with it: one ratio less, or one ratio lower."""
    config = parts.head.config
    made: list[Callable[[], Parts]] = []
    for name in ("dense_ratios", "sparse_ratios"):
        ratios = getattr(config, name)
        for index, ratio in enumerate(ratios):
            rest = ratios[:index] + ratios[index + 1 :]
            made.append(partial(parts.configured, **{name: rest}))
            lower = [other for other in (1, 2, 3, 4, 8, 16, 32, 64) if other < ratio and other not in ratios]
            made += [partial(parts.configured, **{name: tuple(sorted((*rest, other)))}) for other in lower]
    return made


def renamed(parts: Parts) -> Parts:
    """Block ids as small as may be, in the same order, equal where they were; negative ones as they are."""
    ids = sorted({block for place in parts.places for block in parts.part(place).sequence.block_table if block > 0})
    small = {block: index + 1 for index, block in enumerate(ids)}
    return parts.every(
        lambda part: part.changed(block_table=tuple(small.get(block, block) for block in part.sequence.block_table))
    )


def in_small_blocks(parts: Parts) -> Parts:
    """Blocks as small as the ratios allow, and as many of them: contexts are shorter by as much."""
    unit = _unit(parts)
    head = msgspec.structs.replace(parts.head, config=msgspec.structs.replace(parts.head.config, block_size=unit))

    def shortened(part: Part) -> Part:
        sequence = part.sequence
        context = max(0, blocks_needed(parts.head, sequence.seqlen_k) * unit - sequence.seqlen_q)
        if context < sequence.seqlen_k - sequence.seqlen_q:
            part = with_context(head, part, context).changed(block_table=sequence.block_table)
        return with_blocks(head, part)

    return replace(parts, head=head).every(shortened)
