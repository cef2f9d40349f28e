"""What a wide batch shows is reduced to its threshold, on a case that the ordinary path confirms."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from inputmeta import oracle
from inputmeta.conformance.campaign import wide_cases
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.campaign.wide_cases import case_of, reduce_batch, steps_of
from inputmeta.conformance.cases.files import decode_case, format_case
from inputmeta.conformance.cases.request import complete_case
from inputmeta.conformance.check.audit import readable
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.mutants.wide import WIDE
from inputmeta.conformance.mutants.wide_table import find
from inputmeta.conformance.subjects.loading import load_subject
from inputmeta.conformance.wide.forms import FORMS, Batch, Claims, draw_batch
from inputmeta.conformance.wide.loop import run_batch

SEED = 3
SUBJECT = load_subject("mutant:row-offset-in-uint8")


def batches(paths: tuple[str, ...] = oracle.PATHS) -> list[Batch]:
    return [draw_batch(Claims(SUBJECT.capabilities, paths), SEED, index) for index in range(len(FORMS))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "told", "rows"),
    [
        ("row-offset-in-uint8", "from row 256 of a chunk on: 257 query rows of sequence 0 fail, 256 pass", 257),
        ("drafts-in-a-mask-of-64", "from row 64 of a chunk on: 65 query rows of sequence 0 fail, 64 pass", 65),
    ],
)
def test_a_fault_of_size_is_reduced_to_its_threshold(name: str, told: str, rows: int) -> None:
    subject = load_subject(f"mutant:{name}")
    claims = Claims(subject.capabilities, oracle.PATHS)
    found, index = find(WIDE[name], SEED, 20.0)
    finding = run_batch(subject, claims, SEED, index).findings[0]
    failures, text = reduce_batch(Session(subject), draw_batch(claims, SEED, index), finding, time.monotonic() + 60)
    assert told in text
    case = failures[0].case
    assert sum(each.seqlen_q for each in case.steps[0]) == rows
    read = decode_case(format_case(complete_case(case)).encode())
    assert found.signature in {each.signature for each in run_case(read, subject).findings}


def test_without_time_nothing_is_reduced_and_the_finding_stands() -> None:
    claims = Claims(SUBJECT.capabilities, oracle.PATHS)
    _, index = find(WIDE["row-offset-in-uint8"], SEED, 20.0)
    finding = run_batch(SUBJECT, claims, SEED, index).findings[0]
    batch = draw_batch(claims, SEED, index)
    failures, told = reduce_batch(Session(SUBJECT), batch, finding, time.monotonic())
    assert told == "not fully reduced: time was up (0 cases run)"
    assert [each.finding.signature for each in failures] in ([], [finding.signature])


def test_more_than_a_case_holds_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_cases, "MOST_INTEGERS", 10)
    finding = Finding(Verdict.MISMATCH, 0, "positions", "F-POS", "wrong value")
    told = reduce_batch(Session(SUBJECT), batches()[0], finding, time.monotonic() + 9)
    assert told == ([], "not reduced: more than a case can hold")


def test_a_batch_as_a_case_builds_the_same() -> None:
    batch = next(each for each in batches(("decode_zos",)) if each.form == "gathers")
    case = case_of(batch.steps, "a title")
    assert case is not None
    assert case.gather
    (request,), (again,) = batch.steps, steps_of(case)
    assert readable(request).expected([0, 5]) == again.expected([0, 5])


def test_a_batch_of_several_table_widths_is_no_case() -> None:
    steps = next(each for each in batches() if each.form == "several steps").steps
    assert case_of(steps, "") is not None
    assert case_of((replace(steps[0], max_num_blocks=99), *steps[1:]), "") is None
