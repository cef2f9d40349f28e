"""Chapter 7: the context parallel mirror (F-ZIGZAG, F-REVERSE, F-MIRRORKS).

A chunk of length L is cut in 2p blocks of ``b = cdiv(L, 2p)`` rows; rank r owns blocks r and 2p - 1 - r. The length is
the one of this step's chunk, not of the whole sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .key_ranges import sparse_range
from .rows import Chunk, Query, Selection, chosen_offsets, query_at
from .units import KeyRow, Rank, Ratio, Row, Token, ceiling_division, prefix_sums


def mirror_block_length(length: Token, cp_size: int) -> Token:
    """F-ZIGZAG ``b = cdiv(L, 2p)``: rows of one of the 2p blocks of a chunk.

    >>> mirror_block_length(Token(7), 2), mirror_block_length(Token(1), 4), mirror_block_length(Token(0), 4)
    (2, 1, 0)
    """
    return Token(ceiling_division(length, 2 * cp_size))


def mirror_length(lengths: Iterable[Token], cp_size: int) -> int:
    """F-ZIGZAG ``cp_mirror_len``, the sum of ``2 * cdiv(seqlen_q, 2p)``: the same on every rank.

    >>> mirror_length([Token(7), Token(0), Token(1)], 2)
    6
    """
    return sum(2 * mirror_block_length(length, cp_size) for length in lengths)


def owned_blocks(rank: Rank, cp_size: int) -> tuple[int, int]:
    """F-ZIGZAG: rank r owns blocks r and 2p - 1 - r, in this order.

    >>> [owned_blocks(Rank(rank), 4) for rank in range(4)]
    [(0, 7), (1, 6), (2, 5), (3, 4)]
    """
    return rank, 2 * cp_size - 1 - rank


def block_rows(block: int, block_length: Token, length: Token) -> range:
    """F-ZIGZAG, the rows of a chunk that lie in a block; the last blocks of a chunk may be short or empty.

    >>> [list(block_rows(block, Token(2), Token(7))) for block in range(4)]
    [[0, 1], [2, 3], [4, 5], [6]]
    >>> list(block_rows(3, Token(2), Token(5)))
    []
    """
    begin = min(block * block_length, length)
    end = min((block + 1) * block_length, length)
    return range(begin, end)


def mirror_begins(lengths: Iterable[Token], cp_size: int) -> list[int]:
    """F-ZIGZAG: the first mirrored row of each chunk, the same on every rank, and ``cp_mirror_len`` as the last cell.

    >>> mirror_begins([Token(7), Token(0), Token(1)], 2)
    [0, 4, 4, 6]
    """
    return prefix_sums(2 * mirror_block_length(length, cp_size) for length in lengths)


def mirror_selection(
    chunks: Sequence[Chunk], clips: Sequence[Token], rank: Rank, cp_size: int, rows: Sequence[int] | None
) -> Selection:
    """F-ZIGZAG ``mirror_cp_index``: sequence by sequence block r then block 2p - 1 - r, each b rows: the row of the
    chunk, or none past its end.

    Only rows at or after a chunk's ``clips`` take part (0 for the full layout, F-CLIP for the compact one, whose
    blocks are those of the kept rows). With ``rows`` given: those global rows, and all padding (less than 2p rows a
    chunk).

    >>> from .inputs import SequenceMetadata
    >>> from .rows import chunks_of
    >>> chunks = chunks_of([SequenceMetadata(seqlen_q=7, seqlen_k=7)])
    >>> for rank in (0, 1):
    ...     [query and query.row for query in mirror_selection(chunks, [Token(0)], Rank(rank), 2, None).queries]
    [0, 1, 6, None]
    [2, 3, 4, 5]
    >>> some = mirror_selection(chunks, [Token(2)], Rank(0), 2, [1, 2, 4, 6])
    >>> some.total, some.rows, [query and query.row for query in some.queries]
    (4, (0, 2, 3), [2, None, None])
    """
    places: list[int] = []
    queries: list[Query | None] = []
    place = 0
    for chunk, clip in zip(chunks, clips, strict=True):
        length = Token(chunk.seqlen_q - clip)
        block_length = mirror_block_length(length, cp_size)
        for block in owned_blocks(rank, cp_size):
            in_block = block_rows(block, block_length, length)
            begin = clip + in_block.start
            for offset in chosen_offsets(chunk, rows, begin, clip + in_block.stop):
                places.append(place + offset - begin)
                queries.append(query_at(chunk, offset))
            places.extend(range(place + len(in_block), place + block_length))
            queries.extend([None] * (block_length - len(in_block)))
            place += block_length
    if place == 0:
        return Selection(1, None, [None])
    return Selection(place, None if rows is None else tuple(places), queries)


def owner_of(block: int, cp_size: int) -> Rank:
    """F-REVERSE: the rank that owns a block, block k being the first of rank k or the second of rank 2p - 1 - k.

    >>> [owner_of(block, 2) for block in range(4)]
    [0, 1, 1, 0]
    """
    return Rank(min(block, 2 * cp_size - 1 - block))


def mirror_place(length: Token, offset: Token, cp_size: int) -> tuple[Rank, Row]:
    """F-REVERSE, within one chunk: the owner of row ``offset``, and its place in the owner's 2b rows of the chunk.

    >>> [mirror_place(Token(7), Token(offset), 2) for offset in range(7)]
    [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3), (0, 2)]
    """
    block_length = mirror_block_length(length, cp_size)
    block = offset // block_length
    owner = owner_of(block, cp_size)
    is_second_block = block >= cp_size
    row_in_block = offset % block_length
    place = block_length + row_in_block if is_second_block else row_in_block
    return owner, Row(place)


def reverse_index(length: Token, offset: Token, chunk_begin: int, mirror_len: int, cp_size: int) -> Row:
    """F-REVERSE ``owner * cp_mirror_len + local row``: where a row lies in all ranks' mirrored rows laid end to end.

    I-7: the inverse of F-ZIGZAG. ``chunk_begin`` is the first mirrored row of the chunk, the same on every rank.

    >>> [reverse_index(Token(7), Token(offset), 2, 6, 2) for offset in (0, 2, 6)]
    [2, 8, 4]
    """
    owner, place = mirror_place(length, offset, cp_size)
    local_row = chunk_begin + place
    return Row(owner * mirror_len + local_row)


def mirrored_key_range(
    base: KeyRow, seqlen_q: Token, seqlen_k: Token, offset: Token, ratio: Ratio
) -> tuple[KeyRow, KeyRow]:
    """F-MIRRORKS, a real row: ks / ke of ``pos = (seqlen_k - seqlen_q) + row in chunk``, from the original seqlen_k.

    Padding rows are 0, 0. In the compact layout ``seqlen_q`` is the kept length: the last rows stay.

    >>> mirrored_key_range(KeyRow(8), Token(3), Token(8), Token(2), Ratio(4))
    (8, 10)
    """
    pos = Token(seqlen_k - seqlen_q + offset)
    return sparse_range(base, pos, ratio)
