"""Arrays as runs: the same case and the same id, written where it is shorter, bounded before any is made."""

from __future__ import annotations

import json
import time

import jsonschema
import msgspec
import pytest

from inputmeta.conformance.cases.files import CaseError, case_id, case_schema, decode_case, format_case
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Gather, Sequence, Varlen
from inputmeta.conformance.cases.runs import MAX_ITEMS

RATIOS = {"block_size": 4, "sparse_ratios": [2], "window_size": 2, "swa_block_size": 3, "max_model_len": 2**20}
CONFIG = msgspec.convert(RATIOS, Config)
LONG = Case(
    schema=SCHEMA,
    path="decode_zos",
    config=msgspec.structs.replace(CONFIG, lookup_table=tuple(range(5, 605))),
    steps=((Sequence(seqlen_q=600, seqlen_k=1599, block_table=tuple(range(9, 609)), token_ids=(7,) * 1000,
                     draft_tokens=tuple(range(599)), recent_tokens=(1, 3) * 400),),),
    gather=(Gather(fresh_input_ids=(0,) * 300 + tuple(range(300)), prev_sampled=(4,),
                   prev_predict=((1,) * 599,), remap=(0,)),),
)  # fmt: skip


def with_tokens(tokens: object) -> bytes:
    sequence = {"seqlen_q": 1, "seqlen_k": 3, "block_table": [5], "token_ids": tokens}
    return json.dumps({"schema": SCHEMA, "path": "prompt", "config": RATIOS, "steps": [[sequence]]}).encode()


def test_a_case_means_the_same_however_its_arrays_are_written() -> None:
    text = format_case(LONG)
    assert text.count('"runs"') == 5
    assert '"token_ids": {"runs": [[7, 1000, 0]]}' in text
    assert '"fresh_input_ids": {"runs": [[0, 301, 0], [1, 299]]}' in text
    assert len(text) < 900 + 3 * (599 + 800)
    read = decode_case(text.encode())
    assert read == LONG
    assert case_id(read) == case_id(LONG)
    assert format_case(read) == text
    assert decode_case(with_tokens({"runs": [[7, 1], [3, 1, 0], [8, 2]]})) == decode_case(with_tokens([7, 3, 8, 9]))


def test_the_arrays_of_many_sequences_of_variable_length_are_runs_too() -> None:
    count = 600
    sequence = Sequence(seqlen_q=1, seqlen_k=2, block_table=(5,), token_ids=(1, 2))
    varlen = Varlen(seqlens_q=(1,) * count, prev_seqlens_q=(2,) * count, prev_num_accepted_tokens=(1,) * count)
    gather = Gather(
        fresh_input_ids=(3,) * count,
        prev_sampled=(4,) * count,
        prev_predict=((),) * count,
        remap=tuple(range(count)),
        varlen=varlen,
    )
    case = Case(schema=SCHEMA, path="decode_zos", config=CONFIG, steps=((sequence,) * count,), gather=(gather,))
    text = format_case(case)
    assert text.count('"runs"') == 6
    assert decode_case(text.encode()) == case
    jsonschema.Draft202012Validator(case_schema()).validate(json.loads(text))


def test_short_and_uneven_arrays_are_written_as_they_were() -> None:
    even = (*range(511),)
    for tokens in (even, (3, 1, 2) * 400):
        sequence = Sequence(seqlen_q=1, seqlen_k=3, token_ids=tokens)
        assert "runs" not in format_case(Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=((sequence,),)))


@pytest.mark.parametrize(
    ("tokens", "where", "what"),
    [
        ({"runs": [[0]]}, "$.steps[0][0].token_ids.runs[0]", "length >= 2"),
        ({"runs": [[0, 1, 0, 0]]}, "$.steps[0][0].token_ids.runs[0]", "length <= 3"),
        ({"runs": [[0, 0]]}, "$.steps[0][0].token_ids.runs[0]", "[0, 0]; want [first, length]"),
        ({"runs": [[0, 3, 2]]}, "$.steps[0][0].token_ids.runs[0]", "want [first, length] or [value, length, 0]"),
        ({"runs": [["0", 3]]}, "$.steps[0][0].token_ids.runs[0][0]", "Expected `int`"),
        ({"runs": [], "more": 1}, "$.steps[0][0].token_ids", "unknown field `more`"),
        ({"runs": [[0, -5]]}, "$.steps[0][0].token_ids.runs[0]", "[0, -5]; want [first, length]"),
        ({"runs": [[7, -(2**40), 0]]}, "$.steps[0][0].token_ids.runs[0]", "length >= 1"),
        ({"runs": [[0, 3.0]]}, "$.steps[0][0].token_ids.runs[0][1]", "Expected `int`, got `float`"),
        ({"runs": [[2**62, 3]]}, "$.steps[0][0].token_ids.runs[0]", f"goes up to {2**62 + 2}, more than {2**62}"),
        ({"runs": [[2**70, 3]]}, "$.steps[0][0].token_ids.runs[0][0]", f"Expected `int` <= {2**62}"),
        ({"runs": [[-(2**63), 3]]}, "$.steps[0][0].token_ids.runs[0][0]", f"Expected `int` >= -{2**62}"),
        ({"runs": [[0, 2**64]]}, "$.steps[0][0].token_ids.runs[0][1]", f"Expected `int` <= {2**62}"),
        ({"runs": {"runs": [[0, 3]]}}, "$.steps[0][0].token_ids.runs", "Expected `array`, got `object`"),
        ({"runs": [[0, 2**40]]}, "$.steps[0][0].token_ids.runs[0]", f"at most {MAX_ITEMS} entries"),
        ({"runs": [[0, MAX_ITEMS - 1, 0], [0, 2]]}, "$.steps[0][0].token_ids.runs[1]", f"at most {MAX_ITEMS}"),
        ({}, "$.steps[0][0].token_ids", "Expected `array`, got `object`"),
    ],
)
def test_runs_that_are_none_are_refused_before_they_are_made(tokens: object, where: str, what: str) -> None:
    before = time.monotonic()
    with pytest.raises(CaseError) as refused:
        decode_case(with_tokens(tokens))
    assert where in str(refused.value)
    assert what in str(refused.value)
    assert time.monotonic() - before < 1


def test_the_runs_of_all_arrays_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inputmeta.conformance.cases.runs.MAX_ITEMS", 1000)
    case = json.loads(with_tokens({"runs": [[0, 400]]}))
    (step,) = case["steps"]
    case["config"]["lookup_table"] = {"runs": [[0, 201]]}
    step.append(step[0])
    with pytest.raises(CaseError) as refused:
        decode_case(json.dumps(case).encode())
    assert str(refused.value) == "at $.steps[0][1].token_ids.runs[0]: the runs of a case have at most 1000 entries"
    case["config"]["lookup_table"] = {"runs": [[0, 200]]}
    assert len(decode_case(json.dumps(case).encode()).config.lookup_table) == 200


def test_an_entry_of_a_run_that_its_array_cannot_hold_is_named() -> None:
    gather = {"fresh_input_ids": {"runs": [[2**31 - 2, 3]]}, "prev_sampled": [], "prev_predict": [], "remap": [-1]}
    sequence = {"seqlen_q": 3, "seqlen_k": 5, "block_table": [5], "token_ids": [1, 2, 3], "draft_tokens": [4, 5]}
    case = {"schema": SCHEMA, "path": "decode_zos", "config": RATIOS, "steps": [[sequence]], "gather": [gather]}
    with pytest.raises(CaseError, match=r"^at \$.gather\[0\].fresh_input_ids\[2\]: Expected `int` <= 2147483647$"):
        decode_case(json.dumps(case).encode())


@pytest.mark.parametrize("where", ["title", "tags", "steps", "config", "gather"])
def test_runs_elsewhere_are_no_runs(where: str) -> None:
    case = json.loads(with_tokens([7, 8, 9])) | {where: {"runs": [[0, 3]]}}
    with pytest.raises(CaseError):
        decode_case(json.dumps(case).encode())


def test_the_schema_has_runs() -> None:
    validator = jsonschema.Draft202012Validator(case_schema())
    validator.validate(json.loads(format_case(LONG)))
    validator.validate(json.loads(with_tokens({"runs": [[7, 3]]})))
    assert not validator.is_valid(json.loads(with_tokens({"runs": [[7]]})))
    assert not validator.is_valid(json.loads(with_tokens({"runs": [[7, 3]], "more": 1})))
