"""Faults planted in FlashInfer's rows of a ragged batch."""

from __future__ import annotations

from inputmeta.conformance.engines.plants import Plant

KERNEL, PAGE = "flashinfer/triton/page.py", "flashinfer/page.py"
PLANTS = (
    Plant(
        "positions-from-the-start",
        "flashinfer-positions",
        KERNEL,
        "offsets + seq_len - batch_end",
        "offsets - batch_start",
        after="@triton.jit",
    ),
    Plant(
        "rows-past-a-tile-left-out",
        "flashinfer-positions",
        KERNEL,
        "tl.range(batch_start, batch_end, 128",
        "tl.range(batch_start, batch_start + 1, 128",
        after="@triton.jit",
        wide=True,
    ),
    Plant(
        "stores-past-the-sequence",
        "flashinfer-positions",
        KERNEL,
        "offsets < batch_end",
        "offsets < batch_end + 1",
        after="@triton.jit",
    ),
    Plant(
        "last-page-counted-whole", "flashinfer-positions", PAGE, " - 1, min=0)", ", min=0)", after="def get_seq_lens("
    ),
)
