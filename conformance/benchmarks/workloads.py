"""The batches that the benchmark measures: fixed numbers, no randomness but a seeded order.

Ratios 1 and 128 are dense, ratio 4 is sparse; blocks of 128 tokens, W = 128, a ring of 192 (room for 64 drafts),
n-grams of 3 with a look-up table. A prompt of 32,768 query tokens is spread over 1, 16 or 256 sequences whose cached
prefixes lie between 0 and 98,304 tokens; every second sequence trusts its ring only from its own prefix on. A decode
step has 4 rows a sequence (3 drafts) and contexts spread evenly from 12,000 to 130,000 tokens (94 to 1,016 blocks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from inputmeta import oracle

Int32s = npt.NDArray[np.int32]
VOCABULARY = 129_280
ROWS_A_DECODE = 4


@dataclass(frozen=True)
class Workload:
    """One batch to measure. `expansion` says what the second measurement adds: the window index or kv_ca_index."""

    name: str
    path: oracle.Path
    config: oracle.MetadataConfig
    sequences: Sequence[oracle.SequenceMetadata]
    expansion: Literal["kv_swa", "kv_ca_index"] = "kv_swa"

    @property
    def total_q(self) -> int:
        """Query rows."""
        return sum(sequence.seqlen_q for sequence in self.sequences)


@dataclass(frozen=True)
class Scale:
    """Sizes of a run. `prompt_tokens` query tokens in all for each count of sequences; contexts in tokens."""

    prompt_tokens: int
    prompt_sequences: tuple[int, ...]
    longest_prefix: int
    decode_sequences: tuple[int, ...]
    shortest_context: int
    longest_context: int
    expanded_sequences: int
    max_model_len: int


FULL = Scale(32_768, (1, 16, 256), 98_304, (64, 256, 1_024), 12_000, 130_000, 16, 131_072)
TINY = Scale(64, (1, 4), 500, (2, 3), 100, 900, 2, 1_024)
SCALES = {"full": FULL, "tiny": TINY}


def integers(values: Int32s) -> Sequence[int]:
    """The array as the sequence of integers for which it serves: what is cut from it is a view and costs nothing."""
    return cast("Sequence[int]", values)


def standard_config(max_model_len: int) -> oracle.MetadataConfig:
    """The configuration of every workload but the last."""
    return oracle.MetadataConfig(
        block_size=128,
        dense_ratios=(1, 128),
        sparse_ratios=(4,),
        window_size=128,
        swa_block_size=192,
        max_model_len=max_model_len,
        max_ngram_size=3,
        pad_token=2,
        image_sentinel=VOCABULARY - 1,
        lookup_table=integers(np.arange(VOCABULARY, dtype=np.int32)[::-1].copy()),
    )


class Material:
    """Shared arrays that all sequences are cut from: tokens, and the blocks of a pool in a scattered order."""

    def __init__(self, scale: Scale) -> None:
        rng = np.random.default_rng(20)
        self.tokens = integers(rng.integers(0, VOCABULARY - 1, 2 * scale.max_model_len, dtype=np.int32))
        self.pool = integers(rng.permutation(2**20).astype(np.int32))

    def sequence(
        self, index: int, q_start: int, seqlen_q: int, drafts: int, swa_valid_start: int
    ) -> oracle.SequenceMetadata:
        """Sequence `index`: history compressed up to `q_start`, this step's tokens still raw."""
        seqlen_k = q_start + seqlen_q
        tokens = self.tokens[index : index + seqlen_k]
        blocks = -(-seqlen_k // 128)
        at = index * 1_024 % (len(self.pool) - 1_024)
        return oracle.SequenceMetadata(
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            block_table=self.pool[at : at + blocks],
            state_id=index,
            token_ids=tokens[: seqlen_k - drafts],
            draft_tokens=tokens[seqlen_k - drafts :],
            compressed_tokens=tokens[:q_start],
            recent_tokens=tokens[q_start:],
            swa_valid_start=swa_valid_start,
        )


def spaced(least: int, most: int, count: int) -> list[int]:
    """`count` integers evenly from `least` to `most`, both included, in a fixed shuffled order; one: the middle."""
    if count == 1:
        return [(least + most) // 2]
    even = np.linspace(least, most, count, dtype=np.int64)
    return [int(value) for value in np.random.default_rng(count).permutation(even)]


def prompt_workload(material: Material, scale: Scale, count: int) -> Workload:
    """`prompt_tokens` query tokens in `count` sequences of equal chunks."""
    chunk = scale.prompt_tokens // count
    prefixes = spaced(0, scale.longest_prefix, count)
    sequences = [material.sequence(i, prefix, chunk, 0, prefix if i % 2 else 0) for i, prefix in enumerate(prefixes)]
    name = f"prompt {scale.prompt_tokens:,} tokens, {count} sequence{'s' if count > 1 else ''}"
    return Workload(name, "prompt", standard_config(scale.max_model_len), sequences)


def decode_workload(material: Material, scale: Scale, count: int, rows: int = ROWS_A_DECODE) -> Workload:
    """`count` sequences of `rows` rows each."""
    contexts = spaced(scale.shortest_context, scale.longest_context, count)
    sequences = [material.sequence(i, context - rows, rows, rows - 1, 0) for i, context in enumerate(contexts)]
    name = f"decode {count:,} sequences x {rows} row{'s' if rows > 1 else ''}"
    return Workload(name, "decode", standard_config(scale.max_model_len), sequences)


def expanded_workload(material: Material, scale: Scale) -> Workload:
    """Decode with ratio 1 dense alone, whose kv_ca_index is as wide as the longest context."""
    plain = decode_workload(material, scale, scale.expanded_sequences)
    config = replace(plain.config, dense_ratios=(1,), sparse_ratios=())
    name = f"decode {plain.total_q} rows x width {scale.max_model_len:,}"
    return Workload(name, "decode", config, plain.sequences, expansion="kv_ca_index")


def workloads(scale: Scale) -> list[Workload]:
    """All batches of a scale, in the order of the report."""
    material = Material(scale)
    return [
        *(prompt_workload(material, scale, count) for count in scale.prompt_sequences),
        *(decode_workload(material, scale, count) for count in scale.decode_sequences),
        expanded_workload(material, scale),
    ]


def gpu_workloads(scale: Scale) -> list[Workload]:
    """The batches of the GPU's report: decode steps of 1 and 4 rows a sequence, then one of each wide expansion."""
    material = Material(scale)
    return [
        *(decode_workload(material, scale, count, rows) for rows in (1, 4) for count in scale.decode_sequences),
        expanded_workload(material, scale),
        prompt_workload(material, scale, scale.prompt_sequences[1]),
    ]
