"""Faults planted in torch's load balancers."""

from __future__ import annotations

from inputmeta.conformance.engines.plants import Plant

FILE = "torch/distributed/tensor/experimental/_context_parallel/_load_balancer.py"
PLANTS = (
    Plant(
        "second-block-of-another-rank",
        "torch-zigzag-headtail",
        FILE,
        "2 * world_size - 1 - head_idx",
        "world_size + head_idx",
        after="chunks = indices.view",
    ),
    Plant(
        "restore-not-inverted",
        "torch-zigzag-headtail",
        FILE,
        "torch.argsort(all_indices_tensor)",
        "all_indices_tensor",
        after="if restore:",
    ),
    Plant(
        "second-block-of-another-rank",
        "torch-zigzag",
        FILE,
        "2 * world_size - rank",
        "world_size + rank + 1",
        after="_generate_indices_for_batch(self",
    ),
    Plant(
        "next-document-starts-where-the-first-did",
        "torch-zigzag",
        FILE,
        "document_start_idx += seq_length",
        "document_start_idx = seq_length",
        after="_generate_indices_for_batch(self",
    ),
)
