"""Chapter 9: int32 (F-LIMIT). The largest value of every field by formula, without building the field.

I-11: a batch is refused if and only if some value that is written leaves int32 (on demand expansions included), or the
product bound of the dense decode offsets is broken. I-20: the layout before the mirror decides, so that all ranks of a
context parallel group refuse together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .blocks import block_count, table_width
from .compressed import compressed_slot, new_compressed_tokens
from .errors import Int32Error
from .inputs import MetadataConfig, Path, SequenceMetadata, compressed_per_block
from .key_ranges import key_bases
from .mirror import mirror_length, reverse_index
from .rows import Chunk, chunks_of, total_queries
from .sliding_window import Pivots, ring_slot, total_window_keys, window_load_plan
from .truncation import clipped_prefix, compact_pivots, kept_by_rank, rect_begin
from .units import INT32_MAX, CompressedToken, KeyRow, Token, ceiling_division


class Extreme(NamedTuple):
    """The largest value that a batch writes into a field; ``sequence`` is the one that does it."""

    field: str
    sequence: int | None
    value: int


def highest_compressed_slot(block_table: Sequence[int], first: int, end: int, per_block: CompressedToken) -> int | None:
    """F-LIMIT, the largest F-CSLOT of compressed tokens [first, end): the last token of some block; None if empty.

    >>> highest_compressed_slot([3, 9, 1], 1, 9, CompressedToken(4))
    39
    >>> highest_compressed_slot([3, 9, 1], 1, 6, CompressedToken(4))
    37
    >>> highest_compressed_slot([3], 2, 2, CompressedToken(4)) is None
    True
    """
    if first >= end:
        return None
    last = compressed_slot(block_table, CompressedToken(end - 1), per_block)
    blocks_before = block_table[first // per_block : (end - 1) // per_block]
    if len(blocks_before) == 0:
        return last
    highest_full_block = max(blocks_before) * per_block + per_block - 1
    return max(last, highest_full_block)


def highest_ring_slot(state_id: int, swa_block_size: Token, first: int, end: int) -> int | None:
    """F-LIMIT, the largest F-RING cell of positions [first, end): the ring's last one if the range passes it.

    >>> [highest_ring_slot(1, Token(10), first, end) for first, end in ((3, 7), (3, 10), (8, 12), (10, 12), (4, 4))]
    [16, 19, 19, 11, None]
    """
    if first >= end:
        return None
    passes_the_end = first // swa_block_size != (end - 1) // swa_block_size
    if passes_the_end:
        return state_id * swa_block_size + swa_block_size - 1
    return ring_slot(state_id, swa_block_size, Token(end - 1))


def dense_product(total_q: int, max_num_blocks: int, config: MetadataConfig) -> int:
    """F-LIMIT ``total_q * max_num_blocks * (block_size // min(dense_ratios))``: one past the last dense offset's run.

    >>> config = MetadataConfig(block_size=128, window_size=1, swa_block_size=1, max_model_len=1, dense_ratios=(4, 1))
    >>> dense_product(16384, 1024, config) - 2**31
    0
    """
    return total_q * max_num_blocks * compressed_per_block(config.block, config.dense[0])


def common_extremes(path: Path, config: MetadataConfig, chunks: Sequence[Chunk]) -> Iterator[Extreme]:
    """Fields of every path: positions, cumulative lengths, state slots, store slots."""
    yield Extreme("total_q", None, total_queries(chunks))
    if path != "decode_zos":
        yield Extreme("cu_seqlens_k", None, sum(chunk.seqlen_k for chunk in chunks))
    ring = config.ring
    for chunk in chunks:
        sequence = chunk.sequence
        if chunk.seqlen_q > 0:
            yield Extreme("positions", chunk.index, chunk.seqlen_k - 1)
        yield Extreme("state_block_idx", chunk.index, sequence.state_id)
        if sequence.is_placeholder:
            continue
        first_stored = max(chunk.q_start, chunk.seqlen_k - ring)
        slot = highest_ring_slot(sequence.state_id, ring, first_stored, chunk.seqlen_k)
        if slot is not None:
            yield Extreme("slot_mapping_store_swa", chunk.index, slot)
        for ratio in config.ca_ratios:
            per_block = compressed_per_block(config.block, ratio)
            new = new_compressed_tokens(chunk.q_start, chunk.seqlen_k, ratio)
            slot = highest_compressed_slot(sequence.block_table, new.start, new.stop, per_block)
            if slot is not None:
                yield Extreme(f"slot_mapping_store_ca.{ratio}", chunk.index, slot)


def highest_pivot(pivots: Pivots) -> int:
    """F-LIMIT, the largest key row that pivots name, expanded or not: a new one, behind all history.

    >>> highest_pivot(Pivots(KeyRow(6), Token(2), KeyRow(8), Token(3)))
    10
    >>> highest_pivot(Pivots(KeyRow(8), Token(0), KeyRow(9), Token(0)))
    9
    """
    last_new = pivots.new_first + pivots.new_length - 1
    return max(pivots.new_first, last_new)


def pivot_extremes(config: MetadataConfig, chunks: Sequence[Chunk]) -> Iterator[Extreme]:
    """F-PIVOT, F-VIS and F-COMPACT: pivots grow with the row, so the last row of a chunk has the largest."""
    window = config.window
    keep = config.keep
    new_begin = total_window_keys(len(chunks), window)
    consumer_row = 0
    for chunk in chunks:
        if chunk.seqlen_q == 0:
            continue
        data_len = chunk.data_len
        rect_lo = rect_begin(data_len, keep)
        new = KeyRow(new_begin + chunk.first_row)
        plain = last_pivots(chunk, new, window, Token(0), Token(0))
        yield Extreme("kv_swa_full_index_pivots", chunk.index, highest_pivot(plain))
        if config.yoco_mode == "mask":
            masked = last_pivots(chunk, new, window, rect_lo, Token(0))
            yield Extreme("yoco_mask_swa_index_pivots", chunk.index, highest_pivot(masked))
        if config.yoco_mode == "compact":
            clip = clipped_prefix(data_len, keep, chunk.q_start, chunk.seqlen_q)
            compact = last_pivots(chunk, KeyRow(new_begin + consumer_row), window, rect_lo, clip)
            yield Extreme("yoco_consumer_swa_index_pivots", chunk.index, highest_pivot(compact))
            consumer_row += chunk.seqlen_q - clip


def last_pivots(chunk: Chunk, new_rows_begin: KeyRow, window_size: Token, rect_lo: Token, clip_prefix: Token) -> Pivots:
    """F-PIVOT (rect_lo 0), F-VIS or F-COMPACT of the last row of a chunk."""
    return compact_pivots(
        total_window_keys(chunk.index, window_size),
        new_rows_begin,
        q_start=chunk.q_start,
        offset=Token(chunk.seqlen_q - 1),
        window_size=window_size,
        swa_valid_start=chunk.valid_start,
        rect_lo=rect_lo,
        clip_prefix=clip_prefix,
    )


def highest_reverse_index(lengths: Sequence[Token], cp_size: int) -> int | None:
    """F-LIMIT, the largest F-REVERSE: of a chunk, the last row of the highest rank that owns a row of it.

    >>> highest_reverse_index([Token(7), Token(1)], 2), highest_reverse_index([Token(1)], 4)
    (9, 0)
    """
    total = mirror_length(lengths, cp_size)
    highest = None
    chunk_begin = 0
    for length in lengths:
        if length == 0:
            continue
        block_length = ceiling_division(length, 2 * cp_size)
        blocks = ceiling_division(length, block_length)
        owner = min(blocks, cp_size) - 1
        second_block = 2 * cp_size - 1 - owner
        last_block = second_block if second_block < blocks else owner
        last_offset = Token(min((last_block + 1) * block_length, length) - 1)
        index = reverse_index(length, last_offset, chunk_begin, total, cp_size)
        highest = index if highest is None else max(highest, index)
        chunk_begin += 2 * block_length
    return highest


def mirror_extremes(config: MetadataConfig, chunks: Sequence[Chunk]) -> Iterator[Extreme]:
    """F-ZIGZAG, F-REVERSE and F-CONTRIB: indices that grow with the number of ranks."""
    lengths = [chunk.seqlen_q for chunk in chunks]
    yield Extreme("cp_mirror_len", None, mirror_length(lengths, config.cp_size))
    if config.cp_size == 1:
        return
    highest = highest_reverse_index(lengths, config.cp_size)
    if highest is not None:
        yield Extreme("mirror_cp_reverse_index", None, highest)
    if config.yoco_mode != "compact":
        return
    keep = config.keep
    clips = [clipped_prefix(c.data_len, keep, c.q_start, c.seqlen_q) for c in chunks]
    kept = [Token(length - clip) for length, clip in zip(lengths, clips, strict=True)]
    highest = highest_reverse_index(kept, config.cp_size)
    if highest is not None:
        yield Extreme("yoco_consumer_mirror_cp_reverse_index", None, highest)
    contributed = kept_by_rank(lengths, clips, config.cp_size)
    owner = max((rank for rank, rows in contributed.items() if rows > 0), default=None)
    if owner is not None:
        last = owner * max(contributed.values()) + contributed[owner] - 1
        yield Extreme("yoco_cp_boundary_index", None, last)


def prompt_extremes(config: MetadataConfig, chunks: Sequence[Chunk]) -> Iterator[Extreme]:
    """Prompt: key buffers, load plans, pivots and the mirror. Bases, ks, ke and dense keys lie below the totals."""
    window = config.window
    yield Extreme("total_k_swa", None, total_window_keys(len(chunks), window))
    for ratio in config.ca_ratios:
        bases = key_bases([chunk.seqlen_k for chunk in chunks], ratio)
        yield Extreme(f"total_k_compressed.{ratio}", None, bases[-1])
    for chunk in chunks:
        valid = chunk.valid_start
        state_id = chunk.sequence.state_id
        ring = config.ring
        plan = window_load_plan(
            chunk.index,
            state_id,
            q_start=chunk.q_start,
            window_size=window,
            swa_block_size=ring,
            swa_valid_start=valid,
        )
        yield Extreme("load_segments_swa", chunk.index, max(max(segment) for segment in plan))
    yield from pivot_extremes(config, chunks)
    yield from mirror_extremes(config, chunks)


def decode_extremes(config: MetadataConfig, chunks: Sequence[Chunk], max_num_blocks: int | None) -> Iterator[Extreme]:
    """Decode: dense offsets and keys, windows, context lengths. A placeholder's reads count too."""
    counts = [block_count(chunk.seqlen_k, config.block, config.ca_ratios[0]) for chunk in chunks]
    width = table_width(counts, max_num_blocks)
    yield Extreme("max_num_blocks", None, width)
    ring = config.ring
    for chunk in chunks:
        yield Extreme("context_lens", chunk.index, chunk.seqlen_k)
        first_read = max(0, chunk.q_start - config.window_size + 1)
        slot = highest_ring_slot(chunk.sequence.state_id, ring, first_read, chunk.seqlen_k)
        if slot is not None:
            yield Extreme("kv_swa_index", chunk.index, slot)
        for ratio in config.dense:
            per_block = compressed_per_block(config.block, ratio)
            slot = highest_compressed_slot(chunk.sequence.block_table, 0, chunk.seqlen_k // ratio, per_block)
            if slot is not None:
                yield Extreme(f"kv_ca_index.{ratio}", chunk.index, slot)
    if config.dense:
        yield Extreme("kv_ca_index_offset_len", None, dense_product(total_queries(chunks), width, config))


def extremes(
    path: Path, config: MetadataConfig, sequences: Sequence[SequenceMetadata], max_num_blocks: int | None
) -> Iterator[Extreme]:
    """F-LIMIT: the largest values of a step that keeps every other precondition."""
    chunks = chunks_of(sequences)
    yield from common_extremes(path, config, chunks)
    if path == "prompt":
        yield from prompt_extremes(config, chunks)
    else:
        yield from decode_extremes(config, chunks, max_num_blocks)


def limit_violations(
    path: Path, config: MetadataConfig, sequences: Sequence[SequenceMetadata], max_num_blocks: int | None
) -> Iterator[Int32Error]:
    """P-INT32 on what is written: each field whose largest value exceeds 2^31 - 1.

    No value written is below -1 except token ids, which come in as int32, so the lower bound needs no look.
    """
    for extreme in extremes(path, config, sequences, max_num_blocks):
        if extreme.value > INT32_MAX:
            yield Int32Error(extreme.sequence, extreme.field, extreme.value, "fits in int32")
