"""Chapter 8: YoCo prefill truncation (F-RECT, F-CLIP, F-VIS, F-COMPACT, F-CONTRIB).

Only the last k = keep_tokens of a sequence take part: rect = [max(0, data_len - k), data_len) of the chunk. I-6:
data_len is the length of the whole sequence, chunks still to come included; every formula takes any data_len >= 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from .mirror import block_rows, mirror_block_length, owned_blocks, owner_of
from .sliding_window import Pivots, first_visible, ring_store_slot, visible_runs
from .units import NO_SLOT, KeyRow, Rank, Row, Slot, Token, ceiling_division, clamp


def rect_begin(data_len: Token, keep_tokens: Token) -> Token:
    """F-RECT ``rect_lo = max(0, data_len - k)``: the first position that takes part.

    >>> rect_begin(Token(10), Token(4)), rect_begin(Token(3), Token(4))
    (6, 0)
    """
    return Token(max(0, data_len - keep_tokens))


def in_rect(pos: Token, data_len: Token, keep_tokens: Token) -> bool:
    """F-RECT: a position of the chunk takes part if it lies in ``[max(0, data_len - k), data_len)``.

    >>> [in_rect(Token(pos), Token(10), Token(4)) for pos in (5, 6, 9, 10)]
    [False, True, True, False]
    """
    return rect_begin(data_len, keep_tokens) <= pos < data_len


def clipped_prefix(data_len: Token, keep_tokens: Token, q_start: Token, seqlen_q: Token) -> Token:
    """F-CLIP, compact mode: ``clip_prefix = clamp(data_len - k - q_start, 0, seqlen_q - 1)``; 0 when seqlen_q = 0.

    One query row of a chunk always stays. (In mask mode nothing is clipped.)

    >>> [clipped_prefix(Token(data_len), Token(4), Token(8), Token(3)) for data_len in (0, 12, 13, 14, 15, 99)]
    [0, 0, 1, 2, 2, 2]
    >>> clipped_prefix(Token(99), Token(4), Token(8), Token(0))
    0
    """
    if seqlen_q == 0:
        return Token(0)
    return Token(clamp(data_len - keep_tokens - q_start, 0, seqlen_q - 1))


def mask_pivots(
    history_rows_begin: KeyRow,
    new_rows_begin: KeyRow,
    *,
    q_start: Token,
    offset: Token,
    window_size: Token,
    swa_valid_start: Token,
    rect_lo: Token,
) -> Pivots:
    """F-VIS: F-PIVOT with ``rect_lo = max(0, data_len - k)``; mask mode writes it for all rows.

    >>> tuple(mask_pivots(KeyRow(4), KeyRow(8), q_start=Token(10), offset=Token(1), window_size=Token(4),
    ...                   swa_valid_start=Token(0), rect_lo=Token(10)))
    (8, 0, 8, 2)
    """
    pos = Token(q_start + offset)
    lowest = first_visible(pos, window_size, rect_lo, swa_valid_start)
    return visible_runs(
        history_rows_begin,
        new_rows_begin,
        q_start=q_start,
        offset=offset,
        window_size=window_size,
        lowest_visible=lowest,
    )


def compact_pivots(
    history_rows_begin: KeyRow,
    consumer_rows_begin: KeyRow,
    *,
    q_start: Token,
    offset: Token,
    window_size: Token,
    swa_valid_start: Token,
    rect_lo: Token,
    clip_prefix: Token,
) -> Pivots:
    """F-COMPACT: F-VIS with ``sec2 = n_seq * W + consumer_cu[i]`` and P2 less clip_prefix, for kept rows.

    >>> tuple(compact_pivots(KeyRow(4), KeyRow(8), q_start=Token(10), offset=Token(2), window_size=Token(4),
    ...                      swa_valid_start=Token(0), rect_lo=Token(11), clip_prefix=Token(1)))
    (8, 0, 8, 2)
    """
    full = mask_pivots(
        history_rows_begin,
        consumer_rows_begin,
        q_start=q_start,
        offset=offset,
        window_size=window_size,
        swa_valid_start=swa_valid_start,
        rect_lo=rect_lo,
    )
    return full._replace(new_first=KeyRow(full.new_first - clip_prefix))


def compact_store_slot(
    state_id: int,
    swa_block_size: Token,
    *,
    is_placeholder: bool,
    seqlen_q: Token,
    offset: Token,
    pos: Token,
    data_len: Token,
    keep_tokens: Token,
) -> Slot:
    """F-COMPACT ``yoco_consumer_slot_mapping_store_swa``: F-RING, and -1 outside rect.

    >>> [compact_store_slot(1, Token(8), is_placeholder=False, seqlen_q=Token(3), offset=Token(j), pos=Token(8 + j),
    ...                     data_len=Token(11), keep_tokens=Token(2)) for j in range(3)]
    [-1, 9, 10]
    """
    if not in_rect(pos, data_len, keep_tokens):
        return NO_SLOT
    return ring_store_slot(state_id, swa_block_size, seqlen_q, offset, pos, is_placeholder=is_placeholder)


def kept_rows_of_block(block: int, block_length: Token, length: Token, clip_prefix: Token) -> range:
    """F-CONTRIB, the rows [max(b * blk, clip), min(b * (blk + 1), L)) of a chunk: the block's rows that are kept.

    >>> [list(kept_rows_of_block(block, Token(2), Token(7), Token(3))) for block in range(4)]
    [[], [3], [4, 5], [6]]
    """
    rows = block_rows(block, block_length, length)
    begin = max(rows.start, clip_prefix)
    return range(begin, max(begin, rows.stop))


def kept_of_chunk(length: Token, clip_prefix: Token, cp_size: int) -> dict[Rank, int]:
    """F-CONTRIB, one chunk: the sum of max(min(b * (blk + 1), L) - max(b * blk, clip), 0) over each rank's blocks.

    Ranks that own no row of the chunk are left out: they keep nothing.

    >>> kept_of_chunk(Token(7), Token(3), 2), kept_of_chunk(Token(1), Token(0), 2), kept_of_chunk(Token(0), Token(0), 2)
    ({0: 1, 1: 3}, {0: 1}, {})
    """
    block_length = mirror_block_length(length, cp_size)
    blocks = ceiling_division(length, block_length) if length > 0 else 0
    kept: dict[Rank, int] = {}
    for block in range(blocks):
        owner = owner_of(block, cp_size)
        rows = kept_rows_of_block(block, block_length, length, clip_prefix)
        kept[owner] = kept.get(owner, 0) + len(rows)
    return kept


def contributed_before(lengths: Sequence[Token], clips: Sequence[Token], cp_size: int) -> list[dict[Rank, int]]:
    """F-CONTRIB: for each sequence, the rows that each rank contributes for the sequences before it.

    The last of n + 1 entries is ``kept[r]`` of the whole batch.

    >>> contributed_before([Token(7), Token(1)], [Token(3), Token(0)], 2)
    [{}, {0: 1, 1: 3}, {0: 2, 1: 3}]
    """
    sums: list[dict[Rank, int]] = [{}]
    for length, clip_prefix in zip(lengths, clips, strict=True):
        total = dict(sums[-1])
        for owner, rows in kept_of_chunk(length, clip_prefix, cp_size).items():
            total[owner] = total.get(owner, 0) + rows
        sums.append(total)
    return sums


def kept_by_rank(lengths: Sequence[Token], clips: Sequence[Token], cp_size: int) -> dict[Rank, int]:
    """F-CONTRIB ``kept[r]`` of the whole batch.

    >>> kept_by_rank([Token(7), Token(1)], [Token(3), Token(0)], 2)
    {0: 2, 1: 3}
    """
    return contributed_before(lengths, clips, cp_size)[-1]


def contributed_rows(length: Token, clip_prefix: Token, chunk_begin: int, rank: Rank, cp_size: int) -> list[Row]:
    """F-CONTRIB ``yoco_cp_contrib_index``, one chunk: this rank's full-mirror rows that are kept, in mirror order.

    ``chunk_begin`` is the first full-mirror row of the chunk.

    >>> [contributed_rows(Token(7), Token(3), 10, Rank(rank), 2) for rank in (0, 1)]
    [[12], [11, 12, 13]]
    """
    block_length = mirror_block_length(length, cp_size)
    rows: list[Row] = []
    for half, block in enumerate(owned_blocks(rank, cp_size)):
        kept = kept_rows_of_block(block, block_length, length, clip_prefix)
        half_begin = chunk_begin + half * block_length
        block_begin = block * block_length
        rows.extend(Row(half_begin + offset - block_begin) for offset in kept)
    return rows


def boundary_row(owner: Rank, contributed_before: int, place_in_chunk: int, contrib_pad_len: int) -> Row:
    """F-CONTRIB ``yoco_cp_boundary_index``: ``owner * contrib_pad_len + place`` in the all-gathered contributions.

    ``contributed_before``: rows that the owner contributes for earlier sequences; ``place_in_chunk``: for this one.

    >>> boundary_row(Rank(1), 4, 2, 10)
    16
    """
    place = contributed_before + place_in_chunk
    return Row(owner * contrib_pad_len + place)


def place_in_contribution(length: Token, clip_prefix: Token, offset: Token, cp_size: int) -> int:
    """F-CONTRIB: the place of kept row ``offset`` among the rows that its owner contributes for this chunk.

    Rows of the owner's first block come first, so a row of the second block stands behind all that the first one keeps.

    >>> [place_in_contribution(Token(7), Token(1), Token(offset), 2) for offset in range(1, 7)]
    [0, 0, 1, 2, 3, 1]
    """
    block_length = mirror_block_length(length, cp_size)
    block = offset // block_length
    kept = kept_rows_of_block(block, block_length, length, clip_prefix)
    place_in_block = offset - kept.start
    is_second_block = block >= cp_size
    if not is_second_block:
        return place_in_block
    first_block = 2 * cp_size - 1 - block
    kept_in_first = len(kept_rows_of_block(first_block, block_length, length, clip_prefix))
    return kept_in_first + place_in_block
