"""`gather_input_ids_zos` (F-GATHER)."""

import engine_cases as cases
import pytest
import torch

from inputmeta import engine


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.fixture
def gather():
    """Sequences of 2, 1, 0 and 3 rows, the second new; the last step had two, with two drafts each."""
    return {
        "fresh_input_ids": ids(10, 11, 12, 13, 14, 15),
        "prev_sampled_token_ids": ids(50, 60),
        "prev_predict_token_ids": torch.tensor([[51, 52], [61, 62]], dtype=torch.int32),
        "remap": ids(1, -1, 0, 0),
        "seqlens_q": ids(2, 1, 0, 3),
        "cu_seqlens_q": ids(2, 3, 3, 6),
    }


EXPECTED = [60, 61, 12, 50, 51, 52]


def test_rows_come_from_the_last_step_or_are_fresh(gather):
    before = {name: tensor.clone() for name, tensor in gather.items()}
    assert engine.gather_input_ids_zos(**gather).tolist() == EXPECTED
    assert all(torch.equal(tensor, before[name]) for name, tensor in gather.items())
    out = torch.full((9,), cases.POISON, dtype=torch.int32)
    result = engine.gather_input_ids_zos(**gather, out=out)
    assert (result.tolist(), result.data_ptr()) == (EXPECTED, out.data_ptr())
    assert out.tolist() == [*EXPECTED, *[cases.POISON] * 3]
    in_place = engine.gather_input_ids_zos(**gather, out=gather["fresh_input_ids"])
    assert (in_place.tolist(), in_place.data_ptr()) == (EXPECTED, gather["fresh_input_ids"].data_ptr())
    assert engine.gather_input_ids_zos(**gather).tolist() == EXPECTED


def test_a_first_step_is_all_fresh(gather):
    gather.update(
        remap=ids(-1, -5, -1, -1),
        prev_sampled_token_ids=ids(),
        prev_predict_token_ids=torch.empty((0, 2), dtype=torch.int32),
    )
    assert engine.gather_input_ids_zos(**gather).tolist() == [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"remap": ids(2, -1, 0, 0)}, r"remap\[0\] is 2; rule: a place below the 2 of the last step"),
        ({"seqlens_q": ids(2, 1, -1, 3)}, r"seqlens_q\[2\] is -1"),
        ({"cu_seqlens_q": ids(0, 2, 3, 3)}, r"cu_seqlens_q\[0\] is 0; rule: the inclusive sum"),
        ({"seqlens_q": ids(3, 1, 0, 3), "cu_seqlens_q": ids(3, 4, 4, 7)}, r"seqlens_q\[3\] is 3; .* 6 fresh_input_ids"),
        (
            {"seqlens_q": ids(2, 0, 0, 4), "cu_seqlens_q": ids(2, 2, 2, 6)},
            r"seqlens_q\[3\] is 4; .* 2 columns of prev_predict_token_ids",
        ),
        (
            {"prev_predict_token_ids": torch.zeros((3, 2), dtype=torch.int32)},
            r"prev_predict_token_ids has shape \(3, 2\)",
        ),
        ({"prev_predict_token_ids": ids(51, 52)}, "prev_predict_token_ids"),
        ({"max_seqlen_q": 2}, r"seqlens_q\[3\] is 3; rule: 0 or more, at most 2 rows"),
        ({"fresh_cu_seqlens_q": ids(1, 3, 3, 6)}, r"seqlens_q\[0\] is 2; rule: 0 or more, at most 1 rows"),
        ({"fresh_cu_seqlens_q": ids(2, 1, 3, 6)}, r"fresh_cu_seqlens_q\[1\] is 1"),
        ({"fresh_cu_seqlens_q": ids(2, 3, 3, 7)}, r"fresh_cu_seqlens_q\[3\] is 7"),
        ({"fresh_cu_seqlens_q": ids(2, 3, 3)}, r"fresh_cu_seqlens_q has shape \(3,\)"),
        (
            {"prev_predict_token_ids": torch.zeros((2, 4), dtype=torch.int32)[:, :2]},
            "prev_predict_token_ids is not a contiguous",
        ),
        ({"remap": ids(1, -1, 0)}, r"remap has shape \(3,\)"),
        ({"cu_seqlens_q": ids(0, 2, 3, 3, 6)}, r"cu_seqlens_q has shape \(5,\)"),
        ({"fresh_input_ids": torch.zeros(6, dtype=torch.int64)}, "fresh_input_ids is not a contiguous int32"),
        ({"seqlens_q": torch.tensor([2, 1, 0, 3])}, "seqlens_q is not a contiguous int32"),
        ({"remap": ids(1, 0, -1, 0, 0, 0, 0, 0)[::2]}, "remap is not a contiguous int32"),
        (
            {"prev_sampled_token_ids": torch.zeros(2, dtype=torch.int32, device="meta")},
            "prev_sampled_token_ids .* host memory",
        ),
    ],
)
def test_a_gather_outside_its_arrays_writes_nothing(gather, change, message):
    gather.update(change)
    out = torch.full((6,), cases.POISON, dtype=torch.int32)
    with pytest.raises(ValueError, match=message):
        engine.gather_input_ids_zos(**gather, out=out)
    assert cases.is_untouched({"out": out})


def test_an_unfit_out_is_refused(gather):
    for out in (ids(1, 2, 3), torch.zeros(6), torch.zeros((6, 1), dtype=torch.int32), [0] * 6):
        with pytest.raises(engine.OutError, match="input_ids"):
            engine.gather_input_ids_zos(**gather, out=out)
    shared = torch.zeros(8, dtype=torch.int32)
    for name in ("prev_sampled_token_ids", "seqlens_q", "remap"):
        own = {**gather, name: shared[2 : 2 + gather[name].numel()].copy_(gather[name])}
        with pytest.raises(engine.OutError, match=f"memory of {name}"):
            engine.gather_input_ids_zos(**own, out=shared)
    gather["fresh_input_ids"] = shared[1:7]
    with pytest.raises(engine.OutError, match="memory of fresh_input_ids"):
        engine.gather_input_ids_zos(**gather, out=shared)


def test_fresh_rows_lie_where_the_extracted_layout_has_them(gather):
    """All four were extracted with three rows; `fresh_input_ids` has them all."""
    gather.update(fresh_input_ids=torch.arange(100, 112, dtype=torch.int32), fresh_cu_seqlens_q=ids(3, 6, 9, 12))
    gather.update(remap=ids(-1, 0, -1, -9))
    out = torch.full((14,), cases.POISON, dtype=torch.int32)
    expected = [100, 101, 50, 109, 110, 111]
    assert engine.gather_input_ids_zos(**gather).tolist() == [*expected, *[0] * 6]
    assert engine.gather_input_ids_zos(**gather, out=out, max_seqlen_q=3).tolist() == [*expected, *[cases.POISON] * 6]
    assert out.tolist() == [*expected, *[cases.POISON] * 8]
    with pytest.raises(engine.OutError, match="memory of fresh_input_ids"):  # rows would be read after they moved
        engine.gather_input_ids_zos(**gather, out=gather["fresh_input_ids"])
