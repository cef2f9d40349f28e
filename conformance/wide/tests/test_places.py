"""The wide tier on a device: what host memory shows is shown there too; of what is right nothing but flags comes back.

The device is torch's CPU; a GPU runs the same lines (``./ci/gpu --stage wide``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import array_api_compat.torch
import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance import reference
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.campaign.wide_cases import reduce_batch
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import GUARD_CELLS, PATTERNS
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.mutants.mutant import Mutant
from inputmeta.conformance.mutants.wide_table import find
from inputmeta.conformance.subjects.base import Unsupported
from inputmeta.conformance.subjects.reference import ReferenceSubject, reference_of
from inputmeta.conformance.wide import loop
from inputmeta.conformance.wide.against import compared
from inputmeta.conformance.wide.forms import FORMS, Claims, draw_batch
from inputmeta.conformance.wide.loop import Counts, run_batch
from inputmeta.conformance.wide.places import DevicePlace, Place, place_of

torch = pytest.importorskip("torch")
device = pytest.importorskip("inputmeta.conformance.subjects.device")
engine_cuda = pytest.importorskip("inputmeta.conformance.subjects.engine_cuda")
TorchDispatchMode = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode

SEED = 11
Fields = dict[str, Any]
Spoil = Callable[[Request, Fields, Fields | None], object]


def nothing(_request: Request, _fields: Fields, _out: Fields | None) -> None:
    """Spoils nothing."""


class OnTorch(device.DeviceSubject):  # type: ignore[misc,name-defined]
    """The reference in torch's arrays, written into the caller's buffers, with a place to go wrong."""

    name = "on-torch"

    def __init__(self, spoil: Spoil = nothing, *, in_place: bool = True) -> None:
        self.device = torch.device("cpu")
        self.spoil = spoil
        able = ReferenceSubject().capabilities
        self.capabilities = replace(able, refuses=frozenset(), in_place=in_place, devices=frozenset({"cpu"}))

    def build_tensors(self, request: Request, out: Fields | None) -> Mapping[str, Any]:
        assert request.out is None
        step = reference_of(request, array_api_compat.torch, self.device)
        fields: Fields = {key: value if isinstance(value, int) else value.clone() for key, value in step.fields.items()}  # type: ignore[attr-defined]
        self.spoil(request, fields, out)
        if out is None:
            return fields
        for key in out.keys() & fields.keys():
            defined = step.defined(key)
            out[key].copy_(fields[key] if defined is None else torch.where(defined, fields[key], out[key]))  # type: ignore[call-overload]
        return fields | {key: out[key] for key in out.keys() & fields.keys()}


def findings(subject: OnTorch, count: int = 10) -> list[Finding]:
    claims = Claims(subject.capabilities, oracle.PATHS)
    return [found for index in range(count) for found in run_batch(subject, claims, SEED, index).findings]


def signatures(subject: OnTorch, count: int = 10) -> set[str]:
    return {found.identity.short for found in findings(subject, count)}


@pytest.mark.slow
def test_the_engine_passes_on_its_device_and_the_oracle_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "AUDIT_EVERY", 4)
    subject = engine_cuda.EngineCudaSubject("cpu")
    assert isinstance(place_of(subject), DevicePlace)
    claims = Claims(subject.capabilities, oracle.PATHS)
    total = Counts()
    for index in range(len(FORMS)):
        ran = run_batch(subject, claims, SEED, index)
        assert ran.findings == (), index
        total += ran.counts
    assert (total.batches, total.audited, total.unsupported) == (len(FORMS), 2, 0)
    assert total.cells > 10**6


@pytest.mark.slow
def test_numpy_and_torch_have_the_same_reference_of_wide_batches() -> None:
    claims = Claims(OnTorch().capabilities, oracle.PATHS)
    for index in range(len(FORMS)):
        for request in draw_batch(claims, SEED, index).steps:
            here, there = reference_of(request), reference_of(request, array_api_compat.torch, torch.device("cpu"))
            want, got = reference.as_numpy(here.fields), reference.as_numpy(there.fields)
            assert want.keys() == got.keys()
            for key, value in want.items():
                defined = here.defined(key)
                mask = True if defined is None else reference.host_array(defined)
                assert not np.any((value != got[key]) & mask), (index, key)


@pytest.mark.slow
def test_of_what_is_right_only_flags_and_sizes_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    genuine = reference.host_array

    def counted(values: Any) -> np.ndarray:
        copied.append(math.prod(values.shape))
        return genuine(values)

    subject = OnTorch()
    batches = [draw_batch(Claims(subject.capabilities, oracle.PATHS), SEED, index) for index in range(len(FORMS))]
    monkeypatch.setattr(reference, "host_array", counted)
    for batch in batches:
        assert compared(subject, batch.steps, PATTERNS[0]) == []
    assert 0 < max(copied) < 200
    copied.clear()
    spoilt = OnTorch(lambda _request, fields, _out: fields["positions"].__ixor__(1))
    assert compared(spoilt, batches[0].steps, PATTERNS[0])
    assert copied


class Waits(TorchDispatchMode):  # type: ignore[misc]
    """Counts what waits for a GPU: its answer says how many cells there are, or is a number of the host's."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        name = function.name()
        indices = arguments[1] if name == "aten::index.Tensor" else ()
        chosen = any(index is not None and index.dtype == torch.bool for index in indices)
        waiting = (
            "aten::_local_scalar_dense",
            "aten::nonzero",
            "aten::masked_select",
            "aten::repeat_interleave.Tensor",
        )
        self.count += chosen or name in waiting
        return function(*arguments, **(options or {}))


def waits_of_references() -> list[tuple[int, int]]:
    """Waits of the reference of each step, and those that it is granted: for a rank's share of compact rows."""
    place, counted = place_of(OnTorch()), []
    claims = Claims(OnTorch().capabilities, oracle.PATHS)
    for index in range(2 * len(FORMS)):
        for request in draw_batch(claims, SEED, index).steps:
            with Waits() as waits:
                place.reference_of(request)
            shared = request.config.yoco_mode == "compact" and request.config.cp_size > 1
            counted.append((waits.count, 2 * shared))
    return counted


@pytest.mark.slow
def test_the_reference_does_not_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(waits <= granted for waits, granted in waits_of_references())
    monkeypatch.setattr(reference.Arrays, "rows_where", reference.Arrays.where_true)
    assert not all(waits <= granted for waits, granted in waits_of_references())


@pytest.mark.slow
def test_buffers_on_the_device_are_poisoned_and_fenced_with_both_polarities_in_turn() -> None:
    seen: set[tuple[int, int]] = set()

    def looks(_request: Request, _fields: Fields, out: Fields | None) -> None:
        assert out is not None
        view = out["input_ids"]
        before = view.as_strided((GUARD_CELLS,), (1,), view.storage_offset() - GUARD_CELLS)
        assert (before == before[0]).all()
        seen.add((int(view.reshape(-1)[0]), int(before[0])))

    subject = OnTorch(looks)
    claims = Claims(subject.capabilities, ("decode",))
    count = len([form for form in FORMS if "decode" in form.paths])
    for index in (0, count):
        assert run_batch(subject, claims, SEED, index).findings == ()
    poison = {pattern["int32"] for pattern in PATTERNS}
    assert seen == {(cell, cell) for cell in poison}


def past_the_end(request: Request, fields: Fields, out: Fields | None) -> None:
    assert out is not None
    view = out["positions"]
    view.as_strided((1,), (1,), view.storage_offset() + view.numel()).fill_(1)


def before_the_begin(request: Request, fields: Fields, out: Fields | None) -> None:
    assert out is not None
    view = out["positions"]
    view.as_strided((1,), (1,), view.storage_offset() - 1).fill_(1)


@pytest.mark.parametrize(
    ("spoil", "signature"),
    [
        (lambda _request, fields, _out: fields["input_ids"][-1:].__ixor__(1), "MISMATCH:F-IDS:input_ids:value"),
        (lambda _request, fields, out: fields["input_ids"].copy_(out["input_ids"]), "UNWRITTEN:F-IDS:input_ids"),
        (past_the_end, "OUT_OF_BOUNDS:F-POS:positions"),
        (before_the_begin, "OUT_OF_BOUNDS:F-POS:positions"),
        (lambda _request, fields, _out: fields.update(total_q=fields["total_q"] + 1), "MISMATCH:F-COUNT:total_q:value"),
    ],
)
def test_a_fault_on_the_device_is_told_as_on_the_host(spoil: Spoil, signature: str) -> None:
    assert signature.startswith(tuple(signatures(OnTorch(spoil), 3)))


def test_forms_are_compared_without_buffers() -> None:
    def spoils(_request: Request, fields: Fields, _out: Fields | None) -> None:
        fields["positions"] = fields["positions"].to(torch.int64)
        del fields["query_indices"]

    assert signatures(OnTorch(spoils, in_place=False), 3) == {
        "MISMATCH:F-POS:positions:dtype",
        "MISMATCH:F-QIDX:query_indices:missing",
    }


def test_arrays_of_the_host_are_taken_and_what_is_not_built_is_no_difference() -> None:
    def mixes(_request: Request, fields: Fields, _out: Fields | None) -> None:
        fields["positions"] = fields["positions"].numpy()
        fields["query_indices"] = Unsupported("not here")

    assert findings(OnTorch(mixes, in_place=False), 3) == []


def test_what_does_not_come_back_is_flaky() -> None:
    calls = []

    def once(_request: Request, fields: Fields, _out: Fields | None) -> None:
        calls.append(1)
        if len(calls) == 1:
            fields["positions"].add_(1)

    assert signatures(OnTorch(once), 1) == {"FLAKY:F-POS:positions"}


def test_no_answer_is_the_finding() -> None:
    def raises(_request: Request, _fields: Fields, _out: Fields | None) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    assert {found.verdict for found in findings(OnTorch(raises), 1)} == {Verdict.DEVICE_ERROR}


def test_an_error_that_comes_up_late_is_the_subjects() -> None:
    """As of a kernel that is still running when the build returns."""
    subject = OnTorch()
    late = OnTorch()
    place = place_of(subject)

    class Late(DevicePlace):
        def synchronize(self) -> None:
            raise RuntimeError("CUDA error: unspecified launch failure")

    asked = Late(place.arrays).asked(late)
    request = draw_batch(Claims(subject.capabilities, oracle.PATHS), SEED, 0).steps[0]
    with pytest.raises(RuntimeError, match="launch failure"):
        asked.build(request)


def test_a_wrong_reference_accuses_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Place.reference_of

    def wrong(place: Place, request: Request) -> reference.Expected:
        step = genuine(place, request)
        step.fields["positions"][-1] += 1  # type: ignore[index]
        return step

    monkeypatch.setattr(Place, "reference_of", wrong)
    assert {found.verdict for found in findings(OnTorch(), 2)} == {Verdict.SUITE}


@pytest.mark.slow
def test_the_audit_copies_rows_and_sees_a_reference_that_is_wrong_as_the_subject_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = reference.expected

    def wrong(*arguments: Any, **options: Any) -> reference.Expected:
        step = genuine(*arguments, **options)
        step.fields["input_ids"][0] ^= 1  # type: ignore[index]
        return step

    monkeypatch.setattr(reference, "expected", wrong)
    monkeypatch.setattr(loop, "AUDIT_EVERY", 4)
    subject = OnTorch()
    claims = Claims(subject.capabilities, oracle.PATHS)
    told = [run_batch(subject, claims, SEED, index).findings for index in range(4)]
    assert told[:-1] == [()] * 3
    assert [(found.verdict, found.key) for found in told[-1]] == [(Verdict.SUITE, "input_ids")]


@pytest.mark.slow
def test_a_fault_of_size_is_found_and_reduced_to_its_threshold() -> None:
    def in_uint8(request: Request, fields: Fields, _out: Fields | None) -> None:
        name = "positions_cp" if "positions_cp" in fields else "positions"
        row = torch.cat([torch.arange(each.seqlen_q) for each in request.sequences])
        if len(row):
            fields[name] -= (row - (row & 255)).to(torch.int32)

    subject = OnTorch(in_uint8)
    found, index = find(Mutant("x", "-", "MISMATCH:F-POS:positions", "", lambda: subject), SEED, 60.0)
    assert found.right
    claims = Claims(subject.capabilities, oracle.PATHS)
    finding = run_batch(subject, claims, SEED, index).findings[0]
    failures, told = reduce_batch(Session(subject), draw_batch(claims, SEED, index), finding, 1e12)
    assert "from row 256 of a chunk on: 257 query rows of sequence 0 fail, 256 pass" in told
    assert sum(each.seqlen_q for each in failures[0].case.steps[0]) == 257
