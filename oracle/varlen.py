"""Chapter 10, drafts of variable length (F-REMAP, F-VARLEN): what the device takes back from the extracted step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from .blocks import block_count
from .inputs import GatherInputs, MetadataConfig, SequenceMetadata, VarlenInputs, compressed_per_block, query_start
from .units import INT32_MAX, Token


def accepted_drafts(prev_num_accepted_tokens: Sequence[int], remap: int) -> Token:
    """F-REMAP ``num_accepted[i] = prev_num_accepted_tokens[remap[i]]``, 0 for a new sequence.

    >>> accepted_drafts([2, 0], 0), accepted_drafts([2, 0], -1)
    (2, 0)
    """
    return Token(0 if remap < 0 else prev_num_accepted_tokens[remap])


def rejected_drafts(prev_seqlens_q: Sequence[int], prev_num_accepted_tokens: Sequence[int], remap: int) -> Token:
    """F-REMAP ``rejected[i] = prev_seqlens_q[remap[i]] - 1 - num_accepted[i]``, 0 for a new sequence.

    >>> rejected_drafts([3, 4], [2, 0], 1), rejected_drafts([3, 4], [2, 0], 0), rejected_drafts([3, 4], [2, 0], -1)
    (3, 0, 0)
    """
    if remap < 0:
        return Token(0)
    verified = prev_seqlens_q[remap] - 1
    return Token(verified - accepted_drafts(prev_num_accepted_tokens, remap))


def shorter_key_length(extracted_k: Token, extracted_q: Token, seqlen_q: Token, rejected: Token) -> Token:
    """F-VARLEN ``seqlens_k'[i] = K[i] - (H[i] - seqlens_q[i]) - rejected[i]``.

    Ten keys, four rows of which: with two rows and one draft of the last step rejected, rows 5 and 6 are left.

    >>> shorter_key_length(Token(10), Token(4), Token(2), Token(1))
    7
    """
    rows_left_out = extracted_q - seqlen_q
    return Token(extracted_k - rows_left_out - rejected)


def shorter_sequences(
    sequences: Sequence[SequenceMetadata], remap: Sequence[int], varlen: VarlenInputs
) -> list[SequenceMetadata]:
    """F-VARLEN: the extracted sequences with the lengths that the step has; nothing else of them changes."""
    shorter = []
    for index, sequence in enumerate(sequences):
        seqlen_q = Token(varlen.seqlens_q[index])
        rejected = rejected_drafts(varlen.prev_seqlens_q, varlen.prev_num_accepted_tokens, remap[index])
        seqlen_k = shorter_key_length(Token(sequence.seqlen_k), Token(sequence.seqlen_q), seqlen_q, rejected)
        shorter.append(dataclasses.replace(sequence, seqlen_q=seqlen_q, seqlen_k=seqlen_k))
    return shorter


def check_varlen(
    config: MetadataConfig, sequences: Sequence[SequenceMetadata], gather: GatherInputs, varlen: VarlenInputs
) -> None:
    """Refuse inputs that do not fit the extracted batch (I-33, I-37), as a plain ValueError."""
    for problem in varlen_problems(config, sequences, gather, varlen):
        raise ValueError(f"gather: varlen: {problem}")


def varlen_problems(
    config: MetadataConfig, sequences: Sequence[SequenceMetadata], gather: GatherInputs, varlen: VarlenInputs
) -> Iterator[str]:
    """What of I-33 and I-37 does not hold, a line each; shapes first, for nothing can be read without them."""
    previous = len(gather.prev_sampled)
    lengths = {"seqlens_q": len(sequences), "prev_seqlens_q": previous, "prev_num_accepted_tokens": previous}
    wrong = [(name, wanted) for name, wanted in lengths.items() if len(getattr(varlen, name)) != wanted]
    for name, wanted in wrong:
        yield f"{name} has {len(getattr(varlen, name))} entries for {wanted} sequences"
    if wrong:
        return
    for place, (rows, accepted) in enumerate(zip(varlen.prev_seqlens_q, varlen.prev_num_accepted_tokens, strict=True)):
        if not 0 <= accepted <= rows - 1:
            yield f"prev_num_accepted_tokens[{place}] = {accepted} of {rows - 1} drafts"
    for index, sequence in enumerate(sequences):
        if not 1 <= varlen.seqlens_q[index] <= sequence.seqlen_q:
            yield f"seqlens_q[{index}] = {varlen.seqlens_q[index]}, not of 1 to {sequence.seqlen_q} rows"
        rejected = rejected_drafts(varlen.prev_seqlens_q, varlen.prev_num_accepted_tokens, gather.remap[index])
        if rejected > query_start(Token(sequence.seqlen_q), Token(sequence.seqlen_k)):
            yield f"sequence {index}: {rejected} drafts are rejected, it has not that many tokens before this step"
        if rejected > 0 and not fits_the_pools(config, sequence):
            yield f"sequence {index}: drafts are rejected, and its block_table or state_id has cells beyond int32"


def fits_the_pools(config: MetadataConfig, sequence: SequenceMetadata) -> bool:
    """I-37: every cell of the sequence's extracted blocks and of its ring fits in int32, whichever is stored to.

    >>> config = MetadataConfig(block_size=4, window_size=2, swa_block_size=2, max_model_len=9, sparse_ratios=(2,))
    >>> tables = (2**30 - 1,), (2**30,), (0, 2**30)
    >>> [fits_the_pools(config, SequenceMetadata(seqlen_q=1, seqlen_k=3, block_table=table)) for table in tables]
    [True, False, True]
    """
    smallest_ratio = config.ca_ratios[0]
    per_block = compressed_per_block(config.block, smallest_ratio)
    extracted = block_count(Token(sequence.seqlen_k), config.block, smallest_ratio)
    last_block = max(sequence.block_table[:extracted], default=0)
    return max((last_block + 1) * per_block, (sequence.state_id + 1) * config.ring) - 1 <= INT32_MAX
