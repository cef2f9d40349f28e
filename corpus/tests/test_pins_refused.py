"""Refusals and the batches right beside them: the guarded fields, worked out by hand (notation: conftest)."""

from __future__ import annotations

import pytest

# fmt: off
PINS: dict[str, dict[str, str]] = {
    "P-RATIO: a ratio of 0 is refused": {"refused": "P-RATIO - sparse_ratios"},
    "P-RATIO: a negative ratio is refused": {"refused": "P-RATIO - sparse_ratios"},
    "P-RATIO: a ratio that does not divide the block is refused": {"refused": "P-RATIO - dense_ratios"},
    "P-RATIO: a ratio larger than the block is refused": {"refused": "P-RATIO - sparse_ratios"},
    "P-RATIO: no ratio at all is refused": {"refused": "P-RATIO"},
    "P-RATIO: a window of 0 is refused": {"refused": "P-RATIO - window_size"},
    "P-RATIO: a ring one cell shorter than the window is refused": {"refused": "P-RATIO - swa_block_size"},
    "P-RATIO: a context parallel group of 0 ranks is refused": {"refused": "P-RATIO"},
    "P-RATIO: a rank equal to the group's size is refused": {"refused": "P-RATIO - cp_rank"},
    "P-RATIO: a negative rank is refused": {"refused": "P-RATIO - cp_rank"},
    "P-RATIO: a block of no token is refused": {"refused": "P-RATIO - block_size"},
    "P-RATIO: decode refuses a rank outside the group, too": {"refused": "P-RATIO - cp_rank"},
    "P-LEN: a negative query length is refused": {"refused": "P-LEN 1 seqlen_q"},
    "P-LEN: more queries than keys is refused": {"refused": "P-LEN 1 seqlen_q"},
    "P-LEN: one key more than the longest context is refused": {"refused": "P-LEN 1 seqlen_k"},
    "P-LEN: a prompt chunk that reaches past the known tokens is refused": {"refused": "P-LEN 1 token_ids"},
    "P-LEN: a key length of 2^62 is refused": {"refused": "P-LEN P-TABLE"},
    "P-LEN: a step without a sequence is refused": {"refused": "P-LEN - sequences"},
    "P-LEN: decode refuses a query length that is not 1 and the drafts": {"refused": "P-LEN 1 seqlen_q"},
    "P-LEN: decode refuses a key length that leaves out a draft": {"refused": "P-LEN 1 seqlen_k"},
    "P-LEN: ZOS decode refuses drafts that are already among the known tokens": {"refused": "P-LEN 1 seqlen_k"},
    "P-LEN: decode refuses a sequence without a query": {"refused": "P-LEN 1 seqlen_q"},
    "ZERO: a padding sequence of length 0 with drafts is refused": {"refused": "P-LEN 1 seqlen_q"},
    "P-TABLE: a table one block short is refused": {"refused": "P-TABLE 1 block_table"},
    "P-TABLE: an empty table for one full group is refused": {"refused": "P-TABLE 1 block_table"},
    "P-TABLE: a table long enough for the larger ratio only is refused": {"refused": "P-TABLE 1 block_table"},
    "P-TABLE: a negative block is refused": {"refused": "P-TABLE 1 block_table"},
    "P-TABLE: a negative block that the step does not use is refused": {"refused": "P-TABLE 1 block_table"},
    "P-TABLE: a placeholder without the table that its length needs is refused": {"refused": "P-TABLE 1 block_table"},
    "P-TABLE: decode refuses drafts that reach into a block that the table lacks": {"refused": "P-TABLE 1 block_table"},
    "P-STATE: a negative state slot is refused": {"refused": "P-STATE 1 state_id"},
    "P-STATE: a placeholder has a state slot, too": {"refused": "P-STATE 1 state_id"},
    "P-STATE: a negative valid start is refused": {"refused": "P-STATE 1 swa_valid_start"},
    "P-STATE: a negative data_len is refused although nothing is truncated": {"refused": "P-STATE 1 data_len"},
    "P-NGRAM: one token too few is refused": {"refused": "P-NGRAM 1 recent_tokens"},
    "P-NGRAM: a recent token one past the look-up table is refused": {"refused": "P-NGRAM 1 recent_tokens"},
    "P-NGRAM: a negative recent token is refused": {"refused": "P-NGRAM 1 recent_tokens"},
    "P-NGRAM: a recent token outside the look-up table that no row reads is refused": {
        "refused": "P-NGRAM 1 recent_tokens",
    },
    "P-NGRAM: history that covers the known tokens and not the drafts is refused": {
        "refused": "P-NGRAM 0 recent_tokens",
    },
    "P-OUT: eager decode refuses a table buffer one column too narrow": {"refused": "P-OUT - block_tables"},
    "P-OUT: ZOS decode refuses a table buffer one column too narrow": {"refused": "P-OUT - block_tables"},
    "P-INT32: a token id of 2^31 that the chunk does not read is refused": {"refused": "P-INT32 1 token_ids"},
    "P-INT32: a token id one below int32 is refused": {"refused": "P-INT32 1 token_ids"},
    "P-INT32: a block of 2^31 that the chunk does not read is refused": {"refused": "P-INT32 1 block_table"},
    "P-INT32: a compressed token of 2^31 without n-grams is refused": {"refused": "P-INT32 1 compressed_tokens"},
    "P-INT32: a recent token of 2^31 without n-grams is refused": {"refused": "P-INT32 1 recent_tokens"},
    "P-INT32: a draft of 2^31 is refused": {"refused": "P-INT32 1 draft_tokens"},
    "P-INT32: a pad_token outside int32 is refused without n-grams": {"refused": "P-INT32 - pad_token"},
    "P-INT32: an image_sentinel outside int32 is refused without n-grams": {"refused": "P-INT32 - image_sentinel"},
    "P-INT32: a lookup_table outside int32 is refused without n-grams": {"refused": "P-INT32 - lookup_table"},
    "OVF: block 8388607 at offset 255 has the last slot of int32, block 8388608 has none": {
        "0/slot_mapping_store_ca.1": "2147483647", "1/refused": "P-INT32",
    },
    "OVF: block 2^25 of size 64 is refused, not turned into a negative slot": {
        "0/slot_mapping_store_ca.1": "2147483647", "1/refused": "P-INT32",
    },
    "P-INT32: a prompt refuses the first block whose slots leave int32": {"refused": "P-INT32"},
    "P-INT32: dense decode refuses a block whose cells leave int32 although it only reads them": {"refused": "P-INT32"},
    "P-INT32: dense decode refuses a placeholder whose keys leave int32": {"refused": "P-INT32"},
    "P-INT32: a ring cell one past int32 is refused": {"refused": "P-INT32"},
    "P-INT32: a placeholder stores nothing, but its window must fit": {"refused": "P-INT32"},
    "P-INT32: a window whose older cell leaves int32 is refused although the row's own cell fits": {
        "refused": "P-INT32",
    },
    "P-INT32: a chunk whose first row leaves int32 is refused although its last row fits": {"refused": "P-INT32"},
    "P-INT32: the end of an earlier block leaves int32 although the chunk's last slot fits": {"refused": "P-INT32"},
    "P-INT32: a block in the middle of a chunk leaves int32": {"refused": "P-INT32"},
    "P-INT32: a state slot of 2^31 is refused although nothing is stored": {"refused": "P-INT32"},
    "P-INT32: a state slot of 2^62 is refused, not wrapped in 64 bits": {"refused": "P-INT32"},
    "P-INT32: the product of the dense offsets is 2^31": {"refused": "P-INT32"},
    "P-INT32: a wider table buffer takes the dense offsets past int32": {"refused": "P-INT32"},
    "P-INT32: a pivot one past int32 is refused although its run is empty": {"refused": "P-INT32"},
    "P-INT32: a run of new rows that ends past int32 is refused": {"refused": "P-INT32"},
    "P-INT32: mask truncation takes the pivots of a fitting chunk past int32": {
        "0/yoco_mask_swa_index_pivots": "2147483647 0 2147483647 1", "1/refused": "P-INT32",
    },
    "P-INT32: compact truncation takes the pivots of a fitting chunk past int32": {
        "0/yoco_consumer_swa_index_pivots": "2147483647 0 2147483647 1", "1/refused": "P-INT32",
    },
    "P-INT32: two windows of 2^30 take the history buffer past int32": {"refused": "P-INT32"},
    "P-STATE: a refused step between two valid ones changes nothing": {
        "0/positions": "2 3 4", "1/refused": "P-STATE 0 state_id", "2/positions": "5 6",
        "2/slot_mapping_store_ca.4": "-1",
    },
    "P-NGRAM: n-grams without any history are refused": {"refused": "P-NGRAM 0 recent_tokens"},
    "P-NGRAM: a look-back of one needs the history, too": {"refused": "P-NGRAM 0 recent_tokens"},
}
# fmt: on


@pytest.mark.parametrize("title", PINS)
def test_the_guarded_fields_are_those_worked_out_by_hand(title, check_pins):
    check_pins(title, PINS[title])
