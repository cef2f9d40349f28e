"""One batch being built: its chunks, the chosen rows, and the fields that every path has (chapter 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import common
from .blocks import block_count, table_width
from .compressed import compressed_row_count
from .inputs import GatherInputs, MetadataConfig, Path, SequenceMetadata, compressed_per_block, dense_width
from .key_ranges import key_rows, visible_compressed
from .mirror import mirror_length, mirror_selection
from .rows import Chunk, Query, Selection, chunks_of, chunks_within, query_selection, total_queries
from .sheet import Sheet
from .sliding_window import ring_store_slot, window_load_plan
from .units import Block, CompressedToken, Ratio, Token, ceiling_division
from .varlen import shorter_sequences
from .zos import gathered_input_id


@dataclass(frozen=True)
class Batch:
    """A step to build. ``queries``: the chosen rows; ``mirrored``: the layout of mirrored fields (the same without CP).

    ``extracted``: the chunks as they came in; ``chunks``: as they are built, shorter in a step of variable length.

    ``rows``: the caller's choice of global rows, None for all. ``max_num_blocks``: columns of block_tables (decode).
    """

    path: Path
    config: MetadataConfig
    extracted: Sequence[Chunk]
    chunks: Sequence[Chunk]
    rows: Sequence[int] | None
    queries: Selection
    mirrored: Selection
    max_num_blocks: Block
    gather: GatherInputs | None
    expand: frozenset[str]

    @property
    def is_mirrored(self) -> bool:
        """Whether the container is the one after ``prepare_for_mirror_cp`` (I-15): CP is a prompt matter."""
        return self.path == "prompt" and self.config.cp_size > 1

    def per_block(self, ratio: Ratio) -> CompressedToken:
        """Compressed tokens of a ratio in one block."""
        return compressed_per_block(self.config.block, ratio)


def batch_of(
    path: Path,
    config: MetadataConfig,
    sequences: Sequence[SequenceMetadata],
    *,
    rows: Sequence[int] | None,
    expand: frozenset[str],
    gather: GatherInputs | None,
    max_num_blocks: int | None,
) -> Batch:
    """Lay out a batch that keeps every precondition."""
    extracted = chunks = chunks_of(sequences)
    if gather is not None and gather.varlen is not None:
        chunks = chunks_within(shorter_sequences(sequences, gather.remap, gather.varlen), extracted)
    queries = query_selection(chunks, rows, total_queries(extracted))
    mirrored = queries
    if path == "prompt" and config.cp_size > 1:
        mirrored = mirror_selection(chunks, [Token(0)] * len(chunks), config.rank, config.cp_size, rows)
    counts = [block_count(chunk.seqlen_k, config.block, config.ca_ratios[0]) for chunk in extracted]
    width = table_width(counts, max_num_blocks)  # I-36
    return Batch(path, config, extracted, chunks, rows, queries, mirrored, width, gather, expand)


def sheet_of(batch: Batch) -> Sheet:
    """An empty sheet with the length of every symbolic dimension; I-3: at least one row."""
    config = batch.config
    chunks = batch.chunks
    sizes = {
        "2": 2,
        "4": 4,
        "total_q": max(1, batch.queries.total),
        "n_seq": len(chunks),
        "n_seq + 1": len(chunks) + 1,
        "window_size": config.window_size,
        "max_ngram_size": config.max_ngram_size,
        "max_num_blocks": batch.max_num_blocks,
    }
    for ratio in config.dense:
        sizes[f"ca_width.{ratio}"] = dense_width(config.longest, ratio)
    if batch.path == "prompt":
        sizes |= prompt_sizes(batch)
    return Sheet(batch.path, config, sizes)


def prompt_sizes(batch: Batch) -> dict[str, int]:
    """Lengths of the dimensions that only a prompt has."""
    config = batch.config
    chunks = batch.chunks
    lengths = [chunk.seqlen_q for chunk in chunks]
    window = config.window
    ring = config.ring
    plans = (
        window_load_plan(
            chunk.index,
            chunk.sequence.state_id,
            q_start=chunk.q_start,
            window_size=window,
            swa_block_size=ring,
            swa_valid_start=chunk.valid_start,
        )
        for chunk in chunks
    )
    sizes = {
        "cp_mirror_len": max(1, mirror_length(lengths, config.cp_size)),
        "swa_segments": sum(len(plan) for plan in plans),
    }
    for ratio in config.ca_ratios:
        per_block = batch.per_block(ratio)
        sizes[f"compressed_rows.{ratio}"] = sum(compressed_row_count(c.q_start, c.seqlen_k, ratio) for c in chunks)
        sizes[f"ca_segments.{ratio}"] = sum(ceiling_division(key_rows(c.seqlen_k, ratio), per_block) for c in chunks)
    return sizes


def add_scalars(sheet: Sheet, batch: Batch) -> None:
    """F-COUNT."""
    sheet.put("num_reqs", [len(batch.chunks)])
    sheet.put("total_q", [total_queries(batch.extracted)])
    sheet.put("is_prompt", [batch.path == "prompt"])


def add_common(sheet: Sheet, batch: Batch) -> None:
    """Chapter 2 and F-RING: the query-aligned fields of every path."""
    config = batch.config
    force = config.force_load_balance
    ring = config.ring

    def valid(query: Query) -> bool:
        return common.is_valid_token(query.chunk.sequence.is_placeholder)

    def index(query: Query) -> int:
        return common.query_index(query.chunk.index, query.chunk.sequence.is_placeholder)

    def store(query: Query) -> int:
        chunk = query.chunk
        sequence = chunk.sequence
        place = (chunk.seqlen_q, query.offset, query.position)
        return ring_store_slot(sequence.state_id, ring, *place, is_placeholder=sequence.is_placeholder)

    sheet.column("positions", batch.mirrored, lambda query: query.position)
    add_input_ids(sheet, batch)
    sheet.column("gate_force_random", batch.queries, lambda _: force)
    sheet.column("valid_token_mask", batch.mirrored, valid)
    sheet.column("query_indices", batch.mirrored, index)
    if config.max_ngram_size > 0:
        add_ngrams(sheet, batch)
    sheet.column("slot_mapping_store_swa", batch.queries, store)


def add_input_ids(sheet: Sheet, batch: Batch) -> None:
    """F-IDS, or F-GATHER where a ZOS step brings its inputs (I-34: fresh ones as extracted); never mirrored."""
    gather = batch.gather

    def prompt_id(query: Query) -> int:
        return common.prompt_input_id(query.chunk.sequence.token_ids, query.position)

    def decode_id(query: Query) -> int:
        sequence = query.chunk.sequence
        return common.decode_input_id(sequence.token_ids, sequence.draft_tokens, query.chunk.q_start, query.offset)

    def gathered_id(query: Query) -> int:
        assert gather is not None
        fresh = gather.fresh_input_ids[query.chunk.extracted_row + query.offset]
        remap = gather.remap[query.chunk.index]
        return gathered_input_id(fresh, gather.prev_sampled, gather.prev_predict, remap, query.offset)

    formula = prompt_id if batch.path == "prompt" else decode_id if gather is None else gathered_id
    sheet.column("input_ids", batch.queries, formula)


def add_ngrams(sheet: Sheet, batch: Batch) -> None:
    """F-NGRAM, of the extracted positions (I-34)."""
    config = batch.config

    def look_back(query: Query) -> Sequence[int]:
        extracted = common.position(query.chunk.extracted_start, query.offset)
        return common.ngram_row(config, query.chunk.sequence, extracted)

    sheet.matrix("ngram_token_ids", batch.mirrored, look_back)


def add_dense_lengths(sheet: Sheet, batch: Batch) -> None:
    """F-CAOFF ``kv_ca_index_len``: the lengths of the expanded dense rows."""
    if "kv_ca_index" not in batch.expand:
        return
    for ratio in batch.config.dense:
        add_dense_length(sheet, batch, ratio)


def add_dense_length(sheet: Sheet, batch: Batch, ratio: Ratio) -> None:
    """F-CAOFF ``kv_ca_index_len`` of one ratio."""
    sheet.column("kv_ca_index_len", batch.mirrored, lambda query: visible_compressed(query.position, ratio), ratio)
