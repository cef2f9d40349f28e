"""Fixed batches at the boundaries: lengths around block, window, ring and ratio, at the constants of the real model."""

from __future__ import annotations

from types import ModuleType

import array_api_compat.numpy
import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.reference import reference_of

from .differences import differences

REAL = {"block_size": 128, "window_size": 128, "swa_block_size": 131, "max_model_len": 1_024}
INT32_MAX = 2**31 - 1
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


def assert_equals_oracle(path, config, batch, max_num_blocks=None, xp=array_api_compat.numpy, **changes):
    request = Request(path, config, batch, max_num_blocks=max_num_blocks, **changes)
    assert request.violations() == []
    assert differences(request, xp) == []


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


def bound(**changes):
    """A configuration for one block and a few rows at the int32 bound."""
    values = {"block_size": 8, "window_size": 4, "swa_block_size": 6, "max_model_len": 64, "dense_ratios": (1,)}
    return oracle.MetadataConfig(**{**values, **changes})


def row_at(path, seqlen_q, seqlen_k, **changes):
    """A sequence with one block for every 8 tokens, tokens all 5."""
    known = seqlen_k if path == "prompt" else seqlen_k - seqlen_q + 1
    given = {
        "seqlen_q": seqlen_q,
        "seqlen_k": seqlen_k,
        "block_table": (3,) * -(-seqlen_k // 8),
        "token_ids": (5,) * known,
        "draft_tokens": () if path == "prompt" else (5,) * (seqlen_q - 1),
        "data_len": seqlen_k,
    }
    return oracle.SequenceMetadata(**{**given, **changes})


@pytest.mark.parametrize("path", oracle.PATHS)
def test_the_largest_store_slot(path: str, xp: ModuleType) -> None:
    config = bound(dense_ratios=(), sparse_ratios=(1,))
    highest = (INT32_MAX - 7) // 8
    batch = [row_at(path, 1, 16, block_table=(highest - 1, highest))]
    assert_equals_oracle(path, config, batch, xp=xp)
    slots = reference_of(Request(path, config, batch), xp).fields["slot_mapping_store_ca.1"]
    assert np.max(np.asarray(slots)) == INT32_MAX


@pytest.mark.parametrize("path", ["decode", "decode_zos"])
@pytest.mark.parametrize("is_placeholder", [False, True])
def test_a_decode_window_that_wraps_in_the_last_ring_of_int32(path: str, is_placeholder: bool, xp: ModuleType) -> None:
    config = bound(window_size=4, swa_block_size=8)  # the last ring ends with the last cell of int32
    batch = [
        row_at(path, 3, k, state_id=2**28 - 1, is_placeholder=is_placeholder) for k in (3, 7, 8, 9, 10, 11, 12, 16)
    ]
    assert_equals_oracle(path, config, batch, xp=xp)
    index = reference_of(Request(path, config, batch), xp).fields["kv_swa_index"]
    assert np.max(np.asarray(index)) == INT32_MAX


def test_a_decode_ring_that_ends_past_int32(xp: ModuleType) -> None:
    config = bound(window_size=4, swa_block_size=6)
    state = INT32_MAX // 6  # cells 0 and 1 of its ring are all that fit
    for k in (1, 2):
        assert_equals_oracle("decode", config, [row_at("decode", 1, k, state_id=state)], xp=xp)


@pytest.mark.parametrize("path", ["decode", "decode_zos"])
def test_a_block_of_the_largest_size_takes_no_memory(path: str, xp: ModuleType) -> None:
    config = bound(block_size=INT32_MAX, max_model_len=300)
    batch = [row_at(path, 1, 290, block_table=(0,))]
    assert_equals_oracle(path, config, batch, xp=xp)


def test_blocks_of_a_large_size_in_a_prompt(xp: ModuleType) -> None:
    config = bound(block_size=2**30, max_model_len=300, sparse_ratios=(2,))
    assert_equals_oracle("prompt", config, [row_at("prompt", 9, 290, block_table=(1,))], xp=xp)


def test_scalars_past_int32_that_are_only_compared(xp: ModuleType) -> None:
    for mode in ("off", "mask", "compact"):
        config = bound(yoco_mode=mode, yoco_prefill_keep_tokens=3, cp_size=2)
        for value in (2**31 - 1, 2**31, 2**32, 2**32 + 9, 2**62):
            batch = [row_at("prompt", 9, 20, swa_valid_start=value), row_at("prompt", 9, 20, data_len=value)]
            assert_equals_oracle("prompt", config, batch, xp=xp)


def test_the_largest_pivots(xp: ModuleType) -> None:
    wide = (INT32_MAX - 9) // 2
    for mode in ("off", "mask", "compact"):
        config = bound(window_size=wide, swa_block_size=wide, yoco_mode=mode, yoco_prefill_keep_tokens=3)
        batch = [row_at("prompt", 4, 20), row_at("prompt", 5, 5, swa_valid_start=2)]
        assert_equals_oracle("prompt", config, batch, xp=xp, expand=frozenset({"kv_ca_index"}))


def test_a_group_of_ranks_so_large_that_the_reverse_index_nears_int32(xp: ModuleType) -> None:
    ranks = 2**16
    config = bound(cp_size=ranks, cp_rank=ranks - 1, yoco_mode="compact", sparse_ratios=(2,))
    assert_equals_oracle("prompt", config, [row_at("prompt", q, 20) for q in (9, 0, 20)], xp=xp)


@pytest.mark.parametrize("path", oracle.PATHS)
@pytest.mark.parametrize("block_size", [64, 127, 128, 129, 256])
def test_a_row_that_fills_the_whole_compressed_index(path: str, block_size: int, xp: ModuleType) -> None:
    config = bound(block_size=block_size, max_model_len=128)
    table = (5, 3, 9)[: -(-128 // block_size)]
    assert_equals_oracle(path, config, [row_at(path, 2, 128, block_table=table)], xp=xp)
