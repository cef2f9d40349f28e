"""The reference equals the oracle: drawn batches of every path and option, the corpus, with numpy and with torch."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import array_api_compat.numpy
import array_api_compat.torch
import numpy as np
from hypothesis import given, settings

from inputmeta import oracle
from inputmeta.conformance import reference
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.generate import FEATURES, Coverage, Profile, batches, features
from inputmeta.conformance.generate.tests.common import REPEATABLE
from inputmeta.conformance.subjects.reference import reference_of

from .differences import differences

EXAMPLES = {array_api_compat.numpy: 250, array_api_compat.torch: 100}


def test_every_field_of_drawn_batches(xp: ModuleType) -> None:
    examples = EXAMPLES[xp]
    fields: Counter[str] = Counter()
    paths: Counter[str] = Counter()
    coverage = Coverage()

    @settings(REPEATABLE, max_examples=examples)
    @given(batches(Profile(invalid=0, varlen=False)))
    def check(case: Case) -> None:
        for index in range(len(case.steps)):
            request = step_request(case, index)
            assert differences(request, xp) == []
            fields.update(key.partition(".")[0] for key in reference_of(request, xp).fields)
            paths[case.path] += 1
        coverage.add(features(case))

    check()
    assert set(paths) == set(oracle.PATHS)
    assert min(paths.values()) >= examples // 6
    if xp is array_api_compat.numpy:
        assert set(fields) == set(oracle.FIELDS)
        bounds = {name for name in FEATURES if name.endswith("int32-bound")}
        assert bounds
        assert bounds <= {row.id for row in coverage.rows() if row.count}


def test_every_valid_step_of_the_corpus(xp: ModuleType) -> None:
    compared = 0
    for file, case in load_corpus(bundled_corpus()):
        for index in range(len(case.steps)):
            request = step_request(case, index)
            if not request.violations() and (request.gather is None or request.gather.varlen is None):
                assert differences(request, xp) == [], file.name
                compared += 1
    assert compared > 150


def test_plain_numpy_is_an_array_namespace_too() -> None:
    config = oracle.MetadataConfig(
        block_size=4, window_size=2, swa_block_size=2, max_model_len=8, dense_ratios=(1,), sparse_ratios=(2,)
    )
    sequences = [oracle.SequenceMetadata(seqlen_q=1, seqlen_k=5, block_table=(7, 3), token_ids=(1, 2, 3, 4, 5))]
    compat = reference.expected("decode", sequences, config).fields
    plain = reference.expected("decode", sequences, config, xp=np).fields
    assert compat.keys() == plain.keys()
    for key, value in plain.items():
        np.testing.assert_array_equal(value, compat[key], err_msg=key)
