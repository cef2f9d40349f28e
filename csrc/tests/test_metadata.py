"""`SequenceMetadata` and `MetadataConfig`: what they take, borrow and copy, and that a scheduler can keep them."""

import contextlib
import threading
import weakref
from array import array

import engine_cases as cases
import numpy as np
import pytest
import torch

from inputmeta import engine
from inputmeta.engine import _core

VALUES = list(range(100, 108))
ARRAYS = ["block_table", "token_ids", "draft_tokens", "compressed_tokens", "recent_tokens"]
SCALARS = ["seqlen_q", "seqlen_k", "state_id", "swa_valid_start", "data_len"]


@pytest.mark.parametrize(
    "convert",
    [
        list,
        tuple,
        lambda values: array("i", values),
        lambda values: array("q", values),
        lambda values: array("B", values),
        lambda values: np.array(values, dtype=np.int32),
        lambda values: np.array(values, dtype=np.int64),
        lambda values: np.array(values, dtype=np.uint16),
        lambda values: np.array(values, dtype=">i4"),
        lambda values: np.repeat(np.array(values, dtype=np.int32), 2)[::2],
        lambda values: np.array(values[::-1], dtype=np.int64)[::-1],
        lambda values: np.array(values, dtype=np.int32).reshape(-1, 1)[:, 0],
        torch.tensor,
        lambda values: [np.int64(value) for value in values],
        memoryview,
    ],
)
def test_integers_from_anything(convert):
    source = bytes(VALUES) if convert is memoryview else VALUES
    sequence = cases.prompt_sequence(token_ids=convert(source))
    assert sequence.token_ids == VALUES
    assert engine.prepare_prompt_v4([sequence], cases.config()).input_ids.tolist() == [105, 106, 107]


@pytest.mark.parametrize(
    "bad", [[1.0], "12", np.array([1.5]), np.ones((2, 2), dtype=np.int32), np.int32(3), 5, [None], None]
)
def test_what_is_no_sequence_of_integers_is_a_type_error(bad):
    with pytest.raises(TypeError):
        cases.prompt_sequence(token_ids=bad)
    sequence = cases.prompt_sequence()
    with pytest.raises(TypeError):
        sequence.append_tokens(bad)
    assert sequence.token_ids == VALUES


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**63, 2**70, -(2**200)])
def test_a_value_outside_int32_is_refused_by_name(name, value):
    sequence = cases.decode_sequence()
    setattr(sequence, name, [*getattr(sequence, name), value])
    if name == "token_ids":
        sequence.seqlen_k += 1
    if name == "draft_tokens":
        sequence.seqlen_q += 1
        sequence.seqlen_k += 1
    assert getattr(sequence, name)[-1] == value
    with pytest.raises(engine.Int32Error) as refusal:
        engine.prepare_decode_v4([cases.decode_sequence(), sequence], cases.config())
    assert (refusal.value.sequence, refusal.value.field, refusal.value.value) == (1, name, value)


@pytest.mark.parametrize("table", [[], [7, 8]])
def test_a_recent_token_outside_int32_is_outside_the_lookup_table_first(table):
    config = cases.config(max_ngram_size=2, lookup_table=table)
    sequence = cases.decode_sequence(recent_tokens=[0] * 9 + [2**40])
    with pytest.raises(engine.NgramError) as refusal:
        engine.prepare_decode_v4([sequence], config)
    assert (refusal.value.field, refusal.value.value) == ("recent_tokens", 2**40)


def test_a_value_outside_int32_in_an_array_of_64_bits():
    sequence = cases.prompt_sequence(token_ids=np.array([*VALUES, 2**40], dtype=np.int64))
    with pytest.raises(engine.Int32Error, match="token_ids is 1099511627776"):
        engine.prepare_prompt_v4([sequence], cases.config())


@pytest.mark.parametrize("value", [2**31, -(2**70)])
def test_a_configured_value_outside_int32(value):
    with pytest.raises(engine.Int32Error, match="lookup_table"):
        engine.prepare_prompt_v4([cases.prompt_sequence()], cases.config(lookup_table=[value]))


def test_pad_token_and_sentinel_hold_int32():
    for name in ("pad_token", "image_sentinel"):
        with pytest.raises(engine.Int32Error, match=name):
            engine.prepare_prompt_v4([cases.prompt_sequence()], cases.config(**{name: 2**31}))


@pytest.mark.parametrize("name", SCALARS)
def test_scalars(name):
    sequence = cases.prompt_sequence()
    for value in (0, 2**62, -(2**62), np.int32(5)):
        setattr(sequence, name, value)
        assert getattr(sequence, name) == value
    for value in (2**62 + 1, -(2**62) - 1, 2**100):
        with pytest.raises(OverflowError):
            setattr(sequence, name, value)
    for value in (1.0, "1", None):
        with pytest.raises(TypeError):
            setattr(sequence, name, value)


@pytest.mark.parametrize(
    "lend",
    [
        lambda array: array,
        lambda array: memoryview(array)[:],
        torch.from_numpy,
        lambda array: np.frombuffer(memoryview(array).toreadonly(), dtype=np.int32),
    ],
)
def test_a_contiguous_int32_buffer_is_borrowed(lend):
    source = np.arange(100, 108, dtype=np.int32)
    sequence = cases.prompt_sequence(token_ids=lend(source))
    source[5:] = [7, 8, 9]
    assert sequence.token_ids == source.tolist()
    assert engine.prepare_prompt_v4([sequence], cases.config()).input_ids.tolist() == [7, 8, 9]


@pytest.mark.parametrize("name", ["block_table", "recent_tokens"])
def test_each_plan_checks_what_a_borrowed_array_holds_then(name):
    config = cases.config(max_ngram_size=2, lookup_table=range(200))
    source = np.arange(8, dtype=np.int32)
    sequence = cases.prompt_sequence(**({"recent_tokens": range(8)} | {name: source}))
    engine.prepare_prompt_v4([sequence], config)
    source[3] = -1
    with pytest.raises(engine.PreconditionError) as refusal:
        engine.prepare_prompt_v4([sequence], config)
    assert (refusal.value.sequence, refusal.value.field, refusal.value.value) == (0, name, -1)
    source[3] = 3
    engine.prepare_prompt_v4([sequence], config)


@pytest.mark.parametrize(
    "copied",
    [
        lambda array: array.tolist(),
        lambda array: array.astype(np.int64),
        lambda array: array.astype(">i4"),
        lambda array: np.repeat(array, 2)[::2],
        lambda array: np.frombuffer(b"x" + array.tobytes(), dtype=np.int32, offset=1),
        lambda array: torch.from_numpy(array).to(torch.int64),
        lambda array: torch.from_numpy(np.repeat(array, 2))[::2],
    ],
)
def test_any_other_array_is_copied(copied):
    source = copied(np.arange(100, 108, dtype=np.int32))
    sequence = cases.prompt_sequence(token_ids=source)
    with contextlib.suppress(ValueError):  # bytes are read-only
        source[0:8] = source[0:1] * 8 if isinstance(source, list) else 0
    sequence.token_ids.clear()
    assert sequence.token_ids == VALUES


def test_the_lookup_table_of_a_configuration_is_copied():
    table = np.arange(4, dtype=np.int32)
    config = cases.config(lookup_table=table)
    table[:] = 9
    assert config.lookup_table == [0, 1, 2, 3]


def test_a_borrowed_buffer_outlives_its_owner():
    source = np.arange(2**16, dtype=np.int32)
    sequence, freed = cases.prompt_sequence(token_ids=source[:8]), weakref.ref(source)
    del source
    assert freed() is not None
    assert sequence.token_ids == list(range(8))
    sequence.token_ids = [1]
    assert freed() is None


def test_a_borrowed_buffer_cannot_be_resized_meanwhile():
    numbers, tensor = array("i", VALUES), torch.tensor(VALUES, dtype=torch.int32)
    sequence = cases.prompt_sequence(token_ids=numbers, recent_tokens=tensor)
    with pytest.raises(BufferError):
        numbers.extend(range(2**16))
    with pytest.raises(RuntimeError, match="resize"):
        tensor.untyped_storage().resize_(2**16)
    tensor.set_(torch.zeros(3, dtype=torch.int32))
    assert sequence.recent_tokens == VALUES
    sequence.append_tokens([108])  # its own from here on
    numbers.append(9)
    assert sequence.token_ids == [*VALUES, 108]


def test_a_borrowed_array_that_changes_while_it_is_read_breaks_nothing():
    """Any number is written between the check of the tokens and their use."""
    config = cases.config(max_ngram_size=3, lookup_table=range(4), max_model_len=2**16, block_size=2**16)
    recent = np.zeros(2**14, dtype=np.int32)
    sequence = cases.prompt_sequence(
        seqlen_q=2**14, seqlen_k=2**14, token_ids=np.zeros(2**14, np.int32), recent_tokens=recent
    )
    step = _core.plan_prompt([sequence], config)
    recent[:] = 2**31 - 1
    recent[::2] = -1
    filled = [(plan, torch.empty(plan[2], dtype=getattr(torch, plan[1]))) for plan in step.fields()]
    step.fill([(tensor.data_ptr(), shape, dtype) for (_, dtype, shape), tensor in filled])
    ngrams = next(tensor for (key, _, _), tensor in filled if key == "ngram_token_ids")
    assert ngrams.unique().tolist() == [0, 3]  # the padding, and the last of the table


def test_values_whose_conversion_plans_the_sequence_are_not_appended():
    sequence, steps = cases.prompt_sequence(), []

    class Planning:
        def __index__(self):
            steps.append(_core.plan_prompt([sequence], cases.config()))
            return 1

    with pytest.raises(RuntimeError, match="being read"):
        sequence.append_tokens([Planning()])
    assert sequence.token_ids == VALUES


def test_a_step_does_not_follow_its_sequences():
    sequence = cases.decode_sequence()
    metadata = engine.prepare_decode_v4([sequence], cases.config())
    before = {key: value.clone() for key, value in cases.tensors(metadata).items()}
    sequence.token_ids, sequence.block_table, sequence.draft_tokens = [0] * 8, [0, 0], [0, 0]
    sequence.append_tokens([1])
    assert all(torch.equal(value, before[key]) for key, value in cases.tensors(metadata).items())


def test_a_scheduler_updates_its_sequences():
    sequence = cases.decode_sequence()
    sequence.append_tokens([108, 109])
    sequence.append_tokens(array("i", [110]))
    sequence.append_blocks(np.array([7]))
    sequence.draft_tokens = []
    sequence.seqlen_q = 1
    sequence.seqlen_k += 1
    sequence.is_placeholder = True
    fresh = cases.decode_sequence(
        seqlen_q=1,
        seqlen_k=11,
        token_ids=[*VALUES, 108, 109, 110],
        draft_tokens=[],
        block_table=[5, 6, 7],
        is_placeholder=True,
    )
    prepared = [engine.prepare_decode_v4([each], cases.config()) for each in (sequence, fresh)]
    assert cases.same(*prepared)
    assert prepared[0].input_ids.tolist() == [110]


def test_what_is_known_of_an_array_follows_its_changes():
    """The plan keeps the largest entry of an array between steps: appending and assigning must renew it."""
    sequence = cases.prompt_sequence()
    engine.prepare_prompt_v4([sequence], cases.config())
    sequence.append_blocks([-1])
    with pytest.raises(engine.TableError, match="entries >= 0"):
        engine.prepare_prompt_v4([sequence], cases.config())
    sequence.block_table = [5]
    engine.prepare_prompt_v4([sequence], cases.config())
    sequence.append_blocks([3, -2, 4])
    with pytest.raises(engine.TableError, match="entry 2"):
        engine.prepare_prompt_v4([sequence], cases.config())
    sequence.block_table = [2**31 - 1]
    with pytest.raises(engine.Int32Error, match="slot_mapping_store_ca"):
        engine.prepare_prompt_v4([sequence], cases.config())


def test_appending_to_itself():
    sequence = cases.prompt_sequence()
    sequence.append_tokens(sequence.token_ids)
    assert sequence.token_ids == VALUES * 2


def test_a_sequence_cannot_change_between_plan_and_fill():
    sequence = cases.prompt_sequence()
    step = _core.plan_prompt([sequence, sequence], cases.config())
    for change in (
        lambda: setattr(sequence, "seqlen_q", 1),
        lambda: setattr(sequence, "token_ids", []),
        lambda: setattr(sequence, "is_placeholder", True),
        lambda: sequence.append_blocks([1]),
    ):
        with pytest.raises(RuntimeError, match="being read"):
            change()
    del step
    sequence.append_blocks([1])
    assert sequence.block_table == [5, 1]


def test_a_refused_plan_gives_its_sequences_back():
    sequence = cases.prompt_sequence(state_id=-1)
    with pytest.raises(engine.StateError):
        engine.prepare_prompt_v4([sequence], cases.config())
    sequence.state_id = 1
    assert engine.prepare_prompt_v4([sequence], cases.config()).state_block_idx.tolist() == [1]


def test_steps_are_filled_side_by_side():
    sequences = [cases.prompt_sequence(seqlen_q=8, state_id=k) for k in range(200)]
    expected = engine.prepare_prompt_v4(sequences, cases.config())
    results: list[engine.InputMetadataV4] = []
    threads = [
        threading.Thread(target=lambda: results.append(engine.prepare_prompt_v4(sequences, cases.config())))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(cases.same(result, expected) for result in results)


def test_the_configuration_is_immutable_and_shows_what_it_was_given():
    config = cases.config(dense_ratios=(8, 4), image_sentinel=7, lookup_table=array("i", [3, 1]))
    assert (config.dense_ratios, config.sparse_ratios, config.ca_ratios) == ([8, 4], [4], [4, 8])
    assert (config.block_size, config.window_size, config.swa_block_size, config.max_model_len) == (8, 4, 6, 64)
    assert (config.image_sentinel, config.lookup_table, config.pad_token) == (7, [3, 1], 0)
    assert (config.cp_size, config.cp_rank, config.yoco_mode) == (1, 0, "off")
    with pytest.raises(AttributeError):
        config.block_size = 16
    with pytest.raises(ValueError, match="yoco_mode"):
        cases.config(yoco_mode="on")
    with pytest.raises(TypeError):
        cases.config(blocksize=8)
