"""Rows past a prompt's: what a subject states of them is checked, in the caller's buffers and in arrays of its own."""

import dataclasses

import msgspec
import numpy as np
import pytest

from inputmeta.conformance.campaign.agreement import Agreement
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.tails import SPARE_ROWS
from inputmeta.conformance.check.tests.test_runner import CONFIG, DECODE, PROMPT, STEPS, verdicts
from inputmeta.conformance.protocol.convert import capabilities_of, claims_message
from inputmeta.conformance.subjects import Capabilities, Request, Result
from inputmeta.conformance.subjects.base import content_problem
from inputmeta.conformance.subjects.loading import claims_problem
from inputmeta.conformance.subjects.oracle import OracleSubject

STATED = {
    "positions": 0,
    "slot_mapping_store_swa": -1,
    "query_indices": 998244353,
    "valid_token_mask": False,
    "positions_c": 7,
    "state_block_idx": -5,
    "ke": 3,
    "kv_swa_full_index": -1,
}
BUCKET = 16
RANKS = msgspec.structs.replace(PROMPT, config=msgspec.structs.replace(CONFIG, cp_size=2, cp_rank=1))


class Padded(OracleSubject):
    """Pads its rows: the caller's buffers to their ends, arrays of its own to a bucket."""

    def __init__(self, values: dict[str, int | bool] | None = None, *, in_place: bool) -> None:
        """``values``: what it writes in place of what it states."""
        super().__init__()
        self.capabilities = dataclasses.replace(self.capabilities, in_place=in_place, prompt_tails=STATED)
        self.values = STATED | (values or {})
        self.padded: set[str] = set()

    def build(self, request: Request) -> Result:
        if request.path != "prompt" or request.violations():
            return super().build(request)
        right = dict(super().build(dataclasses.replace(request, out=None)))
        for key, value in right.items():
            if request.out is None and key.partition(".")[0] in STATED:
                long = np.full((BUCKET, *value.shape[1:]), self.values[key.partition(".")[0]], dtype=value.dtype)
                long[: len(value)] = value
                right[key] = long
                self.padded.add(key)
            elif request.out is not None and isinstance(value, np.ndarray):
                request.out[key][: len(value)] = value
                tail = request.out[key][len(value) :]
                if len(tail) and self.values[key.partition(".")[0]] != "left":
                    tail[...] = self.values[key.partition(".")[0]]
                    self.padded.add(key)
                right[key] = request.out[key]
        return right


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("case", [PROMPT, STEPS, RANKS], ids=["prompt", "steps", "ranks"])
def test_stated_tails_pass(case: Case, in_place: bool) -> None:
    subject = Padded(in_place=in_place)
    outcome = run_case(case, subject)
    assert outcome.findings == []
    assert {key.partition(".")[0] for key in subject.padded} == STATED.keys()


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(
    ("field", "value", "formula"),
    [("slot_mapping_store_swa", 0, "F-RING"), ("valid_token_mask", True, "F-MASK"), ("ke", 0, "F-KS")],
)
def test_another_value_in_a_tail_is_a_mismatch(field: str, value: int | bool, formula: str, in_place: bool) -> None:
    outcome = run_case(PROMPT, Padded({field: value}, in_place=in_place))
    assert verdicts(outcome) == {f"MISMATCH:prompt:{formula}:{field}:value"}
    (finding,) = outcome.findings
    assert finding.detail == f"rows from 5 on are past the batch's and stated to hold {STATED[field]}"
    assert finding.cell is not None
    assert (finding.cell.index, finding.cell.got, finding.cell.want) == ((5,), value, STATED[field])
    assert finding.differing == (SPARE_ROWS if in_place else BUCKET - 5)


def test_a_tail_that_is_left_is_unwritten() -> None:
    outcome = run_case(PROMPT, Padded({"positions_c": "left"}, in_place=True))  # type: ignore[dict-item]
    assert verdicts(outcome) == {"UNWRITTEN:prompt:F-CPOS:positions_c:-"}


def test_rows_past_the_batch_that_nothing_is_stated_of_are_a_wrong_shape() -> None:
    subject = Padded(in_place=False)
    subject.capabilities = dataclasses.replace(subject.capabilities, prompt_tails={"positions": 0})
    found = verdicts(run_case(PROMPT, subject))
    assert "MISMATCH:prompt:F-RING:slot_mapping_store_swa:shape" in found
    assert not any(":positions:" in signature for signature in found)


def test_a_wrong_row_of_the_batch_shows_before_a_padded_tail() -> None:
    class Wrong(Padded):
        def build(self, request: Request) -> Result:
            fields = super().build(request)
            fields["positions"][4] += 1  # type: ignore[index]
            return fields

    (finding,) = run_case(PROMPT, Wrong(in_place=False)).findings
    assert (finding.signature, finding.cell and finding.cell.index) == ("MISMATCH:prompt:F-POS:positions:value", (4,))


def test_decode_has_no_prompt_tails() -> None:
    subject = Padded(in_place=True)
    assert run_case(DECODE, subject).findings == []
    assert subject.padded == set()


def test_a_padded_subject_agrees_with_one_that_pads_nothing() -> None:
    agreement = Agreement({"padded": Padded(in_place=False), "plain": OracleSubject()})
    agreement.run(PROMPT)
    assert not any(tally.examples for tally in agreement.fields.values())


@pytest.mark.parametrize(
    ("tails", "problem"),
    [
        ({"position": 0}, "capabilities.prompt_tails: 'position' is not among the fields of a prompt"),
        ({"context_lens": 0}, "capabilities.prompt_tails: 'context_lens' has no rows that are padded"),
        ({"cu_seqlens_q": 0}, "capabilities.prompt_tails: 'cu_seqlens_q' has no rows that are padded"),
        ({"positions": 2**31}, "capabilities.prompt_tails: positions holds int32, not 2147483648"),
        ({"positions": True}, "capabilities.prompt_tails: positions holds int32, not True"),
        ({"valid_token_mask": 1}, "capabilities.prompt_tails: valid_token_mask holds bools, not 1"),
    ],
)
def test_what_cannot_be_stated_is_told(tails: dict[str, int | bool], problem: str) -> None:
    claims = dataclasses.replace(OracleSubject().capabilities, prompt_tails=tails)
    told = content_problem(claims)
    assert told is not None
    assert told.startswith(problem)


def test_claims_of_another_form_are_told_and_right_ones_travel() -> None:
    subject = OracleSubject()
    subject.capabilities = dataclasses.replace(subject.capabilities, prompt_tails={"positions": "0"})  # type: ignore[dict-item]
    assert claims_problem(subject) == "capabilities.prompt_tails is not a mapping of fields to integers and bools"
    claims: Capabilities = Padded(in_place=True).capabilities
    assert claims_problem(Padded(in_place=True)) is None
    assert capabilities_of(claims_message(claims)).prompt_tails == STATED
