"""What a formula is declared to read, held against the oracle: a fault in one formula spreads to its readers."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest

from inputmeta import oracle
from inputmeta.conformance.campaign.generated import generated_cases
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.check.compare import Wanted, compare_fields
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.mutants import MUTANTS
from inputmeta.conformance.subjects import Rejection, Subject
from inputmeta.conformance.subjects.copies import copy_with
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta.oracle.formulas import READS

PLANTS = {
    "F-POS": ("common", "Token(q_start + offset)", "Token(max(0, q_start + offset - 1))"),
    "F-BLOCKS": ("blocks", "max([1, *counts])", "max([2, *counts])"),
}
"""Faults that leave every other formula something to compute with, as few of the mutants do."""


def planted() -> list[tuple[str, Subject]]:
    """Subjects with a fault in one formula that a finding can name, and the formula."""
    fields = oracle.FIELDS.values()
    named = {name for field in fields for name in (*field.formulas, *dict(field.other_formulas).values())}
    mutants = [m for m in MUTANTS.values() if m.in_process and m.formula in named and m.make is not None]
    copies = {name: copy_with(f"oracle_for_reads_{name[2:]}", *plant) for name, plant in PLANTS.items()}
    return [(m.formula, m.make()) for m in mutants] + [(name, OracleSubject(copy)) for name, copy in copies.items()]


@cache
def spread() -> dict[str, dict[str, bool]]:
    """By formula: the fields that a fault in it changes, and whether each is declared to read it."""
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    cases = generated_cases(Profile(invalid=0, tiers=("small",)), 1, 60)
    requests = [step_request(case, index, in_place=False) for case in cases for index in range(len(case.steps))]
    batches = [(request, {key: Wanted.of(field) for key, field in request.expected().items()}) for request in requests]
    for formula, subject in planted():
        for request, wanted in batches:
            try:
                built = subject.build(request)
            except (Rejection, AssertionError, ArithmeticError, LookupError, ValueError):
                continue
            for finding in compare_fields(wanted, built):
                field = oracle.FIELDS[finding.field]
                says = finding.formula == formula or formula in field.reads(request.path, request.config)
                found[formula][field.name] = says and found[formula].get(field.name, True)
    return found


@pytest.mark.slow
def test_what_a_fault_spreads_to_is_declared() -> None:
    assert {
        (formula, name) for formula, fields in spread().items() for name, says in fields.items() if not says
    } == set()
    assert len(spread()["F-POS"]) > 15


@pytest.mark.slow
@pytest.mark.parametrize(("reader", "read"), [(reader, read) for reader, of in READS.items() for read in of])
def test_what_is_declared_is_what_a_fault_spreads_to(reader: str, read: str) -> None:
    changed = [oracle.FIELDS[name] for name in spread()[read]]
    formulas = {formula for field in changed for formula in (*field.formulas, *dict(field.other_formulas).values())}
    assert reader in formulas


def test_nothing_reads_itself() -> None:
    """Neither directly nor through others: of two wrong fields at most one follows from the other."""
    for path in oracle.PATHS:
        config = oracle.MetadataConfig(
            block_size=4, window_size=2, swa_block_size=4, max_model_len=8, sparse_ratios=(2,), dense_ratios=(1,),
            cp_size=2, yoco_mode="compact", max_ngram_size=1,
        )  # fmt: skip
        fields = [field for field in oracle.FIELDS.values() if field.is_present(path, config)]
        for one in fields:
            for other in fields:
                mutual = (other.formula_on(path, config) in one.reads(path, config)) and (
                    one.formula_on(path, config) in other.reads(path, config)
                )
                assert not mutual, (path, one.name, other.name)
