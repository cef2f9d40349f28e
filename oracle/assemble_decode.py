"""The fields of a decode step, eager or ZOS (chapters 3 to 6 and 10): a row each, but for cumulative lengths."""

from __future__ import annotations

from . import common, compressed, key_ranges
from . import sliding_window as window
from .assemble import Batch
from .blocks import block_count, block_table_row
from .rows import Query
from .sheet import Sheet
from .units import CompressedToken, KeyRow, Ratio, Slot, Token


def add_boundaries(sheet: Sheet, batch: Batch) -> None:
    """F-CU: eager with the leading 0, ZOS inclusive and of queries only."""
    seqlens_q = [chunk.seqlen_q for chunk in batch.chunks]
    seqlens_k = [chunk.seqlen_k for chunk in batch.chunks]
    if batch.path == "decode_zos":
        sheet.put("cu_seqlens_q", common.inclusive_cumulative_lengths(seqlens_q))
        return
    sheet.put("cu_seqlens_q", common.cumulative_lengths(seqlens_q))
    sheet.put("cu_seqlens_k", common.cumulative_lengths(seqlens_k))


def add_compressed(sheet: Sheet, batch: Batch, ratio: Ratio) -> None:
    """F-CDEC of one ratio."""
    per_block = batch.per_block(ratio)

    def cells(query: Query) -> tuple[Token, Slot]:
        sequence = query.chunk.sequence
        return compressed.decode_compressed_cells(
            sequence.block_table, query.position, ratio, per_block, is_placeholder=sequence.is_placeholder
        )

    sheet.columns(("positions_c", "slot_mapping_store_ca"), batch.queries, cells, ratio)


def add_tables(sheet: Sheet, batch: Batch) -> None:
    """F-BLOCKS and the state slots, a copy a row; F-CTXLEN."""
    config = batch.config
    width = batch.max_num_blocks

    def table_row(query: Query) -> list[int | None]:
        chunk = query.chunk
        count = block_count(chunk.seqlen_k, config.block, config.ca_ratios[0])
        return block_table_row(chunk.sequence.block_table, count, width)

    sheet.put("max_num_blocks", [width])
    sheet.matrix("block_tables", batch.queries, table_row)
    sheet.column("state_block_idx", batch.queries, lambda query: query.chunk.sequence.state_id)
    sheet.column("context_lens", batch.queries, lambda query: key_ranges.context_length(query.position))


def add_window(sheet: Sheet, batch: Batch) -> None:
    """F-SWADEC."""
    size = batch.config.window
    ring = batch.config.ring

    def offset_length(query: Query) -> tuple[Slot, Token]:
        return window.decode_window(query.chunk.sequence.state_id, ring, size, query.position)

    def expanded(query: Query) -> list[int]:
        return window.expand_decode_window(query.chunk.sequence.state_id, ring, size, query.position)

    sheet.matrix("kv_swa_index_offset_len", batch.queries, offset_length)
    if "kv_swa_index" in batch.expand:
        sheet.matrix("kv_swa_index", batch.queries, expanded)


def add_sparse_lengths(sheet: Sheet, batch: Batch, ratio: Ratio) -> None:
    """F-KLEN of one sparse ratio."""
    sheet.column("klen", batch.queries, lambda query: key_ranges.visible_compressed(query.position, ratio), ratio)


def add_dense_offsets(sheet: Sheet, batch: Batch, ratio: Ratio) -> None:
    """F-CAOFF of one dense ratio."""
    per_block = batch.per_block(ratio)
    width = CompressedToken(sheet.sizes[f"ca_width.{ratio}"])

    def offset_length(query: Query) -> tuple[KeyRow, CompressedToken]:
        return key_ranges.decode_dense_offset(query.row, batch.max_num_blocks, per_block, query.position, ratio)

    def expanded(query: Query) -> list[int]:
        table = query.chunk.sequence.block_table
        return key_ranges.expand_decode_dense(table, offset_length(query)[1], per_block, width)

    sheet.matrix("kv_ca_index_offset_len", batch.queries, offset_length, ratio)
    if "kv_ca_index" in batch.expand:
        sheet.matrix("kv_ca_index", batch.queries, expanded, ratio)
