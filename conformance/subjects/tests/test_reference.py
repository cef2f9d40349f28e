"""The subject `reference`: what it fills and refuses. That its values are right, the tests of the reference show."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.subjects import Rejection, load_subject

CONFIG = oracle.MetadataConfig(
    block_size=4, window_size=2, swa_block_size=2, max_model_len=16, dense_ratios=(1,), sparse_ratios=(2,)
)
SEQUENCES = [
    oracle.SequenceMetadata(seqlen_q=1, seqlen_k=9, block_table=(7, 3, 5), token_ids=tuple(range(9))),
    oracle.SequenceMetadata(seqlen_q=1, seqlen_k=2, block_table=(4,), token_ids=(8, 9), is_placeholder=True),
]
REQUEST = Request("decode", CONFIG, SEQUENCES)


def test_the_corpus_on_poisoned_and_fenced_buffers_refusals_included() -> None:
    subject = load_subject("reference")
    assert subject.capabilities.in_place
    cases = [case for _, case in load_corpus(bundled_corpus())][::4]
    outcomes = [run_case(case, subject) for case in cases]
    assert [outcome.findings for outcome in outcomes] == [[]] * len(cases)
    assert {name for outcome in outcomes for name in outcome.unsupported} <= {
        "drafts of variable length",
        "to give block tables itself",
    }
    assert any(outcome.broken for outcome in outcomes)


def test_cells_that_are_not_defined_are_left_alone() -> None:
    subject = load_subject("reference")
    shapes = {key: np.shape(value) for key, value in subject.build(REQUEST).items()}
    out = {
        key: np.full(shape, 77, dtype=oracle.FIELDS[key.partition(".")[0]].dtype)
        for key, shape in shapes.items()
        if shape
    }
    built = subject.build(dataclasses.replace(REQUEST, out=out))
    assert built["block_tables"] is out["block_tables"]
    assert out["block_tables"].tolist() == [[7, 3, 5], [4, 77, 77]]


@pytest.mark.parametrize("wrong", ["missing", "shape", "dtype"])
def test_buffers_that_do_not_fit_are_refused_before_a_write(wrong: str) -> None:
    subject = load_subject("reference")
    arrays = {key: value for key, value in subject.build(REQUEST).items() if isinstance(value, np.ndarray)}
    out = {key: np.full(array.shape, -9).astype(array.dtype) for key, array in arrays.items()}
    out["context_lens"] = np.zeros(len(arrays["context_lens"]) if wrong == "dtype" else 5, dtype=np.int32)
    if wrong == "dtype":
        out["context_lens"] = out["context_lens"].astype(np.int64)
    if wrong == "missing":
        del out["context_lens"]
    with pytest.raises(Rejection, match="P-OUT: context_lens is missing or not int32 of shape") as refused:
        subject.build(dataclasses.replace(REQUEST, out=out))
    assert (refused.value.condition, refused.value.field) == ("P-OUT", "context_lens")
    assert out["positions"].tolist() == [-9, -9]
