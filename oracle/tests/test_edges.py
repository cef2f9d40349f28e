"""Values at the edges, worked by hand from SPEC.md (never copied from a run)."""

from __future__ import annotations

import pytest

from inputmeta.oracle import SequenceMetadata, expected_fields

from .batches import cells, config, decode, prompt, rows_of


def test_chunk_of_no_queries_among_others():
    """q = 2, 0, 1: a sequence without queries has no query row, but its own compressed row, segments and key row."""
    fields = expected_fields("prompt", config(), [prompt(1, 2), prompt(5, 0, state_id=2), prompt(0, 1, state_id=3)])
    assert cells(fields, "cu_seqlens_q") == [0, 2, 2, 3]
    assert cells(fields, "cu_seqlens_k") == [0, 3, 8, 9]
    assert cells(fields, "positions") == [1, 2, 0]
    assert cells(fields, "query_indices") == [0, 0, 2]
    assert cells(fields, "state_block_idx") == [0, 2, 3]
    # Ratio 2: chunks [1, 3), [5, 5), [0, 1) complete compressed tokens {0}, {}, {}: one row each.
    assert cells(fields, "cu_compressed_seqlens_q.2") == [0, 1, 2, 3]
    assert cells(fields, "positions_c.2") == [0, 0, 0]
    assert cells(fields, "slot_mapping_store_ca.2") == [20 * 4, -1, -1]
    # Ratio 4, keys 3, 5, 1: 0, 1, 0 compressed tokens, so bases 0, 1, 2.
    assert cells(fields, "ks.4") == [0, 0, 2]
    assert cells(fields, "ke.4") == [0, 0, 2]
    assert rows_of(fields["load_segments_ca.4"]) == [[-1, 0, 1, 0], [20, 0, 1, 1], [-1, 0, 1, 2]]
    assert cells(fields, "total_k_compressed.4") == [3]
    # Histories [-3, 1), [1, 5), [-4, 0) in rings of 6.
    assert rows_of(fields["load_segments_swa"]) == [[-1, 0, 3, 0], [0, 0, 1, 3], [2, 1, 5, 4], [-1, 0, 4, 8]]


def test_no_query_at_all_leaves_one_neutral_row():
    """I-3: total_q = 0."""
    batch_config = config(max_ngram_size=2, pad_token=-5, yoco_mode="mask")
    fields = expected_fields("prompt", batch_config, [prompt(3, 0), prompt(0, 0)])
    assert cells(fields, "total_q") == [0]
    assert fields["positions"].shape == (1,)
    assert cells(fields, "positions") == [0]
    assert cells(fields, "input_ids") == [0]
    assert cells(fields, "gate_force_random") == [False]
    assert cells(fields, "valid_token_mask") == [False]
    assert cells(fields, "query_indices") == [998244353]
    assert cells(fields, "ngram_token_ids") == [-5, -5]
    assert cells(fields, "slot_mapping_store_swa") == [-1]
    assert cells(fields, "ks.4") + cells(fields, "ke.4") + cells(fields, "klen.4") == [0, 0, 0]
    assert cells(fields, "kv_ca_index_offset_len.2") == [0, 0]
    assert cells(fields, "kv_ca_index.2") == [-1] * 128
    assert cells(fields, "kv_ca_index_len.2") == [0]
    assert cells(fields, "kv_swa_full_index_pivots") == [0, 0, 0, 0]
    assert cells(fields, "yoco_mask_swa_index_pivots") == [0, 0, 0, 0]
    assert cells(fields, "kv_swa_full_index") == [-1] * 4
    assert cells(fields, "cp_mirror_len") == [0]
    assert cells(fields, "cu_seqlens_q") == [0, 0, 0]
    assert cells(fields, "positions_c.2") == [0, 0]


def test_no_query_at_all_in_compact_mode_under_cp():
    """I-3, I-14: the consumer's neutral row and the neutral rows of every mirror index."""
    batch_config = config(yoco_mode="compact", cp_size=2, yoco_prefill_keep_tokens=2)
    fields = expected_fields("prompt", batch_config, [prompt(3, 0)])
    assert cells(fields, "yoco_consumer_query_indices") == [998244353]
    assert cells(fields, "yoco_consumer_slot_mapping_store_swa") == [-1]
    assert cells(fields, "yoco_consumer_cu_seqlens_q") == [0, 0]
    lengths = ("yoco_consumer_total_q", "yoco_consumer_cp_mirror_len", "yoco_consumer_cp_contrib_pad_len")
    for name in lengths:
        assert cells(fields, name) == [0]
    indices = ("mirror_cp_index", "mirror_cp_reverse_index", "yoco_cp_contrib_index", "yoco_cp_boundary_index")
    for name in (*indices, "yoco_consumer_mirror_cp_index", "yoco_consumer_mirror_cp_reverse_index"):
        assert cells(fields, name) == [-1]
    assert cells(fields, "yoco_consumer_mirror_ks.4") == [0]


@pytest.mark.parametrize(
    ("q_start", "seqlen_q", "positions", "slots"),
    [
        (0, 8, [0, 4], [40, 41]),  # from block edge to block edge (block 8 holds 2 compressed tokens of ratio 4)
        (0, 7, [0], [40]),  # one before the edge
        (7, 1, [4], [41]),  # the row that completes the last compressed token of a block
        (8, 1, [0], [-1]),  # one past the edge: completes nothing
        (7, 2, [4], [41]),
        (8, 4, [8], [42]),  # the first of the next block
        (3, 1, [0], [40]),
        (4, 3, [0], [-1]),
        (5, 8, [4, 8], [41, 42]),  # tokens begun before the chunk are completed by it
    ],
)
def test_chunks_on_and_beside_block_and_ratio_edges(q_start, seqlen_q, positions, slots):
    """F-NCQ, F-CPOS, F-CSLOT at ratio 4, block 8: blocks 20, 21, ... of 2 compressed tokens."""
    fields = expected_fields("prompt", config(), [prompt(q_start, seqlen_q)])
    assert cells(fields, "positions_c.4") == positions
    assert cells(fields, "slot_mapping_store_ca.4") == slots
    assert cells(fields, "cu_compressed_seqlens_q.4") == [0, len(positions)]


def test_keys_shorter_than_the_ratio_in_decode():
    """seqlen_k < n: nothing visible, nothing stored, no block counted, yet one column."""
    only_four = config(dense_ratios=(4,))
    fields = expected_fields("decode", only_four, [decode(1)])
    assert cells(fields, "klen.4") == [0]
    assert cells(fields, "max_num_blocks") == [1]
    assert cells(fields, "block_tables") == [None]
    assert cells(fields, "kv_ca_index_offset_len.4") == [0, 0]
    assert cells(fields, "slot_mapping_store_ca.4") == [-1]
    assert set(cells(fields, "kv_ca_index.4")) == {-1}


def test_ring_wraps_in_stores_plans_and_windows():
    """B = 6, W = 4, state 2: positions 10 ... 13 lie at 4, 5, 0, 1 of the ring."""
    stores = expected_fields("prompt", config(), [prompt(8, 8, state_id=2)])
    assert cells(stores, "slot_mapping_store_swa") == [-1, -1, 16, 17, 12, 13, 14, 15]
    plan = expected_fields("prompt", config(), [prompt(14, 1, state_id=2)])
    assert rows_of(plan["load_segments_swa"]) == [[2, 4, 6, 0], [2, 0, 2, 2]]
    window = expected_fields("decode", config(), [decode(13, state_id=2)])
    assert cells(window, "kv_swa_index_offset_len") == [16, 4]
    assert cells(window, "kv_swa_index") == [16, 17, 12, 13]


@pytest.mark.parametrize(
    ("valid_start", "pivots"),
    [
        # W = 4, q_start = 5, rows 5, 6, 7; history rows 0 ... 3 are positions 1 ... 4, new rows start at 4.
        (0, [[1, 3, 4, 1], [2, 2, 4, 2], [3, 1, 4, 3]]),
        (4, [[3, 1, 4, 1], [3, 1, 4, 2], [3, 1, 4, 3]]),  # inside the history
        (5, [[4, 0, 4, 1], [4, 0, 4, 2], [4, 0, 4, 3]]),  # at the chunk's start
        (6, [[4, 0, 5, 0], [4, 0, 5, 1], [4, 0, 5, 2]]),  # inside the chunk: row 5 sees nothing
        (8, [[4, 0, 5, 0], [4, 0, 6, 0], [4, 0, 7, 0]]),  # at the chunk's end: no row sees anything
        (99, [[4, 0, 5, 0], [4, 0, 6, 0], [4, 0, 7, 0]]),  # past it: clamped by I-5
    ],
)
def test_valid_start_around_the_chunk(valid_start, pivots):
    """F-PIVOT, I-5."""
    fields = expected_fields("prompt", config(), [prompt(5, 3, swa_valid_start=valid_start)])
    assert rows_of(fields["kv_swa_full_index_pivots"]) == pivots


@pytest.mark.parametrize(
    ("valid_start", "segments"),
    [
        (0, [[0, 1, 5, 0]]),
        (1, [[0, 1, 5, 0]]),
        (2, [[-1, 0, 1, 0], [0, 2, 5, 1]]),
        (4, [[-1, 0, 3, 0], [0, 4, 5, 3]]),
        (5, [[-1, 0, 4, 0]]),
        (99, [[-1, 0, 4, 0]]),
    ],
)
def test_zero_fill_up_to_the_valid_start(valid_start, segments):
    """F-SWAPLAN over the history [1, 5) of a chunk at 5."""
    fields = expected_fields("prompt", config(), [prompt(5, 3, swa_valid_start=valid_start)])
    assert rows_of(fields["load_segments_swa"]) == segments


@pytest.mark.parametrize(
    ("data_len", "kept"),
    [
        (0, [8, 9, 10, 11]),  # the clip would be negative: 0
        (11, [8, 9, 10, 11]),  # data_len - k = q_start: 0
        (12, [9, 10, 11]),
        (14, [11]),  # exactly q_len - 1
        (15, [11]),  # would be q_len: one row stays
        (99, [11]),
    ],
)
def test_clip_is_clamped_to_the_chunk(data_len, kept):
    """F-CLIP with k = 3 over the chunk [8, 12)."""
    compact = config(yoco_mode="compact", yoco_prefill_keep_tokens=3)
    fields = expected_fields("prompt", compact, [prompt(8, 4, data_len=data_len)])
    assert cells(fields, "yoco_consumer_positions") == kept
    assert cells(fields, "yoco_consumer_query_indices") == [position - 8 for position in kept]


def test_rows_outside_the_rect_store_nothing():
    """F-COMPACT: k = 3, data_len 11 over [8, 12): rect [8, 11), so row 11 is kept and not stored."""
    compact = config(yoco_mode="compact", yoco_prefill_keep_tokens=3)
    fields = expected_fields("prompt", compact, [prompt(8, 4, data_len=11)])
    assert cells(fields, "yoco_consumer_slot_mapping_store_swa") == [2, 3, 4, -1]
    assert cells(fields, "slot_mapping_store_swa") == [2, 3, 4, 5]


def test_chunk_shorter_than_two_blocks_a_rank():
    """3 rows on p = 2, blocks of one row: rank 0 owns rows 0 and 3 (none), rank 1 rows 1 and 2."""
    layouts = []
    for rank in (0, 1):
        fields = expected_fields("prompt", config(cp_size=2, cp_rank=rank), [prompt(4, 3)])
        layouts.append(cells(fields, "mirror_cp_index"))
        assert cells(fields, "cp_mirror_len") == [2]
        assert cells(fields, "mirror_cp_reverse_index") == [0, 2, 3]
    assert layouts == [[0, -1], [1, 2]]


def test_padding_of_a_mirrored_layout():
    """I-8: padding rows of every mirrored field; the originals stay whole."""
    mirrored = config(cp_size=2, cp_rank=0, max_ngram_size=1, pad_token=-5, force_load_balance=True)
    fields = expected_fields("prompt", mirrored, [prompt(4, 3)])
    assert cells(fields, "positions") == [4, 0]
    assert cells(fields, "positions_cp") == [4, 5, 6]
    assert cells(fields, "input_ids") == [104, 105, 106]
    assert cells(fields, "gate_force_random") == [True, True, True]
    assert cells(fields, "gate_force_random_cp") == [True, False]
    assert cells(fields, "valid_token_mask") == [True, False]
    assert cells(fields, "query_indices") == [0, 998244353]
    assert cells(fields, "ngram_token_ids") == [304, -5]
    assert cells(fields, "ks.4") + cells(fields, "ke.4") + cells(fields, "klen.4") == [0, 0, 1, 0, 1, 0]
    assert rows_of(fields["kv_swa_full_index"]) == [[1, 2, 3, 4], [-1, -1, -1, -1]]
    assert cells(fields, "kv_ca_index_len.2") == [2, 0]
    assert rows_of(fields["kv_ca_index.2"])[0][:3] == [0, 1, -1]
    assert rows_of(fields["kv_ca_index.2"])[1] == [-1] * 128
    assert fields["kv_ca_index_offset_len.2"].shape == (3, 2)


def test_placeholder_in_every_path():
    """I-1: ordinary but for the mask, the query index and its store slots."""
    for path, sequence in (("prompt", prompt(2, 2)), ("decode", decode(3))):
        ghost = SequenceMetadata(**(sequence.__dict__ | {"is_placeholder": True, "state_id": 1}))
        real = expected_fields(path, config(), [SequenceMetadata(**(ghost.__dict__ | {"is_placeholder": False}))])
        fields = expected_fields(path, config(), [ghost])
        changed = {key for key in fields if cells(fields, key) != cells(real, key)}
        stores = {"slot_mapping_store_swa", "slot_mapping_store_ca.2", "slot_mapping_store_ca.4"}
        assert changed == {"valid_token_mask", "query_indices", "positions_c.2", *stores}
        assert cells(fields, "positions_c.2") == [0]
        assert all(set(cells(fields, key)) == {-1} for key in stores)


def test_image_sentinel_cuts_from_the_row_itself():
    """I-9, I-12: look-back 3 over compressed 5, 9, then raw 1, 0 -> table 9, 8; sentinel 9."""
    look_back = config(max_ngram_size=3, pad_token=-1, image_sentinel=9, lookup_table=(8, 9))
    chunk = prompt(0, 4, compressed_tokens=(5, 9), recent_tokens=(1, 0))
    fields = expected_fields("prompt", look_back, [chunk])
    assert rows_of(fields["ngram_token_ids"]) == [[5, -1, -1], [-1, -1, -1], [-1, -1, -1], [8, -1, -1]]


def test_width_of_the_dense_expansion():
    """F-CAOFF: cdiv(max_model_len // n, 128) * 128, at least 128."""
    for length, width in ((1, 128), (256, 128), (257, 128), (258, 256), (512, 256), (514, 384)):
        fields = expected_fields("prompt", config(max_model_len=length), [prompt(0, 1)])
        assert fields["kv_ca_index.2"].shape == (1, width)
