"""Inputs of F-GATHER: fresh rows beside rows that continue from what the last step sampled and predicted."""

from __future__ import annotations

from collections.abc import Sequence as Items

from msgspec.structs import replace

from inputmeta.conformance.cases.model import Config, Gather, Sequence, Varlen

from .draws import INT32_MIN, Draw, chance, pick
from .int32 import ca_ratios

FRESH, SAMPLED, PREDICTED = 7_001, 8_001, 9_001
"""First values of each source: a gathered value names where it comes from."""


def draw_gather(draw: Draw, sequences: Items[Sequence]) -> Gather:
    """Gather inputs of one step: [total_q] fresh ids, [m] samples, [m, width] predictions, [n] remap."""
    count = len(sequences)
    total_q = sum(sequence.seqlen_q for sequence in sequences)
    previous = draw.below(count + 3)
    widest = max(sequence.seqlen_q for sequence in sequences) - 1
    width = widest + pick(draw, (0, 0, 1, 3))
    remap = _remap(draw, count, previous)
    return Gather(
        fresh_input_ids=tuple(range(FRESH, FRESH + total_q)),
        prev_sampled=tuple(range(SAMPLED, SAMPLED + previous)),
        prev_predict=tuple(
            tuple(range(PREDICTED + 100 * row, PREDICTED + 100 * row + width)) for row in range(previous)
        ),
        remap=remap,
    )


def draw_varlen(draw: Draw, config: Config, sequences: Items[Sequence], gather: Gather) -> Gather:
    """The gather inputs, in a third of the draws with drafts of variable length (F-VARLEN) that fit the step."""
    varies = chance(draw, 1, 3)
    lengths = tuple(max(1, s.seqlen_q - pick(draw, (0, 0, 1, 2, s.seqlen_q))) for s in sequences)
    accepted = [pick(draw, (0, 1, 3)) for _ in gather.prev_sampled]
    lost: dict[int, int] = {}
    for sequence, place in zip(sequences, gather.remap, strict=True):
        most = sequence.seqlen_k - sequence.seqlen_q if fits_the_pools(config, sequence) else 0
        drawn = pick(draw, (0, 1, 2, 4, most))
        if place >= 0:
            lost[place] = min(most, drawn, lost.get(place, drawn))  # two that continue from one row lose the same
    if not varies:
        return gather
    rejected = [lost.get(place, 0) for place in range(len(accepted))]
    varlen = Varlen(
        seqlens_q=lengths,
        prev_seqlens_q=tuple(1 + taken + back for taken, back in zip(accepted, rejected, strict=True)),
        prev_num_accepted_tokens=tuple(accepted),
    )
    return replace(gather, varlen=varlen)


def fits_the_pools(config: Config, sequence: Sequence) -> bool:
    """I-37: whether drafts of a sequence may be rejected: every cell of its blocks and its ring fits in int32."""
    per_block = config.block_size // min(ca_ratios(config))
    last_block = max(sequence.block_table, default=0)
    return max((last_block + 1) * per_block, (sequence.state_id + 1) * config.swa_block_size) <= 2**31


def _remap(draw: Draw, count: int, previous: int) -> tuple[int, ...]:
    """Per sequence its row of the last step, or a negative number: fresh. Sometimes two continue from each row: one was
    forked.
    """
    if previous == 0:
        return (-1,) * count
    shift = draw.below(previous)
    backwards = chance(draw, 1, 2)
    to_each_row = 1 + chance(draw, 1, 4)
    remap = []
    for index in range(count):
        fresh = pick(draw, (-1, None, None, None, -2, INT32_MIN))
        row = (shift + index // to_each_row) % previous
        continues = fresh is None and index < previous
        remap.append((previous - 1 - row if backwards else row) if continues else fresh or -1)
    return tuple(remap)
