"""The adapter of the bundled engine."""

import numpy as np

from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.subjects.engine import EngineSubject, tensors_over

CONFIG = Config(
    block_size=4, dense_ratios=(1,), window_size=2, swa_block_size=2, max_model_len=16, cp_size=2, cp_rank=1
)


def test_the_lengths_of_an_invalid_batch_size_nothing() -> None:
    endless = Sequence(seqlen_q=2**40, seqlen_k=0, state_id=1)
    outcome = run_case(Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=((endless,),)), EngineSubject())
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
