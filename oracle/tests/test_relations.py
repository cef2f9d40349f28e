"""Relations between batches: what must hold whatever the formulas say."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inputmeta.oracle import expected_fields
from inputmeta.oracle.units import prefix_sums

from .batches import cells, config, configs, decode, prompt, rows_of, sequences_of

PATHS = st.sampled_from(("prompt", "decode", "decode_zos"))
BY_QUERY = ("positions", "input_ids", "ngram_token_ids", "klen.4", "kv_ca_index_len.2")


def seen_positions(pivots, chunk_starts, window, sec2, cu):
    """The absolute positions that each row's pivots show: runs of the history and of the new rows of its sequence."""
    shown = []
    for row, (first, length, new_first, new_length) in enumerate(pivots):
        index = next(i for i in range(len(chunk_starts)) if cu[i] <= row < cu[i + 1])
        history = [place - index * window + chunk_starts[index] - window for place in range(first, first + length)]
        begin = new_first - sec2 - cu[index]
        shown.append(history + [chunk_starts[index] + offset for offset in range(begin, begin + new_length)])
    return shown


@settings(max_examples=50, deadline=None)
@given(PATHS, st.data())
def test_chosen_rows_are_the_full_build_restricted(path, data):
    """``rows=`` leaves out rows and changes nothing else, with and without CP."""
    cp_size = data.draw(st.sampled_from((1, 2, 3)))
    batch_config = data.draw(configs(cp_size=cp_size, cp_rank=data.draw(st.integers(0, cp_size - 1))))
    batch = data.draw(sequences_of(path))
    total = sum(one.seqlen_q for one in batch)
    rows = sorted(data.draw(st.sets(st.integers(0, total - 1)))) if total else []
    full = expected_fields(path, batch_config, batch)
    some = expected_fields(path, batch_config, batch, rows=rows)
    assert full.keys() == some.keys()
    for key, field in some.items():
        assert field.shape == full[key].shape
        if field.rows is None:
            assert field.cells == full[key].cells, key
        else:
            everything = rows_of(full[key])
            assert rows_of(field) == [everything[row] for row in field.rows], key
        if full[key].field.layout(path, batch_config).rows == "query" and total:
            assert field.rows == tuple(rows)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_split_chunk_is_the_whole_chunk(data):
    """Rows of a chunk do not depend on where it was cut; what is stored in the end is the same."""
    batch_config = data.draw(configs(yoco_mode="off", cp_size=1, dense_ratios=(2,), sparse_ratios=(4,)))
    whole = data.draw(sequences_of("prompt"))[0]
    start = whole.seqlen_k - whole.seqlen_q
    cut = data.draw(st.integers(start, whole.seqlen_k))
    first = replace(whole, seqlen_q=cut - start, seqlen_k=cut)
    second = replace(whole, seqlen_q=whole.seqlen_k - cut)
    parts = [part for part in (first, second) if part.seqlen_q > 0]
    assume(parts)
    one = expected_fields("prompt", batch_config, [whole])
    two = [expected_fields("prompt", batch_config, [part]) for part in parts]
    for key in BY_QUERY:
        if key in one:
            assert cells(one, key) == [cell for fields in two for cell in cells(fields, key)], key
    for key in ("slot_mapping_store_ca.2", "slot_mapping_store_ca.4"):
        stored = [cell for fields in two for cell in cells(fields, key) if cell >= 0]
        assert [cell for cell in cells(one, key) if cell >= 0] == stored, key
    assert ring_after([one]) == ring_after(two)
    window = batch_config.window_size
    shown = [
        positions
        for part, fields in zip(parts, two, strict=True)
        for positions in seen_positions(
            rows_of(fields["kv_swa_full_index_pivots"]),
            [part.seqlen_k - part.seqlen_q],
            window,
            window,
            [0, part.seqlen_q],
        )
    ]
    pivots = rows_of(one["kv_swa_full_index_pivots"])
    assert seen_positions(pivots, [start], window, window, [0, whole.seqlen_q]) == shown


def ring_after(steps):
    """The position that each ring cell holds after the stores of several steps."""
    ring = {}
    for fields in steps:
        stores = zip(cells(fields, "slot_mapping_store_swa"), cells(fields, "positions"), strict=True)
        ring |= {slot: position for slot, position in stores if slot >= 0}
    return ring


@settings(max_examples=40, deadline=None)
@given(PATHS, st.data())
def test_permuted_batch_is_permuted_rows(path, data):
    """Fields that name no place in the batch follow their sequence."""
    batch_config = data.draw(configs(cp_size=1))
    batch = data.draw(sequences_of(path))
    order = data.draw(st.permutations(range(len(batch))))
    one = expected_fields(path, batch_config, batch)
    other = expected_fields(path, batch_config, [batch[index] for index in order])
    cu = prefix_sums(sequence.seqlen_q for sequence in batch)
    rows = [row for index in order for row in range(cu[index], cu[index + 1])]
    assume(rows)
    names = {"query_indices", "kv_ca_index_offset_len", "ks", "ke", "kv_swa_full_index_pivots", "kv_swa_full_index"}
    placed = names | {"yoco_mask_swa_index_pivots", *(["kv_ca_index"] if path == "prompt" else [])}
    for key, field in one.items():
        if field.field.layout(path, batch_config).rows == "query" and field.field.name not in placed:
            assert rows_of(other[key]) == [rows_of(field)[row] for row in rows], key


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_mask_and_compact_show_the_same_positions(data):
    """M-5: for every kept row the same set of absolute key positions."""
    masked = data.draw(configs(yoco_mode="mask"))
    compacted = replace(masked, yoco_mode="compact")
    batch = data.draw(sequences_of("prompt"))
    mask = expected_fields("prompt", masked, batch)
    compact = expected_fields("prompt", compacted, batch)
    assume(cells(mask, "total_q") != [0])
    starts = [one.seqlen_k - one.seqlen_q for one in batch]
    window = masked.window_size
    sec2 = len(batch) * window
    by_mask = seen_positions(
        rows_of(mask["yoco_mask_swa_index_pivots"]), starts, window, sec2, cells(mask, "cu_seqlens_q")
    )
    cu = cells(compact, "yoco_consumer_cu_seqlens_q")
    kept_starts = [one.seqlen_k - (cu[i + 1] - cu[i]) for i, one in enumerate(batch)]
    pivots = rows_of(compact["yoco_consumer_swa_index_pivots"])
    history_starts = [start - window for start in starts]
    for kept, row in enumerate(cells(compact, "yoco_consumer_query_indices")):
        index = next(i for i in range(len(batch)) if cu[i] <= kept < cu[i + 1])
        first, length, new_first, new_length = pivots[kept]
        history = [place - index * window + history_starts[index] for place in range(first, first + length)]
        begin = new_first - sec2 - cu[index]
        new = [kept_starts[index] + offset for offset in range(begin, begin + new_length)]
        assert begin >= 0 or new_length == 0
        assert history + new == by_mask[row]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_pivots_are_the_window_as_defined(data):
    """M-1: what a row sees is [pos - W + 1, pos] cut to the trusted positions; what is zero-filled is never seen."""
    batch_config = data.draw(configs(yoco_mode="off", cp_size=1))
    batch = data.draw(sequences_of("prompt"))
    fields = expected_fields("prompt", batch_config, batch)
    assume(cells(fields, "total_q") != [0])
    window = batch_config.window_size
    cu = cells(fields, "cu_seqlens_q")
    starts = [one.seqlen_k - one.seqlen_q for one in batch]
    pivots = rows_of(fields["kv_swa_full_index_pivots"])
    shown = seen_positions(pivots, starts, window, len(batch) * window, cu)
    zeros = {
        row
        for block, begin, end, row_begin in rows_of(fields["load_segments_swa"])
        if block == -1
        for row in range(row_begin, row_begin + end - begin)
    }
    for row, (index, position) in enumerate(
        (i, p) for i, one in enumerate(batch) for p in range(starts[i], one.seqlen_k)
    ):
        trusted = range(max(0, position - window + 1, batch[index].swa_valid_start), position + 1)
        assert shown[row] == list(trusted)
        assert zeros.isdisjoint(range(pivots[row][0], pivots[row][0] + pivots[row][1]))
        assert all(cell >= 0 for cell in pivots[row])
        assert pivots[row][1] + pivots[row][3] <= window


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_load_plans_fill_the_buffers_without_gaps(data):
    """F-SWAPLAN and F-CAPLAN: segments are not empty, lie end to end and fill exactly the total."""
    batch_config = data.draw(configs())
    fields = expected_fields("prompt", batch_config, data.draw(sequences_of("prompt")), expand=())
    plans = [("load_segments_swa", "total_k_swa")]
    plans += [(f"load_segments_ca.{n}", f"total_k_compressed.{n}") for n in batch_config.ca_ratios]
    for plan, total in plans:
        row = 0
        for _, begin, end, destination in rows_of(fields[plan]):
            assert begin < end
            assert destination == row
            row += end - begin
        assert [row] == cells(fields, total)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_decode_dense_index_goes_through_the_flattened_tables(data):
    """F-CAOFF as written: x = offset + k; block_tables.flat[x // b_c] * b_c + x % b_c, in defined columns only."""
    batch_config = data.draw(configs(dense_ratios=(1, 4)))
    width = data.draw(st.sampled_from((None, 11)))
    fields = expected_fields("decode", batch_config, data.draw(sequences_of("decode")), max_num_blocks=width)
    flat = cells(fields, "block_tables")
    for ratio in batch_config.dense:
        per_block = batch_config.block_size // ratio
        for (offset, length), row in zip(
            rows_of(fields[f"kv_ca_index_offset_len.{ratio}"]), rows_of(fields[f"kv_ca_index.{ratio}"]), strict=True
        ):
            keys = range(offset, offset + length)
            assert row[:length] == [flat[x // per_block] * per_block + x % per_block for x in keys]
            assert set(row[length:]) <= {-1}


def test_wider_tables_move_only_the_dense_offsets():
    """I-4: a caller's wider block_tables: more undefined columns, offsets by the columns in use."""
    batch = [decode(9), decode(3, state_id=1)]
    narrow = expected_fields("decode", config(), batch)
    wide = expected_fields("decode", config(), batch, max_num_blocks=5)
    assert rows_of(wide["block_tables"]) == [[20, 21, None, None, None], [20, None, None, None, None]]
    assert rows_of(wide["kv_ca_index_offset_len.2"]) == [[0, 5], [20, 2]]
    changed = {key for key in wide if cells(wide, key) != cells(narrow, key)}
    assert changed == {"block_tables", "kv_ca_index_offset_len.2", "max_num_blocks"}


def test_chosen_compressed_rows():
    """``rows=``: the compressed tokens that a chosen position falls in, and the one row of an empty range."""
    batch = [prompt(5, 8), prompt(1, 1, state_id=1)]
    fields = expected_fields("prompt", config(), batch, rows=[1, 7])
    # Positions 6 and 12; ratio 4: token 1 of {1, 2}; token 3 is not complete. Second sequence: its one row.
    assert fields["positions_c.4"].rows == (0, 2)
    assert cells(fields, "positions_c.4") == [4, 0]
    assert cells(fields, "slot_mapping_store_ca.4") == [41, -1]
