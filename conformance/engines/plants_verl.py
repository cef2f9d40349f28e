"""Faults planted in verl's packing of sequences."""

from __future__ import annotations

from inputmeta.conformance.engines.plants import Plant

FILE = "verl/models/mcore/util.py"
PACK, UNPACK = "def preprocess_packed_seqs(", "def postprocess_packed_seqs("
PLANTS = (
    Plant(
        "second-block-of-another-rank",
        "verl-zigzag",
        FILE,
        "remain_end = seqlen_padded_i - half_seqlen * cp_rank",
        "remain_end = seqlen_padded_i - half_seqlen * (cp_rank + 1) + 1",
        after=PACK,
    ),
    Plant("floor-for-ceil", "verl-zigzag", FILE, "seqlens_in_batch + pad_size", "seqlens_in_batch", after=PACK),
    Plant("pad-to-ranks-alone", "verl-zigzag", FILE, "cp_size * 2 if", "cp_size if", after=PACK),
    Plant(
        "reverse-of-another-rank",
        "verl-zigzag",
        FILE,
        "o0, o1 = (",
        "o1, o0 = (",
        after=UNPACK,
    ),
    Plant(
        "next-sequence-starts-too-late",
        "verl-zigzag",
        FILE,
        "start_idx = cu_seqlens_padded_cpu[i] // cp_size",
        "start_idx = cu_seqlens_padded_cpu[i]",
        after=PACK,
    ),
    Plant(
        "first-block-of-the-next-rank",
        "verl-zigzag-thd",
        FILE,
        "half_seqlen * cp_rank : half_seqlen * (cp_rank + 1)",
        "half_seqlen * (cp_rank + 1) : half_seqlen * (cp_rank + 2)",
        after="def preprocess_thd_engine(",
    ),
)
