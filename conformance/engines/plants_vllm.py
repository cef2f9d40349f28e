"""Faults planted in vLLM's second model runner and the metadata builders of its sparse attention."""

from __future__ import annotations

from inputmeta.conformance.engines.plants import Plant

RUNNER, MLA = "vllm/v1/worker/gpu/", "vllm/v1/attention/backends/mla/"
INPUTS, TABLE, PCP = f"{RUNNER}input_batch.py", f"{RUNNER}block_table.py", f"{RUNNER}pcp_manager.py"
SLOTS, INDEXER, WINDOW = f"{MLA}compressor_utils.py", f"{MLA}indexer.py", f"{MLA}sparse_swa.py"
METADATA = "vllm/v1/attention/ops/metadata.py"
DENSE = "vllm/models/deepseek_v4/sparse_mla.py"
GATHERED = "vllm/models/deepseek_v41/common/ops/cache_utils.py"
KEPT = "vllm/models/deepseek_v41/nvidia/model_state.py"
DECODE, DRAFT, PROMPT, RANKS = "vllm-decode", "vllm-draft", "vllm-prompt", "vllm-pcp"
UPDATE = "def update_draft_decode_metadata("
SWA, RANGES = "def _compute_swa_indices_and_lens_kernel(", "class BuildPrefillChunkMetadataKernel("
COMBINE = "class CombineTopkSwaIndicesKernel("
PLANTS = (
    Plant("boundary-of-the-position", DECODE, SLOTS, "((pos + 1) % COMPRESS", "(pos % COMPRESS"),
    Plant("padding-stores", DECODE, SLOTS, " & (slot != PAD_ID)", ""),
    Plant(
        "table-of-another-stride",
        PROMPT,
        SLOTS,
        "batch_idx * block_table_stride +",
        "batch_idx * (block_table_stride - 1) +",
    ),
    Plant("place-in-the-block-of-the-position", DECODE, SLOTS, "pos_after_compress % block_size", "pos % block_size"),
    Plant("idle-requests-store", DECODE, TABLE, "mapping_enabled & is_real_req, slot_ids", "mapping_enabled, slot_ids"),
    Plant(
        "block-by-another-size",
        DECODE,
        TABLE,
        "local_positions // kv_block_size, 0",
        "local_positions // (kv_block_size + 1), 0",
    ),
    Plant(
        "positions-from-one",
        DECODE,
        INPUTS,
        "pos = num_computed_tokens + block",
        "pos = num_computed_tokens + block + 1",
    ),
    Plant(
        "positions-that-wrap-at-16",
        PROMPT,
        INPUTS,
        "pos = num_computed_tokens + block",
        "pos = num_computed_tokens + block % 16",
    ),
    Plant(
        "tokens-from-another-start",
        PROMPT,
        INPUTS,
        "request_ptr + num_computed + block",
        "request_ptr + num_computed + block + 1",
    ),
    Plant(
        "drafts-one-row-early",
        DECODE,
        INPUTS,
        "query_end - num_draft_tokens + block",
        "query_end - num_draft_tokens + block - 1",
    ),
    Plant("owner-by-less", DECODE, METADATA, "(end <= token)", "(end < token)"),
    Plant("lengths-of-the-whole-sequence", DECODE, METADATA, "seq - (end - start) + token - start + 1, 0", "seq, 0"),
    Plant(
        "window-one-wider",
        DECODE,
        WINDOW,
        "pos - (window_size - 1) - left_add",
        "pos - window_size - left_add",
        after=SWA,
    ),
    Plant("window-page-of-the-row", DECODE, WINDOW, "pos_offset // block_size", "pos // block_size", after=SWA),
    Plant(
        "compressed-length-of-the-position",
        DECODE,
        DENSE,
        "(position + 1) // compress_ratio",
        "position // compress_ratio",
    ),
    Plant(
        "dense-place-off-by-one",
        DECODE,
        DENSE,
        "block_offsets = offset % block_size",
        "block_offsets = (offset + 1) % block_size",
    ),
    Plant("draft-lengths-of-the-capture", DRAFT, INDEXER, "decode.seq_lens.view(-1).copy_(metadata.seq_lens)", "pass"),
    Plant(
        "draft-tables-of-the-capture",
        DRAFT,
        INDEXER,
        "decode.block_table.copy_(metadata.block_table[",
        "decode.block_table.clone().copy_(metadata.block_table[",
    ),
    Plant("draft-slots-of-the-next-place", DRAFT, SLOTS, "slot_ids, PAD_ID)", "slot_ids + 1, PAD_ID)"),
    Plant(
        "draft-validity-of-the-capture",
        DRAFT,
        WINDOW,
        "torch.ge(metadata.slot_mapping, 0, out=metadata.is_valid_token)",
        "pass",
        after=UPDATE,
    ),
    Plant("ke-one-short", PROMPT, INDEXER, "start_pos + 1 + offset", "start_pos + offset", after=RANGES),
    Plant(
        "ks-of-the-next-sequence", PROMPT, INDEXER, "out_pos, row_start, mask", "out_pos, seq_end, mask", after=RANGES
    ),
    Plant("history-one-longer", PROMPT, GATHERED, "pos - (WINDOW_SIZE - 1), 0", "pos - WINDOW_SIZE, 0", after=COMBINE),
    Plant("trust-ignored", PROMPT, WINDOW, "tl.maximum(prefix_len - replay_start, 0)", "tl.maximum(prefix_len, 0)"),
    Plant("kept-rows-from-the-front", PROMPT, KEPT, "first_row = end - (kept_end - kept_begin)", "first_row = begin"),
    Plant(
        "second-block-of-another-rank",
        RANKS,
        PCP,
        "chunk_indices = (rank, num_chunks - 1 - rank)",
        "chunk_indices = (rank, num_chunks - self.pcp_world_size + rank)",
    ),
    Plant(
        "floor-for-ceil",
        RANKS,
        PCP,
        "chunk_size = (query_len + num_chunks - 1) // num_chunks",
        "chunk_size = max(1, query_len // num_chunks)",
        after="if not replicated[",
    ),
    Plant(
        "restored-from-another-rank",
        RANKS,
        PCP,
        "expanded_rank_offset = rank * padded_num_tokens",
        "expanded_rank_offset = (len(segments_by_rank) - 1 - rank) * padded_num_tokens",
    ),
)
