"""Plain prompts: the guarded fields, worked out by hand (notation: conftest)."""

from __future__ import annotations

import pytest

# fmt: off
PINS: dict[str, dict[str, str]] = {
    "F-QIDX: rows behind an empty sequence have the number of their own": {"query_indices": "0 0 2"},
    "RING: a prompt longer than its ring stores each of the last B rows at its own position": {
        "slot_mapping_store_swa": "-1 25 26 27 24",
    },
    "F-POS: rows of several chunks stand at seqlen_k - seqlen_q + j": {
        "positions": "5 6 7 0 11 12", "input_ids": "105 106 107 200 311 312", "query_indices": "0 0 0 1 2 2",
    },
    "CHUNK: prefixes 5 and 0 with 3 and 2 queries": {
        "positions": "5 6 7 0 1", "ks.1": "0 0 0 8 8", "ke.1": "6 7 8 9 10", "klen.1": "6 7 8 1 2",
        "total_k_compressed.1": "10", "positions_c.1": "5 6 7 0 1", "slot_mapping_store_ca.1": "13 14 15 20 21",
    },
    "F-IDS: a chunk takes its tokens from the middle of the known ones": {
        "input_ids": "104 105 106 200 201", "positions": "4 5 6 0 1",
    },
    "F-GATE: without forced load balance no row is marked": {"gate_force_random": "F F"},
    "F-MASK: a placeholder between two sequences has the only invalid row": {
        "valid_token_mask": "T T F T T", "query_indices": "0 0 998244353 2 2", "positions": "0 1 2 3 4",
        "input_ids": "100 101 202 303 304",
    },
    "F-QIDX: placeholders at both ends do not shift the indices between them": {
        "query_indices": "998244353 1 1 2 998244353", "valid_token_mask": "F T T T F",
    },
    "F-CU: lengths 3, 0, 2 sum up with the leading 0": {
        "cu_seqlens_q": "0 3 3 5", "cu_seqlens_k": "0 5 9 11", "query_indices": "0 0 0 2 2",
    },
    "F-COUNT: placeholders and sequences without a query count as requests": {
        "num_reqs": "3", "total_q": "3", "is_prompt": "T",
    },
    "ZERO: queries 0 3 0 1 0 give every sequence its one compressed row": {
        "cu_seqlens_q": "0 0 3 3 4 4", "cu_compressed_seqlens_q.4": "0 1 2 3 4 5", "positions_c.4": "0 0 0 0 0",
        "slot_mapping_store_ca.4": "-1 -1 -1 -1 -1", "query_indices": "1 1 1 3", "ks.4": "1 1 1 3", "ke.4": "1 1 1 3",
        "klen.4": "0 0 0 0", "total_k_compressed.4": "5",
        "load_segments_ca.4": "-1 0 1 0 | -1 0 1 1 | 3 0 1 2 | -1 0 1 3 | 6 0 1 4",
    },
    "ZERO: no sequence of the batch has a full group": {
        "ks.4": "0 1 1 2 2 2", "ke.4": "0 1 1 2 2 2", "total_k_compressed.4": "3", "total_k_compressed.8": "3",
        "kv_ca_index_offset_len.8": "0 0 | 1 0 | 1 0 | 2 0 | 2 0 | 2 0", "klen.4": "0 0 0 0 0 0",
        "load_segments_ca.4": "-1 0 1 0 | -1 0 1 1 | -1 0 1 2", "kv_ca_index_len.8": "0 0 0 0 0 0",
        "kv_ca_index.8": "-1x128 | -1x128 | -1x128 | -1x128 | -1x128 | -1x128", "cu_compressed_seqlens_q.8": "0 1 2 3",
    },
    "ZERO: a batch without a query has one neutral row": {
        "total_q": "0", "positions": "0", "input_ids": "0", "gate_force_random": "F", "valid_token_mask": "F",
        "query_indices": "998244353", "ngram_token_ids": "-5 -5", "cu_seqlens_q": "0 0 0", "cu_seqlens_k": "0 5 5",
        "cu_compressed_seqlens_q.2": "0 1 2", "slot_mapping_store_swa": "-1", "state_block_idx": "3 1",
        "positions_c.2": "0 0", "slot_mapping_store_ca.2": "-1 -1", "ks.2": "0", "ke.2": "0", "klen.2": "0",
        "kv_ca_index_offset_len.4": "0 0", "kv_ca_index_len.4": "0", "kv_swa_full_index_pivots": "0 0 0 0",
        "kv_swa_full_index": "-1x4", "kv_ca_index.4": "-1x128", "cp_mirror_len": "0", "total_k_swa": "8",
        "load_segments_ca.4": "6 0 1 0 | -1 0 1 1", "load_segments_swa": "3 1 5 0 | -1 0 4 4",
    },
    "ZERO: a batch without a query under CP and compact truncation has one neutral mirrored row": {
        "cp_mirror_len": "0", "mirror_cp_index": "-1", "mirror_cp_reverse_index": "-1", "positions": "0",
        "positions_cp": "0", "gate_force_random": "F", "gate_force_random_cp": "F", "valid_token_mask": "F",
        "query_indices": "998244353", "ks.4": "0", "ke.4": "0", "klen.4": "0", "kv_swa_full_index": "-1x4",
        "yoco_consumer_total_q": "0", "yoco_consumer_cu_seqlens_q": "0 0 0", "yoco_consumer_query_indices": "998244353",
        "yoco_consumer_positions": "0", "yoco_consumer_slot_mapping_store_swa": "-1", "yoco_consumer_ks.4": "0",
        "yoco_consumer_ke.4": "0", "yoco_consumer_kv_ca_index_offset_len.8": "0 0",
        "yoco_consumer_swa_index_pivots": "0 0 0 0", "yoco_consumer_cp_mirror_len": "0",
        "yoco_consumer_cp_contrib_pad_len": "0", "yoco_consumer_mirror_cp_index": "-1",
        "yoco_consumer_mirror_cp_reverse_index": "-1", "yoco_consumer_mirror_ks.4": "0",
        "yoco_consumer_mirror_ke.4": "0", "yoco_cp_contrib_index": "-1", "yoco_cp_boundary_index": "-1",
    },
    "CMP: a length of 0 completes no group, although its table has a block": {
        "positions_c.4": "0 0", "slot_mapping_store_ca.4": "-1 10", "ke.4": "1 1 1 2",
        "load_segments_ca.4": "-1 0 1 0 | 5 0 1 1",
    },
    "LOOK: the second sequence never sees the tokens of the first": {
        "ngram_token_ids": "11 -7 -7 | 12 11 -7 | 13 12 11 | 21 -7 -7 | 22 21 -7",
    },
    "LOOK: a chunk looks back across its start as the whole prompt does": {
        "0/ngram_token_ids": "70 -7 -7 | 73 70 -7 | 71 73 70 | 75 71 73 | 72 75 71",
        "1/ngram_token_ids": "70 -7 -7 | 73 70 -7", "2/ngram_token_ids": "71 73 70 | 75 71 73 | 72 75 71",
    },
    "F-NGRAM: an image token cuts the row from itself on": {
        "ngram_token_ids": "11 -7 -7 | -7 -7 -7 | 13 -7 -7 | 14 13 -7",
    },
    "F-NGRAM: the image sentinel is compared after the look-up": {
        "ngram_token_ids": "75 -7 -7 | -7 -7 -7 | 70 -7 -7 | 71 70 -7",
    },
    "F-NGRAM: an image sentinel of 0 is a sentinel": {"ngram_token_ids": "5 -1 -1 | -1 -1 -1 | 6 -1 -1"},
    "F-NGRAM: without an image sentinel no value cuts a row": {"ngram_token_ids": "0 -1 -1 | -1 0 -1 | 7 -1 0"},
    "F-NGRAM: a look-back longer than the sequence ends in padding": {"ngram_token_ids": "70 71 -7 -7 -7"},
    "DTYPE: token ids at both ends of int32 beside small ones come through unchanged": {
        "input_ids": "1 2 2147483647 -2147483648 1 2",
    },
    "ALIAS: a batch built again after another one on its buffers is the same": {
        "0/positions": "6 7 8 0 1", "0/ks.4": "0 0 0 2 2", "0/ke.4": "1 2 2 2 2",
        "0/slot_mapping_store_swa": "12 13 14 0 1", "0/klen.4": "1 2 2 0 0", "0/total_k_compressed.4": "3",
        "2/positions": "6 7 8 0 1", "2/ks.4": "0 0 0 2 2", "2/ke.4": "1 2 2 2 2",
        "2/slot_mapping_store_swa": "12 13 14 0 1", "2/klen.4": "1 2 2 0 0", "2/total_k_compressed.4": "3",
        "1/positions": "0 1 2 3 4", "1/ke.4": "0 0 0 1 1", "1/slot_mapping_store_swa": "6 7 8 9 10",
    },
    "F-MASK: a placeholder without a row leaves no invalid row": {
        "valid_token_mask": "T T", "query_indices": "1 1", "slot_mapping_store_ca.4": "-1 6", "ks.4": "1 1",
        "ke.4": "2 2", "slot_mapping_store_swa": "9 10",
    },
    "F-NGRAM: a look-back of one is the row's own token": {"ngram_token_ids": "11 | -7 | 71"},
    "F-NCQ: a chunk inside one group has one row, 0 and -1": {
        "cu_compressed_seqlens_q.4": "0 1", "positions_c.4": "0", "slot_mapping_store_ca.4": "-1",
    },
    "F-NCQ: empty rows and completed groups add up in the prefix sums": {
        "cu_compressed_seqlens_q.4": "0 1 2 5 6", "positions_c.4": "0 4 0 4 8 0",
        "slot_mapping_store_ca.4": "-1 7 14 15 4 -1",
    },
    "F-CPOS: a chunk that ends on a group boundary completes the group, one token short of it does not": {
        "positions_c.4": "4 0 0", "slot_mapping_store_ca.4": "7 -1 12",
    },
    "F-CPOS: a chunk that starts inside a group stores it from its first position": {
        "positions_c.4": "4 0", "slot_mapping_store_ca.4": "7 12",
    },
    "F-CPOS: a placeholder has as many rows as it completes groups, all 0 and -1": {
        "cu_compressed_seqlens_q.4": "0 2 3", "positions_c.4": "0 0 4", "slot_mapping_store_ca.4": "-1 -1 13",
        "slot_mapping_store_swa": "-1x9 16 17 12 13", "ks.4": "0x9 2 2 2 2", "ke.4": "0 0 0 1 1 1 1 2 2 3 3 3 4",
        "load_segments_ca.4": "3 0 2 0 | 6 0 2 2",
    },
    "F-CSLOT: groups on both sides of block boundaries go through a table that is no identity": {
        "slot_mapping_store_ca.4": "18 19 8 9 12", "slot_mapping_store_ca.2": "36 37 38 39 16 17 18 19 24 25",
        "positions_c.4": "0 4 8 12 16", "positions_c.2": "0 2 4 6 8 10 12 14 16 18",
    },
    "F-CSLOT: ratio 1 and a ratio of the whole block share one table": {
        "slot_mapping_store_ca.1": "24 25 26 27 8 9 10 11 20", "positions_c.1": "0 1 2 3 4 5 6 7 8",
        "slot_mapping_store_ca.4": "6 2", "positions_c.4": "0 4",
    },
    "CHUNK: chunks end one before, at and one past a block boundary, and start on one": {
        "positions_c.4": "0 4 4 8", "slot_mapping_store_ca.4": "-1 11 5 8", "cu_compressed_seqlens_q.4": "0 1 2 3 4",
        "load_segments_ca.4": "3 0 1 0 | 5 0 2 1 | 2 0 2 3 | 7 0 2 5 | 4 0 1 7",
    },
    "CHUNK: a prompt in one chunk and in three stores and sees the same": {
        "0/slot_mapping_store_ca.2": "24 25 26 27 12", "1/slot_mapping_store_ca.2": "24 25",
        "2/slot_mapping_store_ca.2": "26", "3/slot_mapping_store_ca.2": "27 12", "0/positions_c.2": "0 2 4 6 8",
        "1/positions_c.2": "0 2", "2/positions_c.2": "4", "3/positions_c.2": "6 8", "0/klen.2": "0 1 1 2 2 3 3 4 4 5 5",
        "1/klen.2": "0 1 1 2 2", "2/klen.2": "3 3", "3/klen.2": "4 4 5 5",
        "0/slot_mapping_store_swa": "-1x5 17 12 13 14 15 16", "1/slot_mapping_store_swa": "12 13 14 15 16",
        "2/slot_mapping_store_swa": "17 12", "3/slot_mapping_store_swa": "13 14 15 16",
    },
    "CHUNK: an empty chunk between two parts of a prompt changes nothing": {
        "0/slot_mapping_store_ca.4": "6", "1/slot_mapping_store_ca.4": "-1", "2/slot_mapping_store_ca.4": "7",
        "1/positions": "0", "1/slot_mapping_store_swa": "-1", "1/ke.4": "0", "2/positions": "5 6 7", "2/ke.4": "1 1 2",
    },
    "CMP: a prompt at positions 5 to 10 sees a group of ratio 4 from its last token on": {
        "ks.4": "0 1 1 1 1 1 1", "ke.4": "0 2 2 3 3 3 3", "klen.4": "0 1 1 2 2 2 2", "positions_c.4": "0 4",
        "slot_mapping_store_ca.4": "-1 15",
    },
    "F-KSTEP: a sequence without a full group takes one row of plan, ranges and dense offsets alike": {
        "load_segments_ca.4": "5 0 2 0 | -1 0 1 2 | 8 0 1 3", "total_k_compressed.4": "4", "ks.4": "0 0 2 2 2 3",
        "ke.4": "2 2 2 2 2 4", "kv_ca_index_offset_len.4": "0 2 | 0 2 | 2 0 | 2 0 | 2 0 | 3 1",
        "kv_ca_index_len.4": "2 2 0 0 0 1",
        "kv_ca_index.4": "0 1 -1x126 | 0 1 -1x126 | -1x128 | -1x128 | -1x128 | 3 -1x127",
    },
    "F-KSTEP: a placeholder and an empty chunk move the bases of those behind them": {
        "ks.2": "0 7 7", "ke.2": "3 10 11", "kv_ca_index_offset_len.4": "0 1 | 3 1 | 3 2", "total_k_compressed.2": "11",
        "load_segments_ca.2": "5 0 3 0 | 4 0 4 3 | 7 0 4 7", "load_segments_ca.4": "5 0 1 0 | 4 0 2 1 | 7 0 2 3",
    },
    "F-CAPLAN: one segment a physical block, the last one short, none empty": {
        "load_segments_ca.4": "7 0 2 0 | 1 0 2 2 | 4 0 1 4 | 9 0 2 5 | 3 0 2 7 | 6 0 1 9 | 2 0 2 10 | 5 0 1 12",
        "total_k_compressed.4": "13", "ks.4": "0 5 9 10", "ke.4": "5 9 10 13",
    },
    "F-CAPLAN: two ratios load different parts of the same blocks": {
        "load_segments_ca.2": "4 0 4 0 | 7 0 2 4 | 2 0 4 6", "load_segments_ca.8": "4 0 1 0 | 2 0 1 1", "ks.2": "0 0 6",
        "ke.2": "6 6 10", "ks.8": "0 0 1", "ke.8": "1 1 2",
    },
    "F-CAOFF: the width of the expansion is the longest context in groups, rounded up to 128": {
        "kv_ca_index.4": "0 1 -1x254 | 2 3 -1x254", "kv_ca_index_offset_len.4": "0 2 | 2 2",
    },
    "CMP: ratios listed twice, unsorted and in both lists are one bucket each": {
        "slot_mapping_store_ca.1": "47 24", "slot_mapping_store_ca.2": "23", "slot_mapping_store_ca.4": "11",
        "ke.2": "4 4", "ke.4": "2 2", "kv_ca_index_offset_len.1": "0 8 | 0 9", "kv_ca_index_offset_len.4": "0 2 | 0 2",
    },
    "P-LEN: a prompt of exactly the longest context is valid": {
        "positions": "14 15", "slot_mapping_store_ca.1": "54 55", "kv_ca_index_offset_len.1": "0 15 | 0 16",
    },
    "F-BLOCKS: blocks of one token": {
        "slot_mapping_store_ca.1": "4 6 2", "load_segments_ca.1": "9 0 1 0 | 4 0 1 1 | 6 0 1 2 | 2 0 1 3",
        "ke.1": "2 3 4",
    },
    "WIN: a window of 4 at positions 0 to 9 of one prompt": {
        "kv_swa_full_index_pivots": "4 0 4 1 | 4 0 4 2 | 4 0 4 3 | 4 0 4 4 | 4 0 5 4 | 4 0 6 4 | 4 0 7 4 | 4 0 8 4 "
         "| 4 0 9 4 | 4 0 10 4",
        "kv_swa_full_index": "4 -1 -1 -1 | 4 5 -1 -1 | 4 5 6 -1 | 4 5 6 7 | 5 6 7 8 | 6 7 8 9 | 7 8 9 10 | 8 9 10 "
         "11 | 9 10 11 12 | 10 11 12 13",
    },
    "WIN: a window of 1 sees the row itself": {
        "kv_swa_full_index_pivots": "1 0 1 1 | 1 0 2 1", "kv_swa_full_index": "1 | 2", "load_segments_swa": "5 0 1 0",
        "slot_mapping_store_swa": "-1 5",
    },
    "F-PIVOT: a chunk sees the end of the history and the beginning of itself": {
        "kv_swa_full_index_pivots": "1 3 8 1 | 2 2 8 2 | 3 1 8 3 | 6 2 11 1 | 6 2 11 2",
        "kv_swa_full_index": "1 2 3 8 | 2 3 8 9 | 3 8 9 10 | 6 7 11 -1 | 6 7 11 12",
        "load_segments_swa": "1 1 5 0 | -1 0 2 4 | 2 0 2 6", "total_k_swa": "8",
    },
    # W = 4, four sequences: new rows from 16 on; q_start 6 and 4
    "F-PIVOT: empty chunks keep their history rows and move no new row": {
        "kv_swa_full_index_pivots": "5 3 16 1 | 13 3 17 1 | 14 2 17 2", "total_k_swa": "16",
        "load_segments_swa": "3 2 6 0 | 1 2 6 4 | -1 0 4 8 | 0 0 4 12", "state_block_idx": "3 1 2 0",
    },
    "F-PIVOT: a valid start before, inside, at the end of the history, in the chunk and at its end": {
        "load_segments_swa": "1 0 4 0 | -1 0 2 4 | 2 2 4 6 | -1 0 4 8 | -1 0 4 12 | -1 0 4 16",
        "kv_swa_full_index_pivots": "1 3 20 1 | 2 2 20 2 | 3 1 20 3 | 6 2 23 1 | 6 2 23 2 | 7 1 23 3 | 12 0 26 1 | "
         "12 0 26 2 | 12 0 26 3 | 16 0 30 0 | 16 0 30 1 | 16 0 30 2 | 20 0 33 0 | 20 0 34 0 | 20 0 35 0",
        "kv_swa_full_index": "1 2 3 20 | 2 3 20 21 | 3 20 21 22 | 6 7 23 -1 | 6 7 23 24 | 7 23 24 25 | 26 -1x3 | "
         "26 27 -1x2 | 26 27 28 -1 | -1x4 | 30 -1x3 | 30 31 -1x2 | -1x4 | -1x4 | -1x4",
    },
    "F-PIVOT: a valid start past the chunk leaves its rows without a key": {
        "kv_swa_full_index_pivots": "4 0 13 0 | 4 0 14 0 | 4 0 15 0 | 8 0 16 0 | 8 0 17 0 | 9 3 17 1",
        "kv_swa_full_index": "-1x4 | -1x4 | -1x4 | -1x4 | -1x4 | 9 10 11 17",
    },
    "F-PIVOT: a valid start far beyond int32 is clamped, not written": {
        "kv_swa_full_index_pivots": "4 0 5 0 | 4 0 6 0", "load_segments_swa": "-1 0 4 0",
    },
    "F-SWAPLAN: a history that ends before, at and past the end of the ring": {
        "load_segments_swa": "6 1 5 0 | 3 2 6 4 | 9 3 6 8 | 9 0 1 11 | 5 4 6 12 | 5 0 2 14 | 2 0 4 16",
        "total_k_swa": "20",
    },
    "F-SWAPLAN: a history shorter than the window is filled up with zeros in front": {
        "load_segments_swa": "-1 0 4 0 | -1 0 3 4 | 2 0 1 7 | -1 0 1 8 | 3 0 3 9 | 0 0 4 12", "total_k_swa": "16",
    },
    "F-SWAPLAN: a ring of exactly the window is loaded in one turn": {
        "load_segments_swa": "6 2 4 0 | 6 0 2 2 | 3 0 4 4",
    },
    # history [4, 8) in a ring of 6: cells 4 5 0 1
    "F-SWAPLAN: the trusted rest of a history wraps behind its padding": {
        "load_segments_swa": "-1 0 1 0 | 6 5 6 1 | 6 0 2 2 | -1 0 2 4 | 3 0 2 6",
    },
    "F-RING: a chunk of the ring's length stores every row, a longer one only its end": {
        "slot_mapping_store_swa": "10 11 8 9 -1 7 4 5 6 14 15 12", "state_block_idx": "2 1 3",
    },
    "SENT: a placeholder's rows among real ones are stored nowhere": {
        "slot_mapping_store_swa": "8 9 -1 -1 -1 19", "slot_mapping_store_ca.4": "10 -1 15", "positions_c.4": "0 0 4",
        "state_block_idx": "1 2 3", "load_segments_swa": "-1 0 2 0 | 1 0 2 2 | 2 1 5 4 | 3 3 6 8 | 3 0 1 11",
    },
    "STALE: prompts of 9, 2, 0 and 5 rows on one buffer set": {
        "0/slot_mapping_store_ca.4": "8 9", "1/slot_mapping_store_ca.4": "-1", "1/slot_mapping_store_swa": "12 13",
        "1/kv_swa_full_index": "4 -1 -1 -1 | 4 5 -1 -1", "2/positions": "0", "2/slot_mapping_store_swa": "-1",
        "2/kv_swa_full_index_pivots": "0 0 0 0", "2/kv_swa_full_index": "-1x4", "2/query_indices": "998244353",
        "2/ke.4": "0", "3/slot_mapping_store_ca.4": "12", "3/ke.4": "0 0 0 1 1",
        "3/slot_mapping_store_swa": "6 7 8 9 10",
    },
    "CHUNK: four rows across a block of 128 with ratios 1, 4 and 128 and a window of 128": {
        "positions": "255 256 257 258", "slot_mapping_store_ca.1": "511 1408 1409 1410", "positions_c.4": "252",
        "slot_mapping_store_ca.4": "127", "positions_c.128": "128", "slot_mapping_store_ca.128": "3",
        "ke.4": "64 64 64 64", "ke.128": "2 2 2 2", "kv_ca_index_offset_len.1": "0 256 | 0 257 | 0 258 | 0 259",
        "kv_swa_full_index_pivots": "1 127 128 1 | 2 126 128 2 | 3 125 128 3 | 4 124 128 4",
        "load_segments_swa": "2 127 144 0 | 2 0 111 17", "slot_mapping_store_swa": "399 400 401 402",
        "load_segments_ca.1": "7 0 128 0 | 3 0 128 128 | 11 0 3 256", "load_segments_ca.4": "7 0 32 0 | 3 0 32 32",
        "load_segments_ca.128": "7 0 1 0 | 3 0 1 1",
    },
    "P-NGRAM: without n-grams neither history nor look-up is needed": {"positions": "3 4"},
    "F-LIMIT: a prompt stores into the last slots of int32": {
        "slot_mapping_store_ca.1": "2147483644 2147483645 2147483646 2147483647",
        "load_segments_ca.1": "536870911 0 4 0",
    },
    "F-LIMIT: slots of blocks that a step does not store into do not count": {
        "slot_mapping_store_ca.4": "-1 12 -1",
        "load_segments_ca.4": "1073741829 0 1 0 | 1073741831 0 2 1 | 6 0 1 3 | 1073741833 0 1 4",
    },
    "F-LIMIT: a chunk that turns in the ring that ends with int32": {
        "slot_mapping_store_swa": "2147483647 2147483644", "load_segments_swa": "-1 0 1 0 | 536870911 0 3 1",
    },
    # 357913941 * 6 + 1 = 2^31 - 1
    "F-LIMIT: the last slot of int32 lies inside a block of which only the front is stored": {
        "slot_mapping_store_ca.1": "2147483646 2147483647 30 31",
    },
    "F-LIMIT: a prompt loads from the last state block of int32, of which no cell could be stored": {
        "state_block_idx": "2147483647 2147483647", "slot_mapping_store_swa": "-1 -1",
        "load_segments_swa": "2147483647 1 5 0 | 2147483647 1 5 4",
    },
    "F-LIMIT: a window of 2^31 - 1 with one row fits": {
        "total_k_swa": "2147483647", "kv_swa_full_index_pivots": "2147483647 0 2147483647 1",
        "load_segments_swa": "-1 0 2147483647 0", "slot_mapping_store_swa": "0",
    },
    "F-LIMIT: a run of new rows that ends with int32 fits": {
        "kv_swa_full_index_pivots": "2147483646 0 2147483646 1 | 2147483646 0 2147483646 2",
    },
}
# fmt: on


@pytest.mark.parametrize("title", PINS)
def test_the_guarded_fields_are_those_worked_out_by_hand(title, check_pins):
    check_pins(title, PINS[title])
