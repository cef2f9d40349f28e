"""How high a block id or a state id may be: the largest one whose every written slot fits in int32 (F-LIMIT, I-11)."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items

from inputmeta.conformance.cases.model import Config, Path, Sequence

from .draws import INT32_MAX


def ca_ratios(config: Config) -> list[int]:
    """All compression ratios, ascending."""
    return sorted({*config.dense_ratios, *config.sparse_ratios})


def block_count(config: Config, seqlen_k: int) -> int:
    """F-BLOCKS num_blocks of a sequence of ``seqlen_k`` tokens."""
    smallest = min((*config.dense_ratios, *config.sparse_ratios))
    per_block = config.block_size // smallest
    return -(-(seqlen_k // smallest) // per_block)


def named_tokens(path: Path, config: Config, sequence: Sequence, ratio: int) -> range:
    """Compressed tokens whose slots the step writes into a field: stored, or read by an expanded dense decode."""
    first = (sequence.seqlen_k - sequence.seqlen_q) // ratio
    end = sequence.seqlen_k // ratio
    if path != "prompt" and ratio in config.dense_ratios:
        return range(end)
    return range(0) if sequence.is_placeholder else range(first, end)


def block_slots(path: Path, config: Config, sequence: Sequence, block: int) -> Iterator[tuple[int, int]]:
    """Per ratio that names a slot of logical block ``block``: (compressed tokens per block, highest offset named)."""
    for ratio in ca_ratios(config):
        per_block = config.block_size // ratio
        named = named_tokens(path, config, sequence, ratio)
        last = min(named.stop, (block + 1) * per_block) - 1
        if last >= max(named.start, block * per_block):
            yield per_block, last - block * per_block


def highest_block_id(path: Path, config: Config, sequence: Sequence, block: int) -> int:
    """Largest physical id of logical block ``block`` that keeps P-INT32; 2**31 - 1 where no slot of it is named.

    >>> config = Config(block_size=4, dense_ratios=(1,), window_size=1, swa_block_size=1, max_model_len=8)
    >>> sequence = Sequence(seqlen_q=4, seqlen_k=4)
    >>> [highest_block_id("prompt", config, sequence, block) for block in (0, 1)] == [2**29 - 1, 2**31 - 1]
    True

    """
    slots = block_slots(path, config, sequence, block)
    return min(((INT32_MAX - offset) // per_block for per_block, offset in slots), default=INT32_MAX)


def highest_block_slot(path: Path, config: Config, sequence: Sequence, block: int) -> int | None:
    """Largest slot that the step writes of logical block ``block``; None where it names none of it."""
    physical = sequence.block_table[block]
    slots = block_slots(path, config, sequence, block)
    return max((physical * per_block + offset for per_block, offset in slots), default=None)


def highest_ring_offset(path: Path, config: Config, sequence: Sequence) -> int | None:
    """Largest offset in the sequence's ring that the step writes into a field; None if it writes none.

    Prompt: the stored rows. Decode: the window of every row, the row itself included, placeholders too.
    """
    ring, end = config.swa_block_size, sequence.seqlen_k
    start = end - sequence.seqlen_q
    if path == "prompt":
        first = end if sequence.is_placeholder else max(start, end - ring)
    else:
        first = max(0, start - config.window_size + 1)
    if first >= end:
        return None
    passes_the_end = first // ring != (end - 1) // ring
    return ring - 1 if passes_the_end else (end - 1) % ring


def highest_state_id(path: Path, config: Config, sequence: Sequence) -> int:
    """Largest state id that keeps P-INT32; 2**31 - 1 where no ring slot is written.

    >>> config = Config(block_size=4, dense_ratios=(1,), window_size=4, swa_block_size=8, max_model_len=8)
    >>> highest_state_id("prompt", config, Sequence(seqlen_q=8, seqlen_k=8)) == 2**28 - 1
    True
    """
    offset = highest_ring_offset(path, config, sequence)
    return INT32_MAX if offset is None else (INT32_MAX - offset) // config.swa_block_size


def dense_product(config: Config, total_q: int, max_num_blocks: int) -> int:
    """F-LIMIT total_q * max_num_blocks * (block_size // min(dense_ratios)), 0 without dense ratios."""
    if not config.dense_ratios:
        return 0
    return total_q * max_num_blocks * (config.block_size // min(config.dense_ratios))


def highest_new_row(config: Config, step: Items[Sequence]) -> int | None:
    """Prompt: largest row that pivots name (F-PIVOT, F-VIS, F-COMPACT), from the first new row on; None without rows.

    A chunk names its last row, or the row behind it where the last one sees nothing.

    >>> config = Config(block_size=4, dense_ratios=(1,), window_size=4, swa_block_size=8, max_model_len=8)
    >>> chunk, blind = (Sequence(seqlen_q=3, seqlen_k=8, swa_valid_start=start) for start in (0, 9))
    >>> highest_new_row(config, [chunk, chunk]), highest_new_row(config, [blind])
    (5, 3)
    """
    rows = []
    end = kept_end = 0
    for sequence in step:
        if sequence.seqlen_q == 0:
            continue
        end += sequence.seqlen_q
        rows.append(end - (sequence.swa_valid_start < sequence.seqlen_k))
        if config.yoco_mode == "off":
            continue
        first_kept = sequence.data_len - config.yoco_prefill_keep_tokens
        q_start = sequence.seqlen_k - sequence.seqlen_q
        clip = min(max(first_kept - q_start, 0), sequence.seqlen_q - 1) if config.yoco_mode == "compact" else 0
        kept_end += sequence.seqlen_q - clip
        rows.append(kept_end - (max(sequence.swa_valid_start, first_kept) < sequence.seqlen_k))
    return max(rows, default=None)


def highest_window_row(config: Config, step: Items[Sequence]) -> int:
    """Prompt: n_seq * W (``total_k_swa``), or the largest row that pivots name if there are query rows."""
    return len(step) * config.window_size + (highest_new_row(config, step) or 0)
