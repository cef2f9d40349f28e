"""Chapter 2: the common base of every path (F-POS, F-IDS, F-NGRAM, F-MASK, F-QIDX, F-CU)."""

from __future__ import annotations

from collections.abc import Sequence

from .inputs import MetadataConfig, SequenceMetadata
from .units import NO_SEQUENCE, SequenceIndex, Token, TokenId, prefix_sums


def position(q_start: Token, offset: Token) -> Token:
    """F-POS ``positions[i_q] = q_start + j``.

    >>> position(Token(5), Token(2))
    7
    """
    return Token(q_start + offset)


def prompt_input_id(token_ids: Sequence[int], pos: Token) -> TokenId:
    """F-IDS, prompt: ``input_ids[i_q] = token_ids[pos]``.

    >>> prompt_input_id([10, 11, 12], Token(1))
    11
    """
    return TokenId(token_ids[pos])


def decode_input_id(token_ids: Sequence[int], draft_tokens: Sequence[int], q_start: Token, offset: Token) -> TokenId:
    """F-IDS, decode: row 0 is ``token_ids[q_start]``, row j >= 1 is ``draft_tokens[j - 1]``.

    >>> [decode_input_id([10, 11, 12], [20, 21], Token(2), Token(j)) for j in range(3)]
    [12, 20, 21]
    """
    if offset == 0:
        return TokenId(token_ids[q_start])
    return TokenId(draft_tokens[offset - 1])


def ngram_token(
    compressed_tokens: Sequence[int],
    recent_tokens: Sequence[int],
    lookup_table: Sequence[int],
    pad_token: int,
    looked_at: Token,
) -> TokenId:
    """F-NGRAM, one cell before the image cut, ``t = pos - r`` the position looked at.

    ``t < 0 -> pad_token; t < L -> compressed_tokens[t]; else lookup_table[recent_tokens[t - L]]``, L the length of the
    compressed history. Raw tokens that follow it are compressed here, by the table.

    >>> [ngram_token([50, 51], [1, 0], [70, 71], -9, Token(t)) for t in (-1, 0, 1, 2, 3)]
    [-9, 50, 51, 71, 70]
    """
    compressed_length = len(compressed_tokens)
    if looked_at < 0:
        return TokenId(pad_token)
    if looked_at < compressed_length:
        return TokenId(compressed_tokens[looked_at])
    raw_token = recent_tokens[looked_at - compressed_length]
    return TokenId(lookup_table[raw_token])


def ngram_row(config: MetadataConfig, sequence: SequenceMetadata, pos: Token) -> list[int]:
    """F-NGRAM, one row: ``r`` looks back ``t = pos - r``; from the first cell equal to ``image_sentinel`` on, pad.

    I-9: the sentinel is compared with the value after the look-up. I-12: for r = 0 too; None means no image token.

    >>> config = MetadataConfig(block_size=1, window_size=1, swa_block_size=1, max_model_len=4, max_ngram_size=3,
    ...                         pad_token=-9, image_sentinel=7)
    >>> sequence = SequenceMetadata(seqlen_q=1, seqlen_k=4, compressed_tokens=(50, 7, 52, 53))
    >>> [ngram_row(config, sequence, Token(pos)) for pos in (0, 1, 2, 3)]
    [[50, -9, -9], [-9, -9, -9], [52, -9, -9], [53, 52, -9]]
    """
    pad_token = config.pad_token
    cells: list[int] = []
    for look_back in range(config.max_ngram_size):
        looked_at = Token(pos - look_back)
        value = ngram_token(
            sequence.compressed_tokens, sequence.recent_tokens, config.lookup_table, pad_token, looked_at
        )
        if value == config.image_sentinel:
            break
        cells.append(value)
    padding = config.max_ngram_size - len(cells)
    return cells + [pad_token] * padding


def is_valid_token(is_placeholder: bool) -> bool:
    """F-MASK ``valid_token_mask[i_q] = not is_placeholder`` (I-1, I-2).

    >>> is_valid_token(False), is_valid_token(True)
    (True, False)
    """
    return not is_placeholder


def query_index(index: SequenceIndex, is_placeholder: bool) -> SequenceIndex:
    """F-QIDX ``query_indices[i_q] = i``, or 998244353 for a placeholder (I-1).

    >>> query_index(SequenceIndex(2), False), query_index(SequenceIndex(2), True)
    (2, 998244353)
    """
    return NO_SEQUENCE if is_placeholder else index


def cumulative_lengths(lengths: Sequence[Token]) -> list[int]:
    """F-CU, prompt and eager decode: prefix sums with the leading 0, length n + 1.

    >>> cumulative_lengths([Token(3), Token(0), Token(2)])
    [0, 3, 3, 5]
    """
    return prefix_sums(lengths)


def inclusive_cumulative_lengths(lengths: Sequence[Token]) -> list[int]:
    """F-CU, ZOS decode: prefix sums without the leading 0, length n.

    >>> inclusive_cumulative_lengths([Token(3), Token(0), Token(2)])
    [3, 3, 5]
    """
    return prefix_sums(lengths)[1:]
