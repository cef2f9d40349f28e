"""Wide batches in the forms that production has: many short sequences, few deep ones, long chunks; one seed, no file.

Every array that a sequence brings is a view of a pool that all share, as a scheduler's are. Lengths lie around the
boundaries of the configuration, one sequence in sixteen is a placeholder, and all options of a path occur.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from inputmeta import oracle

from .workloads import VOCABULARY, Workload, integers, standard_config

LONGEST = 131_072
GROUP = 8
"""Ranks of the context parallel group where there is one."""


def wide_config(**changes: object) -> oracle.MetadataConfig:
    """Constants of a real engine: blocks of 128, W = 128, a ring of 192, two dense ratios and a sparse one."""
    config = replace(
        standard_config(LONGEST),
        dense_ratios=(4, 128),
        sparse_ratios=(1,),
        image_sentinel=7,
        yoco_prefill_keep_tokens=200,
    )
    return replace(config, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Form:
    """So many sequences on one path; least and most query rows and context before the step, tokens."""

    name: str
    path: oracle.Path
    sequences: int
    rows: tuple[int, int]
    context: tuple[int, int]


FORMS = (
    Form("decode, many short", "decode", 1_024, (1, 4), (0, 3_000)),
    Form("decode_zos, many short", "decode_zos", 256, (1, 4), (0, 3_000)),
    Form("decode, few deep", "decode", 6, (1, 4), (120_000, LONGEST - 4)),
    Form("prompt, many short", "prompt", 256, (0, 12), (0, 600)),
    Form("prompt, long chunks", "prompt", 8, (500, 2_100), (0, 9_000)),
    Form("prompt, few deep", "prompt", 3, (60, 200), (120_000, LONGEST - 200)),
)


class Pools:
    """What sequences are cut from: tokens and blocks."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.tokens = integers(rng.integers(8, VOCABULARY, 2 * LONGEST, dtype=np.int32))
        self.images = integers(np.where(rng.random(2 * LONGEST) < 0.02, 7, self.tokens).astype(np.int32))
        self.blocks = integers(rng.permutation(2**20).astype(np.int32))


def near_a_boundary(rng: np.random.Generator, least: int, most: int) -> int:
    """A number in [least, most], half of the time one beside a multiple of 64."""
    value = int(rng.integers(least, most + 1))
    if rng.random() < 0.5:
        value = round(value / 64) * 64 + int(rng.integers(-1, 2))
    return min(max(value, least), most)


def wide_sequence(rng: np.random.Generator, pools: Pools, form: Form, index: int) -> oracle.SequenceMetadata:
    """One sequence of a form."""
    rows, q_start = near_a_boundary(rng, *form.rows), near_a_boundary(rng, *form.context)
    seqlen_k = q_start + rows
    begin = int(rng.integers(0, LONGEST - 8))
    tokens, history = pools.tokens[begin : begin + seqlen_k], pools.images[begin : begin + seqlen_k]
    blocks = -(-seqlen_k // 128)
    table_begin = int(rng.integers(0, len(pools.blocks) - blocks))
    compressed = max(0, q_start - int(rng.integers(0, 6)))
    known = seqlen_k if form.path == "prompt" else q_start + 1
    return oracle.SequenceMetadata(
        seqlen_q=rows,
        seqlen_k=seqlen_k,
        block_table=pools.blocks[table_begin : table_begin + blocks],
        state_id=index + 1,
        is_placeholder=bool(rng.random() < 1 / 16),
        swa_valid_start=int(rng.choice([0, 0, max(0, q_start - 50), q_start, q_start + 3])),
        token_ids=tokens[:known],
        draft_tokens=() if form.path == "prompt" else tokens[known:],
        compressed_tokens=history[:compressed],
        recent_tokens=history[compressed:],
        data_len=seqlen_k + int(rng.choice([0, 0, 100, 400])),
    )


def wide_workload(seed: int, form: Form, **changes: object) -> Workload:
    """A step of a form; a prompt has one of the truncation modes, with and without a context parallel group.

    ``changes``: members of the configuration that are given.
    """
    rng = np.random.default_rng(seed)
    pools = Pools(rng)
    options: dict[str, object] = {}
    if form.path == "prompt":
        ranks = int(rng.choice([1, 1, GROUP]))
        options = {"yoco_mode": str(rng.choice(["off", "mask", "compact"])), "cp_size": ranks}
        options["cp_rank"] = int(rng.integers(0, ranks))
    sequences = [wide_sequence(rng, pools, form, index) for index in range(form.sequences)]
    return Workload(form.name, form.path, wide_config(**{**options, **changes}), sequences)
