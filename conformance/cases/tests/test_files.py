"""Case files: what is read, what is refused, and how it is named and laid out."""

import json
import os

import jsonschema
import msgspec
import pytest

from inputmeta.conformance.cases.files import (
    CaseError,
    case_id,
    case_schema,
    decode_case,
    format_case,
    load_case,
    replace_file,
    save_case,
)
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.cases.request import complete_case

SMALL = {
    "schema": SCHEMA,
    "path": "prompt",
    "config": {"block_size": 4, "sparse_ratios": [2], "window_size": 2, "swa_block_size": 3, "max_model_len": 16},
    "steps": [[{"seqlen_q": 3, "seqlen_k": 3, "block_table": [5], "token_ids": [7, 8, 9]}]],
}


def changed(**changes: object) -> bytes:
    return json.dumps(SMALL | changes).encode()


def without(key: str) -> bytes:
    return json.dumps({name: value for name, value in SMALL.items() if name != key}).encode()


def with_sequence(**changes: object) -> bytes:
    return changed(steps=[[SMALL["steps"][0][0] | changes]])


ZOS = {"path": "decode_zos", "steps": [[{"seqlen_q": 2, "seqlen_k": 3, "block_table": [5], "token_ids": [7, 8]}]]}
GATHER = {"fresh_input_ids": [1, 2], "prev_sampled": [3], "prev_predict": [[4]], "remap": [0]}


@pytest.mark.parametrize(
    ("data", "where", "what"),
    [
        (b"", "", "not JSON"),
        (b"{", "", "not JSON"),
        (b"[" * 100_000, "at $:", "Expected `object`"),
        (b"\xff\xfe", "", "not JSON"),
        (b"[]", "at $:", "Expected `object`"),
        (without("path"), "at $:", "missing required field `path`"),
        (without("schema"), "at $:", "missing required field `schema`"),
        (changed(schema="inputmeta-case/0"), "at $.schema:", "Invalid enum value"),
        (changed(surprise=1), "at $:", "unknown field `surprise`"),
        (changed(path="prefill"), "at $.path:", "Invalid enum value"),
        (changed(steps=[]), "at $.steps:", "length >= 1"),
        (with_sequence(seqlen_q="3"), "at $.steps[0][0].seqlen_q:", "Expected `int`"),
        (with_sequence(seqlen_q=1.5), "at $.steps[0][0].seqlen_q:", "Expected `int`"),
        (with_sequence(seqlen_q=2**62 + 1), "at $.steps[0][0].seqlen_q:", "<= 4611686018427387904"),
        (with_sequence(token_ids=[1, None]), "at $.steps[0][0].token_ids[1]:", "Expected `int`"),
        (with_sequence(sequence_id=1), "at $.steps[0][0]:", "unknown field `sequence_id`"),
        (changed(gather=[GATHER]), "at $.gather:", "belongs to path decode_zos"),
        (changed(**ZOS, gather=[GATHER, None]), "at $.gather:", "2 entries for 1 steps"),
        (changed(**ZOS, gather=[GATHER | {"remap": [1]}]), "at $.gather[0].remap[0]:", "1, but there are 1 rows"),
        (changed(**ZOS, gather=[GATHER | {"remap": []}]), "at $.gather[0].remap:", "0 entries for 1 sequences"),
        (changed(**ZOS, gather=[GATHER | {"fresh_input_ids": [1]}]), "at $.gather[0].fresh_input_ids:", "1 ids"),
        (
            changed(**ZOS, gather=[GATHER | {"prev_predict": [[]]}]),
            "at $.gather[0].prev_predict[0]:",
            "0 drafts, 1 are",
        ),
        (changed(expected=[{}, {}]), "at $.expected:", "2 entries for 1 steps"),
        (
            changed(expected=[{"fields": {"positions": {"dtype": "int32", "shape": [2], "data": [1]}}}]),
            "at $.expected[0].fields.positions.data:",
            "is not of shape [2]",
        ),
    ],
)
def test_a_bad_case_is_refused_with_the_json_path(data: bytes, where: str, what: str) -> None:
    with pytest.raises(CaseError) as caught:
        decode_case(data)
    assert where in str(caught.value)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreadable_file_is_named(tmp_path) -> None:
    with pytest.raises(CaseError, match=r"nothing\.json: No such file"):
        load_case(tmp_path / "nothing.json")


def test_a_file_over_the_limit_is_not_read(tmp_path, monkeypatch) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(changed())
    monkeypatch.setattr("inputmeta.conformance.cases.files.MAX_FILE_BYTES", 10)
    with pytest.raises(CaseError, match=r"large\.json: \d+ bytes; a case file has at most 10"):
        load_case(path)


def test_the_id_depends_on_what_the_case_means_alone() -> None:
    case = decode_case(changed())
    named = decode_case(changed(title="something", tags=["ZERO"], id="0"))
    other = decode_case(with_sequence(state_id=1))
    assert case_id(case) == case_id(named)
    assert case_id(case) != case_id(other)
    assert case_id(case) == case_id(decode_case(with_sequence(state_id=0)))


def test_format_is_canonical_and_reads_back(tmp_path) -> None:
    case = complete_case(decode_case(changed(title="three rows")))
    text = format_case(case)
    assert decode_case(text.encode()) == case
    assert format_case(decode_case(text.encode())) == text
    assert max(map(len, text.splitlines())) <= 120
    save_case(case, tmp_path / "new" / "case.json")
    assert load_case(tmp_path / "new" / "case.json") == case
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["case.json"]


def test_a_pipe_is_written_to_and_not_put_aside_by_a_file(tmp_path) -> None:
    """As root, ``/dev/null`` given as the file to write would be gone for every process of the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_file(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_the_schema_accepts_a_complete_case_and_forbids_unknown_keys() -> None:
    validator = jsonschema.Draft202012Validator(case_schema())
    document = json.loads(format_case(complete_case(decode_case(changed(title="three rows")))))
    assert list(validator.iter_errors(document)) == []
    document["steps"][0][0]["surprise"] = 1
    assert list(validator.iter_errors(document)) != []


def test_an_invalid_batch_is_expected_to_be_refused() -> None:
    case = complete_case(decode_case(with_sequence(block_table=[])))
    (expected,) = case.expected
    assert not expected.fields
    assert [(refusal.condition, refusal.sequence, refusal.field) for refusal in expected.refused] == [
        ("P-TABLE", 0, "block_table")
    ]


def test_defaults_are_left_out_of_files() -> None:
    config = Config(block_size=4, sparse_ratios=(2,), window_size=2, swa_block_size=3, max_model_len=16)
    case = Case(schema=SCHEMA, path="prompt", config=config, steps=((Sequence(seqlen_q=0, seqlen_k=0),),))
    assert json.loads(msgspec.json.encode(case))["steps"] == [[{"seqlen_q": 0, "seqlen_k": 0}]]
