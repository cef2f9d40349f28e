"""Chapter 4: block tables (F-BLOCKS)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .units import Block, Ratio, Token, ceiling_division


def block_count(seqlen_k: Token, block_size: Token, smallest_ratio: Ratio) -> Block:
    """F-BLOCKS ``num_blocks = cdiv(seqlen_k // m, block_size // m)``, m the smallest ratio of all.

    One table serves every ratio, as the size of a block does not depend on the ratio.

    >>> [block_count(Token(length), Token(16), Ratio(1)) for length in (1, 16, 17, 96, 100)]
    [1, 1, 2, 6, 7]
    >>> [block_count(Token(length), Token(16), Ratio(4)) for length in (3, 4, 16, 19, 20)]
    [0, 1, 1, 1, 2]
    """
    compressed_tokens = seqlen_k // smallest_ratio
    tokens_in_block = block_size // smallest_ratio
    return Block(ceiling_division(compressed_tokens, tokens_in_block))


def table_width(counts: Iterable[Block], given: int | None) -> Block:
    """F-BLOCKS, I-4: ``max_num_blocks = max(1, the largest num_blocks)``, or the columns of a wider ``out``.

    >>> table_width([Block(0), Block(3)], None), table_width([Block(0)], None), table_width([Block(3)], 5)
    (3, 1, 5)
    """
    widest = max([1, *counts])
    return Block(widest if given is None else given)


def block_table_row(block_table: Sequence[int], count: Block, width: Block) -> list[int | None]:
    """F-BLOCKS, one row of ``block_tables``: the first num_blocks columns, then cells that are not defined (None).

    >>> block_table_row([7, 3, 9], Block(2), Block(4))
    [7, 3, None, None]
    """
    return [*block_table[:count], *[None] * (width - count)]
