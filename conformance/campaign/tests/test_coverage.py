"""Coverage counts what ran to a comparison, and nothing else."""

from __future__ import annotations

import dataclasses
from functools import cache

from inputmeta import oracle
from inputmeta.conformance.campaign.generated import generated_cases, profile_of
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.generate import Coverage, features
from inputmeta.conformance.subjects import Unsupported
from inputmeta.conformance.subjects.base import Subject
from inputmeta.conformance.subjects.oracle import OracleSubject

CASES = 25
PLAIN = dataclasses.replace(OracleSubject().capabilities, in_place=False, refuses=frozenset())


class Some(OracleSubject):
    """The oracle without claims to refuse or to fill, asked for some of its fields."""

    def __init__(self, fields: frozenset[str] = PLAIN.fields) -> None:
        super().__init__()
        self.capabilities = dataclasses.replace(PLAIN, fields=fields)


class Nothing(Some):
    """Answers "not this batch" to every batch."""

    def build(self, request):
        raise Unsupported("not today")


class WithoutRings(Some):
    """Answers "not this field" where rings are concerned, though it claims them."""

    def build(self, request):
        result = dict(super().build(request))
        rings = (key for key in result if "F-RING" in formulas_of(key.partition(".")[0]))
        return result | dict.fromkeys(rings, Unsupported("no ring"))


def formulas_of(name: str) -> set[str]:
    """The formulas of a field."""
    field = oracle.FIELDS[name]
    return {*field.formulas, *dict(field.other_formulas).values()}


@cache
def cases() -> tuple[Case, ...]:
    """Valid cases of one seed."""
    return tuple(generated_cases(profile_of(PLAIN, oracle.PATHS), 4, CASES))


def coverage_of(subject: Subject) -> Coverage:
    """What the cases visit by what the subject does with them."""
    coverage = Coverage()
    for case in cases():
        coverage.add(features(case, run_case(case, subject, containers=False).shown))
    return coverage


def groups(coverage: Coverage) -> set[str]:
    """The formulas, and other groups, of which something was visited."""
    return {row.id.partition(":")[0] for row in coverage.rows() if row.count}


def test_a_subject_that_builds_no_batch_visits_nothing():
    assert [row.id for row in coverage_of(Nothing()).rows() if row.count] == []


def test_a_subject_that_builds_all_visits_what_its_cases_have():
    by_case = Coverage()
    for case in cases():
        by_case.add(features(case))
    assert by_case.counts["F-RING:wrapped"] > 0
    assert coverage_of(Some()).counts == by_case.counts


def test_fields_that_are_not_built_are_not_visited():
    visited = coverage_of(WithoutRings())
    assert visited.counts["F-POS:prefix"] > 0
    assert "F-RING" not in groups(visited)


def test_fields_outside_the_claims_are_told_so():
    subject = Some(frozenset({"klen", "positions"}))
    visited = coverage_of(subject)
    of_no_field = {"F-VARLEN", "F-REMAP", "F-TAIL", "F-STACK", "F-LIMIT"}
    assert {group for group in groups(visited) if group.startswith("F-")} <= {"F-POS", "F-KLEN", "F-KS"} | of_no_field
    profile = profile_of(subject.capabilities, oracle.PATHS)
    outside = {row.id for row in visited.outside(profile)}
    assert {"F-RING:wrapped", "F-NGRAM:size-1", "F-PIVOT:past-row"} <= outside
    assert outside.isdisjoint(row.id for row in visited.unvisited(profile))
    assert not any(row.id.startswith("F-RING") for row in visited.unvisited(profile))


def test_a_field_of_one_path_is_outside_on_the_others():
    able = dataclasses.replace(PLAIN, fields_on={"decode": PLAIN.fields - {"kv_swa_index", "kv_swa_index_offset_len"}})
    profile = profile_of(able, ("prompt", "decode"))
    assert "F-SWADEC:full" in {row.id for row in Coverage().outside(profile)}
    assert "F-SWADEC:full" not in {row.id for row in Coverage().outside(profile_of(PLAIN, ("prompt", "decode")))}


def test_steps_that_were_not_run_are_not_visited():
    case = next(case for case in cases() if len(case.steps) > 2)
    assert features(case, {}) == frozenset()
    first = features(case, {0: PLAIN.fields})
    assert first
    assert not any(name.startswith("STEPS:") for name in first)
