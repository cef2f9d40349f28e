"""A subject on a device, with torch's CPU in its place: buffers and fences come back, results must stay as they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.tests.test_runner import DECODE, case, sequence
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.examples.torch_subject import TorchSubject
from inputmeta.conformance.subjects import DeviceCopies, Request, device
from inputmeta.conformance.subjects.device import Buffers, DeviceResult

STEPS = case((sequence(7, 1),), (sequence(9, 1),), path="decode")


class OnTheCpu(TorchSubject):
    """The example, where the device is the CPU and its memory is copied as a device's is."""

    def __init__(self, spoil: Callable[[dict, Buffers], object] = lambda fields, out: None, **claims: bool) -> None:
        super().__init__()
        self.device = torch.device("cpu")
        self.capabilities = device.dataclasses.replace(self.capabilities, devices=frozenset({"cpu"}), **claims)
        self.spoil = spoil

    def build_tensors(self, request: Request, out: Buffers) -> DeviceResult:
        fields = dict(super().build_tensors(request, out))
        self.spoil(fields, out)
        return fields

    def in_host_memory(self, tensor: torch.Tensor) -> np.ndarray:
        return tensor.clone().numpy()


def past(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """One cell at an offset from a tensor's beginning, inside it or not."""
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + offset)


def test_the_example_conforms_in_place_and_with_tensors_of_its_own() -> None:
    for in_place in (True, False):
        outcome = run_case(DECODE, OnTheCpu(in_place=in_place))
        assert outcome.findings == []
        assert {"positions", "query_indices", "valid_token_mask", "context_lens"} <= outcome.keys


@pytest.mark.parametrize(
    ("spoil", "signature"),
    [
        (lambda out: past(out["positions"], 2).fill_(4), "OUT_OF_BOUNDS:decode:F-POS:positions:-"),
        (lambda out: past(out["positions"], -1).fill_(4), "OUT_OF_BOUNDS:decode:F-POS:positions:-"),
        (lambda out: past(out["valid_token_mask"], 3).logical_not_(), "OUT_OF_BOUNDS:decode:F-MASK:valid_token_mask:-"),
        (lambda out: out["positions"][1].add_(1), "MISMATCH:decode:F-POS:positions:value"),
        (lambda out: out["context_lens"].fill_(0), "MISMATCH:decode:F-CTXLEN:context_lens:value"),
    ],
    ids=["behind", "before", "behind-flags", "value", "zeros"],
)
def test_what_is_written_on_the_device_is_seen(spoil: Callable[[dict], object], signature: str) -> None:
    subject = OnTheCpu(lambda _, out: out is not None and spoil(out))
    assert {finding.signature for finding in run_case(DECODE, subject).findings} == {signature}


def test_buffers_that_are_left_on_the_device_are_unwritten() -> None:
    class Idle(OnTheCpu):
        def build_tensors(self, request: Request, out: Buffers) -> DeviceResult:
            return super().build_tensors(request, None)

    assert {finding.verdict for finding in run_case(DECODE, Idle()).findings} == {Verdict.UNWRITTEN}


def test_a_result_that_shares_memory_with_a_refilled_input_is_seen() -> None:
    class Aliases(OnTheCpu):
        def build_tensors(self, request: Request, out: Buffers) -> DeviceResult:
            fields = dict(super().build_tensors(request, out))
            lengths = torch.tensor([s.seqlen_k for s in request.sequences], dtype=torch.int32)
            return {**fields, "context_lens": request.refilled("lengths", lengths)}

    (finding,) = run_case(STEPS, Aliases(in_place=False)).findings
    assert (finding.signature, finding.step) == ("OUT_OF_BOUNDS:decode:-:-:kept", 1)
    assert "changed: context_lens" in finding.detail
    assert run_case(STEPS, Aliases(in_place=False, fresh_inputs=True)).findings == []


def test_a_buffer_of_the_device_that_is_used_again_is_seen() -> None:
    held: dict[str, torch.Tensor] = {}

    def again(fields: dict, _: Buffers) -> None:
        fields["positions"] = held.setdefault("positions", fields["positions"].clone()).copy_(fields["positions"])

    (finding,) = run_case(STEPS, OnTheCpu(again, in_place=False)).findings
    assert (finding.verdict, finding.code) == (Verdict.OUT_OF_BOUNDS, "kept")


def test_a_value_that_differs_on_the_device_is_a_mismatch_in_tensors_of_its_own() -> None:
    def wrong(fields: dict, _: Buffers) -> None:
        fields["query_indices"] = fields["query_indices"] + 1

    (finding,) = run_case(DECODE, OnTheCpu(wrong, in_place=False)).findings
    assert finding.signature == "MISMATCH:decode:F-QIDX:query_indices:value"


def test_arrays_that_cannot_be_copied_back_are_refused() -> None:
    for array in (np.zeros((2, 4), dtype=np.int32)[:, ::2], np.frombuffer(bytes(8), dtype=np.int32)):
        with pytest.raises(ValueError, match="positions: no C-contiguous array in memory that can be written to"):
            DeviceCopies({"positions": array}, torch.device("cpu"))
    with pytest.raises(TypeError):
        DeviceCopies({"positions": np.zeros(2, dtype="S4")}, torch.device("cpu"))


def test_a_refusal_leaves_the_callers_memory_as_it_was() -> None:
    broken: Case = case((sequence(7, 1, state_id=-1),), path="decode")
    outcome = run_case(broken, OnTheCpu())
    assert (outcome.findings, outcome.broken) == ([], {0: frozenset({"P-STATE"})})

    class Writes(OnTheCpu):
        def build_tensors(self, request: Request, out: Buffers) -> DeviceResult:
            if out is not None and request.violations():
                out["positions"].fill_(0)
            return super().build_tensors(request, out)

    (finding,) = run_case(broken, Writes()).findings
    assert finding.detail == "breaks P-STATE, but positions had been written before it was refused"


@pytest.mark.slow
def test_the_public_names_need_torch_and_say_so() -> None:
    script = """
import sys
sys.modules["torch"] = None
from inputmeta.conformance import subjects
try:
    subjects.DeviceCopies
except ImportError as error:
    print(error)
assert not hasattr(subjects, "no_such_name")
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told == "DeviceCopies needs torch: pip install torch\n"
