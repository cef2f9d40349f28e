"""Faults planted in LMDeploy's indices of DeepSeek-V4."""

from __future__ import annotations

from inputmeta.conformance.engines.plants import Plant

KERNELS = "lmdeploy/pytorch/kernels/cuda/v4_sparse_indices.py"
BACKEND = "lmdeploy/pytorch/backends/cuda/attention/v4.py"
WINDOW, CHOSEN, PREFILL = (
    "def _build_decode_window_sparse_indices_kernel(",
    "def _build_decode_compressed_sparse_indices_kernel(",
    "def _build_prefill_sparse_indices_kernel(",
)
DECODE, PROMPT = "lmdeploy-decode", "lmdeploy-prompt"
PLANTS = (
    Plant("window-starts-one-early", DECODE, KERNELS, "kv_len - window_len", "kv_len - window_len - 1", after=WINDOW),
    Plant(
        "ring-of-place-one-stride", DECODE, KERNELS, "batch * WINDOW_SIZE", "batch * PADDED_WINDOW_SIZE", after=WINDOW
    ),
    Plant("offset-in-the-block-from-the-row", DECODE, KERNELS, "+ block_off", "+ batch", after=CHOSEN),
    Plant(
        "stored-one-ahead", DECODE, KERNELS, "seq_start % WINDOW_SIZE", "(seq_start + 1) % WINDOW_SIZE", after=WINDOW
    ),
    Plant(
        "keys-of-a-row-one-short",
        PROMPT,
        KERNELS,
        "(abs_pos + 1) // COMPRESS_RATIO",
        "abs_pos // COMPRESS_RATIO",
        after=PREFILL,
    ),
    Plant(
        "history-one-longer",
        PROMPT,
        KERNELS,
        "seq_start - WINDOW_SIZE, 0",
        "seq_start - WINDOW_SIZE - 1, 0",
        after=PREFILL,
    ),
    Plant("overwritten-row-stored", PROMPT, BACKEND, "token_abs_pos < cutoff_pos", "token_abs_pos < cutoff_pos - 1"),
    Plant(
        "compressed-keys-without-the-new-rows", PROMPT, BACKEND, "(prev_window_lens + q_seqlens)", "prev_window_lens"
    ),
)
