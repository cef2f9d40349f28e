"""Faults planted in SGLang's kernels and in its zigzag."""

from __future__ import annotations

from inputmeta.conformance.engines.plants import Plant

DSV4 = "sglang/kernels/ops/attention/dsv4/"
ROWS, COMPRESSED = DSV4 + "attn_metadata_kernels.py", DSV4 + "metadata_kernel.py"
WINDOW = "sglang/kernels/ops/kvcache/dsv41_window_layout.py"
RING = "sglang/kernels/ops/speculative/dspark/dspark_attn_metadata.py"
ZIGZAG = "sglang/srt/layers/cp/zigzag.py"
EXPAND, PAGES, CAUSAL = (
    "def _expand_prefill_causally_kernel(",
    "def _page_table_positions_kernel(",
    "def _causal_swa_page_indices_kernel(",
)
DECODE, PROMPT = "sglang-decode", "sglang-prompt"
PLANTS = (
    Plant("boundary-one-row-late", DECODE, COMPRESSED, "(seq_len % 4) == 0", "(position % 4) == 0"),
    Plant("owner-one-row-early", DECODE, ROWS, "<= t[:, None]", "<= t[:, None] + 1", after=EXPAND),
    Plant(
        "length-of-the-whole-sequence", DECODE, ROWS, "(seq_len - ext + 1) + (t - start_loc)", "seq_len", after=EXPAND
    ),
    Plant("page-stride", DECODE, ROWS, "* page_size, mask=pmask", "* (page_size + 1), mask=pmask", after=PAGES),
    Plant("window-one-wider", DECODE, ROWS, "k < swa_window", "k <= swa_window", after=CAUSAL),
    Plant("window-without-the-row-itself", DECODE, ROWS, "off = pos - k", "off = pos - 1 - k", after=CAUSAL),
    Plant("low-ratio-slot-everywhere", DECODE, COMPRESSED, "(length & 1) == 0", "(length & 1) >= 0"),
    Plant(
        "keys-of-the-next-page",
        DECODE,
        COMPRESSED,
        "+ positions // slots_per_page",
        "+ 1 + positions // slots_per_page",
    ),
    Plant(
        "ring-one-ahead",
        DECODE,
        RING,
        "* ring_size + positions.to(torch.int64) %",
        "* ring_size + (1 + positions.to(torch.int64)) %",
    ),
    Plant("position-not-rounded", PROMPT, COMPRESSED, "position & (~3)", "position & (~1)"),
    Plant("window-floor-one-low", PROMPT, WINDOW, "seen >= floor[:, None]", "seen >= floor[:, None] - 1"),
    Plant("last-row-not-stored", PROMPT, WINDOW, "(last - row) < CAPACITY", "(last - row) < CAPACITY - 1"),
    Plant(
        "tail-from-the-front", PROMPT, ROWS, "torch.arange(n - t, n, device=device)", "torch.arange(t, device=device)"
    ),
    Plant(
        "torch-window-newest-left-out",
        "sglang-decode-torch",
        ROWS,
        "pos_causal = seq_lens_casual - 1",
        "pos_causal = seq_lens_casual - 2",
    ),
    Plant(
        "second-block-of-another-rank",
        "sglang-zigzag",
        ZIGZAG,
        "cp_segment_num - cp_rank - 1,",
        "cp_segment_num - (cp_rank + 1) % self.cp_size - 1,",
    ),
    Plant(
        "reverse-steps-by-a-block",
        "sglang-zigzag",
        ZIGZAG,
        "(cp_segment_num - 1) * bs + batch_id,",
        "(cp_segment_num - 1) * bs + batch_id - 2 * bs,",
    ),
)
