"""Faults planted in tpu-inference's layout over ranks."""

from __future__ import annotations

from inputmeta.conformance.engines.plants import Plant

FILE = "tpu_inference/runner/pcp_utils.py"
PLANTS = (
    Plant("floor-for-ceil", "tpu-pcp", FILE, "cdiv(n, two_p)", "max(1, n // two_p)", after="def pcp_token_layout("),
    Plant("half-by-another-border", "tpu-pcp", FILE, "k >= pcp_size", "k > pcp_size", after="def _zigzag_slots("),
    Plant(
        "second-block-of-another-rank",
        "tpu-pcp",
        FILE,
        "2 * pcp_size - 1 - k",
        "k - pcp_size",
        after="def _zigzag_slots(",
    ),
    Plant("requests-one-behind", "tpu-pcp", FILE, "acc += 2 * c", "acc += c", after="def pcp_token_layout("),
    Plant("rows-from-the-next-request", "tpu-pcp", FILE, "[:-1]", "[1:]", after="def pcp_token_permutation("),
)
