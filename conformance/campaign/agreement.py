"""Several subjects and the oracle on the same batches: who agrees with whom, field by field.

Every party answers on buffers of its own. Two answers on a field agree if all cells that are defined are equal; what a
party does not claim, or did not answer, it has no say in. The oracle is a party like any other: where two engines agree
against it, that is seen as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import numpy as np

from inputmeta.conformance.cases.files import case_size
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import Request, step_request
from inputmeta.conformance.check.compare import Wanted, finding, form_problem
from inputmeta.conformance.check.evidence import evidence_of
from inputmeta.conformance.check.runner import build
from inputmeta.conformance.check.tails import without_tails
from inputmeta.conformance.check.verdicts import VALUE, Cell, Finding, Verdict, field_name
from inputmeta.conformance.interrupts import look
from inputmeta.conformance.subjects.base import Result, Subject, Unsupported

ORACLE = "oracle"
ANSWER = "(answer)"
"""The row that says how the batch as a whole was answered: with fields, refused, or not at all."""

Groups = tuple[tuple[str, ...], ...]
"""Parties by answer: those of one group agree. The oracle's group is the first."""


@dataclass(frozen=True)
class Example:
    """A batch on which the parties fell into certain groups."""

    case: Case
    step: int
    key: str
    """Flat key of the field, or ``(answer)``."""
    says: tuple[str, ...]
    """What each group said, in one line: at the cell ``index`` if there is one."""
    index: tuple[int, ...] | None = None
    differs: Finding | None = None
    """What the first party that has another value there has against the oracle."""


@dataclass
class Tally:
    """How often the parties fell into which groups on one field."""

    counts: Counter[Groups] = field(default_factory=Counter)
    """Answers (a field of a step, each ratio apart) by groups."""
    examples: dict[Groups, Example] = field(default_factory=dict)
    """The smallest batch of every grouping with more than one group."""

    def add(self, groups: Groups, example: Example) -> None:
        """Count one answer."""
        self.counts[groups] += 1
        known = self.examples.get(groups)
        if len(groups) > 1 and (known is None or case_size(example.case) < case_size(known.case)):
            self.examples[groups] = example

    def between(self, one: str, other: str) -> tuple[int, int]:
        """Answers in which two parties differ, and answers that both gave."""
        differ = both = 0
        for groups, count in self.counts.items():
            places = [[index for index, group in enumerate(groups) if name in group] for name in (one, other)]
            if all(places):
                both += count
                differ += count * (places[0] != places[1])
        return differ, both


@dataclass
class Agreement:
    """The parties and what their answers had in common."""

    subjects: Mapping[str, Subject]
    """By label; the oracle is a party without being named."""
    fields: dict[str, Tally] = field(default_factory=dict)
    """By field name, in the order of first sight; ``(answer)`` for batches as a whole."""
    cases: int = 0
    unsupported: Counter[str] = field(default_factory=Counter)
    """Steps that a party does not claim, by label."""
    outside: Counter[str] = field(default_factory=Counter)
    """Steps that break only preconditions that a party does not claim to check, by label."""

    @property
    def parties(self) -> list[str]:
        """The oracle and the subjects, in order."""
        return [ORACLE, *self.subjects]

    @property
    def compared(self) -> bool:
        """Whether any subject had a say in anything."""
        return any(tally.counts for tally in self.fields.values())

    @property
    def differs(self) -> bool:
        """Whether any two answers differ."""
        return any(tally.examples for tally in self.fields.values())

    def run(self, case: Case) -> None:
        """Have everyone answer every step of a case. Raises Interrupted."""
        look()
        self.cases += 1
        for index in range(len(case.steps)):
            request = step_request(case, index, in_place=False)  # a table width is a property of a caller's buffers
            broken = {error.condition for error in request.violations()}
            able = {}
            for label, subject in self.subjects.items():
                claims = subject.capabilities
                if broken and not claims.must_refuse(broken):
                    self.outside[label] += 1
                elif claims.lacks(request) is None and request.allocation is None:  # each would give tables of its own
                    able[label] = subject
                else:
                    self.unsupported[label] += 1
            if able:
                self._run_step(case, index, request, able, broken)

    def _run_step(
        self, case: Case, step: int, request: Request, able: Mapping[str, Subject], broken: AbstractSet[str]
    ) -> None:
        given = {label: build(subject, request, step) for label, subject in able.items()}
        beyond = [label for label, a in given.items() if isinstance(a, Finding) and a.verdict is Verdict.UNSUPPORTED]
        for label in beyond:
            self.unsupported[label] += 1
            del given[label]
        answers = {ORACLE: ("refused", f"refuses it for {', '.join(sorted(broken))}") if broken else BUILT}
        answers |= {label: answer_of(result, broken) for label, result in given.items()}
        groups = grouped({label: token for label, (token, _) in answers.items()})
        self._tally(ANSWER).add(groups, Example(case, step, ANSWER, tuple(answers[group[0]][1] for group in groups)))
        built = {
            label: without_tails(result, request, able[label].capabilities)
            for label, result in given.items()
            if isinstance(result, Mapping)
        }
        if broken or not built:
            return
        for key, expected in request.expected().items():
            claiming = [
                label
                for label, result in built.items()
                if field_name(key) in able[label].capabilities.fields_of(request.path)
                and not isinstance(result.get(key), Unsupported)
            ]
            if claiming:
                values = {label: built[label].get(key) for label in claiming}
                self._add_field(Example(case, step, key, ()), Wanted.of(expected), values)

    def _add_field(self, example: Example, want: Wanted, values: Mapping[str, object]) -> None:
        """Count one field, the parties grouped by all of its defined cells, or by what is wrong with the form."""
        forms = {label: form_problem(want, value) for label, value in values.items()}
        problems = {label: None if form is None else form.text for label, form in forms.items()}
        arrays = {label: chosen_rows(want, values[label]) for label, problem in problems.items() if problem is None}
        arrays[ORACLE] = want.values
        tokens: dict[str, object] = {ORACLE: defined_bytes(want, want.values)}
        tokens |= {label: problems[label] or defined_bytes(want, arrays[label]) for label in values}
        groups = grouped(tokens)
        if len(groups) > 1:
            example = with_cell(example, want, groups, arrays, problems)
        self._tally(field_name(example.key)).add(groups, example)

    def _tally(self, name: str) -> Tally:
        return self.fields.setdefault(name, Tally())


BUILT = ("built", "builds it")


def answer_of(result: Result | Finding, broken: AbstractSet[str]) -> tuple[str, str]:
    """What a party said of a batch as a whole: a token that is equal for equal answers, and words."""
    if isinstance(result, Mapping):
        return ("accepted", "accepts it") if broken else BUILT
    if result.verdict is not Verdict.REJECTED:
        return result.signature, f"{result.verdict}: {result.detail}"
    if result.formula in broken:
        return "refused", f"refuses it for {result.formula}"
    return result.signature, f"refuses it for {result.formula}"


def grouped(tokens: Mapping[str, object]) -> Groups:
    """Parties with equal tokens together, in the order in which they first appear.

    >>> grouped({"oracle": 1, "a": 2, "b": 1})
    (('oracle', 'b'), ('a',))
    """
    groups: dict[object, list[str]] = {}
    for label, token in tokens.items():
        groups.setdefault(token, []).append(label)
    return tuple(tuple(labels) for labels in groups.values())


def chosen_rows(want: Wanted, value: object) -> np.ndarray:
    """The cells of a field of the right form that the oracle has something to say about, as int64."""
    array = np.asarray(value)
    return (array if want.rows is None else array[want.rows]).astype(np.int64)


def defined_bytes(want: Wanted, array: np.ndarray) -> bytes:
    """The defined cells as a token: equal for equal cells."""
    return (array if want.defined is None else np.where(want.defined, array, 0)).tobytes()


def with_cell(
    example: Example,
    want: Wanted,
    groups: Groups,
    arrays: Mapping[str, np.ndarray],
    problems: Mapping[str, str | None],
) -> Example:
    """The example with the first of the cells that tell most groups apart, and what each group has there."""
    firsts = [group[0] for group in groups]
    formed = [arrays[label] for label in firsts if label in arrays]
    values = np.sort(np.stack(formed), axis=0)
    apart = (values[1:] != values[:-1]).sum(axis=0)
    if want.defined is not None:
        apart = np.where(want.defined, apart, 0)
    index: tuple[int, ...] | None = None
    position = tuple(int(i) for i in np.unravel_index(int(np.argmax(apart)), apart.shape)) if apart.size else ()
    if apart.any():
        index = position if want.rows is None else (int(want.rows[position[0]]), *position[1:])
        example = replace(example, differs=difference(example, want, formed, position))
    shown = f"{want.field.dtype}{list(want.field.shape)}" if index is None else None
    says = (problems.get(label) or shown or str(int(arrays[label][position])) for label in firsts)
    return replace(example, says=tuple(says), index=index)


def difference(example: Example, want: Wanted, formed: Sequence[np.ndarray], position: tuple[int, ...]) -> Finding:
    """How the first of several arrays that has another value than is wanted at a position differs, as a finding."""
    array = next(each for each in formed if each[position] != want.values[position])
    wrong = array != want.values
    if want.defined is not None:
        wrong &= want.defined
    index = position if want.rows is None else (int(want.rows[position[0]]), *position[1:])
    return finding(
        Verdict.MISMATCH,
        example.step,
        example.key,
        want,
        detail="differs",
        cell=Cell(index, got=int(array[position]), want=int(want.values[position])),
        differing=int(wrong.sum()),
        kind=VALUE,
        evidence=evidence_of(array, want.values, want.defined, wrong, rows=want.rows, first=position),
    )
