"""F-GATHER and drafts of varying number on a GPU, where lengths may be known to the GPU alone."""

import dataclasses
import random

import engine_cases as cases
import pytest
import torch
from gpu_cases import GPU, assert_same, ids, plain_step, without_sync

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
        "prev_sampled": torch.randint(0, 10**6, (previous,), dtype=torch.int32),
        "prev_predict": torch.randint(0, 10**6, (previous, drafts), dtype=torch.int32),
        "remap": torch.tensor(remap, dtype=torch.int32),
        "seqlens_q": torch.tensor(lengths, dtype=torch.int32),
    }


def on_gpu(inputs):
    return {name: tensor.to(GPU) for name, tensor in inputs.items()}


@pytest.mark.parametrize(
    ("seed", "count"), [*((seed, 1 + 7 * seed) for seed in range(20)), (99, 65_536), (100, 70_001)]
)
def test_token_ids_are_those_of_the_host(seed, count):
    inputs = random_gather(seed, count)
    sums, tokens = engine.prepare_decode_inputs_zos_varlen(**inputs)
    sent = on_gpu(inputs)
    out = {name: torch.full((count + 999,), cases.POISON, dtype=torch.int32, device=GPU) for name in ("cu_seqlens_q",)}
    out["input_ids"] = torch.full((tokens.numel() + 5,), cases.POISON, dtype=torch.int32, device=GPU)
    with without_sync():
        our_sums, our_tokens = engine.prepare_decode_inputs_zos_varlen(**sent)
        given_sums, given_tokens = engine.prepare_decode_inputs_zos_varlen(**sent, out=out)
        gathered = engine.gather_input_ids_zos(**sent, cu_seqlens_q=our_sums)
    assert torch.equal(our_sums.cpu(), sums)
    assert torch.equal(our_tokens.cpu(), tokens)
    assert torch.equal(gathered.cpu(), tokens)
    rows = int(sums[-1])
    assert torch.equal(given_sums.cpu(), sums)
    assert torch.equal(given_tokens[:rows].cpu(), tokens[:rows])
    assert bool((out["input_ids"][rows:] == cases.POISON).all())
    assert bool((out["cu_seqlens_q"][count:] == cases.POISON).all())
    in_place = engine.gather_input_ids_zos(**sent, cu_seqlens_q=our_sums, out=sent["fresh_input_ids"])
    assert torch.equal(in_place[:rows].cpu(), tokens[:rows])


def test_sums_of_lengths_that_do_not_begin_at_16_bytes():
    lengths = torch.randint(0, 9, (10_001,), dtype=torch.int32, device=GPU)
    inputs = on_gpu(random_gather(1, 10_000)) | {"seqlens_q": lengths[1:], "remap": torch.full_like(lengths[1:], -1)}
    sums, _ = engine.prepare_decode_inputs_zos_varlen(**inputs)
    assert torch.equal(sums.long(), lengths[1:].long().cumsum(0))


def test_tensors_of_another_place_are_refused():
    sent = on_gpu(random_gather(2, 9))
    out = {
        name: torch.full((900,), cases.POISON, dtype=torch.int32, device=GPU) for name in ("cu_seqlens_q", "input_ids")
    }
    for name, tensor in sent.items():
        for bad in (tensor.cpu(), tensor.long()):
            with pytest.raises(ValueError, match=r"not a contiguous int32 tensor|P-OUT"):
                engine.prepare_decode_inputs_zos_varlen(**{**sent, name: bad}, out=out)
    with pytest.raises(engine.OutError, match="input_ids"):
        engine.prepare_decode_inputs_zos_varlen(**sent, out={**out, "input_ids": out["input_ids"].cpu()})
    with pytest.raises(engine.OutError, match="in the memory of"):
        engine.prepare_decode_inputs_zos_varlen(**sent, out={**out, "cu_seqlens_q": out["input_ids"]})
    torch.cuda.synchronize()
    assert cases.is_untouched(out)


def test_indices_outside_are_left_out():
    """Rows of a sequence that goes on from one that was not there, or whose rows end behind the array."""
    inputs = on_gpu(random_gather(3, 40))
    sums = inputs["seqlens_q"].cumsum(0, dtype=torch.int32)
    out = torch.full_like(inputs["fresh_input_ids"], cases.POISON)
    nobody = torch.full((40,), 2**31 - 1, dtype=torch.int32, device=GPU)
    engine.gather_input_ids_zos(**{**inputs, "remap": nobody}, cu_seqlens_q=sums, out=out)
    assert bool((out == cases.POISON).all())
    one = {"remap": ids(0), "seqlens_q": ids(4), "cu_seqlens_q": ids(5)}
    engine.gather_input_ids_zos(ids(10, 11, 12), ids(50), ids(51, 52, 53).reshape(1, 3), **one, out=out)
    assert out[:4].tolist() == [cases.POISON, 50, 51, cases.POISON]
    assert bool((out[4:] == cases.POISON).all())


def test_a_step_whose_lengths_only_the_gpu_knows():
    """The host plans for two drafts each; the sampler on the GPU left one of the first sequence, none of the second."""
    config, planned = plain_step(2, rows=3, keys=10)
    step = planned.to(GPU)
    buffers = engine.ZosBuffers.allocate(config, 2, 6, 2)
    for tensor in buffers.values():
        tensor.fill_(True if tensor.dtype == torch.bool else cases.POISON)
    lengths, remap = ids(2, 1), ids(0, 1)
    sampled, predict = ids(8, 8), torch.tensor([[50, 51], [50, 51]], dtype=torch.int32, device=GPU)
    with without_sync():
        sums, tokens = engine.prepare_decode_inputs_zos_varlen(lengths, step.input_ids, sampled, predict, remap)
        varying = dataclasses.replace(
            step,
            seqlens_q=lengths,
            seqlens_k=step.seqlens_k - step.seqlens_q + lengths,
            cu_seqlens_q=sums,
            input_ids=tokens,
        )
        ours = engine.prepare_decode_v4_zos(varying, config, buffers, GPU)
    assert ours.positions.tolist() == [7, 8, 7, *[cases.POISON] * 3]
    assert ours.query_indices.tolist() == [0, 0, 1, *[cases.POISON] * 3]
    assert ours.cu_seqlens_q.tolist() == [2, 3]
    assert ours.input_ids.tolist() == [8, 50, 8, 0, 0, 0]
    assert ours.slot_mapping_store_swa.tolist()[:3] == [13, 14, 13]
    host = engine.prepare_decode_v4_zos(planned, config)
    assert_same(engine.prepare_decode_v4_zos(planned, config, device=GPU), host, planned, config)
