"""The captured buffers of ZOS decode: one buffer a field (F-STACK), prefixes of it, and P-OUT for all else."""

import engine_cases as cases
import pytest
import torch
from zos_cases import Captured, build

from inputmeta import engine
from inputmeta.engine.zos import get_or_create, get_or_create_stacked


def two_ratios():
    """A configuration with two buckets of each kind, and a step of it."""
    config = cases.config(dense_ratios=[1, 2], sparse_ratios=[2, 4, 8])
    return config, [cases.decode_sequence(), cases.decode_sequence(state_id=3)]


def rows_of(buffer, order=(0, 1, 2), rows=6):
    return [buffer[index, :rows] for index in order]


def buffer(count=3, row_cells=8):
    return torch.full((count, row_cells), cases.POISON, dtype=torch.int32)


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (lambda: [buffer()[0, :6] for _ in range(3)], "klen.4 is in another storage"),
        (lambda: rows_of(buffer(), (0, 2, 1)), "klen.8 is 8 cells past it"),
        (lambda: rows_of(buffer(4), (0, 1, 3)), "klen.8 is 24 cells past it"),
        (lambda: rows_of(buffer(), (2, 1, 0)), "klen.4 is -8 cells past it"),
        (lambda: rows_of(buffer(), rows=5), r"klen.2 is \(5,\)"),
        (lambda: [*rows_of(buffer())[:2], buffer().long()[2, :6]], "klen.8 is torch.int64"),
        (lambda: [row.reshape(6, 1) for row in rows_of(buffer())], r"klen.2 is \(6, 1\)"),
        (lambda: [row[::2] for row in rows_of(buffer(3, 12), rows=12)], r"klen.2 is strided \(2,\)"),
        (lambda: rows_of(buffer().to("meta")), "klen.2 is meta"),
        (lambda: [*rows_of(buffer())[:2], None], "klen.8 is missing"),
        (lambda: [*rows_of(buffer())[:2], [1] * 6], "klen.8 is list"),
    ],
)
def test_a_broken_stack_is_refused_and_nothing_written(broken, found):
    config, sequences = two_ratios()
    captured = Captured(sequences, config)
    rows = broken()
    captured.out.update(zip(("klen.2", "klen.4", "klen.8"), rows, strict=True))
    with pytest.raises(engine.OutError, match=f"^P-OUT: {found}.*; rule: ") as refusal:
        build(sequences, config, captured.out)
    assert "\n" not in str(refusal.value)
    assert cases.is_untouched(captured.buffers)
    assert all(bool((row == cases.POISON).all()) for row in rows if isinstance(row, torch.Tensor) and row.is_cpu)


def spaced(*offsets, cells=64, rows=6):
    buffer = torch.zeros(cells, dtype=torch.int32)
    return {f"klen.{key}": buffer[begin : begin + rows] for key, begin in zip("248", offsets, strict=False)}


@pytest.mark.parametrize(
    ("out", "field", "rule"),
    [
        (spaced(0, 8, 17), "klen.8", "lies 2 * 8 cells past klen.2: even spacing (F-STACK)"),
        (spaced(16, 8, 0), "klen.4", "lies whole rows of 1 cells past klen.2, 6 or more (F-STACK)"),
        (spaced(0, 5, 10), "klen.4", "lies whole rows of 1 cells past klen.2, 6 or more (F-STACK)"),
        (spaced(0, 0, 0), "klen.4", "lies whole rows of 1 cells past klen.2, 6 or more (F-STACK)"),
        (spaced(0, 8, 16, cells=23), "klen.8", "has room for 8 cells, as the buckets before it (F-STACK)"),
    ],
)
def test_which_rule_of_a_stack_is_broken(out, field, rule):
    with pytest.raises(engine.OutError) as refusal:
        get_or_create_stacked("klen", ["2", "4", "8"], (6,), torch.int32, out, "cpu")
    assert (refusal.value.field, refusal.value.rule) == (field, rule)


def test_rows_of_two_cells_lie_whole_rows_apart():
    buffer = torch.zeros(64, dtype=torch.int32)
    out = {f"x.{key}": buffer[begin : begin + 12].view(6, 2) for key, begin in (("1", 0), ("2", 13))}
    with pytest.raises(engine.OutError, match="whole rows of 2 cells"):
        get_or_create_stacked("x", ["1", "2"], (6, 2), torch.int32, out, "cpu")


def test_a_stack_is_one_buffer_and_its_buckets_prefixes():
    stacked, views = get_or_create_stacked("x", ["1", "4"], (5, 2), torch.int32, None, "cpu")
    assert stacked.shape == (2, 5, 2)
    buffer = torch.zeros((3, 9, 2), dtype=torch.int32)
    out = {"x.1": buffer[0, :7], "x.4": buffer[1, :7]}
    stacked, views = get_or_create_stacked("x", ["1", "4"], (5, 2), torch.int32, out, "cpu")
    assert (stacked.shape, stacked.is_contiguous()) == ((2, 9, 2), True)
    assert stacked.data_ptr() == buffer.data_ptr()
    assert [view.shape for view in views.values()] == [(5, 2), (5, 2)]
    assert [view.data_ptr() for view in views.values()] == [buffer[0].data_ptr(), buffer[1].data_ptr()]
    stacked, views = get_or_create_stacked("x", [], (5, 2), torch.int32, out, "cpu")
    assert (stacked.shape, views) == ((0, 5, 2), {})


@pytest.mark.parametrize("key", ["positions", "valid_token_mask", "cu_seqlens_q", "block_tables", "input_ids"])
def test_a_plain_buffer_that_is_too_small_or_missing_is_refused(key):
    config, sequences = two_ratios()
    for bad in (lambda tensor: tensor[1:], lambda _: None, lambda tensor: tensor.double()):
        captured = Captured(sequences, config)
        captured.out[key] = bad(captured.out[key])
        with pytest.raises(engine.OutError) as refusal:
            build(sequences, config, captured.out)
        assert refusal.value.field == key
        assert cases.is_untouched(captured.buffers)


def test_narrow_block_tables_are_refused_and_wide_ones_bounded():
    config, sequences = two_ratios()
    captured = Captured(sequences, config)
    captured.out["block_tables"] = torch.zeros((6, 1), dtype=torch.int32)
    with pytest.raises(engine.OutError, match="block_tables"):
        build(sequences, config, captured.out)
    captured.out["block_tables"] = torch.empty((6, 2**28), dtype=torch.int32, device="meta")
    with pytest.raises(engine.Int32Error, match="max_num_blocks"):
        build(sequences, config, captured.out)
    assert cases.is_untouched(captured.buffers)


def test_a_buffer_of_the_right_size_is_returned_as_it_is():
    tensor = torch.zeros((4, 2), dtype=torch.int32)
    view = get_or_create("x", (4, 2), torch.int32, {"x": tensor}, "cpu")
    assert (view.data_ptr(), view.shape) == (tensor.data_ptr(), tensor.shape)
    assert get_or_create("x", (3,), torch.bool, None, "cpu").dtype == torch.bool
