"""Neutral tails: promised rows past ``total_q`` are checked, and only where they are promised."""

import dataclasses

import msgspec
import pytest

from inputmeta.conformance.cases.model import Case, Gather, Sequence
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.tails import SPARE_ROWS
from inputmeta.conformance.check.tests.test_runner import DECODE, PROMPT, sequence, verdicts
from inputmeta.conformance.check.verdicts import declared
from inputmeta.conformance.subjects import Request, Result
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta.oracle import batch

LONG = tuple(sequence(length, 1) for length in (9, 8, 7))
STEPS = msgspec.structs.replace(DECODE, steps=(LONG, (sequence(3, 1),)))


class Tails(OracleSubject):
    """Fills the rows past ``total_q`` as an empty batch would fill its one row."""

    def __init__(self, leave: str = "", value: int | None = None) -> None:
        """Field whose tails it leaves as they are, or fills with ``value``."""
        super().__init__()
        self.capabilities = dataclasses.replace(self.capabilities, neutral_tails=True)
        self.leave, self.value = leave, value
        self.rows: set[int] = set()

    def build(self, request: Request) -> Result:
        if request.out is None or request.path == "prompt":
            return super().build(request)
        expected = request.expected()
        exact = {key: request.out[key][: f.shape[0]] for key, f in expected.items() if f.shape}
        result = super().build(dataclasses.replace(request, out=exact))
        for key, neutral in batch.build(request.path, request.config, [], expand=request.expand).items():
            if neutral.shape and declared(key).layout(request.path, request.config).rows == "query":
                tail = request.out[key][expected[key].shape[0] :]
                self.rows.add(len(tail))
                for place, cell in enumerate(neutral.cells):
                    if cell is not None and key != self.leave:
                        tail.reshape(len(tail), len(neutral.cells))[:, place] = cell
                    elif key == self.leave and self.value is not None:
                        tail[:] = self.value
        return result


@pytest.mark.parametrize("case", [PROMPT, DECODE, STEPS], ids=["prompt", "decode", "steps"])
def test_neutral_tails_pass(case: Case) -> None:
    subject = Tails()
    assert run_case(case, subject).findings == []
    longest = {id(PROMPT): set(), id(DECODE): {0}, id(STEPS): {0, 2}}
    assert subject.rows == {SPARE_ROWS + fewer for fewer in longest[id(case)]}


def test_tails_of_a_zos_step_with_gathered_ids_pass() -> None:
    step = (Sequence(seqlen_q=1, seqlen_k=1, block_table=(7,), token_ids=(10,)),)
    gather = Gather(fresh_input_ids=(4,), prev_sampled=(), prev_predict=(), remap=(-1,))
    case = msgspec.structs.replace(DECODE, path="decode_zos", steps=(step,), gather=(gather,))
    assert run_case(case, Tails()).findings == []


def test_a_tail_that_is_left_is_unwritten() -> None:
    (finding,) = run_case(STEPS, Tails("positions")).findings
    assert finding.signature == "UNWRITTEN:decode:F-POS:positions:-"
    assert finding.cell is not None
    assert (finding.step, finding.cell.index, finding.cell.want) == (0, (3,), 0)
    assert "past total_q" in finding.detail


def test_a_tail_of_other_values_is_a_mismatch() -> None:
    (finding,) = run_case(STEPS, Tails("query_indices", 1)).findings
    assert finding.verdict == "MISMATCH"
    assert finding.cell is not None
    assert (finding.cell.index, finding.cell.got) == ((3,), 1)


def test_a_tail_of_flags_is_checked_whatever_the_poison() -> None:
    assert verdicts(run_case(DECODE, Tails("valid_token_mask", 1))) == {"MISMATCH:decode:F-MASK:valid_token_mask:value"}


def test_without_the_promise_buffers_are_exact() -> None:
    class Exact(Tails):
        def __init__(self) -> None:
            super().__init__("positions")
            self.capabilities = dataclasses.replace(self.capabilities, neutral_tails=False)

    subject = Exact()
    assert run_case(STEPS, subject).findings == []
    assert subject.rows == {0}
