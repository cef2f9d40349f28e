"""The fields of a prompt step (chapters 3, 5, 6 and 7)."""

from __future__ import annotations

from collections.abc import Sequence

from . import common, compressed, key_ranges, mirror
from . import sliding_window as window
from .assemble import Batch
from .declaration import Cell
from .rows import Chunk, Query, chosen_offsets
from .sheet import Sheet
from .units import CompressedToken, KeyRow, Ratio, Token, prefix_sums


def add_boundaries(sheet: Sheet, batch: Batch) -> None:
    """F-CU and the state slots of the sequences."""
    sheet.put("cu_seqlens_q", common.cumulative_lengths([chunk.seqlen_q for chunk in batch.chunks]))
    sheet.put("cu_seqlens_k", common.cumulative_lengths([chunk.seqlen_k for chunk in batch.chunks]))
    sheet.put("state_block_idx", [chunk.sequence.state_id for chunk in batch.chunks])


def add_compressed(sheet: Sheet, batch: Batch, ratio: Ratio) -> None:
    """F-NCQ, F-CPOS and F-CSLOT of one ratio.

    Of chosen rows only: the compressed tokens that their positions fall in, and the one row of every empty range.
    """
    per_block = batch.per_block(ratio)
    counts = [compressed.compressed_row_count(chunk.q_start, chunk.seqlen_k, ratio) for chunk in batch.chunks]
    first_rows = prefix_sums(counts)
    rows: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    for chunk, first_row in zip(batch.chunks, first_rows, strict=False):
        new = compressed.new_compressed_tokens(chunk.q_start, chunk.seqlen_k, ratio)
        tokens: Sequence[int | None] = chosen_tokens(batch, chunk, new, ratio)
        for token in tokens if len(new) > 0 else [None]:
            known = None if token is None else CompressedToken(token)
            sequence = chunk.sequence
            pos, slot = compressed.prompt_compressed_cells(
                sequence.block_table, known, ratio, per_block, is_placeholder=sequence.is_placeholder
            )
            rows.append(first_row if token is None else first_row + token - new.start)
            positions.append(pos)
            slots.append(slot)
    chosen = None if batch.rows is None else tuple(rows)
    sheet.put("cu_compressed_seqlens_q", first_rows, bucket=ratio)
    sheet.put("positions_c", positions, rows=chosen, bucket=ratio)
    sheet.put("slot_mapping_store_ca", slots, rows=chosen, bucket=ratio)


def chosen_tokens(batch: Batch, chunk: Chunk, new: range, ratio: Ratio) -> Sequence[int]:
    """The compressed tokens of ``new`` that the chosen rows' positions fall in, ascending; all without a choice."""
    if batch.rows is None:
        return new
    offsets = chosen_offsets(chunk, batch.rows, 0, chunk.seqlen_q)
    touched = {(chunk.q_start + offset) // ratio for offset in offsets}
    return sorted(token for token in touched if token in new)


def add_key_ranges(sheet: Sheet, batch: Batch) -> None:
    """F-CAPLAN, F-KS (mirrored: F-MIRRORKS), F-KLEN and F-CAOFF."""
    config = batch.config
    seqlens_k = [chunk.seqlen_k for chunk in batch.chunks]
    for ratio in config.ca_ratios:
        bases = key_ranges.key_bases(seqlens_k, ratio)
        add_load_plan(sheet, batch, ratio, bases)
        if ratio in config.sparse:
            add_sparse_ranges(sheet, batch, ratio, bases)
        if ratio in config.dense:
            add_dense_offsets(sheet, batch, ratio, bases)


def add_load_plan(sheet: Sheet, batch: Batch, ratio: Ratio, bases: Sequence[KeyRow]) -> None:
    """F-CAPLAN of one ratio."""
    per_block = batch.per_block(ratio)
    cells: list[int] = []
    for chunk in batch.chunks:
        destination = bases[chunk.index]
        plan = key_ranges.paged_load_plan(chunk.sequence.block_table, chunk.seqlen_k, ratio, per_block, destination)
        for segment in plan:
            cells.extend(segment)
    sheet.put("load_segments_ca", cells, bucket=ratio)
    sheet.put("total_k_compressed", [bases[-1]], bucket=ratio)


def add_sparse_ranges(sheet: Sheet, batch: Batch, ratio: Ratio, bases: Sequence[KeyRow]) -> None:
    """F-KS of one ratio; with CP the rows are mirrored and padding is 0, 0 (F-MIRRORKS)."""

    def key_range(query: Query) -> tuple[KeyRow, KeyRow, int]:
        chunk = query.chunk
        base = bases[chunk.index]
        if batch.is_mirrored:
            begin, end = mirror.mirrored_key_range(base, chunk.seqlen_q, chunk.seqlen_k, query.offset, ratio)
        else:
            begin, end = key_ranges.sparse_range(base, query.position, ratio)
        return begin, end, end - begin

    sheet.columns(("ks", "ke", "klen"), batch.mirrored, key_range, ratio)


def add_dense_offsets(sheet: Sheet, batch: Batch, ratio: Ratio, bases: Sequence[KeyRow]) -> None:
    """F-CAOFF of one ratio, in the full layout; expanded in the mirrored one (I-15)."""

    def offset_length(query: Query) -> tuple[KeyRow, CompressedToken]:
        base = bases[query.chunk.index]
        return key_ranges.prompt_dense_offset(base, query.position, ratio)

    width = CompressedToken(sheet.sizes[f"ca_width.{ratio}"])

    def expanded(query: Query) -> list[int]:
        return key_ranges.expand_prompt_dense(*offset_length(query), width)

    sheet.matrix("kv_ca_index_offset_len", batch.queries, offset_length, ratio)
    if "kv_ca_index" in batch.expand:
        sheet.matrix("kv_ca_index", batch.mirrored, expanded, ratio)


def add_window(sheet: Sheet, batch: Batch) -> None:
    """F-SWAPLAN and F-PIVOT."""
    config = batch.config
    size = config.window
    ring = config.ring
    cells: list[Cell] = []
    for chunk in batch.chunks:
        plan = window.window_load_plan(
            chunk.index,
            chunk.sequence.state_id,
            q_start=chunk.q_start,
            window_size=size,
            swa_block_size=ring,
            swa_valid_start=chunk.valid_start,
        )
        for segment in plan:
            cells.extend(segment)
    sheet.put("load_segments_swa", cells)
    sheet.put("total_k_swa", [window.total_window_keys(len(batch.chunks), size)])
    sheet.matrix("kv_swa_full_index_pivots", batch.queries, lambda query: full_pivots(batch, query))
    if "kv_swa_full_index" in batch.expand:
        sheet.matrix(
            "kv_swa_full_index", batch.mirrored, lambda query: window.expand_pivots(full_pivots(batch, query), size)
        )


def full_pivots(batch: Batch, query: Query) -> window.Pivots:
    """F-PIVOT of one row: sec1 = i * W, sec2 = n_seq * W + cu_seqlens_q[i], rect_lo = 0."""
    size = batch.config.window
    chunk = query.chunk
    history_begin = window.total_window_keys(chunk.index, size)
    new_begin = KeyRow(len(batch.chunks) * size + chunk.first_row)
    valid = chunk.valid_start
    lowest = window.first_visible(query.position, size, Token(0), valid)
    return window.visible_runs(
        history_begin, new_begin, q_start=chunk.q_start, offset=query.offset, window_size=size, lowest_visible=lowest
    )


def add_mirror(sheet: Sheet, batch: Batch) -> None:
    """F-ZIGZAG, F-REVERSE, and the originals that mirrored fields keep; only the length without CP."""
    config = batch.config
    lengths = [chunk.seqlen_q for chunk in batch.chunks]
    length = mirror.mirror_length(lengths, config.cp_size)
    sheet.put("cp_mirror_len", [length])
    if not batch.is_mirrored:
        return
    begins = mirror.mirror_begins(lengths, config.cp_size)

    def reverse(query: Query) -> int:
        chunk = query.chunk
        return mirror.reverse_index(chunk.seqlen_q, query.offset, begins[chunk.index], length, config.cp_size)

    force = config.force_load_balance
    sheet.column("mirror_cp_index", batch.mirrored, lambda query: query.row)
    sheet.column("mirror_cp_reverse_index", batch.queries, reverse)
    sheet.column("positions_cp", batch.queries, lambda query: query.position)
    sheet.column("gate_force_random_cp", batch.mirrored, lambda _: force)
