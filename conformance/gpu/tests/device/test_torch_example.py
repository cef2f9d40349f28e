"""The torch example where its device is a GPU: corpus cases pass, and what is written past a fence there is seen."""

import pytest
import torch

from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.examples.torch_subject import TorchSubject

DECODE = [case for _, case in load_corpus(bundled_corpus()) if case.path == "decode" and case.wants != "refused"]


class Spilling(TorchSubject):
    """Writes one cell behind ``positions``, in the memory of the device."""

    def build_tensors(self, request, out):
        fields = super().build_tensors(request, out)
        if out is not None:
            rows = out["positions"]
            rows.as_strided((1,), (1,), rows.storage_offset() + rows.numel()).fill_(4)
        return fields


class Reusing(TorchSubject):
    """Returns the same tensor of the device for every batch."""

    def __init__(self):
        super().__init__()
        self.held = torch.zeros(4096, dtype=torch.int32, device=self.device)

    def build_tensors(self, request, out):
        fields = dict(super().build_tensors(request, out))
        if out is None:
            fields["positions"] = self.held[: len(fields["positions"])].copy_(fields["positions"])
        return fields


def test_the_example_conforms_on_a_gpu():
    subject = TorchSubject()
    assert subject.capabilities.devices == {"cuda"}
    outcomes = [run_case(case, subject) for case in DECODE]
    assert not [outcome.findings for outcome in outcomes if outcome.findings]
    assert any(outcome.ran for outcome in outcomes)


@pytest.mark.parametrize(
    ("wrong", "signature"),
    [(Spilling, "OUT_OF_BOUNDS:decode:F-POS:positions:-"), (Reusing, "OUT_OF_BOUNDS:decode:-:-:kept")],
)
def test_what_goes_wrong_in_the_memory_of_a_gpu_is_seen(wrong, signature):
    found = {finding.signature for case in DECODE for finding in run_case(case, wrong()).findings}
    assert found == {signature}
