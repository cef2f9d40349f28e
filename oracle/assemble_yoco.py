"""The fields of YoCo prefill truncation (chapter 8), mask or compact, and compact under context parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import common, key_ranges, mirror, truncation
from .assemble import Batch
from .key_ranges import key_bases
from .rows import Chunk, Query, Selection, chosen_offsets, query_at
from .sheet import Sheet
from .sliding_window import Pivots, total_window_keys
from .units import CompressedToken, KeyRow, Ratio, Token


@dataclass(frozen=True)
class Compact:
    """The compact layout: per sequence the rows clipped and the first kept row, and the chosen kept rows."""

    clips: Sequence[Token]
    lengths: Sequence[Token]
    first_rows: Sequence[int]
    queries: Selection


def add_truncation(sheet: Sheet, batch: Batch) -> None:
    """F-VIS in mask mode; F-COMPACT, and with CP F-CONTRIB, in compact mode; nothing when off (I-16)."""
    config = batch.config
    if config.yoco_mode == "mask":
        sheet.matrix("yoco_mask_swa_index_pivots", batch.queries, lambda query: masked_pivots(batch, query))
    if config.yoco_mode == "compact":
        compact = compact_layout(batch)
        sheet.sizes["consumer_total_q"] = compact.queries.total
        add_compact(sheet, batch, compact)
        add_compact_keys(sheet, batch, compact)
        if batch.is_mirrored:
            add_compact_mirror(sheet, batch, compact)
            add_contribution(sheet, batch, compact)


def rect_lo_of(batch: Batch, chunk: Chunk) -> Token:
    """F-RECT, the first position of a sequence that takes part."""
    return truncation.rect_begin(chunk.data_len, batch.config.keep)


def clip_of(batch: Batch, chunk: Chunk) -> Token:
    """F-CLIP of one sequence."""
    data_len = chunk.data_len
    keep = batch.config.keep
    return truncation.clipped_prefix(data_len, keep, chunk.q_start, chunk.seqlen_q)


def masked_pivots(batch: Batch, query: Query) -> Pivots:
    """F-VIS of one row, in the full layout."""
    size = batch.config.window
    chunk = query.chunk
    return truncation.mask_pivots(
        total_window_keys(chunk.index, size),
        KeyRow(len(batch.chunks) * size + chunk.first_row),
        q_start=chunk.q_start,
        offset=query.offset,
        window_size=size,
        swa_valid_start=chunk.valid_start,
        rect_lo=rect_lo_of(batch, chunk),
    )


def compact_layout(batch: Batch) -> Compact:
    """F-CLIP of every sequence, and the kept ones among the chosen rows."""
    clips = [clip_of(batch, chunk) for chunk in batch.chunks]
    lengths = [Token(chunk.seqlen_q - clip) for chunk, clip in zip(batch.chunks, clips, strict=True)]
    first_rows = common.cumulative_lengths(lengths)
    total = first_rows[-1]
    if total == 0:
        return Compact(clips, lengths, first_rows, Selection(1, None, [None]))
    rows: list[int] = []
    queries: list[Query] = []
    for chunk, clip in zip(batch.chunks, clips, strict=True):
        for offset in chosen_offsets(chunk, batch.rows, clip, chunk.seqlen_q):
            rows.append(first_rows[chunk.index] + offset - clip)
            queries.append(query_at(chunk, offset))
    chosen = None if batch.rows is None else tuple(rows)
    return Compact(clips, lengths, first_rows, Selection(total, chosen, queries))


def add_compact(sheet: Sheet, batch: Batch, compact: Compact) -> None:
    """F-COMPACT: lengths, rows, positions, store slots and pivots of the kept rows."""
    config = batch.config
    keep = config.keep

    def store(query: Query) -> int:
        chunk = query.chunk
        sequence = chunk.sequence
        return truncation.compact_store_slot(
            sequence.state_id,
            config.ring,
            is_placeholder=sequence.is_placeholder,
            seqlen_q=chunk.seqlen_q,
            offset=query.offset,
            pos=query.position,
            data_len=chunk.data_len,
            keep_tokens=keep,
        )

    sheet.put("yoco_consumer_total_q", [compact.first_rows[-1]])
    sheet.put("yoco_consumer_cu_seqlens_q", compact.first_rows)
    sheet.column("yoco_consumer_query_indices", compact.queries, lambda query: query.row)
    sheet.column("yoco_consumer_positions", compact.queries, lambda query: query.position)
    sheet.column("yoco_consumer_slot_mapping_store_swa", compact.queries, store)
    sheet.matrix(
        "yoco_consumer_swa_index_pivots",
        compact.queries,
        lambda query: compacted_pivots(batch, compact, query),
    )


def compacted_pivots(batch: Batch, compact: Compact, query: Query) -> Pivots:
    """F-COMPACT, the pivots of one kept row."""
    size = batch.config.window
    chunk = query.chunk
    return truncation.compact_pivots(
        total_window_keys(chunk.index, size),
        KeyRow(len(batch.chunks) * size + compact.first_rows[chunk.index]),
        q_start=chunk.q_start,
        offset=query.offset,
        window_size=size,
        swa_valid_start=chunk.valid_start,
        rect_lo=rect_lo_of(batch, chunk),
        clip_prefix=compact.clips[chunk.index],
    )


def add_compact_keys(sheet: Sheet, batch: Batch, compact: Compact) -> None:
    """F-COMPACT: ks, ke and dense offsets of the kept rows; bases step over all sequences, as in the full layout."""
    seqlens_k = [chunk.seqlen_k for chunk in batch.chunks]
    for ratio in batch.config.sparse:
        add_compact_ranges(sheet, compact, ratio, key_bases(seqlens_k, ratio))
    for ratio in batch.config.dense:
        add_compact_dense(sheet, compact, ratio, key_bases(seqlens_k, ratio))


def add_compact_ranges(sheet: Sheet, compact: Compact, ratio: Ratio, bases: Sequence[KeyRow]) -> None:
    """F-COMPACT, ks and ke of one ratio."""

    def key_range(query: Query) -> tuple[KeyRow, KeyRow]:
        return key_ranges.sparse_range(bases[query.chunk.index], query.position, ratio)

    sheet.columns(("yoco_consumer_ks", "yoco_consumer_ke"), compact.queries, key_range, ratio)


def add_compact_dense(sheet: Sheet, compact: Compact, ratio: Ratio, bases: Sequence[KeyRow]) -> None:
    """F-COMPACT, the dense offsets of one ratio."""

    def offset_length(query: Query) -> tuple[KeyRow, CompressedToken]:
        return key_ranges.prompt_dense_offset(bases[query.chunk.index], query.position, ratio)

    sheet.matrix("yoco_consumer_kv_ca_index_offset_len", compact.queries, offset_length, ratio)


def add_compact_mirror(sheet: Sheet, batch: Batch, compact: Compact) -> None:
    """F-ZIGZAG, F-REVERSE and F-MIRRORKS over the kept rows, with the original key lengths."""
    config = batch.config
    mirrored = mirror.mirror_selection(batch.chunks, compact.clips, config.rank, config.cp_size, batch.rows)
    length = mirror.mirror_length(compact.lengths, config.cp_size)
    begins = mirror.mirror_begins(compact.lengths, config.cp_size)
    sheet.sizes["consumer_mirror_len"] = mirrored.total

    def kept_row(query: Query) -> int:
        return compact.first_rows[query.chunk.index] + kept_offset(compact, query)

    def reverse(query: Query) -> int:
        index = query.chunk.index
        kept_length = compact.lengths[index]
        return mirror.reverse_index(kept_length, kept_offset(compact, query), begins[index], length, config.cp_size)

    sheet.put("yoco_consumer_cp_mirror_len", [length])
    sheet.column("yoco_consumer_mirror_cp_index", mirrored, kept_row)
    sheet.column("yoco_consumer_mirror_cp_reverse_index", compact.queries, reverse)
    for ratio in config.sparse:
        add_mirrored_ranges(sheet, batch, compact, mirrored, ratio)


def kept_offset(compact: Compact, query: Query) -> Token:
    """The place of a kept row among the kept rows of its chunk."""
    return Token(query.offset - compact.clips[query.chunk.index])


def add_mirrored_ranges(sheet: Sheet, batch: Batch, compact: Compact, mirrored: Selection, ratio: Ratio) -> None:
    """F-MIRRORKS over the kept rows, ks and ke of one ratio."""
    bases = key_bases([chunk.seqlen_k for chunk in batch.chunks], ratio)

    def key_range(query: Query) -> tuple[KeyRow, KeyRow]:
        index = query.chunk.index
        offset = kept_offset(compact, query)
        return mirror.mirrored_key_range(bases[index], compact.lengths[index], query.chunk.seqlen_k, offset, ratio)

    sheet.columns(("yoco_consumer_mirror_ks", "yoco_consumer_mirror_ke"), mirrored, key_range, ratio)


def add_contribution(sheet: Sheet, batch: Batch, compact: Compact) -> None:
    """F-CONTRIB: which full-mirror rows this rank sends, and where each mirrored compact row is found."""
    config = batch.config
    rank = config.rank
    lengths = [chunk.seqlen_q for chunk in batch.chunks]
    begins = mirror.mirror_begins(lengths, config.cp_size)
    kept = truncation.kept_by_rank(lengths, compact.clips, config.cp_size)
    pad_len = max(kept.values(), default=0)
    sheet.sizes["contrib_pad_len"] = max(1, pad_len)
    sheet.put("yoco_consumer_cp_contrib_pad_len", [pad_len])

    contributed: list[int] = []
    for chunk, clip, begin in zip(batch.chunks, compact.clips, begins, strict=False):
        contributed.extend(truncation.contributed_rows(chunk.seqlen_q, clip, begin, rank, config.cp_size))
    padding = max(1, pad_len) - len(contributed)
    sheet.put("yoco_cp_contrib_index", contributed + [-1] * padding)

    before = truncation.contributed_before(lengths, compact.clips, config.cp_size)
    mirrored = mirror.mirror_selection(batch.chunks, compact.clips, rank, config.cp_size, batch.rows)

    def boundary(query: Query) -> int:
        chunk = query.chunk
        clip = compact.clips[chunk.index]
        owner, _ = mirror.mirror_place(chunk.seqlen_q, query.offset, config.cp_size)
        place = truncation.place_in_contribution(chunk.seqlen_q, clip, query.offset, config.cp_size)
        return truncation.boundary_row(owner, before[chunk.index].get(owner, 0), place, pad_len)

    sheet.column("yoco_cp_boundary_index", mirrored, boundary)
