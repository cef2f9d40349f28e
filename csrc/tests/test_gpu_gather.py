"""F-GATHER on a GPU."""

import random

import engine_cases as cases
import pytest
import torch
from gpu_cases import GPU, ids, without_sync

from inputmeta import engine

pytestmark = pytest.mark.gpu


def random_gather(seed, count):
    """Inputs of a gather on the host; some rows more than the lengths sum to."""
    draw = random.Random(seed)
    previous, drafts = draw.randint(1, 40), draw.randint(0, 4)
    remap = [draw.randint(-3, previous - 1) for _ in range(count)]
    lengths = [draw.randint(0, drafts + 1) if source >= 0 else draw.choice([0, 1, 2, 60]) for source in remap]
    rows = sum(lengths) + 3
    return {
        "fresh_input_ids": torch.randint(0, 10**6, (rows,), dtype=torch.int32),
        "prev_sampled_token_ids": torch.randint(0, 10**6, (previous,), dtype=torch.int32),
        "prev_predict_token_ids": torch.randint(0, 10**6, (previous, drafts), dtype=torch.int32),
        "remap": torch.tensor(remap, dtype=torch.int32),
        "seqlens_q": torch.tensor(lengths, dtype=torch.int32),
        "cu_seqlens_q": torch.tensor(lengths, dtype=torch.int32).cumsum(0, dtype=torch.int32),
    }


def on_gpu(inputs):
    return {name: tensor.to(GPU) for name, tensor in inputs.items()}


@pytest.mark.parametrize(
    ("seed", "count"), [*((seed, 1 + 7 * seed) for seed in range(20)), (99, 65_536), (100, 70_001)]
)
def test_token_ids_are_those_of_the_host(seed, count):
    inputs = random_gather(seed, count)
    tokens = engine.gather_input_ids_zos(**inputs)
    sent = on_gpu(inputs)
    out = torch.full((tokens.numel() + 5,), cases.POISON, dtype=torch.int32, device=GPU)
    with without_sync():
        ours = engine.gather_input_ids_zos(**sent)
        given = engine.gather_input_ids_zos(**sent, out=out, max_seqlen_q=60)
    assert torch.equal(ours.cpu(), tokens)
    rows = int(inputs["cu_seqlens_q"][-1])
    assert torch.equal(given[:rows].cpu(), tokens[:rows])
    assert bool((out[rows:] == cases.POISON).all())
    in_place = engine.gather_input_ids_zos(**sent, out=sent["fresh_input_ids"])
    assert torch.equal(in_place[:rows].cpu(), tokens[:rows])


def test_fresh_rows_lie_where_the_extracted_layout_has_them():
    inputs = on_gpu(random_gather(5, 500))
    room = inputs["seqlens_q"] + 3
    inputs["fresh_cu_seqlens_q"] = room.cumsum(0, dtype=torch.int32)
    inputs["fresh_input_ids"] = torch.arange(int(room.sum()), dtype=torch.int32, device=GPU)
    theirs = engine.gather_input_ids_zos(**{name: tensor.cpu() for name, tensor in inputs.items()})
    assert torch.equal(engine.gather_input_ids_zos(**inputs).cpu(), theirs)


def test_rows_past_max_seqlen_q_are_left_out():
    one = {"remap": ids(-1, -1), "seqlens_q": ids(4, 1), "cu_seqlens_q": ids(4, 5)}
    nothing = {"prev_sampled_token_ids": ids(), "prev_predict_token_ids": ids().reshape(0, 3)}
    out = torch.full((5,), cases.POISON, dtype=torch.int32, device=GPU)
    engine.gather_input_ids_zos(ids(10, 11, 12, 13, 14), **one, **nothing, max_seqlen_q=2, out=out)
    assert out.tolist() == [10, 11, cases.POISON, cases.POISON, 14]


def test_tensors_of_another_place_are_refused():
    sent = on_gpu(random_gather(2, 9))
    out = torch.full((900,), cases.POISON, dtype=torch.int32, device=GPU)
    for name, tensor in sent.items():
        for bad in (tensor.cpu(), tensor.long()):
            with pytest.raises(ValueError, match=r"not a contiguous int32 tensor|P-OUT"):
                engine.gather_input_ids_zos(**{**sent, name: bad}, out=out)
        if name != "fresh_input_ids":
            with pytest.raises(ValueError, match="has shape"):
                engine.gather_input_ids_zos(**{**sent, name: tensor[:1].repeat(99, *[1] * (tensor.ndim - 1))})
    with pytest.raises(engine.OutError, match="input_ids"):
        engine.gather_input_ids_zos(**sent, out=out.cpu())
    torch.cuda.synchronize()
    assert cases.is_untouched({"out": out})


def test_indices_outside_are_left_out():
    """Rows of a sequence that goes on from one that was not there, or whose rows end behind the array."""
    inputs = on_gpu(random_gather(3, 40))
    out = torch.full_like(inputs["fresh_input_ids"], cases.POISON)
    nobody = torch.full((40,), 2**31 - 1, dtype=torch.int32, device=GPU)
    engine.gather_input_ids_zos(**{**inputs, "remap": nobody}, out=out)
    assert bool((out == cases.POISON).all())
    one = {"remap": ids(0), "seqlens_q": ids(4), "cu_seqlens_q": ids(5)}
    engine.gather_input_ids_zos(ids(10, 11, 12), ids(50), ids(51, 52, 53).reshape(1, 3), **one, out=out[:3])
    assert out[:4].tolist() == [cases.POISON, 50, 51, cases.POISON]
    assert bool((out[4:] == cases.POISON).all())
