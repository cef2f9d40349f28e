"""The Python face of the engine: what a step holds, `out` in place, P-OUT, and refusals that write nothing."""

import pickle

import engine_cases as cases
import numpy as np
import pytest
import torch

from inputmeta import engine

PREPARE = {
    "prompt": (engine.prepare_prompt_v4, cases.prompt_sequence),
    "decode": (engine.prepare_decode_v4, cases.decode_sequence),
}


@pytest.fixture(params=PREPARE)
def path(request):
    """(prepare function, a good sequence) of each path."""
    prepare, sequence = PREPARE[request.param]
    return prepare, sequence()


def test_a_prompt_step():
    metadata = engine.prepare_prompt_v4([cases.prompt_sequence()], cases.config())
    assert (metadata.num_reqs, metadata.total_q, metadata.is_prompt) == (1, 3, True)
    assert metadata.positions.tolist() == [5, 6, 7]
    assert metadata.input_ids.tolist() == [105, 106, 107]
    assert metadata.cu_seqlens_k.tolist() == [0, 8]
    assert metadata.load_segments_swa.tolist() == [[2, 1, 5, 0]]
    assert metadata.kv_swa_full_index_pivots.tolist() == [[1, 3, 4, 1], [2, 2, 4, 2], [3, 1, 4, 3]]
    assert metadata.ke["4"].tolist() == [1, 1, 2]
    assert (metadata.total_k_swa, metadata.total_k_compressed) == (4, {"1": 8, "4": 2})
    assert metadata.block_tables is None
    assert metadata.klen is None
    assert metadata.positions.dtype == torch.int32
    assert metadata.valid_token_mask.dtype == torch.bool


def test_a_decode_step():
    metadata = engine.prepare_decode_v4([cases.decode_sequence()], cases.config())
    assert (metadata.num_reqs, metadata.total_q, metadata.is_prompt) == (1, 3, False)
    assert metadata.input_ids.tolist() == [107, 91, 92]
    assert metadata.block_tables.tolist() == [[5, 6]] * 3
    assert metadata.max_num_blocks == 2
    assert metadata.klen["4"].tolist() == [2, 2, 2]
    assert metadata.kv_swa_index_offset_len.tolist() == [[16, 4], [17, 4], [12, 4]]
    assert metadata.total_k_swa is None
    assert metadata.ks is None


def test_fields_without_a_ratio_are_empty_and_not_absent():
    metadata = engine.prepare_prompt_v4([cases.prompt_sequence()], cases.config(sparse_ratios=[]))
    assert metadata.ks == {}
    metadata = engine.prepare_decode_v4([cases.decode_sequence()], cases.config(dense_ratios=[]))
    assert metadata.kv_ca_index_offset_len == {}


def test_building_twice_gives_equal_and_separate_tensors(path):
    prepare, sequence = path
    first, second = (prepare([sequence], cases.config()) for _ in range(2))
    assert cases.same(first, second)
    addresses = {value.data_ptr() for step in (first, second) for value in cases.tensors(step).values()}
    assert len(addresses) == 2 * len(cases.tensors(first))


# --- out -------------------------------------------------------------------------------------------------------------


def test_out_is_filled_in_place(path):
    prepare, sequence = path
    expected = prepare([sequence], cases.config())
    out = cases.poisoned(expected)
    metadata = prepare([sequence], cases.config(), {**out, "not_a_field": None, "num_reqs": 7})
    assert cases.same(metadata, expected)
    assert all(value is out[key] for key, value in cases.tensors(metadata).items())


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda _: None, "is missing"),
        (lambda tensor: tensor.tolist(), "is list"),
        (lambda tensor: tensor.to(torch.int64), "is torch.int64"),
        (lambda tensor: tensor.new_empty(tensor.shape[0] + 1), "is (4,)"),
        (lambda tensor: tensor.reshape(1, -1), "is (1, 3)"),
        (lambda tensor: tensor.new_empty(6)[::2], "is strided (2,)"),
        (lambda tensor: tensor.to("meta"), "is meta"),
    ],
)
def test_a_tensor_that_is_not_the_planned_one_is_refused(path, change, found):
    prepare, sequence = path
    out = cases.poisoned(prepare([sequence], cases.config()))
    bad = change(out.pop("positions"))
    given = out if bad is None else {**out, "positions": bad}
    with pytest.raises(engine.OutError) as refusal:
        prepare([sequence], cases.config(), given)
    assert (refusal.value.condition, refusal.value.field) == ("P-OUT", "positions")
    assert found in str(refusal.value)
    assert cases.is_untouched(out)


def test_every_field_is_required(path):
    prepare, sequence = path
    complete = cases.poisoned(prepare([sequence], cases.config()))
    for key in complete:
        out = {name: tensor for name, tensor in complete.items() if name != key}
        with pytest.raises(engine.OutError) as refusal:
            prepare([sequence], cases.config(), out)
        assert refusal.value.field == key
        assert refusal.value.value is None
    assert cases.is_untouched(complete)


def test_wider_block_tables_are_used_and_narrower_ones_refused():
    sequence, config = cases.decode_sequence(), cases.config()
    out = cases.poisoned(engine.prepare_decode_v4([sequence], config))
    out["block_tables"] = torch.full((3, 4), cases.POISON, dtype=torch.int32)
    metadata = engine.prepare_decode_v4([sequence], config, out)
    assert metadata.max_num_blocks == 4
    assert out["block_tables"].tolist() == [[5, 6, cases.POISON, cases.POISON]] * 3
    assert metadata.kv_ca_index_offset_len["1"].tolist() == [[0, 8], [32, 9], [64, 10]]
    out["block_tables"] = torch.zeros((3, 1), dtype=torch.int32)
    with pytest.raises(engine.OutError, match="block_tables"):
        engine.prepare_decode_v4([sequence], config, out)


def test_the_width_of_block_tables_counts_for_the_product_bound():
    out = {"block_tables": torch.empty((3, 2**28), dtype=torch.int32, device="meta")}
    with pytest.raises(engine.Int32Error, match="max_num_blocks"):
        engine.prepare_decode_v4([cases.decode_sequence()], cases.config(), out)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "change", "field"),
    [
        (engine.LengthError, {"seqlen_q": 11}, "seqlen_q"),
        (engine.TableError, {"block_table": [-1, 1]}, "block_table"),
        (engine.StateError, {"state_id": -1}, "state_id"),
        (engine.Int32Error, {"state_id": 2**31}, "state_block_idx"),
    ],
)
def test_a_refused_batch_writes_nothing(path, error, change, field):
    prepare, sequence = path
    out = cases.poisoned(prepare([sequence, sequence], cases.config()))
    broken = PREPARE["prompt" if prepare is engine.prepare_prompt_v4 else "decode"][1](**change)
    with pytest.raises(error) as refusal:
        prepare([sequence, broken], cases.config(), out)
    assert refusal.value.sequence == 1
    assert refusal.value.field == field
    assert isinstance(refusal.value, ValueError)
    assert cases.is_untouched(out)


def test_a_refusal_of_the_configuration_names_no_sequence(path):
    prepare, sequence = path
    with pytest.raises(engine.RatioError) as refusal:
        prepare([sequence], cases.config(dense_ratios=[3]))
    assert (refusal.value.sequence, refusal.value.field, refusal.value.value) == (None, "dense_ratios", 3)
    assert str(refusal.value) == "P-RATIO: dense_ratios is 3; rule: every ratio divides block_size = 8"


def test_the_text_of_a_refusal_is_one_line_and_survives_pickling():
    with pytest.raises(engine.TableError) as refusal:
        engine.prepare_prompt_v4([cases.prompt_sequence(block_table=[])], cases.config())
    error = refusal.value
    rule = "covers cdiv(seqlen_k // m, block_size // m) = 1 blocks"
    assert (error.condition, error.sequence, error.field, error.value) == ("P-TABLE", 0, "block_table", 0)
    assert error.rule == rule
    assert str(error) == f"P-TABLE: sequence 0: block_table has 0 blocks; rule: {rule}"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is engine.TableError
    assert str(copy) == str(error)


def test_a_value_of_more_than_64_bits_is_named():
    sequence = cases.prompt_sequence(state_id=2**31 - 1)
    with pytest.raises(engine.Int32Error) as refusal:
        engine.prepare_prompt_v4([sequence], cases.config(swa_block_size=2**62))
    assert refusal.value.value == (2**31 - 1) * 2**62 + 7
    assert refusal.value.field == "slot_mapping_store_swa"


def test_ngram_refusals():
    config = cases.config(max_ngram_size=2, lookup_table=[1, 2])
    with pytest.raises(engine.NgramError, match="recent_tokens has 0 tokens"):
        engine.prepare_prompt_v4([cases.prompt_sequence()], config)
    with pytest.raises(engine.NgramError, match="recent_tokens is 2"):
        engine.prepare_prompt_v4([cases.prompt_sequence(recent_tokens=[0] * 7 + [2])], config)


def test_what_is_no_sequence_is_a_type_error(path):
    prepare, sequence = path
    with pytest.raises(TypeError, match="item 1"):
        prepare([sequence, None], cases.config())
    with pytest.raises(TypeError):
        prepare(sequence, cases.config())
    with pytest.raises(TypeError):
        prepare([sequence], None)


def test_tables_too_large_for_the_cache_are_the_same_rows():
    """From 8 MiB on they are written past it."""
    config = cases.config(max_model_len=2**14, block_size=8)
    tables = [np.arange(k, k + 2**11, dtype=np.int32) for k in range(40)]
    sequences = [
        cases.decode_sequence(
            seqlen_q=33,
            seqlen_k=2**14 - k,
            block_table=table,
            token_ids=np.zeros(2**14 - k - 32, dtype=np.int32),
            draft_tokens=[5] * 32,
        )
        for k, table in enumerate(tables)
    ]
    rows = engine.prepare_decode_v4(sequences, config).block_tables.numpy().reshape(40, 33, -1)
    for k, table in enumerate(tables):
        blocks = -(-(2**14 - k) // 8)
        assert (rows[k, :, :blocks] == table[:blocks]).all()
