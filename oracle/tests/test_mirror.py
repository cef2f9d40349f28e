"""Context parallelism: the ranks together are one rank; contributions find every kept row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inputmeta.oracle import EXPANSIONS, expected_fields

from .batches import cells, config, configs, decode, prompt, rows_of, sequences_of

RANKS = st.sampled_from((2, 3, 4, 7))


def all_ranks(batch_config, batch, expand=()):
    """The fields of every rank of the group."""
    return [
        expected_fields("prompt", replace(batch_config, cp_rank=rank), batch, expand=("kv_swa_full_index",))
        for rank in range(batch_config.cp_size)
    ]


@settings(max_examples=40, deadline=None)
@given(RANKS, st.data())
def test_ranks_together_rebuild_the_full_layout(cp_size, data):
    """F-ZIGZAG and F-REVERSE are inverse; every mirrored field gathered back is the one of a single rank."""
    batch_config = data.draw(configs(cp_size=cp_size, yoco_mode="off"))
    batch = data.draw(sequences_of("prompt"))
    alone = expected_fields("prompt", replace(batch_config, cp_size=1), batch)
    ranks = all_ranks(batch_config, batch, expand=EXPANSIONS)
    reverse = cells(ranks[0], "mirror_cp_reverse_index")
    assume(cells(alone, "total_q") != [0])
    for key, field in ranks[0].items():
        if not field.field.mirrored:
            continue
        everything = [row for fields in ranks for row in rows_of(fields[key])]
        assert [everything[place] for place in reverse] == rows_of(alone[key]), key
    padding = [row for fields in ranks for row in cells(fields, "mirror_cp_index") if row == -1]
    assert len(padding) == cp_size * cells(ranks[0], "cp_mirror_len")[0] - len(reverse)
    for fields in ranks:
        shared = [key for key in alone if not alone[key].field.mirrored and key != "cp_mirror_len"]
        assert all(cells(fields, key) == cells(alone, key) for key in shared)
        assert cells(fields, "positions_cp") == cells(alone, "positions")


@settings(max_examples=60, deadline=None)
@given(RANKS, st.data())
def test_contributions_carry_every_kept_row_once(cp_size, data):
    """F-CONTRIB: gather the kept mirrored rows of all ranks, and look up every mirrored compact row in them."""
    batch_config = data.draw(configs(cp_size=cp_size, yoco_mode="compact"))
    batch = data.draw(sequences_of("prompt"))
    ranks = all_ranks(batch_config, batch)
    pad_len = cells(ranks[0], "yoco_consumer_cp_contrib_pad_len")[0]
    if pad_len == 0:
        assert cells(ranks[0], "total_q") == [0]
        return
    gathered = []
    for fields in ranks:
        mirrored = cells(fields, "mirror_cp_index")
        sent = cells(fields, "yoco_cp_contrib_index")
        assert len(sent) == pad_len
        gathered += [mirrored[row] if row >= 0 else None for row in sent]
    kept = cells(ranks[0], "yoco_consumer_query_indices")
    assert sorted(row for row in gathered if row is not None) == kept
    found = []
    for fields in ranks:
        compact = cells(fields, "yoco_consumer_mirror_cp_index")
        boundary = cells(fields, "yoco_cp_boundary_index")
        assert [row == -1 for row in compact] == [place == -1 for place in boundary]
        wanted = [kept[row] for row in compact if row >= 0]
        assert [gathered[place] for place in boundary if place >= 0] == wanted
        found += wanted
    assert sorted(found) == kept


@settings(max_examples=60, deadline=None)
@given(RANKS, st.data())
def test_mirrored_compact_rows_keep_their_key_ranges(cp_size, data):
    """F-MIRRORKS over the kept rows with the original key lengths: the full layout's ks and ke of the same rows."""
    batch_config = data.draw(configs(cp_size=cp_size, yoco_mode="compact", sparse_ratios=(4,)))
    batch = data.draw(sequences_of("prompt"))
    ranks = all_ranks(batch_config, batch)
    assume(cells(ranks[0], "total_q") != [0])
    alone = expected_fields("prompt", replace(batch_config, cp_size=1), batch)
    kept = cells(ranks[0], "yoco_consumer_query_indices")
    reverse = cells(ranks[0], "yoco_consumer_mirror_cp_reverse_index")
    for name in ("ks", "ke"):
        everything = [cell for fields in ranks for cell in cells(fields, f"yoco_consumer_mirror_{name}.4")]
        assert [everything[place] for place in reverse] == [cells(alone, f"{name}.4")[row] for row in kept]
        assert cells(ranks[0], f"yoco_consumer_{name}.4") == [cells(alone, f"{name}.4")[row] for row in kept]


def test_contribution_by_hand():
    """7 rows on 2 ranks in blocks of 2, rows 3 ... 6 kept: rank 0 sends row 6, rank 1 rows 3, 4, 5.

    Full mirror: rank 0 holds rows 0 1 6 p, rank 1 rows 2 3 4 5. The 4 kept rows in blocks of 1: rank 0 wants rows 3
    and 6 of the chunk, rank 1 rows 4 and 5. Gathered contributions: 6 p p | 3 4 5.
    """
    compact = config(cp_size=2, yoco_mode="compact", yoco_prefill_keep_tokens=4)
    ranks = all_ranks(compact, [prompt(2, 7)])
    assert [cells(fields, "yoco_cp_contrib_index") for fields in ranks] == [[2, -1, -1], [1, 2, 3]]
    assert [cells(fields, "yoco_consumer_mirror_cp_index") for fields in ranks] == [[0, 3], [1, 2]]
    assert [cells(fields, "yoco_cp_boundary_index") for fields in ranks] == [[3, 0], [4, 5]]
    assert cells(ranks[0], "yoco_consumer_mirror_cp_reverse_index") == [0, 2, 3, 1]


@pytest.mark.parametrize(("rank", "positions"), [(0, [9, 10, 15, 0]), (1, [11, 12, 13, 14])])
def test_mirrored_key_ranges_use_the_absolute_position(rank, positions):
    """F-MIRRORKS: chunk [9, 16) behind a sequence of 5 keys (one key row at ratio 4)."""
    fields = expected_fields("prompt", config(cp_size=2, cp_rank=rank), [prompt(5, 0), prompt(9, 7)])
    assert cells(fields, "positions") == positions
    padding = [position == 0 for position in positions]
    assert cells(fields, "ks.4") == [0 if pad else 1 for pad in padding]
    assert cells(fields, "ke.4") == [0 if p == 0 else 1 + (p + 1) // 4 for p in positions]


def test_decode_ignores_the_group():
    """I-15: CP is a prompt matter."""
    batch = [decode(5, 1)]
    alone = expected_fields("decode", config(), batch)
    grouped = expected_fields("decode", config(cp_size=4, cp_rank=3), batch)
    assert {key: cells(alone, key) for key in alone} == {key: cells(grouped, key) for key in grouped}
