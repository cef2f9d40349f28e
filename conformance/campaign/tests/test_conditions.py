"""What is drawn keeps to a subject's conditions; claims that leave nothing are said."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from inputmeta import oracle
from inputmeta.conformance.campaign.generated import generated_cases, profile_of
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.generate import NothingToDrawError, Profile
from inputmeta.conformance.subjects import Capabilities, Conditions
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta.conformance.wide.forms import Claims, draw_batch, forms_of

SEED, CASES = 7, 60
MOST_BEYOND = 0.05
"""Share of the drawn steps that may be beyond the conditions."""

FULL = OracleSubject().capabilities
PLAIN = dataclasses.replace(
    FULL, refuses=frozenset(), in_place=False, varlen=False, read_only=False, max_cp_size=1,
    yoco_modes=frozenset({"off"}),
)  # fmt: skip


def claims(
    path: str, base: Capabilities = PLAIN, *, sizes: dict[str, Any] | None = None, **conditions: Any
) -> Capabilities:
    """Claims on one path, or on those between commas."""
    return dataclasses.replace(
        base, paths=frozenset(path.split(",")), conditions=Conditions(**conditions), **(sizes or {})
    )


RANKS = {"max_cp_size": 8}
COMPACT = {"yoco_modes": frozenset({"off", "compact"})}
LOW = {1, 2, 4, 128}
ENGINES = {
    "zigzag of chunks of 2p": claims(
        "prompt", sizes=RANKS, least_cp_size=2, cp_chunks="at-least-2p", placeholders=False
    ),
    "zigzag of multiples": claims(
        "prompt", sizes=RANKS, least_cp_size=2, cp_chunks="multiples-of-2p", history=False, placeholders=False,
        valid_starts="zero", empty_steps=False,
    ),
    "draft step": claims(
        "decode", most_seqlen_q=1, largest_state=2**31 - 2, largest_block=2**31 - 2, least_ngram_size=2
    ),
    "prompt that sees": claims(
        "prompt", sizes=COMPACT, least_seqlen_q=1, empty_steps=False, least_keep=1, valid_starts="visible",
        largest_token_slot=2**31 - 1,
    ),
    "low ratios": claims("decode", dense_ratios=LOW, sparse_ratios=LOW, largest_token_slot=2**31 - 1),
    "tails that end": claims("prompt", sizes=COMPACT, dense_ratios=LOW, sparse_ratios=LOW, other_data_len=False),
    "always expands": claims(
        "prompt,decode", ring_is_window=True, valid_starts="zero",
        expansions={"kv_swa_index", "kv_swa_full_index", "kv_ca_index"},
    ),
    "ratio 1 alone": claims(
        "prompt,decode", dense_ratios={1}, sparse_ratios=set(), ring_is_window=True, block_divides_window=True,
        placeholders=False, least_seqlen_q=1,
    ),
    "small pools": claims(
        "decode", sizes={"max_num_reqs": 8, "max_total_q": 16, "max_table_columns": 64}, block_sizes={64},
        dense_ratios={4, 128}, sparse_ratios={4}, window_sizes={128}, largest_state=255, largest_block=1023,
        most_seqlen_k=2_000,
    ),
    "that refuses": claims(
        "prompt,decode,decode_zos", FULL, ring_is_window=True, least_seqlen_q=1, placeholders=False,
        largest_block=2**20, largest_state=2**10,
    ),
}  # fmt: skip


def share_beyond(able: Capabilities, cases: list[Case]) -> float:
    """Share of the steps of cases that are beyond the claims."""
    steps = [step_request(case, index, in_place=able.in_place) for case in cases for index in range(len(case.steps))]
    return sum(able.lacks(step) is not None for step in steps) / len(steps)


def drawn(able: Capabilities, change: Callable[[Profile], Profile] = lambda profile: profile) -> list[Case]:
    """Cases within the claims."""
    paths = [path for path in oracle.PATHS if path in able.paths]
    return generated_cases(change(profile_of(able, paths)), SEED, CASES)


@pytest.mark.parametrize("name", ENGINES)
def test_what_is_drawn_is_within_the_conditions(name):
    able = ENGINES[name]
    cases = drawn(able)
    assert share_beyond(able, cases) <= MOST_BEYOND
    # The conditions are not kept by drawing the same again and again.
    assert len({case.steps for case in cases}) > 0.8 * CASES
    assert len({sequence.seqlen_k for case in cases for step in case.steps for sequence in step}) >= 10


@pytest.mark.parametrize("name", ["zigzag of chunks of 2p", "draft step", "always expands"])
def test_without_steering_much_would_be_thrown_away(name):
    free = Profile()
    cases = drawn(ENGINES[name], lambda profile: dataclasses.replace(
        profile, conditions=free.conditions, tiers=free.tiers, max_total_q=None, max_num_reqs=None,
        max_table_columns=None, wide_windows=True,
    ))  # fmt: skip
    assert share_beyond(ENGINES[name], cases) > 0.4


@pytest.mark.parametrize("name", ENGINES)
def test_wide_batches_are_within_the_conditions(name):
    able = ENGINES[name]
    forms = Claims(able, tuple(path for path in oracle.PATHS if path in able.paths))
    steps = [step for index in range(len(forms_of(forms))) for step in draw_batch(forms, SEED, index).steps]
    assert [able.lacks(step) for step in steps if able.lacks(step) is not None] == []


def test_ids_go_to_the_end_of_the_conditions():
    able = claims("decode", largest_block=99, largest_state=17)
    cases = generated_cases(profile_of(able, ("decode",)), 3, 150)
    assert share_beyond(able, cases) == 0
    sequences = [sequence for case in cases for step in case.steps for sequence in step]
    assert max(max(sequence.block_table, default=0) for sequence in sequences) == 99
    assert max(sequence.state_id for sequence in sequences) == 17


@pytest.mark.parametrize(
    ("able", "text"),
    [
        (claims("decode", dense_ratios=set(), sparse_ratios=set()), "dense_ratios empty, sparse_ratios empty"),
        (claims("decode", block_sizes={24}, window_sizes={16}, block_divides_window=True),
         "block_sizes [24], window_sizes [16], block_divides_window"),
        (claims("decode", block_sizes=set()), "block_sizes empty"),
        (claims("decode", block_sizes={16}, dense_ratios={3}, sparse_ratios=set()), "dense_ratios [3]"),
        (claims("prompt", least_cp_size=2), "path prompt: no chunk is `any` of 2 to 1 ranks"),
        (claims("prompt", sizes=RANKS, least_cp_size=4, cp_chunks="at-least-2p", most_seqlen_q=7),
         "no chunk is `at-least-2p` of 4 to 8 ranks within most_seqlen_q 7"),
        (claims("decode", sizes={"max_total_q": 3}, least_seqlen_q=4),
         "max_total_q is 3, and a sequence has at least 4 rows"),
    ],
)  # fmt: skip
def test_claims_that_leave_nothing_are_named(able, text):
    with pytest.raises(NothingToDrawError) as caught:
        profile_of(able, sorted(able.paths))
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_constants_no_wide_form_is_left():
    able = claims("decode", dense_ratios=set(), sparse_ratios=set())
    assert forms_of(Claims(able, ("decode",))) == []
