"""Eager and ZOS decode: the guarded fields, worked out by hand (notation: conftest).

A title with "{eager|ZOS}" is that of two cases, the same batches on both paths, which share these pins.
"""

from __future__ import annotations

import pytest

# fmt: off
PINS: dict[str, dict[str, str]] = {
    # position 4 behind keys 0 to 3 of ring 24 to 27: its own cell is 24, that of key 0
    "WIN: a decode row behind W cached keys reads the newest of them, not the one that it overwrites": {
        "kv_swa_index": "25 26 27 24", "kv_swa_index_offset_len": "25 4", "slot_mapping_store_swa": "24",
    },
    "F-IDS: decode takes the last known token and then the drafts": {
        "input_ids": "105 191 192 203", "positions": "5 6 7 3", "query_indices": "0 0 0 1",
    },
    "F-GATE: forced load balance marks every row, a placeholder's too": {
        "gate_force_random": "T T T", "valid_token_mask": "T T F",
    },
    "CU: eager decode sums lengths 3, 1, 2 with the leading 0": {"cu_seqlens_q": "0 3 4 6", "cu_seqlens_k": "0 5 9 15"},
    "CU: ZOS decode sums lengths 3, 1, 2 without the leading 0": {"cu_seqlens_q": "3 4 6"},
    "F-COUNT: drafts count as rows": {"num_reqs": "2", "total_q": "5", "is_prompt": "F"},
    "F-NGRAM: the compressed history ends and the look-up begins at t = L": {
        "ngram_token_ids": "73 71 44 | 56 55 54 | 75 74 73 | 62 61 -7",
    },
    "LOOK: drafts are looked up, and looked back over by the drafts after them": {
        "ngram_token_ids": "74 32 31 | 70 74 32 | 75 70 74",
    },
    # ring: 65536 * 6 + 7 % 6 and + 8 % 6; group 1 of block 65537 is complete at position 7
    "DTYPE: block ids, drafts and n-grams beyond 16 and 24 bits come through unchanged": {
        "input_ids": "8 16777217 65536", "block_tables": "65537 | 65537 | _", "state_block_idx": "65536 65536 1",
        "ngram_token_ids": "16777217 7 | 2147483647 16777217 | 2147483647 -2147483648",
        "slot_mapping_store_swa": "393217 393218 6", "slot_mapping_store_ca.4": "131075 -1 -1",
    },
    "ALIAS: building a batch twice counts nothing twice": {
        "0/context_lens": "7 8 9 4", "0/klen.4": "1 2 2 1", "0/total_q": "4", "0/cu_seqlens_q": "0 3 4",
        "0/slot_mapping_store_ca.4": "-1 9 -1 10", "1/context_lens": "7 8 9 4", "1/klen.4": "1 2 2 1", "1/total_q": "4",
        "1/cu_seqlens_q": "0 3 4", "1/slot_mapping_store_ca.4": "-1 9 -1 10",
    },
    "F-MASK: a placeholder with drafts has no valid row and stores none": {
        "valid_token_mask": "F F F T", "query_indices": "998244353x3 1", "slot_mapping_store_swa": "-1 -1 -1 13",
        "slot_mapping_store_ca.4": "-1 -1 -1 13", "positions_c.4": "0 0 0 4", "positions": "1 2 3 7",
        "input_ids": "101 191 192 207", "klen.4": "0 0 1 2",
    },
    "F-NGRAM: an image token just beyond the look-back cuts nothing": {"ngram_token_ids": "15 14"},
    "F-NGRAM: token 0 is in a look-up table of one entry": {"ngram_token_ids": "70 -7"},
    "CMP: {eager|ZOS} decode at positions 5 to 10 emits a group of ratio 4 only at 7": {
        "positions": "5 6 7 8 9 10", "positions_c.4": "0 0 4 0 0 0", "slot_mapping_store_ca.4": "-1 -1 15 -1 -1 -1",
        "klen.4": "1 1 2 2 2 2",
    },
    "CMP: ratio 128 at positions 126 to 128 emits at 127": {
        "klen.128": "0 1 1", "positions_c.128": "0 0 0", "slot_mapping_store_ca.128": "-1 9 -1",
    },
    "F-CDEC: with ratio 1 every row emits its own token": {
        "positions_c.1": "3 4 5 0", "slot_mapping_store_ca.1": "23 8 9 28", "klen.1": "4 5 6 1",
    },
    "F-CDEC: one draft run completes a group of each of two ratios at different rows": {
        "positions_c.2": "8 0 10", "slot_mapping_store_ca.2": "36 -1 37", "positions_c.4": "0 0 8",
        "slot_mapping_store_ca.4": "-1 -1 18",
    },
    "F-CDEC: a placeholder that completes a group stores 0 and -1": {
        "positions_c.4": "0 0", "slot_mapping_store_ca.4": "-1 12", "klen.4": "1 1", "context_lens": "4 4",
        "slot_mapping_store_swa": "-1 15",
    },
    # block * 16 + pos % 16 at positions 0, 15, 16, 95, 99
    "BT: lengths 1, 16, 17, 96, 100 at block 16 take 1, 1, 2, 6, 7 blocks": {
        "max_num_blocks": "7",
        "block_tables": "50 _x6 | 51 _x6 | 52 53 _x5 | 54 58 61 55 57 60 _ | 62 59 56 63 65 64 66",
        "slot_mapping_store_ca.1": "800 831 848 975 1059", "klen.1": "1 16 17 96 100",
    },
    "BT: the last slot of a row is the cell that its dense expansion ends with": {
        "slot_mapping_store_ca.1": "36 27 28", "kv_ca_index_offset_len.1": "0 1 | 8 4 | 16 5", "max_num_blocks": "2",
        "kv_ca_index.1": "36 -1x127 | 24 25 26 27 -1x124 | 12 13 14 15 28 -1x123", "kv_ca_index_len.1": "1 4 5",
    },
    "F-BLOCKS: tokens of an incomplete group need no block": {
        "max_num_blocks": "2", "block_tables": "_ _ | 7 _ | 5 _ | 3 8",
    },
    "F-BLOCKS: a batch whose sequences need no block has one column that is not defined": {
        "max_num_blocks": "1", "block_tables": "_ | _ | _",
    },
    # m = 2, 4 groups a block: 5 groups take 2 blocks, 4 groups take 1
    "F-BLOCKS: the smallest ratio of dense and sparse layers counts the blocks": {
        "max_num_blocks": "2", "block_tables": "6 2 | 7 _", "klen.4": "2 2", "klen.8": "1 1",
        "kv_ca_index_offset_len.2": "0 5 | 8 4", "kv_ca_index_offset_len.4": "0 2 | 4 2",
    },
    "F-BLOCKS: every draft row has its sequence's table, without the blocks beyond the count": {
        "max_num_blocks": "2", "block_tables": "6 2 | 6 2 | 6 2 | 5 _",
    },
    "F-CAOFF: decode expands through the row's own part of the flattened tables": {
        "max_num_blocks": "2", "kv_ca_index_offset_len.2": "0 2 | 4 3 | 8 4",
        "kv_ca_index.2": "14 15 -1x126 | 14 15 6 -1x125 | 10 11 18 19 -1x124",
    },
    "F-BLOCKS: {eager|ZOS} tables wider than the batch needs widen the dense offsets": {
        "max_num_blocks": "4", "block_tables": "7 3 _ _ | 7 3 _ _ | 5 9 _ _",
        "kv_ca_index_offset_len.2": "0 2 | 8 3 | 16 4",
        "kv_ca_index.2": "14 15 -1x126 | 14 15 6 -1x125 | 10 11 18 19 -1x124",
    },
    "F-CAOFF: two dense ratios step through one table in their own block widths": {
        "kv_ca_index_offset_len.1": "0 6 | 12 9", "kv_ca_index_offset_len.4": "0 1 | 3 2",
        "kv_ca_index.1": "28 29 30 31 12 13 -1x122 | 8 9 10 11 32 33 34 35 20 -1x119",
        "kv_ca_index.4": "7 -1x127 | 2 8 -1x126",
    },
    "F-CAOFF: a placeholder's offset and keys are those of an ordinary sequence": {
        "kv_ca_index_offset_len.4": "0 2 | 2 2 | 4 1", "kv_ca_index.4": "6 7 -1x126 | 12 13 -1x126 | 10 -1x127",
        "slot_mapping_store_ca.4": "-1 -1 10",
    },
    "F-CTXLEN: each draft has one token more of context": {"context_lens": "4 5 6 1 1 2", "klen.4": "1 1 1 0 0 0"},
    "F-KLEN: a row before the first group sees no key, not one": {"klen.2": "0 1 3 4", "klen.8": "0 0 0 1"},
    "SPEC: drafts may reach the longest context and not cross it": {
        "0/positions": "9 10 11", "0/context_lens": "10 11 12", "0/slot_mapping_store_ca.4": "-1 -1 12",
        "1/refused": "P-LEN 0 seqlen_k",
    },
    "SPEC: {eager|ZOS} decode after 0, 1 and 2 accepted drafts, then without a draft": {
        "0/positions": "5 6 7 4", "1/positions": "6 7 8 4", "2/positions": "8 9 10 4", "3/positions": "11 4",
        "0/query_indices": "0 0 0 1", "3/query_indices": "0 1", "3/total_q": "2", "2/total_q": "4",
        "0/slot_mapping_store_ca.4": "-1 -1 15 -1", "1/slot_mapping_store_ca.4": "-1 15 -1 -1",
        "2/slot_mapping_store_ca.4": "-1 -1 -1 -1", "3/slot_mapping_store_ca.4": "8 -1",
        "0/slot_mapping_store_swa": "17 12 13 10", "2/slot_mapping_store_swa": "14 15 16 10",
        "3/slot_mapping_store_swa": "17 10", "3/context_lens": "12 5", "3/klen.4": "3 1", "3/state_block_idx": "2 1",
    },
    "SPEC: eager decode after 0, 1 and 2 accepted drafts, then without a draft": {
        "0/cu_seqlens_q": "0 3 4", "3/cu_seqlens_q": "0 1 2",
    },
    "SPEC: ZOS decode after 0, 1 and 2 accepted drafts, then without a draft": {
        "0/cu_seqlens_q": "3 4", "3/cu_seqlens_q": "1 2",
    },
    "SPEC: drafts that end one token below the longest context": {
        "positions": "13 14", "context_lens": "14 15", "klen.4": "3 3",
    },
    "F-CAOFF: a context of 128 tokens fills all 128 columns": {
        "kv_ca_index.1": "320..383 192..255 | 128..191 448..510 -1", "kv_ca_index_len.1": "128 127",
    },
    "F-CAOFF: a longest context below the ratio still has 128 columns": {
        "kv_ca_index.4": "-1x128 | -1x128", "kv_ca_index_offset_len.4": "0 0 | 2 0",
    },
    "WIN: a window of 4 in decode at positions 0, 2, 3, 4, 9": {
        "kv_swa_index_offset_len": "40 1 | 0 3 | 30 4 | 11 4 | 26 4",
        "kv_swa_index": "40 -1 -1 -1 | 0 1 2 -1 | 30 31 32 33 | 11 12 13 14 | 26 27 28 29",
    },
    "WIN: a window of 1 in a ring of 1 reads the cell that was just written": {
        "kv_swa_index_offset_len": "5 1 | 2 1", "slot_mapping_store_swa": "5 2", "kv_swa_index": "5 | 2",
    },
    "RING: a ring of 10 with 2 drafts at positions 7 to 11": {
        "0/slot_mapping_store_swa": "27 28 29", "1/slot_mapping_store_swa": "29 20 21",
        "0/kv_swa_index_offset_len": "20 8 | 21 8 | 22 8", "1/kv_swa_index_offset_len": "22 8 | 23 8 | 24 8",
        "1/kv_swa_index": "22 23 24 25 26 27 28 29 | 23 24 25 26 27 28 29 20 | 24 25 26 27 28 29 20 21",
    },
    "RING: a ring without room for drafts wraps at the window": {
        "slot_mapping_store_swa": "15 8 9",
        "kv_swa_index": "8 9 10 11 12 13 14 15 | 9 10 11 12 13 14 15 8 | 10 11 12 13 14 15 8 9",
    },
    "F-RING: a draft run longer than the ring stores only its end": {
        "slot_mapping_store_swa": "-1 -1 9 10 11 5", "state_block_idx": "3 3 3 3 3 1",
        "kv_swa_index_offset_len": "9 2 | 10 2 | 11 2 | 9 2 | 10 2 | 4 2",
    },
    # ring of 6: positions 4 to 7 are cells 4 5 0 1, 2 to 5 are 2 3 4 5, 3 to 6 are 3 4 5 0
    "F-SWADEC: a window wraps at the end of the ring and stays in its state block": {
        "kv_swa_index_offset_len": "16 4 | 2 4 | 9 4", "kv_swa_index": "16 17 12 13 | 2 3 4 5 | 9 10 11 6",
    },
    "F-SWADEC: decode reads the ring whatever the valid start is": {"kv_swa_index_offset_len": "16 4 | 6 3"},
    "SENT: 2 real and 2 padding rows change exactly 2 cells of 8 blocks of 4": {
        "slot_mapping_store_ca.1": "9 -1 31 -1", "slot_mapping_store_swa": "5 -1 15 -1", "positions_c.1": "5 0 3 0",
        "valid_token_mask": "T F T F", "query_indices": "0 998244353 2 998244353", "context_lens": "6 1 4 1",
        "kv_swa_index_offset_len": "6 4 | 0 1 | 12 4 | 0 1",
    },
    "STALE: {eager|ZOS} decode of 4, 2, 4, 0, 1, 3 sequences padded to 4 on one buffer set": {
        "0/slot_mapping_store_swa": "7 11 15 19", "0/slot_mapping_store_ca.2": "7 11 13 15",
        "1/slot_mapping_store_swa": "5 9 -1 -1", "1/slot_mapping_store_ca.2": "16 18 -1 -1",
        "1/positions_c.2": "4 4 0 0", "1/valid_token_mask": "T T F F", "1/klen.2": "3 3 0 0",
        "2/slot_mapping_store_swa": "7 11 15 19", "2/slot_mapping_store_ca.2": "17 19 21 23",
        "3/slot_mapping_store_swa": "-1 -1 -1 -1", "3/slot_mapping_store_ca.2": "-1 -1 -1 -1",
        "3/valid_token_mask": "F F F F", "3/query_indices": "998244353x4", "3/context_lens": "1 1 1 1",
        "4/slot_mapping_store_swa": "16 -1 -1 -1", "4/slot_mapping_store_ca.2": "-1 -1 -1 -1",
        "4/query_indices": "0 998244353x3", "5/slot_mapping_store_swa": "5 13 17 -1",
        "5/slot_mapping_store_ca.2": "24 26 28 -1", "5/context_lens": "10 10 10 1", "5/state_block_idx": "1 3 4 0",
    },
    "STALE: a shorter table after a longer one does not expand the old blocks": {
        "0/kv_ca_index.2": "10 11 14 15 18 19 -1x122", "1/kv_ca_index.2": "12 13 -1x126", "2/kv_ca_index.2": "-1x128",
        "3/kv_ca_index.2": "16 17 6 7 -1x124", "0/max_num_blocks": "3", "2/max_num_blocks": "1",
        "2/kv_ca_index_len.2": "0",
    },
    "AGREE: {eager|ZOS} decode behind 5 tokens with 1 to 13 rows a sequence": {
        "total_q": "91",
        "klen.4": "1 1 1 1 1 2 1 1 2 2 1 1 2 2 2 1 1 2 2 2 2 1 1 2 2 2 2 3 1 1 2 2 2 2 3 3 1 1 2 2 2 2 3 3 3 1 1 2 "
         "2 2 2 3 3 3 3 1 1 2 2 2 2 3 3 3 3 4 1 1 2 2 2 2 3 3 3 3 4 4 1 1 2 2 2 2 3 3 3 3 4 4 4",
    },
    "AGREE: {eager|ZOS} decode of drafts, n-grams, a placeholder, dense and sparse ratios in one batch": {
        "positions": "6 7 8 1 14 15 0", "input_ids": "106 191 192 201 314 391 400",
        "ngram_token_ids": "17 16 -7 | 71 17 16 | 72 71 17 | 22 21 -7 | 70 44 43 | 73 70 44 | 73 -7 -7",
        "slot_mapping_store_ca.2": "-1 19 -1 -1 -1 31 -1", "slot_mapping_store_ca.4": "-1 9 -1 -1 -1 15 -1",
        "slot_mapping_store_ca.8": "-1 4 -1 -1 -1 7 -1", "klen.4": "1 2 2 0 3 4 0", "klen.8": "0 1 1 0 1 2 0",
        "kv_ca_index_offset_len.2": "0 3 | 8 4 | 16 4 | 24 1 | 32 7 | 40 8 | 48 0",
        "slot_mapping_store_swa": "12 13 14 -1 32 33 6",
        "kv_swa_index_offset_len": "15 4 | 16 4 | 17 4 | 0 2 | 35 4 | 30 4 | 6 1",
        "query_indices": "0 0 0 998244353 2 2 3", "max_num_blocks": "2",
    },
    "F-GATHER: new sequences take their rows from the fresh ids": {"input_ids": "11 12 13", "positions": "3 4 2"},
    "F-GATHER: continued sequences take the sampled token and then the predicted drafts": {"input_ids": "50 51 52 60"},
    "F-GATHER: permuted places with a new sequence between them": {"input_ids": "70 71 13 14 50 51 52"},
    "F-GATHER: fewer drafts than were predicted, and two sequences from one place": {
        "input_ids": "60 60 61 62", "cu_seqlens_q": "1 4",
    },
    "F-GATHER: steps of different draft counts on one buffer set": {
        "0/input_ids": "103 191 202", "1/input_ids": "50 60 61 62", "2/input_ids": "80 81", "1/cu_seqlens_q": "1 4",
        "2/cu_seqlens_q": "2", "2/query_indices": "0 0",
    },
    "F-GATHER: a placeholder's row is gathered like any other": {
        "input_ids": "11 50 51", "query_indices": "998244353 1 1",
    },
    "F-GATHER: any negative place means a new sequence": {"input_ids": "11 12 60"},
    # sequence 0: 10 keys less 1 row left out less 2 rejected leave rows at 5 and 6; its second block is not needed
    "F-REMAP: rejected drafts move a sequence back, by its place in the last step": {
        "cu_seqlens_q": "2 3 4", "total_q": "6", "positions": "5 6 3 2 0 0", "context_lens": "6 7 4 3 0 0",
        "input_ids": "80 81 4 70 0 0", "query_indices": "0 0 1 2 998244353x2", "valid_token_mask": "T T T T F F",
        "slot_mapping_store_swa": "11 6 15 20 -1 -1", "slot_mapping_store_ca.2": "82 -1 121 -1 -1 -1",
        "slot_mapping_store_ca.4": "-1 -1 60 -1 -1 -1", "klen.4": "1 1 1 0 0 0", "max_num_blocks": "2",
        "kv_ca_index_offset_len.2": "0 3 | 8 3 | 16 2 | 24 1 | 0 0 | 0 0",
        "block_tables": "20 _ | 20 _ | 30 _ | 40 _ | _ _ | _ _",
        "kv_swa_index": "8 9 10 11 | 9 10 11 6 | 12 13 14 15 | 18 19 20 -1 | -1 -1 -1 -1 | -1 -1 -1 -1",
    },
    "F-VARLEN: fresh tokens and n-grams are read where the host laid them out": {
        "positions": "4 2 3 0 0", "input_ids": "11 14 15 0 0", "cu_seqlens_q": "1 3",
        "ngram_token_ids": "44 43 | 62 61 | 63 62 | -7 -7 | -7 -7",
    },
    "F-VARLEN: n-grams stay those of the extracted positions when drafts were rejected": {
        "positions": "3 4", "context_lens": "4 5", "input_ids": "50 51", "ngram_token_ids": "45 44 | 46 45",
    },
    "F-TAIL: rows past the shorter sum store nothing after a fuller step": {
        "0/slot_mapping_store_swa": "9 10 11 15", "1/slot_mapping_store_swa": "11 16 -1 -1", "1/positions": "5 4 0 0",
        "1/cu_seqlens_q": "1 2", "1/state_block_idx": "1 2 0 0", "1/gate_force_random": "T T F F",
        "1/input_ids": "50 60 0 0", "1/context_lens": "6 5 0 0",
    },
    "F-REMAP: rejected drafts bring a sequence back to its first token, a placeholder beside it": {
        "positions": "0 2 0", "context_lens": "1 3 0", "input_ids": "60 50 0", "slot_mapping_store_swa": "6 -1 -1",
        "klen.4": "0 0 0", "kv_swa_index": "6 -1 -1 -1 | 12 13 14 -1 | -1 -1 -1 -1", "valid_token_mask": "T F F",
    },
    "F-VARLEN: every draft accepted and every row kept is the step of fixed length": {
        "positions": "5 6 7 3 4", "context_lens": "6 7 8 4 5", "input_ids": "60 61 62 50 51", "cu_seqlens_q": "3 5",
        "klen.4": "1 1 2 1 1", "slot_mapping_store_swa": "11 6 7 15 16",
    },
    "CP: {eager|ZOS} decode is the same on a rank of a context parallel group": {
        "positions": "3 4 2", "klen.4": "1 1 0", "query_indices": "0 0 1", "valid_token_mask": "T T T",
    },
    "AGREE: {eager|ZOS} decode across a block of 128 with ratios 1, 4 and 128 and a window of 128": {
        "slot_mapping_store_ca.1": "511 1408 1409 766", "slot_mapping_store_ca.4": "127 -1 -1 -1",
        "slot_mapping_store_ca.128": "3 -1 -1 -1", "klen.4": "64 64 64 31", "klen.128": "2 2 2 0",
        "kv_swa_index_offset_len": "416 128 | 417 128 | 418 128 | 144 127",
        "kv_ca_index_offset_len.1": "0 256 | 384 257 | 768 258 | 1152 127", "max_num_blocks": "3",
        "block_tables": "7 3 11 | 7 3 11 | 7 3 11 | 5 _ _",
    },
    "P-OUT: a table buffer of exactly the blocks that are needed is enough": {
        "max_num_blocks": "3", "block_tables": "3 _ _ | 5 6 7",
    },
    "F-LIMIT: sparse decode may hold blocks whose slots leave int32 as long as it does not store there": {
        "block_tables": "2000000000 3", "slot_mapping_store_ca.1": "12",
    },
    # 357913941 * 6 + 1 = 2^31 - 1; positions 1 and 7 are cell 1
    "F-LIMIT: a ring that ends in the last cell of int32": {
        "slot_mapping_store_swa": "2147483647 2147483647", "kv_swa_index_offset_len": "2147483646 2 | 2147483646 2",
        "kv_swa_index": "2147483646 2147483647 | 2147483646 2147483647",
    },
    "F-LIMIT: the product of the dense offsets is exactly 2^31 - 1": {
        "kv_ca_index_offset_len.1": "0 3", "kv_ca_index.1": "0 1 2 -1x125",
    },
    "F-LIMIT: the smallest dense ratio decides the product, sparse ratios do not count": {
        "kv_ca_index_offset_len.4": "0 1 | 268435456 2 | 536870912 2", "slot_mapping_store_ca.1": "6 7 8",
    },
}
# fmt: on
BOTH = "{eager|ZOS}"


@pytest.mark.parametrize("title", PINS)
def test_the_guarded_fields_are_those_worked_out_by_hand(title, check_pins):
    for path in ("eager", "ZOS") if BOTH in title else ("",):
        check_pins(title.replace(BOTH, path), PINS[title])
