"""Each precondition broken alone: named with sequence, field and value, and one inside of it accepted."""

from __future__ import annotations

import pickle
from array import array

import pytest

from inputmeta.oracle import (
    PRECONDITIONS,
    Int32Error,
    LengthError,
    NgramError,
    OutError,
    PreconditionError,
    RatioError,
    StateError,
    TableError,
    expected_fields,
    violations,
)

from .batches import config, decode, prompt

TOO_MUCH = 2**31

CONFIGURATIONS = [
    ({"block_size": 0, "dense_ratios": ()}, RatioError, "block_size", 0),
    ({"block_size": -4, "dense_ratios": ()}, RatioError, "block_size", -4),
    ({"dense_ratios": (0,)}, RatioError, "dense_ratios", 0),
    ({"dense_ratios": (-2,)}, RatioError, "dense_ratios", -2),
    ({"sparse_ratios": (3,)}, RatioError, "sparse_ratios", 3),
    ({"sparse_ratios": (16,)}, RatioError, "sparse_ratios", 16),
    ({"dense_ratios": (), "sparse_ratios": ()}, RatioError, "sparse_ratios", 0),
    ({"window_size": 0}, RatioError, "window_size", 0),
    ({"swa_block_size": 3}, RatioError, "swa_block_size", 3),
    ({"cp_size": 0}, RatioError, "cp_size", 0),
    ({"cp_rank": -1}, RatioError, "cp_rank", -1),
    ({"cp_size": 2, "cp_rank": 2}, RatioError, "cp_rank", 2),
    ({"lookup_table": (0, TOO_MUCH)}, Int32Error, "lookup_table", TOO_MUCH),
    ({"pad_token": -TOO_MUCH - 1}, Int32Error, "pad_token", -TOO_MUCH - 1),
    ({"image_sentinel": TOO_MUCH}, Int32Error, "image_sentinel", TOO_MUCH),
]


@pytest.mark.parametrize(("changes", "error", "field", "value"), CONFIGURATIONS)
def test_configuration_refused(changes, error, field, value):
    """P-RATIO, and P-INT32 on what a configuration brings (I-10)."""
    found = violations("prompt", config(**changes), [prompt(0, 1)])
    assert [(type(one), one.sequence, one.field, one.value) for one in found if one.field == field] == [
        (error, None, field, value)
    ]
    assert type(found[0]) is error


SEQUENCES = [
    ("prompt", {"seqlen_q": -1}, LengthError, "seqlen_q", -1),
    ("prompt", {"seqlen_q": 6}, LengthError, "seqlen_q", 6),
    ("prompt", {"token_ids": (1, 2, 3, 4)}, LengthError, "token_ids", 4),
    ("decode", {"draft_tokens": ()}, LengthError, "seqlen_q", 2),
    ("decode", {"token_ids": (1, 2, 3)}, LengthError, "seqlen_k", 5),
    ("decode_zos", {"token_ids": (1, 2, 3, 4, 5)}, LengthError, "seqlen_k", 5),
    ("prompt", {"block_table": ()}, TableError, "block_table", 0),
    ("prompt", {"block_table": (3, -2)}, TableError, "block_table", -2),
    ("decode", {"block_table": (-1,)}, TableError, "block_table", -1),
    ("prompt", {"state_id": -1}, StateError, "state_id", -1),
    ("decode", {"swa_valid_start": -1}, StateError, "swa_valid_start", -1),
    ("prompt", {"data_len": -3}, StateError, "data_len", -3),
    ("prompt", {"compressed_tokens": (1, 2), "recent_tokens": (0, 1)}, NgramError, "recent_tokens", 4),
    ("prompt", {"compressed_tokens": (), "recent_tokens": (0, 1, 2, 0, 1)}, NgramError, "recent_tokens", 2),
    ("prompt", {"recent_tokens": (0, -1)}, NgramError, "recent_tokens", -1),
    ("prompt", {"block_table": (3, TOO_MUCH)}, Int32Error, "block_table", TOO_MUCH),
    ("prompt", {"token_ids": (1, 2, 3, 4, 5, TOO_MUCH)}, Int32Error, "token_ids", TOO_MUCH),
    ("decode", {"draft_tokens": (-TOO_MUCH - 1,)}, Int32Error, "draft_tokens", -TOO_MUCH - 1),
    ("prompt", {"compressed_tokens": (1, 2, 3, 4, TOO_MUCH)}, Int32Error, "compressed_tokens", TOO_MUCH),
]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("broken", SEQUENCES)
def test_sequence_refused(place, broken):
    """P-LEN, P-TABLE, P-STATE, P-NGRAM and P-INT32 on inputs, each alone, in either place of a batch."""
    path, changes, error, field, value = broken
    look_back = config(max_ngram_size=1, lookup_table=(70, 71))
    good = prompt(3, 2) if path == "prompt" else decode(3, 1)
    bad = type(good)(**(good.__dict__ | changes))
    batch = [bad, good] if place == 0 else [good, bad]
    found = violations(path, look_back, batch)
    assert [(type(one), one.sequence, one.field, one.value) for one in found[:1]] == [(error, place, field, value)]
    with pytest.raises(error) as refusal:
        expected_fields(path, look_back, batch)
    assert str(refusal.value).startswith(f"{error.condition}: sequence {place}: {field} ")
    assert not violations(path, look_back, [good, good])


def test_smallest_configuration():
    """P-RATIO: block, ratio, window and ring of one."""
    smallest = {"block_size": 1, "dense_ratios": (1,), "sparse_ratios": (), "window_size": 1, "swa_block_size": 1}
    assert not violations("prompt", config(**smallest), [prompt(0, 1)])


def test_no_sequence_refused():
    """P-LEN: at least one sequence."""
    found = violations("decode", config(), [])
    assert [(type(one), one.field) for one in found] == [(LengthError, "sequences")]


def test_longest_length():
    """P-LEN: seqlen_k = max_model_len is the longest."""
    assert not violations("prompt", config(max_model_len=5), [prompt(3, 2)])
    assert type(violations("prompt", config(max_model_len=4), [prompt(3, 2)])[0]) is LengthError


def test_lengths_far_outside_int32_are_compared_first():
    """I-10: a scalar of 2^62 meets its own precondition, P-LEN."""
    found = violations("prompt", config(), [prompt(3, 2, seqlen_k=2**62)])
    assert type(found[0]) is LengthError


def test_table_covers_the_smallest_ratio():
    """P-TABLE: keys 3 at ratios 2 and 4 fill one block; keys 1 none."""
    assert type(violations("prompt", config(), [prompt(0, 3, block_table=())])[0]) is TableError
    assert not violations("prompt", config(), [prompt(0, 1, block_table=())])


def test_table_entries_nobody_reads_are_checked():
    """I-10, P-TABLE: all entries given."""
    assert type(violations("prompt", config(), [prompt(0, 1, block_table=(1, 2, 3, -1))])[0]) is TableError


def test_ngram_inputs_are_free_without_look_back():
    """I-13: max_ngram_size 0 asks nothing of the histories."""
    assert not violations("prompt", config(), [prompt(3, 2, compressed_tokens=(), recent_tokens=(-4,))])


def test_int32_arrays_fit_by_their_type():
    """I-10: an array('i') cannot hold anything else; the extremes of int32 are accepted from a tuple."""
    assert not violations("prompt", config(), [prompt(3, 2, token_ids=array("i", range(5)))])
    extremes = (-(2**31), 2**31 - 1, 0, 1, 2)
    assert not violations("prompt", config(), [prompt(3, 2, token_ids=extremes)])


def test_narrow_block_tables():
    """P-OUT, I-4: wider is welcome, narrower is not; the prompt has no block tables."""
    batch = [decode(16)]  # 17 keys: 8 compressed tokens of ratio 2, two blocks
    assert not violations("decode", config(), batch, max_num_blocks=2)
    assert not violations("decode", config(), batch, max_num_blocks=9)
    found = violations("decode", config(), batch, max_num_blocks=1)
    assert [(type(one), one.field, one.value) for one in found] == [(OutError, "block_tables", 1)]
    assert not violations("prompt", config(), [prompt(0, 1)], max_num_blocks=0)


def test_all_broken_conditions_in_order():
    """Several at once: listed in the order of the specification, the first one raised."""
    changes = {"block_table": (-1,), "state_id": -1, "token_ids": (TOO_MUCH,) * 5, "recent_tokens": (9,)}
    broken = prompt(3, -1, **changes)
    found = violations("prompt", config(window_size=0, max_ngram_size=1), [broken])
    order = list(PRECONDITIONS)
    places = [order.index(one.condition) for one in found]
    assert places == sorted(places)
    assert set(places) == set(range(6))
    with pytest.raises(RatioError):
        expected_fields("prompt", config(window_size=0, max_ngram_size=1), [broken])


def test_refusals_are_value_errors_and_travel():
    """A refusal is a ValueError and survives pickling: it may come from a worker process."""
    error = TableError(2, "block_table", 3, "covers 4 blocks", "has 3 blocks")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(error, PreconditionError)
    assert isinstance(error, ValueError)
    assert (str(copy), copy.sequence, copy.value) == (str(error), 2, 3)
