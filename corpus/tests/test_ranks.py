"""Cases that hold one batch for every rank of a group: the ranks together are one batch."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest

from inputmeta.conformance.cases.model import Array, Case

OF_ONE_RANK = {
    *("mirror_cp_index", "positions", "gate_force_random_cp", "valid_token_mask", "query_indices", "ngram_token_ids"),
    *("ks", "ke", "klen", "kv_swa_full_index", "kv_ca_index", "kv_ca_index_len"),
    *("yoco_consumer_mirror_cp_index", "yoco_consumer_mirror_ks", "yoco_consumer_mirror_ke"),
    *("yoco_cp_contrib_index", "yoco_cp_boundary_index"),
}
"""Fields of mirrored rows; every other field is the same on every rank."""


@pytest.fixture(scope="module")
def groups(cases_by_title: dict[str, Case]) -> list[list[dict[str, Array]]]:
    """For each batch that the corpus has on all ranks of a group, the fields of each rank in rank order."""
    ranks: dict[object, dict[int, Case]] = defaultdict(dict)
    for case in cases_by_title.values():
        if case.path == "prompt" and case.config.cp_size > 1 and len(case.steps) == 1:
            key = (msgspec.structs.replace(case.config, cp_rank=0), case.steps)
            ranks[key][case.config.cp_rank] = case
    complete = [found for (config, _), found in ranks.items() if len(found) == config.cp_size]
    assert len(complete) >= 6
    return [[found[rank].expected[0].fields for rank in sorted(found)] for found in complete]


def laid_end_to_end(ranks: list[dict[str, Array]], name: str) -> list[int]:
    """A vector field of every rank, one after the other."""
    return [cell for fields in ranks for cell in fields[name].data]


def test_shared_fields_are_equal_on_every_rank(groups):
    for ranks in groups:
        shared = [{key: array for key, array in f.items() if key.split(".")[0] not in OF_ONE_RANK} for f in ranks]
        assert all(fields == shared[0] for fields in shared)


@pytest.mark.parametrize("prefix", ["", "yoco_consumer_"])
def test_ranks_own_every_row_once_and_the_reverse_index_finds_it(groups, prefix):
    for ranks in groups:
        if f"{prefix}mirror_cp_index" not in ranks[0]:
            continue
        mirrored = laid_end_to_end(ranks, f"{prefix}mirror_cp_index")
        reverse = ranks[0][f"{prefix}mirror_cp_reverse_index"].data
        assert sorted(row for row in mirrored if row >= 0) == list(range(len(reverse)))
        assert [mirrored[place] for place in reverse] == list(range(len(reverse)))


def test_compact_rows_find_themselves_in_the_gathered_contributions(groups):
    with_truncation = [ranks for ranks in groups if "yoco_cp_contrib_index" in ranks[0]]
    assert len(with_truncation) >= 3
    for ranks in with_truncation:
        gathered = [
            fields["mirror_cp_index"].data[row] if row >= 0 else None
            for fields in ranks
            for row in fields["yoco_cp_contrib_index"].data
        ]
        kept = ranks[0]["yoco_consumer_query_indices"].data
        for fields in ranks:
            rows = fields["yoco_consumer_mirror_cp_index"].data
            for row, place in zip(rows, fields["yoco_cp_boundary_index"].data, strict=True):
                assert (place < 0) if row < 0 else (gathered[place] == kept[row])
