"""Context parallel prompts and YoCo truncation: the guarded fields, worked out by hand (notation: conftest)."""

from __future__ import annotations

import pytest

# fmt: off
PINS: dict[str, dict[str, str]] = {
    "CP: a prompt of 1 row on 4 ranks gives rank 1 padding, where slicing past its end gives less": {
        "cp_mirror_len": "2", "mirror_cp_index": "-1 -1", "mirror_cp_reverse_index": "0", "positions": "0 0",
    },
    "CP: padding rows of a first block have position 0, as those of a second one": {
        "mirror_cp_index": "1 2 -1 -1", "positions": "1 2 0 0",
    },
    "CP: 7 rows on 2 ranks, rank 0 has 0, 1, 6 and one padding row": {
        "cp_mirror_len": "4", "mirror_cp_index": "0 1 6 -1", "mirror_cp_reverse_index": "0 1 4 5 6 7 2",
        "positions": "2 3 8 0", "positions_cp": "2 3 4 5 6 7 8", "valid_token_mask": "T T T F",
        "query_indices": "0 0 0 998244353", "ks.4": "0 0 0 0", "ke.4": "0 1 2 0", "klen.4": "0 1 2 0",
        "input_ids": "102 103 104 105 106 107 108", "cu_seqlens_q": "0 7",
    },
    "CP: 7 rows on 2 ranks, rank 1 has 2 to 5": {
        "mirror_cp_index": "2 3 4 5", "mirror_cp_reverse_index": "0 1 4 5 6 7 2", "positions": "4 5 6 7",
        "valid_token_mask": "T T T T", "ke.4": "1 1 1 2", "query_indices": "0 0 0 0", "cp_mirror_len": "4",
    },
    "CP: 1 row on 4 ranks, rank 0 has it": {
        "mirror_cp_index": "0 -1", "cp_mirror_len": "2", "mirror_cp_reverse_index": "0", "positions": "5 0",
        "valid_token_mask": "T F", "ke.4": "1 0",
    },
    "CP: 1 row on 4 ranks, rank 1 has padding only": {
        "mirror_cp_index": "-1 -1", "cp_mirror_len": "2", "mirror_cp_reverse_index": "0", "positions": "0 0",
        "valid_token_mask": "F F", "ke.4": "0 0",
    },
    "CP: 1 row on 4 ranks, rank 3 has padding only": {
        "mirror_cp_index": "-1 -1", "cp_mirror_len": "2", "mirror_cp_reverse_index": "0", "positions": "0 0",
        "valid_token_mask": "F F", "ke.4": "0 0",
    },
    "F-ZIGZAG: 9 rows on 2 ranks are cut in blocks of 3, 3 rows for rank 0": {
        "mirror_cp_index": "0 1 2 -1 -1 -1", "positions": "0 1 2 0 0 0",
        "mirror_cp_reverse_index": "0 1 2 6 7 8 9 10 11", "cp_mirror_len": "6",
    },
    "F-ZIGZAG: 9 rows on 2 ranks are cut in blocks of 3, 6 rows for rank 1": {
        "mirror_cp_index": "3 4 5 6 7 8", "positions": "3 4 5 6 7 8", "mirror_cp_reverse_index": "0 1 2 6 7 8 9 10 11",
        "cp_mirror_len": "6",
    },
    # rank 5 owns blocks 5 and 10; ratio 4 has bases 0, 4, 9
    "F-ZIGZAG: chunks of 17, 16 and 3 rows on 8 ranks, blocks of 2, 1 and 1": {
        "cp_mirror_len": "8", "mirror_cp_index": "10 11 -1 -1 22 27 -1 -1", "positions": "10 11 0 0 9 14 0 0",
        "query_indices": "0 0 998244353x2 1 1 998244353x2", "ks.4": "0 0 0 0 4 4 0 0", "ke.4": "2 3 0 0 6 7 0 0",
    },
    # blocks of 1, owners 0 1 2 2 1 and 0 1 2, mirror length 4
    "F-REVERSE: chunks of 5, 0 and 3 rows on 3 ranks": {
        "cp_mirror_len": "4", "mirror_cp_index": "2 3 7 -1", "mirror_cp_reverse_index": "0 4 8 9 5 2 6 10",
        "query_indices": "0 0 2 998244353",
    },
    # blocks of 2: rows 0 to 11 in blocks 0 to 5 of ranks 0 to 5, row 12 in block 6 of rank 5; mirror length 4
    "F-REVERSE: 13 rows on 6 ranks, the last blocks of most ranks are empty": {
        "cp_mirror_len": "4", "mirror_cp_index": "2 3 -1 -1",
        "mirror_cp_reverse_index": "0 1 4 5 8 9 12 13 16 17 20 21 22",
    },
    "F-ZIGZAG: the last rank of 5 has neighbouring blocks": {
        "mirror_cp_index": "8 9 10 -1", "positions": "9 10 11 0", "cp_mirror_len": "4",
        "mirror_cp_reverse_index": "0 1 4 5 8 9 12 13 16 17 18",
    },
    "F-ZIGZAG: 30 rows on 7 ranks leave the far blocks of rank 3 empty": {
        "mirror_cp_index": "9 10 11 -1 -1 -1", "cp_mirror_len": "6",
    },
    "F-ZIGZAG: one rank has a mirror length and no mirror": {"cp_mirror_len": "6", "positions": "2 3 4 0"},
    "F-MASK: padding and placeholder rows of rank 0 of 2 are invalid, an empty chunk has none": {
        "mirror_cp_index": "0 -1 3 -1", "valid_token_mask": "T F F F", "query_indices": "0 998244353x3",
        "positions": "2 0 4 0", "cp_mirror_len": "4", "mirror_cp_reverse_index": "0 4 5 2 6",
        "input_ids": "102 103 104 304 305", "slot_mapping_store_swa": "8 9 10 -1 -1",
    },
    "F-MASK: padding and placeholder rows of rank 1 of 2 are invalid, an empty chunk has none": {
        "mirror_cp_index": "1 2 4 -1", "valid_token_mask": "T T F F", "query_indices": "0 0 998244353x2",
        "positions": "3 4 5 0", "cp_mirror_len": "4", "mirror_cp_reverse_index": "0 4 5 2 6",
        "input_ids": "102 103 104 304 305", "slot_mapping_store_swa": "8 9 10 -1 -1",
    },
    # ratio 8 has bases 0, 1; the full layout of the offsets stays, their expansion is mirrored
    "F-MIRRORKS: mirrored rows of chunks behind prefixes see their own absolute range": {
        "mirror_cp_index": "1 2 5 6", "positions": "7 8 5 6", "ks.4": "0 0 2 2", "ke.4": "2 2 3 3", "klen.4": "2 2 1 1",
        "cu_seqlens_q": "0 4 7", "cu_seqlens_k": "0 10 17", "positions_c.4": "4 0", "slot_mapping_store_ca.4": "11 -1",
        "kv_ca_index_offset_len.8": "0 0 | 0 1 | 0 1 | 0 1 | 1 0 | 1 0 | 1 0", "kv_ca_index_len.8": "1 1 0 0",
        "kv_ca_index.8": "0 -1x127 | 0 -1x127 | -1x128 | -1x128",
    },
    # blocks of 1 and 2; the base of sequence 1 is 4
    "F-MIRRORKS: padding rows have the empty range 0, 0, not their sequence's base": {
        "mirror_cp_index": "0 -1 2 3 -1 -1", "ks.2": "0 0 4 4 0 0", "ke.2": "3 0 6 7 0 0", "klen.2": "3 0 2 3 0 0",
    },
    # blocks of 2, rank 1 owns blocks 1 and 4
    "CP: n-grams, gate flags and window indices of padding rows are neutral": {
        "mirror_cp_index": "2 3 -1 -1", "ngram_token_ids": "13 12 | 14 13 | -7 -7 | -7 -7", "gate_force_random": "Tx8",
        "gate_force_random_cp": "T T F F", "kv_swa_full_index": "4 5 6 -1 | 4 5 6 7 | -1x4 | -1x4",
        "positions_cp": "0 1 2 3 4 5 6 7",
        "kv_swa_full_index_pivots": "4 0 4 1 | 4 0 4 2 | 4 0 4 3 | 4 0 4 4 | 4 0 5 4 | 4 0 6 4 | 4 0 7 4 | 4 0 8 4",
    },
    # blocks of 2, rank 1 owns rows 2 to 5
    "CP: what is stored and loaded does not depend on the rank": {
        "slot_mapping_store_swa": "10 11 6 7 8 9", "positions_c.2": "4 6 8", "slot_mapping_store_ca.2": "22 23 12",
        "cu_compressed_seqlens_q.2": "0 3", "load_segments_swa": "1 0 4 0", "load_segments_ca.2": "5 0 4 0 | 3 0 1 4",
        "mirror_cp_index": "2 3 4 5", "state_block_idx": "1",
    },
    "AGREE: mask truncation of a chunk whose last 4 tokens take part": {
        "yoco_mask_swa_index_pivots": "4 0 5 0 | 4 0 5 1 | 4 0 5 2 | 4 0 5 3 | 4 0 5 4",
        "kv_swa_full_index_pivots": "1 3 4 1 | 2 2 4 2 | 3 1 4 3 | 4 0 4 4 | 4 0 5 4", "positions": "5 6 7 8 9",
    },
    "AGREE: compact truncation of a chunk whose last 4 tokens take part": {
        "yoco_consumer_total_q": "4", "yoco_consumer_cu_seqlens_q": "0 4", "yoco_consumer_query_indices": "1 2 3 4",
        "yoco_consumer_positions": "6 7 8 9", "yoco_consumer_slot_mapping_store_swa": "22 23 16 17",
        "yoco_consumer_swa_index_pivots": "4 0 4 1 | 4 0 4 2 | 4 0 4 3 | 4 0 4 4", "yoco_consumer_ks.4": "0 0 0 0",
        "yoco_consumer_ke.4": "1 2 2 2", "kv_swa_full_index_pivots": "1 3 4 1 | 2 2 4 2 | 3 1 4 3 | 4 0 4 4 | 4 0 5 4",
        "slot_mapping_store_swa": "21 22 23 16 17",
    },
    "F-VIS: a rectangle past the chunk, in its history and before the sequence": {
        "yoco_mask_swa_index_pivots": "4 0 13 0 | 4 0 14 0 | 6 2 14 1 | 6 2 14 2 | 9 3 16 1 | 10 2 16 2",
    },
    # q_start 5, history [1, 5); rectangles from 3 and from 5; new rows from 8
    "F-VIS: the higher of valid start and rectangle bounds the keys": {
        "yoco_mask_swa_index_pivots": "3 1 8 1 | 3 1 8 2 | 8 0 10 1 | 8 0 10 2",
        "kv_swa_full_index_pivots": "3 1 8 1 | 3 1 8 2 | 7 1 10 1 | 7 1 10 2",
        "load_segments_swa": "-1 0 3 0 | 1 4 5 3 | -1 0 3 4 | 2 4 5 7",
    },
    "F-VIS: the batch of the clipping case keeps all its rows in mask mode": {
        "yoco_mask_swa_index_pivots": "4 0 24 1 | 4 0 24 2 | 4 0 24 3 | 8 0 28 0 | 8 0 28 1 | 8 0 28 2 | 12 0 31 0 "
         "| 12 0 32 0 | 12 0 32 1 | 16 0 34 0 | 16 0 35 0 | 16 0 36 0 | 21 3 36 1 | 22 2 36 2",
    },
    # data_len - 4 - 5 = 0, 1, 2, 31 (clamped to 2), no row, -7 (clamped to 0)
    "F-CLIP: nothing, a part and all but one row clipped, exactly and by the clamp, and no row at all": {
        "yoco_consumer_cu_seqlens_q": "0 3 5 6 7 7 9", "yoco_consumer_query_indices": "0 1 2 4 5 8 11 12 13",
        "yoco_consumer_positions": "5 6 7 6 7 7 7 5 6",
        "yoco_consumer_slot_mapping_store_swa": "13 14 15 22 23 31 -1 -1 -1", "yoco_consumer_total_q": "9",
        "yoco_consumer_swa_index_pivots": "4 0 24 1 | 4 0 24 2 | 4 0 24 3 | 8 0 27 1 | 8 0 27 2 | 12 0 29 1 | 16 0 "
         "31 0 | 21 3 31 1 | 22 2 31 2",
    },
    # q_start 5 and 0; the rows kept are the last ones, they see and store nothing
    "F-CLIP: one row always stays of a chunk that ends before the rectangle": {
        "yoco_consumer_cu_seqlens_q": "0 1 2", "yoco_consumer_query_indices": "0 4", "yoco_consumer_positions": "5 3",
        "yoco_consumer_slot_mapping_store_swa": "-1 -1", "yoco_consumer_swa_index_pivots": "4 0 9 0 | 8 0 10 0",
    },
    # q_start 4, rectangle [3, 6)
    "F-RECT: rows at and past data_len are stored nowhere": {
        "yoco_consumer_slot_mapping_store_swa": "12 13 -1 -1", "slot_mapping_store_swa": "12 13 14 15",
        "yoco_consumer_swa_index_pivots": "3 1 4 1 | 3 1 4 2 | 3 1 4 3 | 4 0 4 4",
    },
    "F-COMPACT: of a chunk longer than the ring only the end is stored": {
        "yoco_consumer_slot_mapping_store_swa": "-1 14 15 12 13", "yoco_consumer_positions": "1 2 3 4 5",
        "slot_mapping_store_swa": "-1 -1 14 15 12 13",
    },
    "F-COMPACT: key ranges and dense offsets step over every sequence, kept or not": {
        "yoco_consumer_ks.4": "0 0 3 3", "yoco_consumer_ke.4": "2 2 4 5",
        "yoco_consumer_kv_ca_index_offset_len.2": "0 4 | 0 4 | 5 3 | 5 4", "yoco_consumer_query_indices": "1 2 5 6",
        "yoco_consumer_swa_index_pivots": "4 0 12 1 | 4 0 12 2 | 12 0 14 1 | 12 0 14 2",
        "yoco_consumer_cu_seqlens_q": "0 2 2 4",
    },
    "F-COMPACT: the window moves on inside the kept rows": {
        "yoco_consumer_swa_index_pivots": "4 0 4 1 | 4 0 4 2 | 4 0 4 3 | 4 0 4 4 | 4 0 5 4 | 4 0 6 4",
        "yoco_consumer_positions": "2 3 4 5 6 7",
    },
    "F-COMPACT: keeping no token keeps one row that sees and stores nothing": {
        "yoco_consumer_swa_index_pivots": "4 0 5 0", "yoco_consumer_slot_mapping_store_swa": "-1",
        "yoco_consumer_positions": "3", "yoco_consumer_query_indices": "1",
    },
    "F-COMPACT: a placeholder keeps its rows and stores none": {
        "yoco_consumer_query_indices": "2 3 4 5 6 7", "yoco_consumer_slot_mapping_store_swa": "-1x4 20 21",
        "yoco_consumer_cu_seqlens_q": "0 4 6",
    },
    "F-COMPACT: a data_len far beyond int32 is clamped, not written": {
        "yoco_consumer_query_indices": "1", "yoco_consumer_swa_index_pivots": "4 0 5 0",
        "yoco_consumer_slot_mapping_store_swa": "-1",
    },
    "CP: mask truncation under CP is worked out on the full layout first": {
        "mirror_cp_index": "2 3 4 -1", "positions": "7 8 9 0",
        "yoco_mask_swa_index_pivots": "4 0 5 0 | 4 0 5 1 | 4 0 5 2 | 4 0 5 3 | 4 0 5 4",
    },
    # rows 1 to 4 are kept, blocks of 1: rank 1 owns kept rows 1 and 2; its full mirror is 2 3 4 and padding
    "CP: compact truncation under CP is worked out on the full layout first": {
        "mirror_cp_index": "2 3 4 -1", "positions": "7 8 9 0", "yoco_consumer_mirror_cp_index": "1 2",
        "yoco_consumer_positions": "6 7 8 9", "yoco_consumer_cp_mirror_len": "2",
        "yoco_consumer_cp_contrib_pad_len": "3", "yoco_cp_contrib_index": "0 1 2", "yoco_cp_boundary_index": "3 4",
    },
    # seq 0 in blocks of 2 keeps rows 3 to 7, seq 1 in blocks of 1 all of 8 to 11; kept[r] = 1, 2, 6
    "F-CONTRIB: rank 0 of 3 contributes 1 of 9 kept rows": {
        "cp_mirror_len": "6", "mirror_cp_index": "0 1 -1 -1 8 -1",
        "mirror_cp_reverse_index": "0 1 6 7 12 13 14 15 4 10 16 17", "yoco_consumer_cp_mirror_len": "4",
        "yoco_consumer_cp_contrib_pad_len": "6", "yoco_cp_contrib_index": "4 -1x5",
        "yoco_consumer_mirror_cp_index": "0 -1 5 -1", "yoco_cp_boundary_index": "6 -1 0 -1",
        "yoco_consumer_mirror_cp_reverse_index": "0 4 8 9 5 2 6 10 11", "yoco_consumer_mirror_ks.4": "0 0 2 0",
        "yoco_consumer_mirror_ke.4": "1 0 2 0", "yoco_consumer_cu_seqlens_q": "0 5 9",
        "yoco_consumer_query_indices": "3 4 5 6 7 8 9 10 11",
    },
    "F-CONTRIB: rank 1 of 3 contributes 2 of 9 kept rows": {
        "cp_mirror_len": "6", "mirror_cp_index": "2 3 -1 -1 9 -1",
        "mirror_cp_reverse_index": "0 1 6 7 12 13 14 15 4 10 16 17", "yoco_consumer_cp_mirror_len": "4",
        "yoco_consumer_cp_contrib_pad_len": "6", "yoco_cp_contrib_index": "1 4 -1x4",
        "yoco_consumer_mirror_cp_index": "1 4 6 -1", "yoco_cp_boundary_index": "12 15 7 -1",
        "yoco_consumer_mirror_cp_reverse_index": "0 4 8 9 5 2 6 10 11", "yoco_consumer_mirror_ks.4": "0 0 2 0",
        "yoco_consumer_mirror_ke.4": "1 2 2 0", "yoco_consumer_cu_seqlens_q": "0 5 9",
        "yoco_consumer_query_indices": "3 4 5 6 7 8 9 10 11",
    },
    "F-CONTRIB: rank 2 of 3 contributes 6 of 9 kept rows": {
        "cp_mirror_len": "6", "mirror_cp_index": "4 5 6 7 10 11",
        "mirror_cp_reverse_index": "0 1 6 7 12 13 14 15 4 10 16 17", "yoco_consumer_cp_mirror_len": "4",
        "yoco_consumer_cp_contrib_pad_len": "6", "yoco_cp_contrib_index": "0 1 2 3 4 5",
        "yoco_consumer_mirror_cp_index": "2 3 7 8", "yoco_cp_boundary_index": "13 14 16 17",
        "yoco_consumer_mirror_cp_reverse_index": "0 4 8 9 5 2 6 10 11", "yoco_consumer_mirror_ks.4": "0 0 2 2",
        "yoco_consumer_mirror_ke.4": "1 1 2 3", "yoco_consumer_cu_seqlens_q": "0 5 9",
        "yoco_consumer_query_indices": "3 4 5 6 7 8 9 10 11",
    },
    # blocks of 2: row 7 is in block 3, local row 3 of rank 0
    "F-CONTRIB: one kept row of 8, rank 0 of 2 sends it": {
        "yoco_consumer_cp_contrib_pad_len": "1", "yoco_cp_contrib_index": "3", "yoco_consumer_cp_mirror_len": "2",
        "yoco_consumer_mirror_cp_index": "0 -1", "yoco_cp_boundary_index": "0 -1",
        "yoco_consumer_mirror_cp_reverse_index": "0", "yoco_consumer_mirror_ks.4": "0 0",
        "yoco_consumer_mirror_ke.4": "2 0",
    },
    "F-CONTRIB: one kept row of 8, rank 1 of 2 sends nothing": {
        "yoco_consumer_cp_contrib_pad_len": "1", "yoco_cp_contrib_index": "-1", "yoco_consumer_cp_mirror_len": "2",
        "yoco_consumer_mirror_cp_index": "-1 -1", "yoco_cp_boundary_index": "-1 -1",
        "yoco_consumer_mirror_cp_reverse_index": "0", "yoco_consumer_mirror_ks.4": "0 0",
        "yoco_consumer_mirror_ke.4": "0 0",
    },
    "F-MIRRORKS: without a sparse ratio there are no key ranges to mirror": {
        "ks.1": "absent", "ke.4": "absent", "klen.1": "absent", "mirror_cp_index": "1 2", "kv_ca_index_len.4": "1 1",
        "kv_ca_index_offset_len.4": "0 1 | 0 1 | 0 1 | 0 2", "kv_ca_index.4": "0 -1x127 | 0 -1x127",
    },
    "F-CONTRIB: all rows kept and no padding, every rank contributes its whole mirror": {
        "yoco_cp_contrib_index": "0 1 2 3", "yoco_consumer_cp_contrib_pad_len": "4",
        "yoco_cp_boundary_index": "4 5 6 7", "mirror_cp_index": "2 3 4 5", "yoco_consumer_mirror_cp_index": "2 3 4 5",
    },
    # rows 0, none, 1 to 8, of which 2 to 8 are kept; blocks of 1, 0, 2
    "F-CONTRIB: rank 0 of 2, a rank keeps a part of its first block behind a chunk of one row": {
        "cp_mirror_len": "6", "mirror_cp_index": "0 -1 1 2 7 8", "yoco_consumer_cp_contrib_pad_len": "4",
        "yoco_cp_contrib_index": "0 3 4 5", "yoco_consumer_cp_mirror_len": "6",
        "yoco_consumer_mirror_cp_index": "0 -1 1 2 7 -1", "yoco_cp_boundary_index": "0 -1 1 4 3 -1",
        "yoco_consumer_cu_seqlens_q": "0 1 1 8",
    },
    "F-CONTRIB: rank 1 of 2, a rank keeps a part of its first block behind a chunk of one row": {
        "cp_mirror_len": "6", "mirror_cp_index": "-1 -1 3 4 5 6", "yoco_consumer_cp_contrib_pad_len": "4",
        "yoco_cp_contrib_index": "2 3 4 5", "yoco_consumer_cp_mirror_len": "6",
        "yoco_consumer_mirror_cp_index": "-1 -1 3 4 5 6", "yoco_cp_boundary_index": "-1 -1 5 6 7 2",
        "yoco_consumer_cu_seqlens_q": "0 1 1 8",
    },
    "ZERO: mask truncation of a batch without a query has one neutral row of pivots": {
        "yoco_mask_swa_index_pivots": "0 0 0 0", "kv_swa_full_index_pivots": "0 0 0 0", "load_segments_swa": "1 2 6 0",
    },
}
# fmt: on


@pytest.mark.parametrize("title", PINS)
def test_the_guarded_fields_are_those_worked_out_by_hand(title, check_pins):
    check_pins(title, PINS[title])
