"""The numpy reference equals the oracle, cell by cell and field by field."""

from __future__ import annotations

from array import array
from dataclasses import fields as dataclass_fields

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inputmeta import oracle
from inputmeta.conformance.benchmarks import numpy_reference as reference
from inputmeta.conformance.benchmarks.workloads import TINY, Workload, workloads

LIMIT = 40
"""`max_model_len` of the generated batches."""


@st.composite
def configs(draw):
    block_size = draw(st.sampled_from([4, 8]))
    ratio_lists = st.lists(st.sampled_from([1, 2, 4]), max_size=2)
    dense = draw(ratio_lists)
    sparse = draw(ratio_lists if dense else st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=2))
    window = draw(st.integers(1, 6))
    return oracle.MetadataConfig(
        block_size=block_size,
        dense_ratios=tuple(dense),
        sparse_ratios=tuple(sparse),
        window_size=window,
        swa_block_size=window + draw(st.integers(0, 4)),
        max_model_len=LIMIT,
        max_ngram_size=draw(st.integers(0, 4)),
        pad_token=draw(st.integers(-3, 3)),
        image_sentinel=draw(st.sampled_from([None, 5, 0])),
        lookup_table=tuple(draw(st.permutations(range(8)))),
        force_load_balance=draw(st.booleans()),
    )


@st.composite
def sequences(draw, path, config):
    limit = config.max_model_len
    seqlen_k = draw(st.integers(0 if path == "prompt" else 1, limit))
    seqlen_q = draw(st.integers(0, seqlen_k) if path == "prompt" else st.integers(1, min(seqlen_k, 5)))
    smallest = min({*config.dense_ratios, *config.sparse_ratios})
    blocks = -(-(seqlen_k // smallest) // (config.block_size // smallest)) + draw(st.integers(0, 1))
    tokens = st.integers(0, 7)
    compressed = draw(st.integers(0, seqlen_k + 2))
    known = seqlen_k if path == "prompt" else seqlen_k - seqlen_q + 1
    words = draw(st.lists(tokens, min_size=2 * limit + 8, max_size=2 * limit + 8))
    return oracle.SequenceMetadata(
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        block_table=array("i", draw(st.lists(st.integers(0, 1_000), min_size=blocks, max_size=blocks))),
        state_id=draw(st.integers(0, 9)),
        is_placeholder=draw(st.integers(0, 4)) == 4,
        swa_valid_start=draw(st.sampled_from([0, 0, seqlen_k - seqlen_q, seqlen_k, 2**40]) | st.integers(0, limit)),
        token_ids=tuple(words[: known + (draw(st.integers(0, 2)) if path == "prompt" else 0)]),
        draft_tokens=() if path == "prompt" else words[: seqlen_q - 1],
        compressed_tokens=words[limit : limit + compressed],
        recent_tokens=array("i", words[: max(0, seqlen_k - compressed) + 1]),
    )


@st.composite
def batches(draw, path):
    config = draw(configs())
    return config, draw(st.lists(sequences(path, config), min_size=1, max_size=5))


def reference_fields(path, config, batch, max_num_blocks=None):
    """Everything that the oracle builds on the path, expansions included, by the numpy reference."""
    if path == "prompt":
        fields = reference.prepare_prompt(config, batch)
        fields["kv_swa_full_index"] = reference.kv_swa_full_index(config, fields)
        for ratio in config.sparse_ratios:
            fields[f"klen.{ratio}"] = reference.klen(fields, ratio)
    else:
        fields = reference.prepare_decode(config, batch, max_num_blocks=max_num_blocks)
        fields["kv_swa_index"] = reference.kv_swa_index(config, fields)
    for ratio in config.dense_ratios:
        fields[f"kv_ca_index.{ratio}"] = reference.kv_ca_index(config, fields, ratio)
        fields[f"kv_ca_index_len.{ratio}"] = reference.kv_ca_index_len(fields, ratio)
    return fields


def differences(expected, actual):
    """Lines that say where `actual` is not what the oracle expects; cells that are not defined are left out."""
    lines = [f"only one side has {sorted(expected.keys() ^ actual.keys())}"] if expected.keys() ^ actual.keys() else []
    for key in expected.keys() & actual.keys():
        want, got = expected[key], actual[key]
        cells = list(want.cells)
        shape = np.shape(got)
        dtype = got.dtype.name if isinstance(got, np.ndarray) else type(got).__name__
        if tuple(want.shape) != shape or want.dtype != dtype:
            lines.append(f"{key}: {dtype}{list(shape)} should be {want.dtype}{list(want.shape)}")
            continue
        flat = np.ravel(got).tolist()
        wrong = [i for i, cell in enumerate(cells) if cell is not None and flat[i] != cell]
        lines += [f"{key}[{i}]: {flat[i]} should be {cells[i]} ({want.field.formula})" for i in wrong[:3]]
    return lines


def assert_equals_oracle(path, config, batch, max_num_blocks=None):
    assert oracle.violations(path, config, batch, max_num_blocks) == []
    expected = oracle.expected_fields(path, config, batch, max_num_blocks=max_num_blocks)
    assert differences(expected, reference_fields(path, config, batch, max_num_blocks)) == []


SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(batches("prompt"))
def test_prompt_equals_the_oracle(drawn):
    assert_equals_oracle("prompt", *drawn)


@SETTINGS
@given(batches("decode"), st.sampled_from([None, 10, 13]))
def test_decode_equals_the_oracle(drawn, max_num_blocks):
    assert_equals_oracle("decode", *drawn, max_num_blocks)


def as_oracle(workload: Workload):
    """A benchmark workload as the oracle's objects, arrays as `array('i')`."""

    def converted(value):
        return array("i", value.tobytes()) if isinstance(value, np.ndarray) else value

    def keywords(instance):
        return {field.name: converted(getattr(instance, field.name)) for field in dataclass_fields(instance)}

    config = oracle.MetadataConfig(**keywords(workload.config))
    return config, [oracle.SequenceMetadata(**keywords(sequence)) for sequence in workload.sequences]


@pytest.mark.parametrize("workload", workloads(TINY), ids=lambda workload: workload.name)
def test_benchmark_workloads_are_valid_and_equal_the_oracle(workload):
    assert_equals_oracle(workload.path, *as_oracle(workload))
