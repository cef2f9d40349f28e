"""Known ways in which this layer breaks: one batch a class, right values worked by hand.

Classes that need several steps on one set of buffers (STALE, ALIAS), a tensor (DTYPE) or several processes (RANK)
cannot show in one batch of integers.
"""

from __future__ import annotations

import pytest

from inputmeta.oracle import Int32Error, LengthError, expected_fields

from .batches import cells, config, decode, prompt, rows_of


@pytest.mark.parametrize("drafts", [0, 1, 3])
def test_spec_every_view_changes_with_the_drafts(drafts):
    """SPEC: drafts are counted in the keys and rows, not in the known tokens."""
    fields = expected_fields("decode", config(), [decode(5, drafts), decode(2, state_id=1)])
    count = drafts + 1
    assert cells(fields, "positions") == [*range(5, 5 + count), 2]
    assert cells(fields, "context_lens") == [*range(6, 6 + count), 3]
    assert cells(fields, "input_ids") == [105, *range(500, 500 + drafts), 102]
    assert cells(fields, "query_indices") == [0] * count + [1]
    assert cells(fields, "cu_seqlens_q") == [0, count, count + 1]
    assert cells(fields, "cu_seqlens_k") == [0, 5 + count, 8 + count]


def test_spec_drafts_that_cross_the_longest_length():
    """SPEC: the last draft may stand at max_model_len - 1, not at max_model_len."""
    assert cells(expected_fields("decode", config(max_model_len=8), [decode(5, 2)]), "positions") == [5, 6, 7]
    with pytest.raises(LengthError, match=r"P-LEN: sequence 0: seqlen_k = 9; rule: seqlen_k <= max_model_len = 8"):
        expected_fields("decode", config(max_model_len=8), [decode(5, 3)])


def test_sent_placeholders_change_no_cell():
    """SENT: of 2 real and 2 placeholder rows exactly 2 name a cell, in every store field."""
    dense = config(dense_ratios=(1,), sparse_ratios=())
    batch = [
        decode(3),
        decode(3, is_placeholder=True, block_table=(0,), state_id=0),
        decode(4, state_id=1, block_table=(5,)),
        decode(3, is_placeholder=True, block_table=(0,), state_id=0),
    ]
    fields = expected_fields("decode", dense, batch)
    assert cells(fields, "slot_mapping_store_ca.1") == [163, -1, 44, -1]
    assert cells(fields, "slot_mapping_store_swa") == [3, -1, 10, -1]
    assert cells(fields, "query_indices") == [0, 998244353, 2, 998244353]


def test_bt_blocks_counted_and_one_cell_in_every_view():
    """BT: lengths 1, 16, 17, 96, 100 at block 16 take 1, 1, 2, 6, 7 blocks; store and read name the same cell."""
    dense = config(block_size=16, dense_ratios=(1,), sparse_ratios=(), max_model_len=128)
    lengths = (1, 16, 17, 96, 100)
    fields = expected_fields("decode", dense, [decode(length - 1, state_id=length) for length in lengths])
    widths = [sum(cell is not None for cell in row) for row in rows_of(fields["block_tables"])]
    assert widths == [1, 1, 2, 6, 7]
    assert cells(fields, "max_num_blocks") == [7]
    assert [row for row, _ in rows_of(fields["kv_ca_index_offset_len.1"])] == [0, 112, 224, 336, 448]
    newest = [row[length - 1] for row, length in zip(rows_of(fields["kv_ca_index.1"]), lengths, strict=True)]
    assert newest == cells(fields, "slot_mapping_store_ca.1") == [320, 335, 336, 415, 419]


def test_win_window_edge():
    """WIN: W = 4 at 0, 2, 3, 4, 9: first key 0, 0, 0, 1, 6; counts 1, 3, 4, 4, 4 (a ring of 16 shows positions)."""
    wide = config(swa_block_size=16)
    fields = expected_fields("decode", wide, [decode(position) for position in (0, 2, 3, 4, 9)])
    assert rows_of(fields["kv_swa_index_offset_len"]) == [[0, 1], [0, 3], [0, 4], [1, 4], [6, 4]]


def test_chunk_prefix_and_no_prefix():
    """CHUNK: prefixes 5, 0 with 3, 2 queries."""
    sparse = config(dense_ratios=(), sparse_ratios=(1,))
    fields = expected_fields("prompt", sparse, [prompt(5, 3), prompt(0, 2, state_id=1)])
    assert cells(fields, "positions") == [5, 6, 7, 0, 1]
    assert cells(fields, "ks.1") == [0, 0, 0, 8, 8]
    assert cells(fields, "ke.1") == [6, 7, 8, 9, 10]


def test_ovf_last_slot_fits_and_the_next_is_refused():
    """OVF: block 8388607 at offset 255, then block 8388608 at 0, block size 256."""
    dense = config(block_size=256, dense_ratios=(1,), sparse_ratios=(), max_model_len=512)
    fields = expected_fields("decode", dense, [decode(255, block_table=(8388607,))])
    assert cells(fields, "slot_mapping_store_ca.1") == [2147483647]
    with pytest.raises(Int32Error, match=r"P-INT32: sequence 0: slot_mapping_store_ca\.1 = 2147483648"):
        expected_fields("decode", dense, [decode(256, block_table=(0, 8388608))])


def test_cmp_compression_edges():
    """CMP: ratio 4 at 5 ... 10 emits only at 7 and shows 1 1 2 2 2 2; ratio 128 at 126 ... 128 shows 0 1 1."""
    fields = expected_fields("decode", config(), [decode(5, 5)])
    assert cells(fields, "klen.4") == [1, 1, 2, 2, 2, 2]
    assert cells(fields, "positions_c.4") == [0, 0, 4, 0, 0, 0]
    assert cells(fields, "slot_mapping_store_ca.4") == [-1, -1, 41, -1, -1, -1]
    coarse = config(block_size=128, dense_ratios=(), sparse_ratios=(128,), max_model_len=256)
    fields = expected_fields("decode", coarse, [decode(126, 2)])
    assert cells(fields, "klen.128") == [0, 1, 1]
    assert cells(fields, "slot_mapping_store_ca.128") == [-1, 20, -1]


def test_zero_lengths():
    """ZERO: q = 0 3 0 1 0: cu 0 0 3 3 4 4; lengths below the ratio: every sequence its one row."""
    batch = [prompt(0, 0), prompt(0, 3), prompt(2, 0), prompt(0, 1), prompt(1, 0)]
    fields = expected_fields("prompt", config(), batch)
    assert cells(fields, "cu_seqlens_q") == [0, 0, 3, 3, 4, 4]
    assert cells(fields, "cu_compressed_seqlens_q.4") == [0, 1, 2, 3, 4, 5]
    assert cells(fields, "positions_c.4") == [0] * 5
    assert cells(fields, "slot_mapping_store_ca.4") == [-1] * 5
    assert cells(fields, "ks.4") == cells(fields, "ke.4") == [1, 1, 1, 3]
    assert cells(fields, "total_k_compressed.4") == [5]


def test_zero_padding_sequence_of_length_0_with_drafts():
    """ZERO: refused: a decode sequence has at least its own row."""
    with pytest.raises(LengthError, match=r"P-LEN: sequence 0: seqlen_q = 0; rule: seqlen_q = 1 \+ len"):
        expected_fields("decode", config(), [decode(0, 2, seqlen_q=0, seqlen_k=0, is_placeholder=True)])


def test_cu_two_conventions():
    """CU: lengths 3, 1, 2 as 0 3 4 6, or 3 4 6 on the ZOS path, which has no cu_seqlens_k."""
    batch = [decode(4, 2), decode(1), decode(3, 1)]
    eager = expected_fields("decode", config(), batch)
    zos = expected_fields("decode_zos", config(), batch)
    assert cells(eager, "cu_seqlens_q") == [0, 3, 4, 6]
    assert cells(zos, "cu_seqlens_q") == [3, 4, 6]
    assert eager["cu_seqlens_q"].shape == (4,)
    assert zos["cu_seqlens_q"].shape == (3,)
    assert "cu_seqlens_k" not in zos


def test_ring_wraps_with_room_for_drafts():
    """RING: W = 8, 2 drafts, ring 10: positions 7 ... 11 at 7 8 9 0 1; the window of 10 is 3 ... 9, 0."""
    ring = config(window_size=8, swa_block_size=10)
    first = expected_fields("decode", ring, [decode(7, 2)])
    assert cells(first, "slot_mapping_store_swa") == [7, 8, 9]
    second = expected_fields("decode", ring, [decode(10, 1)])
    assert cells(second, "slot_mapping_store_swa") == [0, 1]
    assert rows_of(second["kv_swa_index"])[0] == [3, 4, 5, 6, 7, 8, 9, 0]


def test_cp_zigzag():
    """CP: 7 rows on 2 ranks: 0 1 6 p and 2 3 4 5; 1 row on 4 ranks: 1 0 0 0 valid rows."""
    indices = [
        cells(expected_fields("prompt", config(cp_size=2, cp_rank=rank), [prompt(0, 7)]), "mirror_cp_index")
        for rank in range(2)
    ]
    assert indices == [[0, 1, 6, -1], [2, 3, 4, 5]]
    masks = [
        cells(expected_fields("prompt", config(cp_size=4, cp_rank=rank), [prompt(0, 1)]), "valid_token_mask")
        for rank in range(4)
    ]
    assert [sum(mask) for mask in masks] == [1, 0, 0, 0]


def test_agree_eager_and_zos():
    """AGREE: k = 5, q swept over 1 ... 13: both decode builders say the same of every row."""
    for queries in range(1, 14):
        batch = [decode(5, queries - 1), decode(2, 1, state_id=1)]
        eager = expected_fields("decode", config(), batch)
        zos = expected_fields("decode_zos", config(), batch)
        differing = {key for key in eager if key not in zos or cells(eager, key) != cells(zos, key)}
        assert differing == {"cu_seqlens_q", "cu_seqlens_k"}


def test_look_back_stays_in_its_sequence():
    """LOOK: look back 2 over two sequences: the second's first row sees padding, not the first's last token."""
    look_back = config(max_ngram_size=2, pad_token=-1)
    batch = [prompt(0, 2, compressed_tokens=(7, 8)), prompt(0, 2, compressed_tokens=(3, 4))]
    fields = expected_fields("prompt", look_back, batch)
    assert rows_of(fields["ngram_token_ids"]) == [[7, -1], [8, 7], [3, -1], [4, 3]]
