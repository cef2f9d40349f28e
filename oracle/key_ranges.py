"""Chapter 6: which compressed keys a row reads (F-KSTEP, F-CAPLAN, F-KS, F-CAOFF, F-CTXLEN, F-KLEN).

The load plan, ks / ke and the dense offsets step over sequences by one and the same formula, F-KSTEP: a sequence with
no full compressed token still takes one key row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .sliding_window import ZERO_FILL, Segment
from .units import CompressedToken, KeyRow, Ratio, Row, Token, prefix_sums


def key_rows(seqlen_k: Token, ratio: Ratio) -> CompressedToken:
    """F-KSTEP ``max(1, seqlen_k // n)``: key rows of a sequence in the contiguous buffer of compressed keys.

    >>> [key_rows(Token(length), Ratio(4)) for length in (0, 3, 4, 9)]
    [1, 1, 1, 2]
    """
    full_tokens = seqlen_k // ratio
    return CompressedToken(max(1, full_tokens))


def key_bases(seqlens_k: Iterable[Token], ratio: Ratio) -> list[KeyRow]:
    """F-KS ``base_i``: F-KSTEP summed over the sequences before i; the last of n + 1 is ``total_k_compressed``.

    >>> key_bases([Token(9), Token(3), Token(4)], Ratio(4))
    [0, 2, 3, 4]
    """
    return [KeyRow(base) for base in prefix_sums(key_rows(seqlen_k, ratio) for seqlen_k in seqlens_k)]


def visible_compressed(pos: Token, ratio: Ratio) -> CompressedToken:
    """F-KLEN ``(pos + 1) // n``: compressed tokens complete at a position, the ones a row may see.

    >>> [visible_compressed(Token(pos), Ratio(4)) for pos in range(5, 11)]
    [1, 1, 2, 2, 2, 2]
    """
    return CompressedToken((pos + 1) // ratio)


def paged_load_plan(
    block_table: Sequence[int], seqlen_k: Token, ratio: Ratio, per_block: CompressedToken, destination: KeyRow
) -> list[Segment]:
    """F-CAPLAN, one sequence, ``num = seqlen_k // n``: num = 0 -> [-1, 0, 1, dst]; else one segment a physical block,
    ``[block_table[b], 0, min(b_c, num - b * b_c), dst]``, dst going on.

    >>> [tuple(s) for s in paged_load_plan([7, 3], Token(23), Ratio(4), CompressedToken(4), KeyRow(10))]
    [(7, 0, 4, 10), (3, 0, 1, 14)]
    >>> [tuple(s) for s in paged_load_plan([7, 3], Token(3), Ratio(4), CompressedToken(4), KeyRow(10))]
    [(-1, 0, 1, 10)]
    """
    num = seqlen_k // ratio
    if num == 0:
        return [Segment(ZERO_FILL, 0, 1, destination)]
    segments = []
    for logical_block, done in enumerate(range(0, num, per_block)):
        length = min(per_block, num - done)
        segments.append(Segment(block_table[logical_block], 0, length, destination + done))
    return segments


def sparse_range(base: KeyRow, pos: Token, ratio: Ratio) -> tuple[KeyRow, KeyRow]:
    """F-KS ``ks = base_i; ke = base_i + (pos + 1) // r``.

    >>> sparse_range(KeyRow(8), Token(1), Ratio(1)), sparse_range(KeyRow(8), Token(1), Ratio(4))
    ((8, 10), (8, 8))
    """
    begin = base
    end = KeyRow(base + visible_compressed(pos, ratio))
    return begin, end


def prompt_dense_offset(base: KeyRow, pos: Token, ratio: Ratio) -> tuple[KeyRow, CompressedToken]:
    """F-CAOFF, prompt: ``(base_i, (pos + 1) // n)``.

    >>> prompt_dense_offset(KeyRow(5), Token(7), Ratio(4))
    (5, 2)
    """
    return base, visible_compressed(pos, ratio)


def decode_dense_offset(
    row: Row, max_num_blocks: int, per_block: CompressedToken, pos: Token, ratio: Ratio
) -> tuple[KeyRow, CompressedToken]:
    """F-CAOFF, decode: ``(i_q * max_num_blocks * b_c, (pos + 1) // n)``: the row's own run of the flattened tables.

    >>> decode_dense_offset(Row(2), 3, CompressedToken(4), Token(8), Ratio(4))
    (24, 2)
    """
    offset = row * max_num_blocks * per_block
    return KeyRow(offset), visible_compressed(pos, ratio)


def expand_prompt_dense(offset: KeyRow, length: CompressedToken, width: CompressedToken) -> list[int]:
    """F-CAOFF expanded, prompt, one row of ``kv_ca_index`` [width]: ``offset + k``, then -1.

    >>> expand_prompt_dense(KeyRow(5), CompressedToken(2), CompressedToken(4))
    [5, 6, -1, -1]
    """
    keys = range(offset, offset + length)
    unused = width - length
    return [*keys, *[-1] * unused]


def expand_decode_dense(
    block_table: Sequence[int], length: CompressedToken, per_block: CompressedToken, width: CompressedToken
) -> list[int]:
    """F-CAOFF expanded, decode, one row of ``kv_ca_index`` [width], through the block table.

    ``x = offset + k; block_tables.flat[x // b_c] * b_c + x % b_c``, then -1. As the offset is the row's first cell of
    the flattened tables, this is ``slot(k)`` of the row's own sequence (a placeholder's too).

    >>> expand_decode_dense([7, 3], CompressedToken(3), CompressedToken(2), CompressedToken(5))
    [14, 15, 6, -1, -1]
    """
    slots = [block_table[k // per_block] * per_block + k % per_block for k in range(length)]
    unused = width - length
    return [*slots, *[-1] * unused]


def context_length(pos: Token) -> Token:
    """F-CTXLEN ``context_lens[i_q] = pos + 1`` (decode), the row itself included.

    >>> context_length(Token(7))
    8
    """
    return Token(pos + 1)
