"""Inputs of F-GATHER: fresh rows beside rows that continue from what the last step sampled and predicted."""

from __future__ import annotations

from collections.abc import Sequence as Items

from hypothesis import strategies as st

from inputmeta.conformance.cases.model import Gather, Sequence

from .draws import INT32_MIN, chance, pick

FRESH, SAMPLED, PREDICTED = 7_001, 8_001, 9_001
"""First values of each source: a gathered value names where it comes from."""


def draw_gather(draw: st.DrawFn, sequences: Items[Sequence]) -> Gather:
    """Gather inputs of one step: [total_q] fresh ids, [m] samples, [m, width] predictions, [n] remap."""
    count = len(sequences)
    total_q = sum(sequence.seqlen_q for sequence in sequences)
    previous = draw(st.integers(0, count + 2))
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


def _remap(draw: st.DrawFn, count: int, previous: int) -> tuple[int, ...]:
    """Per sequence its row of the last step, or a negative number: fresh. No two continue from one row."""
    if previous == 0:
        return (-1,) * count
    shift = draw(st.integers(0, previous - 1))
    backwards = chance(draw, 1, 2)
    remap = []
    for index in range(count):
        fresh = pick(draw, (-1, None, None, None, -2, INT32_MIN))
        row = (shift + index) % previous
        continues = fresh is None and index < previous
        remap.append((previous - 1 - row if backwards else row) if continues else fresh or -1)
    return tuple(remap)
