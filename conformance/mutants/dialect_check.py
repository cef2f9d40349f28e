"""``subject check --dialect``: whether dialects hide a fault, within what a subject claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inputmeta.conformance.dialects import Dialect
from inputmeta.conformance.dialects.flavours import FLAVOURS
from inputmeta.conformance.mutants.spread import put_spread
from inputmeta.conformance.mutants.translated import (
    CASES,
    Fault,
    Faults,
    Outcome,
    batches,
    put_changed_cells,
    put_mutants,
)
from inputmeta.conformance.subjects.base import Capabilities

CHANGED_BATCHES = 20
"""Batches of which cells are changed."""


@dataclass(frozen=True)
class Line:
    """What came of the faults of one class. A fault is a mutant in one field."""

    kind: str
    """Class of the mutants, or ``changed-cell``."""
    faults: int
    seen: int
    """Shown by some batch, and hidden on none."""
    invisible: int
    """Shown by none, as declared."""
    hidden: int
    """Not shown by some batch that should."""
    applied: int
    """Over all batches."""


@dataclass(frozen=True)
class DialectReport:
    """What came of all faults."""

    lines: tuple[Line, ...]
    hidden: tuple[str, ...]
    """Each with the field and the first batch."""
    invisible: dict[str, tuple[str, ...]]
    """By declared reason."""
    partly: dict[str, tuple[str, ...]]
    """By declared reason: shown by some batches; on the others the engine's form is what is right."""
    without_form: tuple[str, ...]
    """Mutants that have no form in a zigzag flavour."""


def check_dialects(dialects: Sequence[Dialect], claims: Capabilities, cases: int = CASES) -> DialectReport:
    """Put every mutant, and changed cells, to the dialects: those with an inverse together, a flavour by itself.

    Raises:
        RelationError: a flavour breaks its own relations.
    """
    faults = Faults(tuple(dialect for dialect in dialects if dialect.translate is not None))
    without: list[str] = []
    if faults.dialects:
        given = batches(faults.dialects, claims, cases)
        for batch in given:
            faults.put_right(batch)
        put_mutants(faults, given)
        put_changed_cells(faults, given[:CHANGED_BATCHES])
    for dialect in dialects:
        if dialect.name in FLAVOURS and "prompt" in claims.paths and claims.max_cp_size > 1:
            without += put_spread(faults, FLAVOURS[dialect.name], claims, cases)
    return DialectReport(
        lines=tuple(line_of(faults, kind) for kind in dict.fromkeys(fault.kind for fault in faults.outcomes)),
        hidden=tuple(f"{f.name} in {f.field}: {faults.hidden_at[f]}" for f in faults.hidden()),
        invisible=by_reason(faults, faults.invisible()),
        partly=by_reason(
            faults,
            [fault for fault, seen in faults.outcomes.items() if seen[Outcome.INVISIBLE] and seen[Outcome.SEEN]],
        ),
        without_form=tuple(dict.fromkeys(without)),
    )


def by_reason(faults: Faults, told: Sequence[Fault]) -> dict[str, tuple[str, ...]]:
    """Faults with their fields, by the reason that is declared."""
    found: dict[str, tuple[str, ...]] = {}
    for fault in told:
        reason = faults.reasons[fault]
        found[reason] = (*found.get(reason, ()), f"{fault.name} in {fault.field}")
    return found


def line_of(faults: Faults, kind: str) -> Line:
    """One class of faults."""
    outcomes = [outcomes for fault, outcomes in faults.outcomes.items() if fault.kind == kind]
    hidden = sum(bool(each[Outcome.HIDDEN]) for each in outcomes)
    invisible = sum(each.keys() == {Outcome.INVISIBLE} for each in outcomes)
    applied = sum(each.total() for each in outcomes)
    return Line(kind, len(outcomes), len(outcomes) - hidden - invisible, invisible, hidden, applied)
