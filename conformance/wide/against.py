"""Steps of a subject held against the reference; what differs is confirmed by the oracle before it is told.

It happens in the place of the subject, host memory or its device (:mod:`inputmeta.conformance.wide.places`). The
reference accuses nobody. Where it and a subject differ, the ordinary comparison runs on the rows that differ, by
the oracle, and its findings are what is told. Where oracle and reference differ, the suite is wrong: verdict SUITE.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np

from inputmeta import oracle
from inputmeta.conformance import reference
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.audit import disagreements, readable, sampled_rows
from inputmeta.conformance.check.buffers import PATTERNS, Arena, Shapes
from inputmeta.conformance.check.compare import Wanted
from inputmeta.conformance.check.runner import ValidStep, build, merge_passes, run_pass, wanted_fields
from inputmeta.conformance.check.tails import without_tails
from inputmeta.conformance.check.verdicts import Finding, Verdict, declared, field_name
from inputmeta.conformance.check.zigzag import compared_fields
from inputmeta.conformance.reference import Array, Value
from inputmeta.conformance.subjects.base import Result, Subject, Unsupported, with_buffers
from inputmeta.conformance.wide.places import HOST_PLACE, Flag, Place, place_of

CONFIRMED_ROWS = 4
"""Differing rows of a field that the oracle is asked about."""


def claimed(step: reference.Expected, subject: Subject) -> dict[str, Value]:
    """The reference's fields that the subject claims, but those that a dialect of its leaves to relations."""
    names = compared_fields(subject.capabilities, step.batch.path, step.batch.config)
    return {key: value for key, value in step.fields.items() if field_name(key) in names}


def cells_of(step: reference.Expected, subject: Subject) -> int:
    """Cells of the claimed fields."""
    return sum(1 if isinstance(value, int) else math.prod(value.shape) for value in claimed(step, subject).values())


def compared(
    subject: Subject,
    requests: Sequence[Request],
    pattern: dict[str, int] | None = None,
    steps: Sequence[reference.Expected] | None = None,
    *,
    by_oracle: bool = True,
) -> list[Finding]:
    """Build every step, to the first that differs; its confirmed findings, none if no step differs.

    ``pattern``: poison of the fenced buffers that a subject gets if it fills in place; None: it gets none. ``steps``:
    what the reference has of the requests, if that is known, made in the subject's place. ``by_oracle`` False:
    findings as the reference has them, in a small part of the time, for a search whose end the oracle confirms.
    """
    place = place_of(subject)
    asked = place.asked(subject)
    steps = steps or [place.reference_of(request) for request in requests]
    wanted = [claimed(step, subject) for step in steps]
    shapes = [shapes_of(fields, place) for fields in wanted]
    in_place = pattern is not None and subject.capabilities.in_place
    arena = Arena(shapes, pattern, place.arrays) if pattern is not None and in_place else None
    for number, fields in enumerate(wanted):
        request = handed_over(requests[number], subject)
        before, fences = None, {}
        if arena is not None:
            request = dataclasses.replace(request, out=arena.views(shapes[number]))
            before = None if place.arrays.host else arena.copy()
            fences = arena.outside(shapes[number]) if before is None else {}
        result = build(asked, request, number)
        if isinstance(result, Finding):
            return refusal_of(result, requests[number], number)
        built = with_buffers(without_tails(result, request, subject.capabilities), request.out)
        outside: dict[str, Flag] = {}
        if before is not None and arena is not None:
            if as_wanted(place, (before, arena), steps[number], fields, built):
                continue
            fences = before.outside(shapes[number])
        if arena is not None:
            outside = {
                key: place.unequal(arena.rows[key].outside(shape), fences[key])
                for key, (_, shape) in shapes[number].items()
            }
        differing, written_outside = place.raised(differing_flags(steps[number], fields, built, place), outside)
        if (differing or written_outside) and not by_oracle:
            return by_reference(subject, requests[: number + 1], steps, in_place=in_place)
        if differing or written_outside:
            return confirmed(subject, requests[: number + 1], steps[number], differing, built, in_place=in_place)
    return []


def as_wanted(
    place: Place, buffers: tuple[Arena, Arena], step: reference.Expected, fields: Mapping[str, Value], built: Result
) -> bool:
    """Whether the second ``buffers`` hold what the first did before the step, but for its fields, which are as wanted.

    A device does one comparison of all memory, fences included, in the time of one of a field; where it is not so, one
    for each field says what differs. The first are overwritten where the fields lie.
    """
    before, after = buffers
    for key, value in fields.items():
        if isinstance(built.get(key), Unsupported):
            continue
        if isinstance(value, int):
            if differs(value, built.get(key), None, place) is not False:
                return False
            continue
        cells, defined = before.rows[key].view(value.shape), step.defined(key)
        cells[...] = value if defined is None else place.arrays.xp.where(defined, value, cast(Array, built[key]))
    (raised,) = place.raised(
        {dtype: place.unequal(block, before.blocks[dtype]) for dtype, block in after.blocks.items()}
    )
    return not raised


def refusal_of(answer: Finding, request: Request, number: int) -> list[Finding]:
    """What a subject that did not build a step is told of; SUITE if the oracle holds the step for invalid."""
    broken = readable(request).violations() if answer.verdict is Verdict.REJECTED else []
    if broken:
        detail = f"drew a batch that breaks a precondition: {broken[0]}"
        return [Finding(Verdict.SUITE, number, None, broken[0].condition, detail)]
    return [answer]


def shapes_of(fields: Mapping[str, Value], place: Place) -> Shapes:
    """Dtype and shape of the tensors by flat key."""
    arrays = {key: value for key, value in fields.items() if not isinstance(value, int)}
    return {
        key: ("bool" if place.arrays.is_flags(value) else "int32", tuple(value.shape)) for key, value in arrays.items()
    }


def differing_keys(step: reference.Expected, wanted: Mapping[str, Value], built: Result) -> list[str]:
    """Of the wanted fields that were built, in host memory, those that are not as the reference has them."""
    (keys,) = HOST_PLACE.raised(differing_flags(step, wanted, built, HOST_PLACE))
    return keys


def differing_flags(
    step: reference.Expected, wanted: Mapping[str, Value], built: Result, place: Place
) -> dict[str, Flag]:
    """Of the wanted fields that were built, whether each is otherwise than the reference has it."""
    return {
        key: differs(value, place.brought(built.get(key)), step.defined(key), place)
        for key, value in wanted.items()
        if not isinstance(built.get(key), Unsupported)
    }


def differs(want: Value, got: Any, defined: Array | None, place: Place) -> Flag:  # noqa: ANN401 - a stranger's answer
    """Whether a built field has not the form or, in its defined cells, not the values of the reference."""
    if isinstance(want, int):
        return type(got) is not type(want) or bool(got != want)
    if not place.is_array(got) or got.dtype != want.dtype or tuple(got.shape) != tuple(want.shape):
        return True
    return place.unequal(got, want, defined)


def handed_over(request: Request, subject: Subject) -> Request:
    """The request with the integers in the form that the subject takes."""
    if subject.capabilities.int32_arrays:
        return request
    return dataclasses.replace(
        request,
        config=dataclasses.replace(request.config, **tuples_of(request.config, oracle.CONFIG_ARRAYS)),
        sequences=[dataclasses.replace(each, **tuples_of(each, oracle.SEQUENCE_ARRAYS)) for each in request.sequences],
    )


def tuples_of(brought: object, names: Sequence[str]) -> dict[str, Any]:
    """The arrays among the members of these names, as tuples."""
    values = {name: getattr(brought, name) for name in names}
    return {name: tuple(value.tolist()) for name, value in values.items() if isinstance(value, np.ndarray)}


def confirmed(
    subject: Subject,
    requests: Sequence[Request],
    step: reference.Expected,
    differing: Sequence[str],
    built: Result,
    *,
    in_place: bool,
) -> list[Finding]:
    """The ordinary findings, by the oracle, on the rows where the last step differs from the reference.

    ``requests``: the steps to it. They are built again, ``in_place`` on poison of both polarities. SUITE if oracle and
    reference differ on these rows; FLAKY if they agree and the second time nothing is wrong.
    """
    number, request = len(requests) - 1, requests[-1]
    rows = sorted({row for key in differing for row in differing_rows(key, step, built.get(key))})
    rows = rows or sampled_rows(step.batch.total_q, 2, 0)
    expected = oracle_rows(request, rows, number)
    if isinstance(expected, Finding):
        return [expected]
    suite = suite_findings(expected, step, number)
    if suite:
        return suite
    able = compared_fields(subject.capabilities, request.path, request.config)
    valid = [
        ValidStep(index, handed_over(each, subject), wanted_fields(readable(each), subject, [])[0])
        for index, each in enumerate(requests[:-1])
    ]
    wanted = {key: Wanted.of(field) for key, field in expected.items() if field_name(key) in able}
    valid.append(ValidStep(number, handed_over(request, subject), wanted))
    findings = built_again(subject, valid, in_place=in_place)
    if findings:
        return findings
    key = differing[0] if differing else None
    formula = "-" if key is None else declared(key).formula_on(request.path, request.config)
    detail = f"differed from the reference in {key or 'cells around the buffers'}, and not when it was built again"
    return [Finding(Verdict.FLAKY, number, key, formula, detail)]


def built_again(subject: Subject, valid: list[ValidStep], *, in_place: bool) -> list[Finding]:
    """What is wrong with the steps when they are built again, ``in_place`` on poison of both polarities."""
    patterns: Sequence[dict[str, int] | None] = PATTERNS if in_place else (None,)
    findings = merge_passes([run_pass(subject, valid, pattern) for pattern in patterns])
    return [found for found in findings if found.key is None or found.verdict is not Verdict.UNSUPPORTED]


def by_reference(
    subject: Subject, requests: Sequence[Request], steps: Sequence[reference.Expected], *, in_place: bool
) -> list[Finding]:
    """As :func:`confirmed`, by the reference, in every row; none where the second time nothing is wrong."""
    valid = [
        ValidStep(number, handed_over(request, subject), wanted_by_reference(steps[number], subject))
        for number, request in enumerate(requests)
    ]
    return built_again(subject, valid, in_place=in_place)


def wanted_by_reference(step: reference.Expected, subject: Subject) -> dict[str, Wanted]:
    """The fields that the subject claims as the reference has them."""
    wanted = {}
    for key, value in claimed(step, subject).items():
        field, (_, _, bucket) = declared(key), key.partition(".")
        values = np.asarray(value if isinstance(value, int) else reference.host_array(value))
        defined = step.defined(key)
        formula = field.formula_on(step.batch.path, step.batch.config)
        dtype: Literal["bool", "int32"] = "bool" if values.dtype == np.bool_ else "int32"
        expected = oracle.ExpectedField(
            key, field, int(bucket) if bucket else None, formula, dtype, values.shape, cells=[], rows=None
        )
        wanted[key] = Wanted(expected, values, None if defined is None else reference.host_array(defined), None)
    return wanted


def audited(request: Request, step: reference.Expected, rows: Sequence[int], number: int) -> list[Finding]:
    """Where oracle and reference differ on the chosen rows of a step; none when they agree."""
    expected = oracle_rows(request, rows, number)
    return [expected] if isinstance(expected, Finding) else suite_findings(expected, step, number)


def oracle_rows(request: Request, rows: Sequence[int], number: int) -> Mapping[str, oracle.ExpectedField] | Finding:
    """The oracle's fields on the chosen rows; SUITE if the step breaks a precondition: ours are all to be valid."""
    try:
        return readable(request).expected(rows)
    except oracle.PreconditionError as error:
        return Finding(Verdict.SUITE, number, None, error.condition, f"drew a batch that breaks one: {error}")


def suite_findings(
    expected: Mapping[str, oracle.ExpectedField], step: reference.Expected, number: int
) -> list[Finding]:
    """What the reference has otherwise than the oracle, as findings of verdict SUITE."""
    return [
        dataclasses.replace(
            each.at_step(number), verdict=Verdict.SUITE, detail=f"got is the reference, want the oracle: {each.detail}"
        )
        for each in disagreements(expected, step)
    ]


def differing_rows(key: str, step: reference.Expected, got: object) -> list[int]:
    """Query rows that stand for the first differing rows of a field; none where its rows are no queries'."""
    want, arrays = step.fields[key], step.batch.arrays
    if isinstance(want, int) or getattr(got, "shape", None) != want.shape:
        return []
    wrong = want != cast(Array, got)
    defined = step.defined(key)
    if defined is not None:
        wrong &= defined
    if len(want.shape) > 1:
        wrong = arrays.xp.any(arrays.xp.reshape(wrong, (want.shape[0], -1)), axis=1)
    places = reference.host_array(arrays.where_true(wrong)[:CONFIRMED_ROWS])
    kind = declared(key).layout(step.batch.path, step.batch.config).rows
    if kind == "compressed":
        return compressed_rows(key.partition(".")[2], places, step)
    return query_rows(kind, places, step)


def array_of(step: reference.Expected, key: str) -> np.ndarray:
    """A field of the reference that is an array, in host memory."""
    value = step.fields[key]
    assert not isinstance(value, int)
    return reference.host_array(value)


def compressed_rows(ratio: str, places: np.ndarray, step: reference.Expected) -> list[int]:
    """The first query rows whose positions fall in compressed tokens of a prompt; of an empty range any row will do."""
    batch = step.batch
    starts = array_of(step, f"cu_compressed_seqlens_q.{ratio}")
    first_row, q_start, seqlen_q = batch.first_row, batch.q_start, batch.seqlen_q
    sequence = np.searchsorted(starts, places, side="right") - 1
    token = q_start[sequence] // int(ratio) + places - starts[sequence]
    offset = np.clip(token * int(ratio) - q_start[sequence], 0, np.maximum(seqlen_q[sequence] - 1, 0))
    return [int(row) for row in first_row[sequence] + offset if row < batch.total_q]


def query_rows(kind: str, places: np.ndarray, step: reference.Expected) -> list[int]:
    """The query rows that rows of a layout stand for; padding stands for none."""
    chains = {
        "query": (),
        "mirror": ("mirror_cp_index",),
        "consumer": ("yoco_consumer_query_indices",),
        "consumer_mirror": ("yoco_consumer_mirror_cp_index", "yoco_consumer_query_indices"),
        "contribution": ("yoco_cp_contrib_index", "mirror_cp_index"),
    }
    if kind not in chains:
        return []
    for name in chains[kind]:
        index = array_of(step, name)
        places = index[places[(places >= 0) & (places < len(index))]]
    return [int(row) for row in places if 0 <= row < step.batch.total_q]
