"""Faults planted in Megatron-Core's zigzag of packed sequences."""

from __future__ import annotations

from inputmeta.conformance.engines.megatron_zigzag import FILE
from inputmeta.conformance.engines.plants import Plant

SUBJECT = "megatron-zigzag"
LOCAL = "def build_packed_allgather_cp_local_positions("
PLANTS = (
    Plant("second-block-of-another-rank", SUBJECT, FILE, "- (cp_rank + 1) *", "- (cp_size - cp_rank) *", LOCAL),
    Plant("halves-that-overlap", SUBJECT, FILE, "+ cp_rank * half_seq_lens", "+ cp_rank * (half_seq_lens // 2)", LOCAL),
    Plant("reorder-not-inverted", SUBJECT, FILE, "torch.argsort(gathered_key", "torch.clone(gathered_key", LOCAL),
    Plant("ends-of-the-first-sequences", SUBJECT, FILE, "seq_ends[nonzero]", "seq_ends[: int(nonzero.sum())]", LOCAL),
)
