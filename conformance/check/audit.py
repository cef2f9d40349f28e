"""The reference held against the oracle on sampled query rows of a batch that is too wide to be compared whole."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, TypeVar

import numpy as np

from inputmeta import oracle
from inputmeta.conformance import reference
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.compare import Wanted, compare_fields, finding
from inputmeta.conformance.check.verdicts import Finding, Verdict

T = TypeVar("T", oracle.MetadataConfig, oracle.SequenceMetadata)


def audit(request: Request, step: reference.Expected, rows: Sequence[int] | None) -> list[Finding]:
    """What the reference has otherwise than the oracle, on the chosen rows; none when they agree.

    ``rows``: sorted, distinct query rows (None: all), see :func:`sampled_rows`. Fields without query rows (prefix sums,
    load plans, scalars) are compared whole; of mirrored and compact layouts the rows that stand for a chosen one. The
    oracle's work is proportional to rows, sequences, load segments and what the sequences bring. Keys that only one of
    the two has are findings too. A finding means that the suite is wrong, whatever a subject did.

    Raises:
        oracle.PreconditionError: the batch breaks a precondition, so that the reference's fields mean nothing.
    """
    return disagreements(readable(request).expected(rows), step)


def disagreements(expected: Mapping[str, oracle.ExpectedField], step: reference.Expected) -> list[Finding]:
    """The same of what the oracle ``expected`` on the chosen rows."""
    wanted = {key: Wanted.of(field) for key, field in expected.items()}
    findings = compare_fields(wanted, {key: built_value(step, key, want) for key, want in wanted.items()})
    for key in sorted(step.fields.keys() - wanted.keys()):
        detail = "the reference has a field that the oracle has not"
        findings.append(Finding(Verdict.MISMATCH, 0, key, "-", detail, kind="missing"))
    for key, want in wanted.items():
        if not defined_alike(want, step.defined(key)):
            findings.append(finding(Verdict.MISMATCH, 0, key, want, detail="other cells are defined", kind="defined"))
    return findings


def built_value(step: reference.Expected, key: str, want: Wanted) -> np.ndarray | int | bool | None:
    """A field of the reference in host memory, of an array on a device the chosen rows."""
    value = step.fields.get(key)
    return value if value is None or isinstance(value, int) else reference.host_rows(value, want.rows)


def defined_alike(want: Wanted, defined: reference.Array | None) -> bool:
    """Whether oracle and reference say of the same cells of the chosen rows that they are defined."""
    ours = np.ones(want.field.shape, dtype=bool) if defined is None else reference.host_rows(defined, want.rows)
    theirs = np.ones(want.values.shape, dtype=bool) if want.defined is None else want.defined
    return np.array_equal(ours if want.rows is None else ours[want.rows], theirs)


def sampled_rows(total_q: int, count: int, seed: int) -> list[int]:
    """``count`` query rows of a batch, or all if it has no more: the first, the last, others from the seed; ascending.

    >>> sampled_rows(3, 5, 0), sampled_rows(100, 2, 0), len(sampled_rows(100, 7, 0))
    ([0, 1, 2], [0, 99], 7)
    """
    if total_q <= count:
        return list(range(total_q))
    between = Random(seed).sample(range(1, total_q - 1), count - 2)
    return sorted([0, *between, total_q - 1])


def readable(request: Request) -> Request:
    """The request with numpy arrays as the Python integers that the oracle computes on."""
    return dataclasses.replace(
        request,
        config=with_plain_arrays(request.config),
        sequences=[with_plain_arrays(sequence) for sequence in request.sequences],
    )


def with_plain_arrays(brought: T) -> T:
    """The same with ``array('i')`` for numpy arrays."""
    arrays: dict[str, Any] = {}
    for member in dataclasses.fields(brought):
        value = getattr(brought, member.name)
        if isinstance(value, np.ndarray):
            arrays[member.name] = array("i", value.astype(np.int32).tobytes())
    return dataclasses.replace(brought, **arrays)
