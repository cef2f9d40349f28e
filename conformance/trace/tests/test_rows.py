"""Which rows are compared."""

from __future__ import annotations

import pytest

from inputmeta.conformance.trace import TraceOptions, choose_rows, trace_config
from inputmeta.oracle import MetadataConfig, SequenceMetadata

REAL = trace_config(TraceOptions())


def chunk(q, k, valid_start=0):
    return SequenceMetadata(seqlen_q=q, seqlen_k=k, swa_valid_start=valid_start)


def test_short_sequences_are_compared_whole():
    assert choose_rows(REAL, [chunk(512, 900), chunk(0, 0), chunk(4, 4)], 512) is None
    assert choose_rows(REAL, [chunk(9000, 9000)], None) is None


def test_rows_are_sorted_distinct_and_limited_by_sequence():
    rows = choose_rows(REAL, [chunk(3, 9), chunk(5000, 6001), chunk(700, 700), chunk(2, 2)], 512)
    assert rows == sorted(set(rows))
    assert len(rows) == 3 + 512 + 512 + 2
    assert rows[:3] == [0, 1, 2]
    assert rows[-2:] == [5703, 5704]
    assert sum(3 <= row < 5003 for row in rows) == 512


@pytest.mark.parametrize("limit", [1, 2, 3, 17, 512])
def test_any_limit_is_met(limit):
    assert len(choose_rows(REAL, [chunk(600, 600)], limit)) == limit


def test_first_last_and_edges_are_chosen():
    """q_start 1000, trusted from 1040 on, W 128, B 136."""
    rows = set(choose_rows(REAL, [chunk(8000, 9000, valid_start=1040)], 512))
    assert {0, 7999} <= rows
    for edge in (8000 - 136, 127, 40, 40 + 127):
        assert {edge - 1, edge, edge + 1} <= rows


def test_boundaries_of_every_length_are_chosen_with_their_neighbours():
    rows = choose_rows(REAL, [chunk(8000, 9001)], 512)
    positions = {1001 + row for row in rows}
    for period in (128, 136, 4):
        hits = [position for position in positions if position % period == 0]
        assert len(hits) >= 14
        assert sum({position - 1, position + 1} <= positions for position in hits) >= 14


def test_few_boundaries_are_all_chosen():
    config = MetadataConfig(
        block_size=256, dense_ratios=(256,), window_size=300, swa_block_size=400, max_model_len=10**6
    )
    positions = {10 + row for row in choose_rows(config, [chunk(2000, 2010)], 200)}
    for period in (256, 300, 400):
        assert {at + beside for at in range(period, 2010, period) for beside in (-1, 0, 1)} <= positions


def test_the_choice_depends_on_seed_and_step_alone():
    batch = [chunk(8000, 9000)]
    assert choose_rows(REAL, batch, 512, 3, 4) == choose_rows(REAL, batch, 512, 3, 4)
    assert choose_rows(REAL, batch, 512, 3, 4) != choose_rows(REAL, batch, 512, 3, 5)
    assert choose_rows(REAL, batch, 512, 3, 4) != choose_rows(REAL, batch, 512, 4, 4)


def test_work_does_not_grow_with_the_chunk():
    """A chunk of 2^40 rows: anything proportional to it would not end."""
    assert len(choose_rows(REAL, [chunk(2**40, 2**40)], 512)) == 512


def test_no_rows_are_no_choice():
    with pytest.raises(ValueError, match="limit: 0: must be at least 1"):
        choose_rows(REAL, [chunk(1, 1)], 0)
