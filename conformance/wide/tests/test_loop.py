"""The loop: right subjects pass, faults are told as the oracle has them, the suite's own are told as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance import reference
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import PATTERNS
from inputmeta.conformance.check.tests.test_zigzag import CHUNKS, CONFIG, Flavoured
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.dialects import BALANCED
from inputmeta.conformance.mutants.wide import WIDE, TooNarrow
from inputmeta.conformance.mutants.wide_table import find
from inputmeta.conformance.subjects.base import Rejection, Result, SubjectFailure
from inputmeta.conformance.subjects.loading import load_subject
from inputmeta.conformance.subjects.reference import ReferenceSubject, reference_of
from inputmeta.conformance.wide import loop
from inputmeta.conformance.wide.against import compared
from inputmeta.conformance.wide.forms import FORMS, Batch, Claims, draw_batch, forms_of
from inputmeta.conformance.wide.loop import Counts, Ran, run_batch
from inputmeta.conformance.wide.places import Place

SEED = 11


def right(_step: reference.Expected, _fields: dict[str, np.ndarray]) -> None:
    """Spoils nothing."""


class Tampered(TooNarrow):
    """A subject that does something around the build."""

    def __init__(self, build: Callable[[Request, Callable[[Request], Result]], Result], *, in_place: bool = True):
        super().__init__("tampered", right)
        self.around = build
        self.capabilities = replace(self.capabilities, in_place=in_place)

    def build(self, request: Request) -> Result:
        return self.around(request, super().build)


def batches(subject: ReferenceSubject, count: int = 10) -> Iterator[Ran]:
    claims = Claims(subject.capabilities, oracle.PATHS)
    return (run_batch(subject, claims, SEED, index) for index in range(count))


def findings(subject: ReferenceSubject, count: int = 10) -> list[Finding]:
    return [found for ran in batches(subject, count) for found in ran.findings]


def signatures(subject: ReferenceSubject, count: int = 10) -> set[str]:
    return {found.identity.short for found in findings(subject, count)}


def test_a_right_subject_passes_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "AUDIT_EVERY", 8)
    subject = load_subject("engine")
    claims = Claims(subject.capabilities, oracle.PATHS)
    total = Counts()
    for index in range(len(FORMS)):
        ran = run_batch(subject, claims, SEED, index)
        assert ran.findings == (), index
        total += ran.counts
    assert (total.batches, total.audited, total.unsupported) == (len(FORMS), 1, 0)
    assert total.sequences > 1_000
    assert total.cells > 10**6


@pytest.mark.parametrize("name", ["row-offset-in-uint8", "column-ramp-in-int16", "sequence-in-uint8"])
def test_a_fault_of_size_is_found_as_declared(name: str) -> None:
    """The others: ``python -m inputmeta.conformance.mutants.wide_table``."""
    found, _ = find(WIDE[name], SEED, 20.0)
    assert found.right, found


def test_not_written_is_not_wrong() -> None:
    def leaves_the_last_row(request: Request, build: Callable[[Request], Result]) -> Result:
        assert request.out is not None
        kept = {key: array.copy() for key, array in request.out.items()}
        result = build(request)
        request.out["input_ids"][-1:] = kept["input_ids"][-1:]
        return result

    assert signatures(Tampered(leaves_the_last_row), 5) == {"UNWRITTEN:F-IDS:input_ids"}


def test_a_write_outside_is_seen() -> None:
    def writes_past(request: Request, build: Callable[[Request], Result]) -> Result:
        assert request.out is not None
        view = request.out["positions"]
        assert view.base is not None
        place = (view.ctypes.data - view.base.ctypes.data) // view.itemsize + view.size
        view.base.reshape(-1)[place] = 1
        return build(request)

    assert signatures(Tampered(writes_past), 3) == {"OUT_OF_BOUNDS:F-POS:positions"}


def test_form_type_and_scalars_are_compared_without_buffers() -> None:
    def spoils(request: Request, build: Callable[[Request], Result]) -> Result:
        fields = dict(build(request))
        total = fields["total_q"]
        assert isinstance(total, int)
        return fields | {"positions": np.asarray(fields["positions"], dtype=np.int64), "total_q": total + 1}

    assert signatures(Tampered(spoils, in_place=False), 3) == {
        "MISMATCH:F-POS:positions:dtype",
        "MISMATCH:F-COUNT:total_q",
    }


@pytest.mark.parametrize(("yoco", "ranks"), [("off", 8), ("mask", 1), ("compact", 8)])
def test_the_oracle_confirms_a_wrong_cell_of_every_array(yoco: str, ranks: int) -> None:
    """Each array of a batch is spoilt alone, in one row: the rows to ask about are found in every layout."""
    batch = long_chunks(yoco, ranks)
    step = reference_of(batch.steps[0])
    keys = [key for key, value in step.fields.items() if isinstance(value, np.ndarray)]
    assert len(keys) > 10
    for key in keys:

        def spoil(_step: reference.Expected, fields: dict[str, np.ndarray], key: str = key) -> None:
            row = fields[key].reshape(len(fields[key]), -1)[len(fields[key]) * 2 // 3]
            row[0] = not row[0] if row.dtype == bool else row[0] ^ 1

        wrong = TooNarrow("wrong", spoil)
        found = compared(wrong, batch.steps, PATTERNS[0], [step])
        assert {(each.verdict, each.key) for each in found} == {(Verdict.MISMATCH, key)}


def long_chunks(yoco: str, ranks: int) -> Batch:
    """The first batch of a few chunks with these options: many rows, and few segments for the oracle to build."""
    claims = Claims(TooNarrow("right", right).capabilities, ("prompt",))
    forms = forms_of(claims)
    place = [form.name for form in forms].index("long chunks")
    drawn = (draw_batch(claims, SEED, index) for index in range(place, 3_000, len(forms)))
    for batch in drawn:
        config, sequences = batch.steps[0].config, batch.steps[0].sequences
        if (config.yoco_mode, config.cp_size) == (yoco, ranks) and 2 <= len(sequences) <= 4:
            return batch
    raise AssertionError("no such batch")


def test_who_does_not_take_arrays_gets_tuples() -> None:
    seen: set[type] = set()

    def looks(request: Request, build: Callable[[Request], Result]) -> Result:
        seen.add(type(request.config.lookup_table))
        seen.update(type(each.token_ids) for each in request.sequences)
        return build(request)

    for takes, kinds in ((True, {np.ndarray}), (False, {tuple})):
        seen.clear()
        subject = Tampered(looks)
        subject.capabilities = replace(subject.capabilities, int32_arrays=takes)
        assert findings(subject, 3) == []
        assert seen == kinds


def test_no_answer_is_the_finding() -> None:
    def raises(request: Request, build: Callable[[Request], Result]) -> Result:
        raise ZeroDivisionError("nothing to divide by")

    def refuses(request: Request, build: Callable[[Request], Result]) -> Result:
        raise Rejection("P-LEN", 0, "seqlen_q", "P-LEN: too long")

    def beyond(request: Request, build: Callable[[Request], Result]) -> Result:
        raise SubjectFailure("UNSUPPORTED", "a message that is too long", "limit")

    assert signatures(Tampered(raises), 1) == {"CRASH:raised:-"}
    assert signatures(Tampered(refuses), 1) == {"REJECTED:P-LEN:-"}
    (ran,) = batches(Tampered(beyond), 1)
    assert (ran.findings, ran.counts) == ((), Counts(unsupported=1))


def test_what_does_not_come_back_is_flaky() -> None:
    calls = 0

    def once(request: Request, build: Callable[[Request], Result]) -> Result:
        nonlocal calls
        calls += 1
        result = build(request)
        if calls == 1:
            np.asarray(result["positions"])[0] += 1
        return result

    assert signatures(Tampered(once), 1) == {"FLAKY:F-POS:positions"}


def test_a_wrong_reference_accuses_the_suite_and_not_the_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Place.reference_of

    def wrong(place: Place, request: Request) -> reference.Expected:
        step = genuine(place, request)
        np.asarray(step.fields["positions"])[-1] += 1
        return step

    monkeypatch.setattr(Place, "reference_of", wrong)
    told = findings(Tampered(lambda request, build: build(request)), 2)
    assert {found.verdict for found in told} == {Verdict.SUITE}
    assert {found.key for found in told} <= {"positions", "positions_cp"}


def test_the_audit_alone_sees_a_reference_that_is_wrong_as_the_subject_is(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = reference.expected

    def wrong(*arguments: object, **options: object) -> reference.Expected:
        step = genuine(*arguments, **options)  # type: ignore[arg-type]
        np.asarray(step.fields["input_ids"])[0] ^= 1
        return step

    monkeypatch.setattr(reference, "expected", wrong)
    subject = TooNarrow("right", right)
    monkeypatch.setattr(loop, "AUDIT_EVERY", 4)
    told = [ran.findings for ran in batches(subject, 4)]
    assert told[:-1] == [()] * 3
    assert [(found.verdict, found.key) for found in told[-1]] == [(Verdict.SUITE, "input_ids")]


def test_fields_that_a_dialect_leaves_to_relations_are_not_compared() -> None:
    request = Request("prompt", CONFIG, tuple(CHUNKS), expand=frozenset())
    assert compared(Flavoured(BALANCED, "zigzag-balanced"), [request]) == []
    unnamed = compared(Flavoured(BALANCED, "int64"), [request])
    assert "F-ZIGZAG" in {finding.formula for finding in unnamed}
