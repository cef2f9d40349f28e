"""`gather_input_ids_zos` (F-GATHER) and drafts whose number the last step decided."""

import dataclasses

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
        "prev_sampled": ids(50, 60),
        "prev_predict": torch.tensor([[51, 52], [61, 62]], dtype=torch.int32),
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
    gather.update(remap=ids(-1, -5, -1, -1), prev_sampled=ids(), prev_predict=torch.empty((0, 2), dtype=torch.int32))
    assert engine.gather_input_ids_zos(**gather).tolist() == [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"remap": ids(2, -1, 0, 0)}, r"sequence 0: remap < len\(prev_sampled\) = 2"),
        ({"seqlens_q": ids(2, 1, -1, 3)}, "sequence 2: seqlens_q >= 0"),
        ({"cu_seqlens_q": ids(0, 2, 3, 3)}, "sequence 0: cu_seqlens_q is the inclusive sum"),
        ({"seqlens_q": ids(3, 1, 0, 3), "cu_seqlens_q": ids(3, 4, 4, 7)}, "sequence 3: seqlens_q sum to at most 6"),
        ({"seqlens_q": ids(2, 0, 0, 4), "cu_seqlens_q": ids(2, 2, 2, 6)}, "sequence 3: .* columns of prev_predict = 2"),
        ({"prev_predict": torch.zeros((3, 2), dtype=torch.int32)}, "same sequences or rows"),
        ({"prev_predict": ids(51, 52)}, "prev_predict"),
        ({"prev_predict": torch.zeros((2, 4), dtype=torch.int32)[:, :2]}, "prev_predict is not a contiguous"),
        ({"remap": ids(1, -1, 0)}, "same sequences or rows"),
        ({"cu_seqlens_q": ids(0, 2, 3, 3, 6)}, "same sequences or rows"),
        ({"fresh_input_ids": torch.zeros(6, dtype=torch.int64)}, "fresh_input_ids is not a contiguous int32"),
        ({"seqlens_q": torch.tensor([2, 1, 0, 3])}, "seqlens_q is not a contiguous int32"),
        ({"remap": ids(1, 0, -1, 0, 0, 0, 0, 0)[::2]}, "remap is not a contiguous int32"),
        ({"prev_sampled": torch.zeros(2, dtype=torch.int32, device="meta")}, "prev_sampled .* host memory"),
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
    for name in ("prev_sampled", "seqlens_q", "remap"):
        own = {**gather, name: shared[2 : 2 + gather[name].numel()].copy_(gather[name])}
        with pytest.raises(engine.OutError, match=f"memory of {name}"):
            engine.gather_input_ids_zos(**own, out=shared)
    gather["fresh_input_ids"] = shared[1:7]
    with pytest.raises(engine.OutError, match="memory of fresh_input_ids"):
        engine.gather_input_ids_zos(**gather, out=shared)


# --- Drafts of varying number ----------------------------------------------------------------------------------------


def test_lengths_are_summed_where_they_lie(gather):
    expected = gather.pop("cu_seqlens_q")
    sums, tokens = engine.prepare_decode_inputs_zos_varlen(**gather)
    assert torch.equal(sums, expected)
    assert tokens.tolist() == EXPECTED
    out = {name: torch.full((8,), cases.POISON, dtype=torch.int32) for name in ("cu_seqlens_q", "input_ids")}
    gather["seqlens_q"] = ids(1, 1, 1, 2)  # one row less than there is room for
    sums, tokens = engine.prepare_decode_inputs_zos_varlen(**gather, out=out)
    assert out["cu_seqlens_q"].tolist() == [1, 2, 3, 5, *[cases.POISON] * 4]
    assert out["input_ids"].tolist() == [60, 11, 50, 50, 51, *[cases.POISON] * 3]
    assert (sums.data_ptr(), tokens.data_ptr()) == (out["cu_seqlens_q"].data_ptr(), out["input_ids"].data_ptr())


def test_lengths_that_do_not_fit_write_nothing(gather):
    del gather["cu_seqlens_q"]
    out = {name: torch.full((8,), cases.POISON, dtype=torch.int32) for name in ("cu_seqlens_q", "input_ids")}
    for lengths in (ids(2, 2, 1, 2), ids(4, 0, 0, 0), ids(2**31 - 1, 2**31 - 1, 2, 1), ids(-1, 1, 1, 1)):
        gather["seqlens_q"] = lengths
        with pytest.raises(ValueError, match="seqlens_q"):
            engine.prepare_decode_inputs_zos_varlen(**gather, out=out)
    gather["seqlens_q"] = ids(2, 1, 0, 3)
    with pytest.raises(engine.OutError, match="cu_seqlens_q is missing"):
        engine.prepare_decode_inputs_zos_varlen(**gather, out={"input_ids": out["input_ids"]})
    with pytest.raises(engine.OutError, match="cu_seqlens_q is in the memory of input_ids"):
        engine.prepare_decode_inputs_zos_varlen(
            **gather, out={"input_ids": out["input_ids"], "cu_seqlens_q": out["input_ids"]}
        )
    assert cases.is_untouched(out)


def test_a_step_with_the_devices_lengths_is_the_step_that_the_host_would_have_built():
    """The host plans for two drafts each; the device verifies one of the first sequence and none of the second."""
    config = cases.config()
    planned = [cases.decode_sequence(), cases.decode_sequence(state_id=3)]
    decided = [
        cases.decode_sequence(seqlen_q=2, seqlen_k=9, draft_tokens=[91]),
        cases.decode_sequence(seqlen_q=1, seqlen_k=8, draft_tokens=[], state_id=3),
    ]
    step = engine.prepare_decode_zos_inputs(planned, config)
    sums, tokens = engine.prepare_decode_inputs_zos_varlen(
        seqlens_q=ids(2, 1),
        fresh_input_ids=step.input_ids,
        prev_sampled=ids(107, 107),
        prev_predict=torch.tensor([[91, 92], [91, 92]], dtype=torch.int32),
        remap=ids(0, 1),
    )
    rows = int(sums[-1])
    varying = dataclasses.replace(
        step,
        seqlens_q=ids(2, 1),
        seqlens_k=step.seqlens_k - step.seqlens_q + ids(2, 1),
        cu_seqlens_q=sums,
        input_ids=tokens[:rows],
        total_q=rows,
    )
    ours = cases.tensors(engine.prepare_decode_v4_zos(varying, config))
    theirs = cases.tensors(engine.prepare_decode_v4_zos(engine.prepare_decode_zos_inputs(decided, config), config))
    assert ours.keys() == theirs.keys()
    del ours["block_tables"], ours["kv_ca_index_offset_len.1"]  # the planned table has a column more
    assert all(torch.equal(tensor, theirs[key]) for key, tensor in ours.items())
