"""Faults planted in flash-linear-attention's index builders."""

from __future__ import annotations

from inputmeta.conformance.engines.plants import Plant

FILE = "fla/ops/utils/index.py"
PLANTS = (
    Plant(
        "positions-of-the-whole-batch", "fla-index", FILE, " - seg_start[seg_id]", "", after="def _segmented_arange("
    ),
    Plant("starts-without-the-0", "fla-index", FILE, "(1, 0)", "(0, 1)", after="def prepare_cu_seqlens_from_lens("),
)
