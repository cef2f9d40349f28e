"""Chapter 5: the sliding window and its ring (F-RING, F-SWAPLAN, F-PIVOT, F-SWADEC).

The padding of F-SWAPLAN and the lower bound of F-PIVOT agree: what is zero-filled is never visible.
"""

from __future__ import annotations

from typing import NamedTuple

from .units import NO_SLOT, KeyRow, Slot, Token, clamp

ZERO_FILL = -1
"""The ``src_block_id`` of a segment that is filled with zeros instead of copied."""


class Segment(NamedTuple):
    """One copy of a load plan: [source_begin, source_end) of a block to ``destination`` on in the key buffer."""

    source_block: int
    source_begin: int
    source_end: int
    destination: int


class Pivots(NamedTuple):
    """The keys a row sees, as two runs in the buffer [history key rows][new key rows]: first and length of each."""

    history_first: KeyRow
    history_length: Token
    new_first: KeyRow
    new_length: Token


def ring_slot(state_id: int, swa_block_size: Token, pos: Token) -> Slot:
    """F-RING, the cell of a position: ``state_id * B + pos % B``.

    >>> [ring_slot(0, Token(10), Token(pos)) for pos in (7, 8, 9, 10, 11)]
    [7, 8, 9, 0, 1]
    """
    return Slot(state_id * swa_block_size + pos % swa_block_size)


def ring_store_slot(
    state_id: int, swa_block_size: Token, seqlen_q: Token, offset: Token, pos: Token, *, is_placeholder: bool
) -> Slot:
    """F-RING ``slot_mapping_store_swa = state_id * B + pos % B if seqlen_q - j <= B, else -1``.

    An earlier row would be overwritten by a later one of the same chunk. I-1: a placeholder stores nothing.

    >>> [ring_store_slot(2, Token(4), Token(6), Token(j), Token(5 + j), is_placeholder=False) for j in range(6)]
    [-1, -1, 11, 8, 9, 10]
    >>> ring_store_slot(2, Token(4), Token(1), Token(0), Token(5), is_placeholder=True)
    -1
    """
    rows_to_the_end = seqlen_q - offset
    if is_placeholder or rows_to_the_end > swa_block_size:
        return NO_SLOT
    return ring_slot(state_id, swa_block_size, pos)


def untrusted_history(q_start: Token, window_size: Token, swa_valid_start: Token) -> Token:
    """F-SWAPLAN ``padding = clamp(swa_valid_start - (q_start - W), 0, W)``: history key rows to fill with zeros.

    Positions before the sequence count too: they lie below any valid start.

    >>> [untrusted_history(Token(q_start), Token(4), Token(0)) for q_start in (0, 1, 4, 9)]
    [4, 3, 0, 0]
    >>> [untrusted_history(Token(10), Token(4), Token(valid)) for valid in (6, 7, 10, 99)]
    [0, 1, 4, 4]
    """
    history_begin = q_start - window_size
    return Token(clamp(swa_valid_start - history_begin, 0, window_size))


def ring_segments(state_id: int, swa_block_size: Token, begin: int, end: int, destination: int) -> list[Segment]:
    """F-SWAPLAN, the ring range of positions [begin, end), split where it wraps, no empty segment.

    >>> [tuple(segment) for segment in ring_segments(7, Token(5), 8, 12, 100)]
    [(7, 3, 5, 100), (7, 0, 2, 102)]
    >>> ring_segments(7, Token(5), 8, 8, 100)
    []
    """
    segments = []
    while begin < end:
        ring_begin = begin % swa_block_size
        length = min(end - begin, swa_block_size - ring_begin)
        segments.append(Segment(state_id, ring_begin, ring_begin + length, destination))
        begin += length
        destination += length
    return segments


def window_load_plan(
    index: int, state_id: int, *, q_start: Token, window_size: Token, swa_block_size: Token, swa_valid_start: Token
) -> list[Segment]:
    """F-SWAPLAN, one sequence: zero fill [-1, 0, padding, dst] if padding > 0, then the trusted ring range.

    The history is [q_start - W, q_start); sequence i starts at dst i * W.

    >>> [tuple(s) for s in window_load_plan(2, 9, q_start=Token(6), window_size=Token(4), swa_block_size=Token(5),
    ...                                     swa_valid_start=Token(3))]
    [(-1, 0, 1, 8), (9, 3, 5, 9), (9, 0, 1, 11)]
    >>> [tuple(s) for s in window_load_plan(0, 9, q_start=Token(0), window_size=Token(4), swa_block_size=Token(5),
    ...                                     swa_valid_start=Token(0))]
    [(-1, 0, 4, 0)]
    """
    destination = index * window_size
    padding = untrusted_history(q_start, window_size, swa_valid_start)
    zero_fill = [Segment(ZERO_FILL, 0, padding, destination)] if padding > 0 else []
    trusted_begin = q_start - window_size + padding
    return zero_fill + ring_segments(state_id, swa_block_size, trusted_begin, q_start, destination + padding)


def total_window_keys(sequences: int, window_size: Token) -> KeyRow:
    """F-SWAPLAN ``total_k_swa = n_seq * W``, however short the histories are; of i sequences: where history i begins.

    >>> total_window_keys(3, Token(4))
    12
    """
    return KeyRow(sequences * window_size)


def first_visible(pos: Token, window_size: Token, rect_lo: Token, swa_valid_start: Token) -> Token:
    """F-PIVOT ``lo = clamp(max(pos - W + 1, rect_lo, swa_valid_start), 0, pos + 1)``: the first position a row sees.

    I-5: the upper clamp ``pos + 1`` holds with and without truncation; a row at it sees nothing. ``rect_lo`` is 0
    without truncation.

    >>> [first_visible(Token(pos), Token(4), Token(0), Token(0)) for pos in (0, 2, 3, 4, 9)]
    [0, 0, 0, 1, 6]
    >>> [first_visible(Token(9), Token(4), Token(0), Token(valid)) for valid in (6, 7, 10, 11)]
    [6, 7, 10, 10]
    """
    window_begin = pos - window_size + 1
    lowest = max(window_begin, rect_lo, swa_valid_start)
    return Token(clamp(lowest, 0, pos + 1))


def visible_runs(
    history_rows_begin: KeyRow,
    new_rows_begin: KeyRow,
    *,
    q_start: Token,
    offset: Token,
    window_size: Token,
    lowest_visible: Token,
) -> Pivots:
    """F-PIVOT: the keys from ``lo`` up to the row itself, as a run of the history and a run of the new key rows.

    ``start = min(lo, q_start) - (q_start - W); k_lo = max(lo - q_start, 0);
    P0 = sec1 + start, P1 = W - start, P2 = sec2 + k_lo, P3 = j - k_lo + 1`` with sec1 = ``history_rows_begin``,
    sec2 = ``new_rows_begin``. Always P1, P3 >= 0 and P1 + P3 <= W.

    >>> tuple(visible_runs(KeyRow(4), KeyRow(8), q_start=Token(10), offset=Token(1), window_size=Token(4),
    ...                    lowest_visible=Token(8)))
    (6, 2, 8, 2)
    >>> tuple(visible_runs(KeyRow(4), KeyRow(8), q_start=Token(10), offset=Token(5), window_size=Token(4),
    ...                    lowest_visible=Token(12)))
    (8, 0, 10, 4)
    """
    history_lo = min(lowest_visible, q_start)
    start = history_lo - (q_start - window_size)
    new_lo = max(lowest_visible - q_start, 0)
    return Pivots(
        history_first=KeyRow(history_rows_begin + start),
        history_length=Token(window_size - start),
        new_first=KeyRow(new_rows_begin + new_lo),
        new_length=Token(offset - new_lo + 1),
    )


def expand_pivots(pivots: Pivots, window_size: Token) -> list[int]:
    """F-PIVOT expanded, one row of ``kv_swa_full_index`` [W]: P0 ... P0 + P1, then P2 ... P2 + P3, then -1.

    >>> expand_pivots(Pivots(KeyRow(6), Token(1), KeyRow(8), Token(2)), Token(4))
    [6, 8, 9, -1]
    """
    history = range(pivots.history_first, pivots.history_first + pivots.history_length)
    new = range(pivots.new_first, pivots.new_first + pivots.new_length)
    unused = window_size - len(history) - len(new)
    return [*history, *new, *[-1] * unused]


def decode_window(state_id: int, swa_block_size: Token, window_size: Token, pos: Token) -> tuple[Slot, Token]:
    """F-SWADEC ``len = min(pos + 1, W); (state_id * B + (pos - len + 1) % B, len)``: the row is in the ring already.

    >>> [decode_window(1, Token(10), Token(8), Token(pos)) for pos in (0, 6, 7, 10)]
    [(10, 1), (10, 7), (10, 8), (13, 8)]
    """
    length = Token(min(pos + 1, window_size))
    first = Token(pos - length + 1)
    return ring_slot(state_id, swa_block_size, first), length


def expand_decode_window(state_id: int, swa_block_size: Token, window_size: Token, pos: Token) -> list[int]:
    """F-SWADEC expanded, one row of ``kv_swa_index`` [W]: ``state_id * B + (pos - len + 1 + k) % B``, then -1.

    >>> expand_decode_window(0, Token(10), Token(8), Token(10))
    [3, 4, 5, 6, 7, 8, 9, 0]
    >>> expand_decode_window(1, Token(10), Token(4), Token(1))
    [10, 11, -1, -1]
    """
    length = min(pos + 1, window_size)
    first = pos - length + 1
    ring_begin = state_id * swa_block_size
    slots = [ring_begin + (first + k) % swa_block_size for k in range(length)]
    return slots + [-1] * (window_size - length)
