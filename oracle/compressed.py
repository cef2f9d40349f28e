"""Chapter 3: where compressed tokens are stored (F-CSLOT, F-NCQ, F-CPOS, F-CDEC).

Compressed token c of ratio n stands for the original positions [c * n, c * n + n).
"""

from __future__ import annotations

from collections.abc import Sequence

from .units import NO_SLOT, CompressedToken, Ratio, Slot, Token


def compressed_slot(block_table: Sequence[int], token: CompressedToken, per_block: CompressedToken) -> Slot:
    """F-CSLOT ``slot(c) = block_table[c // b_c] * b_c + c % b_c``.

    >>> compressed_slot([7, 3], CompressedToken(5), CompressedToken(4))
    13
    """
    block = block_table[token // per_block]
    place_in_block = token % per_block
    return Slot(block * per_block + place_in_block)


def new_compressed_tokens(q_start: Token, seqlen_k: Token, ratio: Ratio) -> range:
    """F-CPOS, the range ``[q_start // n, seqlen_k // n)``: the compressed tokens that a chunk completes.

    A token is completed by the step that brings its last original position, so the first may have begun earlier.

    >>> new_compressed_tokens(Token(5), Token(9), Ratio(4)), len(new_compressed_tokens(Token(5), Token(7), Ratio(4)))
    (range(1, 2), 0)
    """
    first = q_start // ratio
    end = seqlen_k // ratio
    return range(first, end)


def compressed_row_count(q_start: Token, seqlen_k: Token, ratio: Ratio) -> int:
    """F-NCQ ``max(1, seqlen_k // n - q_start // n)``: compressed rows of a prompt sequence; an empty range
    takes one.

    >>> [compressed_row_count(Token(5), Token(end), Ratio(4)) for end in (5, 7, 8, 12, 16)]
    [1, 1, 1, 2, 3]
    """
    completed = seqlen_k // ratio - q_start // ratio
    return max(1, completed)


def compressed_position(token: CompressedToken, ratio: Ratio) -> Token:
    """F-CPOS ``positions_c = c * n``: the first original position that a compressed token stands for.

    >>> compressed_position(CompressedToken(3), Ratio(4))
    12
    """
    return Token(token * ratio)


def prompt_compressed_cells(
    block_table: Sequence[int],
    token: CompressedToken | None,
    ratio: Ratio,
    per_block: CompressedToken,
    *,
    is_placeholder: bool,
) -> tuple[Token, Slot]:
    """F-CPOS, one prompt row: ``(c * n, slot(c))``; (0, -1) for the one row of an empty range (``token`` is None).

    I-1: a placeholder stores nothing: its rows are as many, all (0, -1).

    >>> prompt_compressed_cells([7, 3], CompressedToken(5), Ratio(4), CompressedToken(4), is_placeholder=False)
    (20, 13)
    >>> prompt_compressed_cells([7, 3], CompressedToken(5), Ratio(4), CompressedToken(4), is_placeholder=True)
    (0, -1)
    >>> prompt_compressed_cells([7, 3], None, Ratio(4), CompressedToken(4), is_placeholder=False)
    (0, -1)
    """
    if token is None or is_placeholder:
        return Token(0), NO_SLOT
    return compressed_position(token, ratio), compressed_slot(block_table, token, per_block)


def decode_compressed_cells(
    block_table: Sequence[int],
    pos: Token,
    ratio: Ratio,
    per_block: CompressedToken,
    *,
    is_placeholder: bool,
) -> tuple[Token, Slot]:
    """F-CDEC, one decode row: ``if (pos + 1) % n == 0: c = pos // n, (c * n, slot(c)); otherwise (0, -1)`` (I-1).

    >>> [decode_compressed_cells([7, 3], Token(p), Ratio(4), CompressedToken(2), is_placeholder=False)
    ...  for p in (6, 7, 8, 11)]
    [(0, -1), (4, 15), (0, -1), (8, 6)]
    """
    completes_a_token = (pos + 1) % ratio == 0
    if not completes_a_token or is_placeholder:
        return Token(0), NO_SLOT
    token = CompressedToken(pos // ratio)
    return compressed_position(token, ratio), compressed_slot(block_table, token, per_block)
