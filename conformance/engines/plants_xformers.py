"""Faults planted in xformers' attention biases."""

from __future__ import annotations

from inputmeta.conformance.engines.plants import Plant

FILE = "xformers/ops/fmha/attn_bias.py"
PLANTS = (
    Plant(
        "window-one-wider",
        "xformers-masks",
        FILE,
        "shift - window_size + 1",
        "shift - window_size",
        after="def _materialize_causal_mask(",
    ),
    Plant(
        "window-one-narrower",
        "xformers-masks",
        FILE,
        "shift - window_size + 1",
        "shift - window_size + 2",
        after="def _materialize_causal_mask(",
    ),
    Plant(
        "own-key-missing",
        "xformers-masks",
        FILE,
        "diagonal=shift)",
        "diagonal=shift - 1)",
        after="if from_bottomright:",
    ),
    Plant(
        "causal-from-the-top-left",
        "xformers-masks",
        FILE,
        "shift = num_keys - num_queries",
        "shift = 0",
        after="if from_bottomright:",
    ),
    Plant(
        "starts-from-the-last-length",
        "xformers-masks",
        FILE,
        "seqstart_py[len(seqstart_py) - 1] + seqlen",
        "seqlen",
        after="def _get_seqstart(",
    ),
)
