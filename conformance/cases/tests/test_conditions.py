"""Each condition says what is beyond it, and nothing of what is within."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from inputmeta import oracle
from inputmeta.conformance.cases.conditions import ANY, Conditions, conditions_problem
from inputmeta.conformance.cases.model import Config, Sequence, oracle_config, oracle_sequences

CONFIG = Config(
    block_size=8,
    dense_ratios=(2,),
    sparse_ratios=(4,),
    window_size=8,
    swa_block_size=12,
    max_model_len=64,
    max_ngram_size=2,
    cp_size=2,
    yoco_mode="mask",
    yoco_prefill_keep_tokens=3,
)
SEQUENCE = Sequence(seqlen_q=5, seqlen_k=10, block_table=(3, 1), state_id=2, swa_valid_start=4, data_len=9)

BEYOND: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # within the batch as it is, beyond it, text
    ({"block_sizes": {4, 8}}, {"block_sizes": {4, 16}}, "block_size 8"),
    ({"dense_ratios": {2, 4}}, {"dense_ratios": {4}}, "dense ratio 2"),
    ({"sparse_ratios": {4}}, {"sparse_ratios": set()}, "sparse ratio 4"),
    ({"window_sizes": {8}}, {"window_sizes": {128}}, "window_size 8"),
    ({}, {"ring_is_window": True}, "B other than W"),
    ({"block_divides_window": True}, {}, ""),
    ({"least_seqlen_q": 5}, {"least_seqlen_q": 6}, "seqlen_q below 6"),
    ({"most_seqlen_q": 5}, {"most_seqlen_q": 4}, "seqlen_q above 4"),
    ({"most_seqlen_k": 10}, {"most_seqlen_k": 9}, "seqlen_k above 9"),
    ({"largest_block": 3}, {"largest_block": 2}, "block id above 2"),
    ({"largest_state": 2}, {"largest_state": 1}, "state_id above 1"),
    ({"largest_token_slot": 31}, {"largest_token_slot": 30}, "token slot above 30"),
    ({}, {"history": False}, "history before a chunk"),
    ({"placeholders": False}, {}, ""),
    ({"empty_steps": False}, {}, ""),
    ({"least_cp_size": 2}, {"least_cp_size": 3}, "cp_size below 3"),
    ({"cp_chunks": "at-least-2p"}, {"cp_chunks": "multiples-of-2p"}, "seqlen_q no multiple of 2p"),
    ({"valid_starts": "visible"}, {"valid_starts": "zero"}, "swa_valid_start above 0"),
    ({}, {"other_data_len": False}, "data_len other than seqlen_k"),
    ({"least_keep": 3}, {"least_keep": 4}, "yoco_prefill_keep_tokens below 4"),
    ({"least_ngram_size": 2}, {"least_ngram_size": 3}, "max_ngram_size below 3"),
    ({}, {"expansions": {"kv_swa_full_index"}}, "too large for kv_swa_full_index"),
    ({"expansions": {"kv_swa_index"}}, {"expansions": {"kv_ca_index"}}, "too large for kv_ca_index"),
]


def beyond(claimed: dict[str, Any], config: Config = CONFIG, sequence: Sequence = SEQUENCE) -> str | None:
    """What a prompt without expansions is beyond."""
    sets = {name: frozenset(value) if isinstance(value, set) else value for name, value in claimed.items()}
    return Conditions(**sets).beyond("prompt", config, (sequence,), ())


@pytest.mark.parametrize(("within", "without", "text"), BEYOND, ids=str)
def test_a_batch_is_within_or_beyond(within, without, text):
    assert beyond(within) is None
    if without:
        assert beyond(without) == text


def test_batches_of_the_oracle_s_types_are_told_alike():
    config, sequences = oracle_config(CONFIG), oracle_sequences((SEQUENCE,))
    assert Conditions(history=False).beyond("decode", config, sequences) == "history before a chunk"


@pytest.mark.parametrize(
    ("claimed", "config", "sequence", "text"),
    [
        ({"placeholders": False}, {}, {"is_placeholder": True}, "placeholders"),
        ({"empty_steps": False}, {}, {"seqlen_q": 0}, "a step without rows"),
        ({"block_divides_window": True}, {"window_size": 9}, {}, "W no multiple of block_size"),
        ({"cp_chunks": "at-least-2p"}, {"cp_size": 3}, {}, "seqlen_q below 2p"),
        ({"cp_chunks": "at-least-2p"}, {}, {"seqlen_q": 0}, "seqlen_q below 2p"),
        ({"valid_starts": "visible"}, {}, {"swa_valid_start": 6}, "swa_valid_start past the first row"),
    ],
)
def test_what_another_batch_is_beyond(claimed, config, sequence, text):
    assert beyond(claimed, replace(CONFIG, **config), replace(SEQUENCE, **sequence)) == text


def test_conditions_on_ranks_truncation_and_valid_starts_are_of_prompts_alone():
    claimed = Conditions(
        least_cp_size=3, cp_chunks="multiples-of-2p", valid_starts="zero", other_data_len=False, least_keep=9
    )
    assert claimed.beyond("prompt", CONFIG, (SEQUENCE,)) is not None
    assert claimed.beyond("decode", CONFIG, (SEQUENCE,)) is None


def test_conditions_on_truncation_hold_where_there_is_truncation():
    config = replace(CONFIG, yoco_mode="off")
    assert Conditions(other_data_len=False, least_keep=9).beyond("prompt", config, (SEQUENCE,)) is None


def test_without_conditions_every_batch_is_within():
    assert ANY.beyond("prompt", CONFIG, (SEQUENCE,), ()) is None


@pytest.mark.parametrize(
    ("claimed", "problem"),
    [
        ({"block_sizes": frozenset({0})}, "block_sizes is not a set of numbers of at least 1"),
        ({"block_sizes": [4]}, "block_sizes is not a set of numbers of at least 1"),
        ({"least_seqlen_q": -1}, "least_seqlen_q is not a number of at least 0"),
        ({"least_seqlen_q": True}, "least_seqlen_q is not a number of at least 0"),
        ({"most_seqlen_q": 2**62}, "most_seqlen_q is not a number of at least 0"),
        ({"history": 1}, "history is not a bool"),
        ({"expansions": frozenset({"klen"})}, "expansions is not a set of some of"),
        ({"valid_starts": ["any"]}, "valid_starts is not one of"),
    ],
)
def test_a_condition_of_the_wrong_kind_is_named(claimed, problem):
    found = conditions_problem(Conditions(**claimed))
    assert found is not None
    assert found.startswith(problem)


def test_the_defaults_are_right():
    assert conditions_problem(ANY) is None
    assert set(oracle.EXPANSIONS) == {"kv_ca_index", "kv_swa_full_index", "kv_swa_index"}
