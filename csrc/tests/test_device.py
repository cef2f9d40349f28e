"""What the engine says and does about devices where there may be none."""

import dataclasses
import importlib

import engine_cases as cases
import pytest
import torch
from zos_cases import Captured, build

from inputmeta import engine
from inputmeta.engine import device
from inputmeta.engine.tensors import packed


def has_gpu():
    return torch.cuda.is_available()


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
@pytest.mark.parametrize(
    "use",
    [
        lambda step, config: engine.prepare_decode_v4_zos(step, config, device="cuda"),
        lambda step, config: engine.ZosBuffers.allocate(config, 1, 1, 1),
        lambda step, config: step.to("cuda"),
        lambda step, config: engine.prepare_decode_v4_zos(step, config).to("cuda"),
    ],
)
@pytest.mark.parametrize(("built", "missing"), [(False, "without a CUDA compiler"), (True, "torch sees no CUDA GPU")])
def test_what_is_missing_is_said(monkeypatch, use, built, missing):
    monkeypatch.setattr(device, "_built", lambda: torch if built else None)
    config = cases.config()
    step = engine.prepare_decode_zos_inputs([cases.decode_sequence()], config)
    assert not engine.cuda_available()
    with pytest.raises(RuntimeError, match=missing):
        use(step, config)


def test_a_module_that_is_there_is_not_taken_for_missing(monkeypatch):
    def broken(_):
        raise ImportError("undefined symbol")

    device._built.cache_clear()
    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ImportError, match="undefined symbol"):
        device._built()
    monkeypatch.undo()
    device._built.cache_clear()


def test_other_devices_are_refused():
    config = cases.config()
    step = engine.prepare_decode_zos_inputs([cases.decode_sequence()], config)
    with pytest.raises(NotImplementedError, match="meta"):
        engine.prepare_decode_v4_zos(step, config, device="meta")


# --- Copies ----------------------------------------------------------------------------------------------------------


def test_fields_of_a_pack_lie_apart_and_aligned():
    fields = [
        ("a", "int32", (3, 2)),
        ("b", "bool", (5,)),
        ("c", "bool", (16,)),
        ("d", "int32", (1,)),
        ("e", "bool", (33,)),
    ]
    made = []

    def make(cells):
        made.append(torch.zeros(cells, dtype=torch.int32))
        return made[0]

    tensors = packed(fields, make)
    assert [(tensor.dtype, tuple(tensor.shape)) for tensor in tensors] == [
        (torch.bool if dtype == "bool" else torch.int32, shape) for _, dtype, shape in fields
    ]
    for value, tensor in enumerate(tensors):
        tensor.fill_(value + 2)
    assert tensors[0].tolist() == [[2, 2], [2, 2], [2, 2]]
    assert tensors[3].tolist() == [5]
    base = made[0].data_ptr()
    begins = [tensor.data_ptr() - base for tensor in tensors]
    assert begins == [0, 32, 48, 64, 80]
    assert made[0].nbytes == 128


def prepared(config):
    return engine.prepare_prompt_v4([cases.prompt_sequence()], config)


def test_a_step_that_is_there_already_shares_its_tensors():
    step = prepared(cases.config())
    again = step.to("cpu")
    assert again is not step
    assert all(tensor is again.to_flatten_dict()[key] for key, tensor in cases.tensors(step).items())


def test_a_storage_goes_over_once_and_a_tensor_stays_one():
    config = cases.config()
    step = prepared(config)
    fields = [
        (key, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        for key, tensor in cases.tensors(step).items()
    ]
    together = packed(fields, lambda cells: torch.zeros(cells, dtype=torch.int32))
    for tensor, source in zip(together, cases.tensors(step).values(), strict=True):
        tensor.copy_(source)
    flat = {**step.to_flatten_dict(), **dict(zip(cases.tensors(step), together, strict=True))}
    flat["context_lens"] = flat["positions"]
    sent = engine.InputMetadataV4.from_flatten_dict(flat).to("meta")
    assert sent.context_lens is sent.positions
    for key, tensor in cases.tensors(sent).items():
        assert (tensor.shape, tensor.dtype, tensor.storage_offset()) == (
            flat[key].shape,
            flat[key].dtype,
            flat[key].storage_offset(),
        )


def test_buffers_of_more_rows_are_filled_and_others_refused():
    step = prepared(cases.config())
    out = {
        key: torch.full((value.shape[0] + 2, *value.shape[1:]), 1, dtype=value.dtype)
        for key, value in cases.tensors(step).items()
    }
    sent = step.to("cpu", out)
    assert cases.same(sent, step)
    assert all(sent.to_flatten_dict()[key].data_ptr() == tensor.data_ptr() for key, tensor in out.items())
    assert out["positions"][-2:].tolist() == [1, 1]
    out = {**out, "positions": torch.full((9,), cases.POISON, dtype=torch.int32), "query_indices": torch.zeros(9)}
    with pytest.raises(engine.OutError, match="query_indices"):
        step.to("cpu", out)
    assert cases.is_untouched({"positions": out["positions"]})


# --- Buffers checked once --------------------------------------------------------------------------------------------


def test_buffers_on_the_host_are_a_mapping_of_what_was_captured():
    config = cases.config()
    captured = Captured([cases.decode_sequence()] * 3, config, more_columns=1)
    buffers = engine.ZosBuffers(captured.out, config, "cpu")
    assert (buffers.rows, buffers.num_reqs, buffers.columns) == (9, 3, 3)
    assert buffers.keys() == captured.out.keys()
    assert all(buffers[key] is tensor for key, tensor in captured.out.items())
    ours = build([cases.decode_sequence()], config, buffers)
    assert ours.positions.data_ptr() == captured.out["positions"].data_ptr()
    made = engine.ZosBuffers.allocate(config, 2, 6, 5, "cpu")
    assert (made.rows, made.num_reqs, made.columns) == (6, 2, 5)
    assert build([cases.decode_sequence()], config, made).max_num_blocks == 5
    with pytest.raises(engine.OutError, match="context_lens"):
        engine.ZosBuffers({**captured.out, "context_lens": None}, config, "cpu")


def test_expansions_of_a_decode_step_fill_buffers_of_more_rows():
    config = cases.config()
    step = build([cases.decode_sequence()], config)
    out = {
        "kv_swa_index": torch.full((8, 4), cases.POISON, dtype=torch.int32),
        "kv_ca_index.1": torch.full((8, 128), cases.POISON, dtype=torch.int32),
        "kv_ca_index_len.1": torch.full((8,), cases.POISON, dtype=torch.int32),
    }
    step.compute_attn_info(config, out)
    fresh = build([cases.decode_sequence()], config)
    fresh.compute_attn_info(config)
    assert torch.equal(step.kv_ca_index["1"], fresh.kv_ca_index["1"])
    assert torch.equal(step.kv_ca_index_len["1"], fresh.kv_ca_index_len["1"])
    assert step.kv_swa_index.data_ptr() == out["kv_swa_index"].data_ptr()
    assert all(bool((tensor[3:] == cases.POISON).all()) for tensor in out.values())


def test_a_given_share_is_the_mirror():
    config = cases.config(cp_size=2, cp_rank=1)
    first, second = prepared(config), prepared(config)
    first.prepare_for_mirror_cp(config)
    share = engine.prepare_cp_mirror(
        second.cu_seqlens_q, second.cu_seqlens_k, 2, 1, [4], second.total_q, second.cp_mirror_len
    )
    for out in (None, {**cases.poisoned(first)}):
        step = prepared(config)
        step.prepare_for_mirror_cp(config, out, share=share)
        assert cases.same(step, first)
        assert (step.mirror_cp_index is share.mirror_cp_index) == (out is None)
    with pytest.raises(ValueError, match="share has"):
        prepared(config).prepare_for_mirror_cp(config, share=share._replace(ks={}))


def test_a_step_without_rows_has_its_neutral_row():
    config = cases.config()
    step = engine.prepare_decode_zos_inputs([cases.decode_sequence()], config)
    empty = torch.zeros(1, dtype=torch.int32)
    step = dataclasses.replace(step, total_q=0, seqlens_q=empty, cu_seqlens_q=empty, input_ids=step.input_ids[:0])
    built = engine.prepare_decode_v4_zos(step, config)
    assert built.query_indices.tolist() == [998244353]
    assert (built.input_ids.tolist(), built.slot_mapping_store_ca["4"].tolist()) == ([0], [-1])
    assert built.kv_ca_index_offset_len["1"].tolist() == [[0, 0]]
