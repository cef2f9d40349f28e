"""Faults planted in the cache allocators of transformers."""

from __future__ import annotations

from inputmeta.conformance.engines.plants import Plant

FOLDER = "transformers/generation/continuous_batching/cache_allocators/"
STEPS = "transformers/generation/continuous_batching/input_outputs.py"
PAGED, POOL, LEDGER = "transformers-paged", f"{FOLDER}cache_pool.py", f"{FOLDER}cache_allocator.py"
RING, FULL = f"{FOLDER}sliding_attention.py", f"{FOLDER}full_attention.py"
STORE, FREE = "def allocate_cache_to_request(", "def free_blocks("
READ, WRITE = "def get_read_indices(", "def get_write_indices("
PLANTS = (
    Plant("ring-one-ahead", "transformers-ring", RING, "(past_length + 1)", "(past_length)", after=READ),
    Plant(
        "window-one-narrower",
        "transformers-ring",
        RING,
        "self.sliding_window - 1\n",
        "self.sliding_window - 2\n",
        after=READ,
    ),
    Plant(
        "overwritten-rows-count",
        "transformers-ring",
        RING,
        "(past_length + padding_length) % self",
        "past_length % self",
        after=WRITE,
    ),
    Plant(
        "cells-that-do-not-wrap",
        "transformers-ring",
        RING,
        "token_idx % self.sliding_window",
        "token_idx",
        after="def _token_indices_to_physical_indices(",
    ),
    Plant(
        "page-stride",
        "transformers-ring",
        RING,
        "self.block_physical_stride",
        "self.tokens_per_page",
        after="def _token_indices_to_physical_indices(",
    ),
    Plant(
        "trash-in-a-slot", "transformers-ring", RING, "[self.write_trash_index]", "[physical_indices[0]]", after=WRITE
    ),
    Plant("offset-of-the-first-page", "transformers-ring", FULL, "start_offset if", "0 if", after=WRITE),
    Plant(
        "last-page-one-short",
        "transformers-ring",
        FULL,
        "% self.tokens_per_page + 1 if",
        "% self.tokens_per_page if",
        after=WRITE,
    ),
    Plant(
        "keys-of-a-full-page-short", "transformers-ring", FULL, "start + remainder", "start + remainder - 1", after=READ
    ),
    Plant(
        "positions-of-the-chunk",
        "transformers-steps",
        STEPS,
        "range(past_length, past_length + query_length)",
        "range(query_length)",
        after="def prepare_batch_tensors(",
    ),
    Plant(
        "keys-of-the-rows-alone",
        "transformers-steps",
        STEPS,
        "get_seqlen_k(past_length,",
        "get_seqlen_k(0,",
        after="def prepare_batch_tensors(",
    ),
    Plant(
        "stale-requests-counted",
        "transformers-steps",
        STEPS,
        "return self.num_request_in_batch",
        "return max(self.num_request_in_batch, 2)",
        after="def _get_num_sequences(",
    ),
    Plant("blocks-rounded-down", PAGED, FULL, "(total_length + self.tokens_per_page - 1)", "total_length"),
    Plant("table-turned-as-it-grows", PAGED, FULL, "block_table.extend(", "block_table[:0] = (", after=STORE),
    Plant("table-of-an-ended-request", PAGED, LEDGER, "self.block_table.pop(", "self.block_table.get(", after=FREE),
    Plant("last-block-not-given-back", PAGED, LEDGER, "freed_blocks)", "freed_blocks[:-1])", after=FREE),
    Plant("blocks-stay-free", PAGED, POOL, "self.trees.pop(root)", "self.trees.get(root)", after="def pop_leaves("),
    Plant("sector-given-twice", PAGED, POOL, ".pop()", "[-1]", after="def allocate_sector("),
    Plant("trash-is-free", PAGED, POOL, "reserved_sectors: int = 2", "reserved_sectors: int = 1"),
)
