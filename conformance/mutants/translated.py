"""Whether a dialect hides a fault: every mutant's answer put in the engine's form, translated back, and compared.

Three sources of faults, none of them a list of its own. A mutant (:data:`MUTANTS`) spoils the specification's fields,
which ``forward`` then puts in the engine's form. What has no form there is handed over as it is. And single cells are
changed in the engine's form itself, where a mutant cannot reach: a row that the dialect leaves out, an upper half.
After the translation each of them must still differ from what the oracle says, or be an error.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, lru_cache
from typing import NamedTuple, cast

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.campaign.generated import generated_cases, profile_of
from inputmeta.conformance.cases.corpus import BUG_CLASSES
from inputmeta.conformance.cases.request import Request, step_request
from inputmeta.conformance.check.compare import Wanted, compare_field, compare_fields
from inputmeta.conformance.check.verdicts import Verdict, field_name
from inputmeta.conformance.dialects import Dialect, DialectError, forward, translate
from inputmeta.conformance.dialects.base import Fields, Value
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.mutants.mutant import MUTANTS, Mutant
from inputmeta.conformance.subjects.base import Built, Capabilities, Subject
from inputmeta.conformance.subjects.oracle import OracleSubject

KINDS = (*BUG_CLASSES, "FORM", "UNWRITTEN")
"""Kinds of mutants that answer; the others end their process, write outside their buffers, or act on refusals."""
SEED = 5
CASES = 60
"""Generated cases from which a fault has its batches."""
MOST_CELLS = 20_000
"""Of a batch: more tell no more."""
BATCHES = 3
"""Batches on which a mutant is put to the dialects: the first that it spoils."""
ROUND_TRIP = "round-trip"
"""Kind of what is found wrong with a dialect before any fault."""
CHANGED_CELL = "changed-cell"
"""What stands for a mutant where a cell of the engine's form was changed."""
POISON = 0x5A5A5A5A
"""What the caller's buffers hold before a mutant fills them."""


@dataclass(frozen=True)
class Batch:
    """A valid batch: what the oracle says, the same in the engine's form, and the claimed fields that are looked at."""

    request: Request
    fields: Fields
    spoken: Fields
    wanted: Mapping[str, Wanted]


class Outcome(StrEnum):
    """What came of one fault on one batch."""

    SEEN = "seen"
    INVISIBLE = "invisible"
    """In the engine's form it is what is right, and the dialect declares that, with a reason."""
    HIDDEN = "hidden"
    """In the engine's form it differs from what is right, or nothing is declared."""


@dataclass
class Faults:
    """Puts faults to dialects and keeps what came of them, by class, name and field."""

    dialects: tuple[Dialect, ...]
    outcomes: dict[Fault, Counter[Outcome]] = field(default_factory=dict)
    reasons: dict[Fault, str] = field(default_factory=dict)
    """Of those that are invisible on some batch."""
    hidden_at: dict[Fault, str] = field(default_factory=dict)
    """The first batch on which one is hidden, in words."""

    def keep(self, fault: Fault, outcome: Outcome, request: Request) -> None:
        """Count what came of a fault on a batch."""
        self.outcomes.setdefault(fault, Counter())[outcome] += 1
        if outcome is Outcome.HIDDEN:
            self.hidden_at.setdefault(fault, described(request))

    def put(self, fault: Fault, batch: Batch, spoken: Fields) -> None:
        """One fault on one batch, in the engine's form."""
        outcome = Outcome.SEEN
        if not self.shows(batch, spoken):
            outcome = Outcome.HIDDEN
            told = [told for d in self.dialects for told in d.invisible if told.covers(fault.name, fault.field)]
            if told and same_fields(spoken, batch.spoken):
                outcome = Outcome.INVISIBLE
                self.reasons.setdefault(fault, told[0].reason)
        self.keep(fault, outcome, batch.request)

    def shows(self, batch: Batch, spoken: Fields) -> bool:
        """Whether what an engine gave differs from what the oracle says, once it is translated."""
        try:
            return bool(compare_fields(batch.wanted, self.translated(batch, spoken)))
        except DialectError:
            return True

    def put_right(self, batch: Batch) -> None:
        """What is right, in the engine's form: if it comes back wrong, a fault would show whatever is translated."""
        try:
            wrong = [found.field for found in compare_fields(batch.wanted, self.translated(batch, batch.spoken))]
        except DialectError:
            wrong = [field_name(key) for key in batch.wanted]
        for name in wrong:
            self.keep(Fault(ROUND_TRIP, "what is right comes back wrong", name or "-"), Outcome.HIDDEN, batch.request)

    def translated(self, batch: Batch, spoken: Fields) -> Fields:
        """An engine's fields as the specification's."""
        return translate(self.dialects, batch.request, spoken)

    def in_the_engines_form(self, batch: Batch, key: str, value: Value | None) -> Fields:
        """The oracle's fields with one spoilt (None: left out), as an engine gives them.

        A value for which the dialects have no form is handed over as it is.
        """
        spoilt = {name: other for name, other in batch.fields.items() if name != key}
        as_it_is = {name: other for name, other in batch.spoken.items() if name != key}
        if value is not None:
            spoilt[key] = as_it_is[key] = value
        try:
            return forward(self.dialects, batch.request, spoilt)
        except DialectError:
            return as_it_is

    def hidden(self) -> list[Fault]:
        """Faults that some batch does not show although it should."""
        return [fault for fault, seen in self.outcomes.items() if seen[Outcome.HIDDEN]]

    def invisible(self) -> list[Fault]:
        """Faults that no batch shows, as declared."""
        return [fault for fault, seen in self.outcomes.items() if seen.keys() == {Outcome.INVISIBLE}]


class Fault(NamedTuple):
    """A mutant, or a changed cell, in one field."""

    kind: str
    """Class of the mutant, or CHANGED_CELL."""
    name: str
    field: str


def same_fields(left: Fields, right: Fields) -> bool:
    """Whether two answers are the same, form included."""
    return left.keys() == right.keys() and all(
        type(value) is type(right[key])
        and np.asarray(value).dtype == np.asarray(right[key]).dtype
        and np.array_equal(value, right[key])
        for key, value in left.items()
    )


def described(request: Request) -> str:
    """A batch in a few words."""
    lengths = ", ".join(f"{s.seqlen_q}/{s.seqlen_k}" for s in request.sequences[:4])
    return f"{request.path}, {len(request.sequences)} sequences of q/k {lengths}"


def batches(dialects: Sequence[Dialect], claims: Capabilities, cases: int) -> list[Batch]:
    """Valid batches of the claims that have a form in the dialects, with the claimed fields that these touch."""
    touched = frozenset().union(*(dialect.fields for dialect in dialects))
    profile = replace(profile_of(claims, sorted(claims.paths)), invalid=0.0, read_only=True)
    found = []
    for request, expected, fields in drawn(profile, cases):
        try:
            spoken = forward(dialects, request, fields)
        except DialectError:
            continue
        wanted = {
            key: Wanted.of(cells)
            for key, cells in expected.items()
            if field_name(key) in touched & claims.fields_of(request.path)
        }
        if wanted:
            found.append(Batch(request, fields, spoken, wanted))
    return found


@lru_cache(maxsize=2)
def drawn(profile: Profile, cases: int) -> tuple[tuple[Request, dict[str, oracle.ExpectedField], Fields], ...]:
    """The valid steps of generated cases that are not too large, with what the oracle says of them."""
    found = []
    for case in generated_cases(profile, SEED, cases):
        for index in range(len(case.steps)):
            request = step_request(case, index, in_place=False)
            expected = request.expected()
            if sum(len(cells.cells) for cells in expected.values()) <= MOST_CELLS:
                found.append((request, expected, cast(Built, OracleSubject().build(request))))
    return tuple(found)


@cache
def copy_of(mutant: Mutant) -> Subject:
    """A mutant that remembers nothing, made once: it is a copy of the oracle."""
    assert mutant.make is not None
    return mutant.make()


def put_mutants(faults: Faults, given: Sequence[Batch], names: Sequence[str] = ()) -> list[str]:
    """Put the mutants to the dialects, all if ``names`` is empty; returns those that spoil none of these batches."""
    without = []
    signatures = signatures_of(given)
    for name, mutant in MUTANTS.items():
        if mutant.make is None or not may_show(mutant, signatures) or (names and name not in names):
            continue
        spoilt = 0
        subject = copy_of(mutant) if mutant.in_process else mutant.make()
        for batch in given:
            wrong = wrong_keys(mutant, subject, batch)
            for key, value in wrong.items():
                fault = Fault(mutant.kind, name, field_name(key))
                faults.put(fault, batch, faults.in_the_engines_form(batch, key, value))
            spoilt += bool(wrong)
            if spoilt >= BATCHES:
                break
        if not spoilt:
            without.append(name)
    return without


def may_show(mutant: Mutant, signatures: Iterable[str]) -> bool:
    """Whether a mutant answers valid batches, and declares to show one of these short signatures."""
    shown = tuple(mutant.declared.split(" or "))
    answers = mutant.make is not None and not mutant.gpu and mutant.kind in KINDS
    return answers and any(signature.startswith(shown) for signature in signatures)


def signatures_of(given: Iterable[Batch]) -> set[str]:
    """The short signatures of whatever may be wrong with the fields that are looked at."""
    cells = {f"{want.field.formula}:{field_name(key)}" for batch in given for key, want in batch.wanted.items()}
    return {f"{verdict}:{cell}" for cell in cells for verdict in (Verdict.MISMATCH, Verdict.UNWRITTEN)}


def wrong_keys(mutant: Mutant, subject: Subject, batch: Batch) -> dict[str, Value | None]:
    """The fields that a mutant spoils in a batch, among those looked at, with its values; None: it has none."""
    if batch.request.path not in mutant.paths:
        return {}
    try:
        answers = [subject.build(request) for request in asked(mutant, batch)]
    except Exception:  # no answer, nothing to translate
        return {}
    wrong: dict[str, Value | None] = {}
    for answer in cast("list[Built]", answers):  # a mutant leaves no field out
        if isinstance(answer, Mapping):
            wrong |= {k: answer.get(k) for k, want in batch.wanted.items() if compare_field(k, want, answer.get(k), 0)}
    return wrong


def asked(mutant: Mutant, batch: Batch) -> Iterator[Request]:
    """The batch, in copies that a mutant may change: twice, for one that remembers, and into the caller's buffers."""
    request = batch.request
    yield dataclasses.replace(request, sequences=[dataclasses.replace(sequence) for sequence in request.sequences])
    if not mutant.in_process:
        yield dataclasses.replace(request, sequences=[dataclasses.replace(s) for s in request.sequences])
        out = {
            key: np.full_like(value, POISON if value.dtype == np.int32 else True)
            for key, value in batch.fields.items()
            if isinstance(value, np.ndarray)
        }
        yield dataclasses.replace(request, sequences=[dataclasses.replace(s) for s in request.sequences], out=out)


def put_changed_cells(faults: Faults, given: Sequence[Batch], most: int = 12) -> None:
    """Change cells of the engine's form: ``most`` cells of each field of each batch, drawn by a seed.

    One at a time gets another value, or is exchanged with another.
    """
    draw = np.random.default_rng(SEED)
    for batch in given:
        for key, value in batch.spoken.items():
            if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or key not in batch.wanted:
                continue
            defined = np.flatnonzero(defined_cells(batch.wanted[key], value))
            for place in draw.permutation(defined)[:most]:
                for changed in changes(value, int(place), int(draw.choice(defined))):
                    fault = Fault(CHANGED_CELL, CHANGED_CELL, field_name(key))
                    faults.put(fault, batch, {**batch.spoken, key: changed})


def defined_cells(want: Wanted, value: np.ndarray) -> np.ndarray:
    """Mask of the cells of the engine's form that the specification defines: no dialect moves those it does not."""
    if want.defined is None or value.shape != want.defined.shape:
        return np.ones(value.shape, dtype=bool)
    return want.defined


def changes(value: np.ndarray, place: int, other: int) -> Iterator[np.ndarray]:
    """An array with the cell at ``place`` changed: to its neighbours, a sentinel, 0, the value at ``other``, its own
    value with another upper half; or exchanged with the cell at ``other``."""
    cells = value.reshape(-1)
    own = int(cells[place])
    values = [own + 1, own - 1, -1, 0, int(cells[other])]
    if value.dtype == np.int64:
        values += [own + 2**32, own - 2**32]
    limits = np.iinfo(value.dtype)
    for new in dict.fromkeys(values):
        if new != own and limits.min <= new <= limits.max:
            changed = cells.copy()
            changed[place] = new
            yield changed.reshape(value.shape)
    if cells[other] != own:
        changed = cells.copy()
        changed[[place, other]] = changed[[other, place]]
        yield changed.reshape(value.shape)
