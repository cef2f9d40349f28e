"""ZOS decode: F-GATHER replaces the input ids; what the host extracts; arguments that do not fit."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inputmeta.oracle import expected_fields
from inputmeta.oracle.zos import extract

from .batches import cells, config, configs, decode, prompt, sequences_of


@dataclass(frozen=True)
class Varlen:
    seqlens_q: tuple[int, ...]
    prev_seqlens_q: tuple[int, ...]
    prev_num_accepted_tokens: tuple[int, ...]


@dataclass(frozen=True)
class Gather:
    fresh_input_ids: tuple[int, ...]
    prev_sampled: tuple[int, ...]
    prev_predict: tuple[tuple[int, ...], ...]
    remap: tuple[int, ...]
    varlen: Varlen | None = None


def test_gather_mixes_fresh_and_continued_rows():
    """F-GATHER: sequence 0 continues place 1, sequence 1 is new, sequence 2 continues place 0 with one row."""
    gather = Gather((1, 2, 3, 4, 5, 6), (70, 80), ((71, 72), (81, 82)), (1, -1, 0))
    batch = [decode(5, 2), decode(3, 1), decode(2)]
    fields = expected_fields("decode_zos", config(), batch, gather=gather)
    assert cells(fields, "input_ids") == [80, 81, 82, 4, 5, 70]
    without = expected_fields("decode_zos", config(), batch)
    assert {key for key in fields if cells(fields, key) != cells(without, key)} == {"input_ids"}
    assert cells(expected_fields("decode_zos", config(), batch, gather=gather, rows=[1, 5]), "input_ids") == [81, 70]


@pytest.mark.parametrize(
    "gather",
    [
        Gather((1, 2), (70,), ((71,),), (0,)),
        Gather((1, 2, 3), (70,), ((71, 72),), (0, 0)),
        Gather((1, 2, 3), (70,), ((71, 72),), (1,)),
        Gather((1, 2, 3), (70,), ((71,),), (0,)),
    ],
)
def test_gather_that_does_not_fit_is_refused(gather):
    """I-21."""
    with pytest.raises(ValueError, match="gather"):
        expected_fields("decode_zos", config(), [decode(5, 2)], gather=gather)


def test_arguments_that_mean_nothing_are_refused():
    """Wrong path, expansion, rows, or gather on another path."""
    gather = Gather((1,), (), (), (-1,))
    with pytest.raises(ValueError, match="path"):
        expected_fields("train", config(), [decode(5)])
    with pytest.raises(ValueError, match="expand"):
        expected_fields("decode", config(), [decode(5)], expand=("klen",))
    with pytest.raises(ValueError, match="gather"):
        expected_fields("decode", config(), [decode(5)], gather=gather)
    for rows in ([1, 0], [0, 0], [3], [-1]):
        with pytest.raises(ValueError, match="rows"):
            expected_fields("prompt", config(), [prompt(0, 3)], rows=rows)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_extracted_metadata_is_what_the_fields_say(data):
    """F-EXTRACT against the fields of the same batch."""
    batch_config = data.draw(configs())
    batch = data.draw(sequences_of("decode_zos"))
    fields = expected_fields("decode_zos", batch_config, batch, expand=())
    step = extract(batch_config, batch)
    assert list(step.cu_seqlens_q) == cells(fields, "cu_seqlens_q")
    assert list(step.input_ids) == cells(fields, "input_ids")
    if batch_config.max_ngram_size:
        assert list(step.ngram_token_ids) == cells(fields, "ngram_token_ids")
    widths = [end - begin for begin, end in zip(step.block_tables_offsets, step.block_tables_offsets[1:], strict=False)]
    width = cells(fields, "max_num_blocks")[0]
    row = 0
    for index, count in enumerate(widths):
        begin = step.block_tables_offsets[index]
        table = cells(fields, "block_tables")[row * width : (row + 1) * width]
        assert table == [*step.block_tables[begin : begin + count], *[None] * (width - count)]
        row += step.seqlens_q[index]
