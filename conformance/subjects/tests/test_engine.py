"""The adapter of the bundled engine."""

import contextlib

import numpy as np
import pytest

from inputmeta import engine
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, OutFault, Sequence
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.subjects.arrays import FORMS
from inputmeta.conformance.subjects.device import tensors_over
from inputmeta.conformance.subjects.engine import EngineSubject

CONFIG = Config(
    block_size=4, dense_ratios=(1,), window_size=2, swa_block_size=2, max_model_len=16, cp_size=2, cp_rank=1
)


def test_the_lengths_of_an_invalid_batch_size_nothing() -> None:
    endless = Sequence(seqlen_q=2**40, seqlen_k=0, state_id=1)
    outcome = run_case(Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=((endless,),)), EngineSubject())
    assert (outcome.steps, outcome.findings) == (1, [])


def test_no_scratch_stands_for_a_buffer_that_is_not_there() -> None:
    """A full layout of one row: the scratch of the mirrored fields is of its size."""
    row = Sequence(seqlen_q=1, seqlen_k=1, block_table=(3,), state_id=1, token_ids=(7,))
    fault = OutFault(key="positions_cp", fault="missing")
    outcome = run_case(
        Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=((row,),), out_fault=fault), EngineSubject()
    )
    assert (outcome.steps, outcome.findings) == (1, [])


def test_views_of_one_allocation_are_views_of_one_storage() -> None:
    memory = np.arange(40, dtype=np.int32)
    tensors = tensors_over(
        {"klen.2": memory[3:9], "klen.4": memory[13:19].reshape(3, 2), "ks.2": np.zeros(2, np.int32)}
    )
    first, second, other = tensors.values()
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert other.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
    assert (first.tolist(), second.tolist()) == (list(range(3, 9)), [[13, 14], [15, 16], [17, 18]])
    second[0, 0] = 99
    assert memory[13] == 99


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_a_form_holds_the_values_or_says_that_it_cannot(form: int) -> None:
    values = (5, -1, 2**31 - 1, -(2**31))
    assert list(FORMS[form](values)) == list(values)
    assert list(FORMS[form](())) == []
    with contextlib.suppress(OverflowError):
        assert list(FORMS[form]((2**31, 3))) == [2**31, 3]


def test_arrays_come_in_every_form_so_that_a_layout_that_is_not_looked_at_shows(monkeypatch) -> None:
    real = engine.SequenceMetadata

    def blind(**facts: object) -> object:
        """Takes memory for cells of int32 one behind the other, whatever the strides."""
        for name, value in facts.items():
            if isinstance(value, np.ndarray) and value.size and value.dtype == np.int32:
                facts[name] = np.lib.stride_tricks.as_strided(value, strides=(4,))
        return real(**facts)

    rows = tuple(
        Sequence(seqlen_q=2, seqlen_k=6, block_table=(9 + i, 4 - i), state_id=i, token_ids=(1, 2, 3, 4, 5, 6))
        for i in range(4)
    )
    case = Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=(rows,))
    assert run_case(case, EngineSubject()).findings == []
    monkeypatch.setattr(engine, "SequenceMetadata", blind)
    [finding] = run_case(case, EngineSubject()).findings
    assert finding.signature == "REJECTED:prompt:P-TABLE:-:-"  # -77, from between the cells
