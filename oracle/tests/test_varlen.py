"""Chapter 10, drafts of variable length: F-REMAP, F-VARLEN, F-TAIL and what does not fit."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inputmeta.oracle import FIELDS, expected_fields
from inputmeta.oracle.varlen import shorter_sequences

from .batches import cells, config, configs, decode, rows_of, sequences_of
from .test_zos import Gather, Varlen

CONTINUED = Gather(
    fresh_input_ids=(1, 2, 3, 4, 5, 6),
    prev_sampled=(70, 80),
    prev_predict=((71, 72), (81, 82)),
    remap=(1, -1, 0),
    varlen=Varlen(seqlens_q=(2, 1, 1), prev_seqlens_q=(3, 4), prev_num_accepted_tokens=(2, 1)),
)
"""Sequence 0 continues place 1, where two of three drafts were rejected; sequence 2 place 0, where none was."""
BATCH = [decode(7, 2, state_id=1), decode(3, 1, state_id=2), decode(2, state_id=3)]
NGRAMS = config(max_ngram_size=2, pad_token=-7)


def test_rejected_drafts_move_a_sequence_back():
    """Worked by hand: K = 10, H = 3, two rows, two rejected: rows at positions 5 and 6; then one row each."""
    fields = expected_fields("decode_zos", NGRAMS, BATCH, gather=CONTINUED)
    assert cells(fields, "cu_seqlens_q") == [2, 3, 4]
    assert cells(fields, "positions") == [5, 6, 3, 2, 0, 0]
    assert cells(fields, "context_lens") == [6, 7, 4, 3, 0, 0]
    assert cells(fields, "input_ids") == [80, 81, 4, 70, 0, 0]
    assert cells(fields, "query_indices") == [0, 0, 1, 2, 998244353, 998244353]
    assert cells(fields, "valid_token_mask") == [True, True, True, True, False, False]
    assert cells(fields, "slot_mapping_store_swa") == [11, 6, 15, 20, -1, -1]
    assert cells(fields, "state_block_idx") == [1, 1, 2, 3, 0, 0]
    assert cells(fields, "slot_mapping_store_ca.2") == [82, -1, 81, -1, -1, -1]
    assert rows_of(fields["kv_ca_index_offset_len.2"]) == [[0, 3], [8, 3], [16, 2], [24, 1], [0, 0], [0, 0]]
    assert cells(fields, "klen.4") == [1, 1, 1, 0, 0, 0]
    assert rows_of(fields["ngram_token_ids"]) == [[307, 306], [308, 307], [303, 302], [302, 301], [-7, -7], [-7, -7]]
    assert (cells(fields, "total_q"), cells(fields, "max_num_blocks")) == ([6], [2])
    assert rows_of(fields["block_tables"])[3:] == [[20, None], [None, None], [None, None]]


def test_chosen_rows_are_those_of_the_whole():
    """Rows of the tail and before it, chosen, hold what they hold among all."""
    whole = expected_fields("decode_zos", NGRAMS, BATCH, gather=CONTINUED)
    chosen = expected_fields("decode_zos", NGRAMS, BATCH, gather=CONTINUED, rows=[1, 3, 4])
    for key, field in chosen.items():
        if field.rows is not None:
            assert rows_of(field) == [rows_of(whole[key])[row] for row in (1, 3, 4)], key


@st.composite
def varlen_of(draw, batch) -> Gather:
    """Inputs that fit a batch: every sequence new, or at its own place of the last step."""
    remap = [draw(st.sampled_from((index, index, -1))) for index in range(len(batch))]
    rejected = [draw(st.integers(0, min(3, s.seqlen_k - s.seqlen_q))) for s in batch]
    accepted = [draw(st.integers(0, 2)) for _ in batch]
    return Gather(
        fresh_input_ids=tuple(range(sum(s.seqlen_q for s in batch))),
        prev_sampled=tuple(range(50, 50 + len(batch))),
        prev_predict=tuple(tuple(range(60 + 10 * i, 64 + 10 * i)) for i in range(len(batch))),
        remap=tuple(remap),
        varlen=Varlen(
            seqlens_q=tuple(draw(st.integers(1, s.seqlen_q)) for s in batch),
            prev_seqlens_q=tuple(1 + a + r for a, r in zip(accepted, rejected, strict=True)),
            prev_num_accepted_tokens=tuple(accepted),
        ),
    )


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_rows_are_those_of_the_shorter_batch_and_then_neutral(data):
    """F-VARLEN against a ZOS step of the shorter sequences; F-TAIL behind it (equivalence and I-35 of SPEC.md)."""
    batch_config = data.draw(configs())
    batch = data.draw(sequences_of("decode_zos"))
    gather = data.draw(varlen_of(batch))
    fields = expected_fields("decode_zos", batch_config, batch, gather=gather)
    shorter = [
        dataclasses.replace(s, token_ids=(0,) * (s.seqlen_k - s.seqlen_q + 1), draft_tokens=(0,) * (s.seqlen_q - 1))
        for s in shorter_sequences(batch, gather.remap, gather.varlen)
    ]
    columns = cells(fields, "max_num_blocks")[0]
    wanted = expected_fields("decode_zos", batch_config, shorter, max_num_blocks=columns)
    filled = cells(wanted, "total_q")[0]
    total = sum(s.seqlen_q for s in batch)
    assert cells(fields, "total_q") == [total]
    assert cells(fields, "cu_seqlens_q") == cells(wanted, "cu_seqlens_q")
    for key, field in fields.items():
        if not field.shape or field.shape[0] != total or key == "cu_seqlens_q":
            continue
        rows = rows_of(field)
        neutral = FIELDS[field.field.name].neutral_cell(batch_config)
        assert {cell for row in rows[filled:] for cell in row} <= {neutral}, key
        if key not in ("input_ids", "ngram_token_ids"):
            assert rows[:filled] == rows_of(wanted[key]), key


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_nothing_rejected_and_all_rows_is_the_step_of_fixed_length(data):
    """The first equivalence of SPEC.md, n-grams and gathered tokens included."""
    batch_config = data.draw(configs())
    batch = data.draw(sequences_of("decode_zos"))
    drawn = data.draw(varlen_of(batch))
    lengths = tuple(s.seqlen_q for s in batch)
    accepted = tuple(rows - 1 for rows in drawn.varlen.prev_seqlens_q)
    drawn = dataclasses.replace(drawn, prev_predict=((9,) * 14,) * len(batch))
    whole = dataclasses.replace(drawn, varlen=Varlen(lengths, drawn.varlen.prev_seqlens_q, accepted))
    fixed = expected_fields("decode_zos", batch_config, batch, gather=dataclasses.replace(drawn, varlen=None))
    assert expected_fields("decode_zos", batch_config, batch, gather=whole) == fixed


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seqlens_q": (2, 1)}, "seqlens_q has 2 entries for 3"),
        ({"seqlens_q": (0, 1, 1)}, r"seqlens_q\[0\] = 0"),
        ({"seqlens_q": (4, 1, 1)}, r"seqlens_q\[0\] = 4, not of 1 to 3|shorter than the drafts"),
        ({"prev_seqlens_q": (3,)}, "prev_seqlens_q has 1 entries for 2"),
        ({"prev_num_accepted_tokens": (3, 1)}, r"prev_num_accepted_tokens\[0\] = 3 of 2"),
        ({"prev_num_accepted_tokens": (2, -1)}, r"prev_num_accepted_tokens\[1\] = -1 of 3"),
        ({"prev_seqlens_q": (3, 10)}, "sequence 0: 8 drafts are rejected"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(changes, text):
    """I-33 and I-37."""
    gather = dataclasses.replace(CONTINUED, varlen=dataclasses.replace(CONTINUED.varlen, **changes))
    with pytest.raises(ValueError, match=text):
        expected_fields("decode_zos", config(), BATCH, gather=gather)


@pytest.mark.parametrize("beyond", [{"state_id": 357913941}, {"block_table": (2**30,)}])
def test_cells_beyond_int32_that_a_rejected_draft_could_reach_are_refused(beyond):
    """I-37: positions before the extracted ones were not looked at. With nothing rejected the batch is taken."""
    far = [dataclasses.replace(decode(6, is_placeholder=True), **beyond)]
    near = config(dense_ratios=(), swa_block_size=6, window_size=1)
    gather = Gather((1,), (70,), ((),), (0,), Varlen((1,), (2,), (1,)))
    expected_fields("decode_zos", near, far, gather=gather)
    gather = dataclasses.replace(gather, varlen=Varlen((1,), (2,), (0,)))
    with pytest.raises(ValueError, match="beyond int32"):
        expected_fields("decode_zos", near, far, gather=gather)
