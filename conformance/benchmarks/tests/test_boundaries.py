"""Fixed batches at the boundaries: lengths around block, window, ring and ratio, at the constants of the real model."""

from __future__ import annotations

import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.benchmarks import numpy_reference as reference

from .test_numpy_reference import assert_equals_oracle

REAL = {"block_size": 128, "window_size": 128, "swa_block_size": 131, "max_model_len": 1_024}
BOUNDARIES = [1, 2, 3, 4, 5, 127, 128, 129, 130, 131, 132, 255, 256, 257, 511, 512, 1_023, 1_024]


def config(**changes):
    ratios = {"dense_ratios": (1, 128), "sparse_ratios": (4,)}
    ngrams = {"max_ngram_size": 3, "pad_token": 7, "image_sentinel": 50, "lookup_table": tuple(range(99, -1, -1))}
    return oracle.MetadataConfig(**{**REAL, **ratios, **ngrams, **changes})


def sequence(path, seqlen_q, seqlen_k, **changes):
    q_start = seqlen_k - seqlen_q
    words = [(7 * t + seqlen_k) % 100 for t in range(seqlen_k)]
    known = seqlen_k if path == "prompt" else q_start + 1
    given = {
        "seqlen_q": seqlen_q,
        "seqlen_k": seqlen_k,
        "block_table": [(37 * b + seqlen_k) % 1_000 for b in range(-(-seqlen_k // 128))],
        "state_id": seqlen_k % 11,
        "token_ids": words[:known],
        "draft_tokens": words[known:],
        "compressed_tokens": words[: q_start // 2],
        "recent_tokens": words[q_start // 2 :],
    }
    return oracle.SequenceMetadata(**{**given, **changes})


def test_prompts_that_end_at_each_boundary():
    batch = [sequence("prompt", min(k, 1 + k % 7), k) for k in BOUNDARIES]
    assert_equals_oracle("prompt", config(), batch)


@pytest.mark.parametrize("chunk", [127, 128, 129, 131, 132])
def test_chunks_around_window_and_ring_with_rings_trusted_from_every_side(chunk):
    starts = [0, 1, 300 - chunk, 300, 301, 2**50]
    batch = [sequence("prompt", chunk, 300, swa_valid_start=start) for start in starts]
    assert_equals_oracle("prompt", config(), batch)


def test_decode_at_each_boundary_with_and_without_drafts():
    batch = [sequence("decode", min(k, rows), k) for k in BOUNDARIES for rows in (1, 4)]
    assert_equals_oracle("decode", config(), batch)
    assert_equals_oracle("decode", config(), batch, max_num_blocks=11)


@pytest.mark.parametrize("path", ["prompt", "decode"])
def test_placeholders_write_nothing_and_keep_their_rows(path):
    batch = [sequence(path, 4, k, is_placeholder=k != 128) for k in (128, 4, 131, 512)]
    assert_equals_oracle(path, config(), batch)


def test_sequences_without_rows_beside_sequences_with_rows():
    batch = [sequence("prompt", q, k) for q, k in [(0, 0), (3, 3), (0, 128), (1, 129), (0, 1_024)]]
    assert_equals_oracle("prompt", config(), batch)


@pytest.mark.parametrize("ratios", [((1,), ()), ((), (4,)), ((1, 4), (4, 128)), ((128,), (128,))])
def test_a_batch_without_rows_has_one_neutral_row(ratios):
    dense, sparse = ratios
    batch = [sequence("prompt", 0, 0), sequence("prompt", 0, 129)]
    assert_equals_oracle("prompt", config(dense_ratios=dense, sparse_ratios=sparse), batch)


def test_a_ring_as_long_as_the_window_and_no_ngrams():
    tight = config(swa_block_size=128, max_ngram_size=0, image_sentinel=None)
    for path in ("prompt", "decode"):
        assert_equals_oracle(path, tight, [sequence(path, min(k, 5), k) for k in BOUNDARIES])


def test_the_largest_store_slot():
    largest = (2**31 - 128) // 128
    ids = [largest - 1, largest]
    assert_equals_oracle("decode", config(dense_ratios=()), [sequence("decode", 1, 256, block_table=ids)])
    fields = reference.prepare_decode(
        config(dense_ratios=(), sparse_ratios=(1,)), [sequence("decode", 1, 256, block_table=ids)]
    )
    assert np.max(fields["slot_mapping_store_ca.1"]) == 2**31 - 1


def test_context_parallel_and_truncation_are_refused():
    for changed in (config(cp_size=2), config(yoco_mode="mask", yoco_prefill_keep_tokens=4)):
        with pytest.raises(NotImplementedError, match="neither context parallel nor YoCo"):
            reference.prepare_prompt(changed, [sequence("prompt", 1, 1)])
