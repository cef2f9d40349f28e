"""Running a case against a subject: the passes over its steps and the findings they give.

A valid step is built once on the subject's own buffers, where what an earlier step returned must stay as it is, and,
if the subject fills in place, twice on poisoned and fenced ones (:mod:`inputmeta.conformance.check.buffers`). An
invalid step must be refused, for a precondition that it breaks, without a write. The subject's result is never trusted:
:mod:`inputmeta.conformance.check.compare` checks form before values. A subject that does not answer at all
(:class:`inputmeta.conformance.subjects.base.SubjectFailure`, or whatever it raises in process) is a finding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.inputs import Inputs, fixed
from inputmeta.conformance.cases.model import Case, oracle_config
from inputmeta.conformance.cases.request import Request, affordable_expansions, step_requests
from inputmeta.conformance.check import allocation, out_faults
from inputmeta.conformance.check.buffers import PATTERNS, Arena, Shapes
from inputmeta.conformance.check.compare import Wanted, compare_field, compare_fields, finding, tensor_shapes
from inputmeta.conformance.check.inspection import inspected
from inputmeta.conformance.check.kept import NOTHING_KEPT, Kept, change_text
from inputmeta.conformance.check.key_sets import KeySets, compare_key_sets, fields_shown, wanted_key_sets
from inputmeta.conformance.check.refusals import NotBuilt, ask, check_refusal, offered_shapes
from inputmeta.conformance.check.relations import RelationError, relations_of
from inputmeta.conformance.check.tails import NO_TAILS, Tails, own_tails, tails_of, without_tails
from inputmeta.conformance.check.verdicts import Finding, Verdict, distinct, field_name
from inputmeta.conformance.check.zigzag import compared_fields, flavours_of, held_to_relations
from inputmeta.conformance.subjects.base import Rejection, Result, Subject, SubjectError, Unsupported


@dataclass
class Outcome:
    """What one case gave: findings (none: it conforms), what was not claimed, how much was compared."""

    path: str = "-"
    """Of the case; findings get it."""
    findings: list[Finding] = field(default_factory=list)
    unsupported: set[str] = field(default_factory=set)
    """Field names, with the reason that the subject gave for one (``klen: ratio 3``); or what of the batch is beyond it
    (``path decode_zos``), the reason that it gave among them."""
    steps: int = 0
    """Steps that were run, refusals included."""
    cells: int = 0
    """Defined cells, and pairs of key sets, compared, of one pass."""
    related: int = 0
    """Fields of steps that were held to relations in place of being compared."""
    keys: set[str] = field(default_factory=set)
    """Flat keys compared."""
    shown: dict[int, frozenset[str]] = field(default_factory=dict)
    """By step that was run: declared names of the fields that were compared or held to relations; none of a refusal."""
    not_built: set[tuple[int, str]] = field(default_factory=set)
    """Step and flat key of the fields that the subject left out of an answer, with a reason."""
    container: bool = False
    """Whether a container of a step was held to what it promises (SPEC.md chapter 11)."""
    broken: dict[int, frozenset[str]] = field(default_factory=dict)
    """Preconditions that a step breaks, for one of which it must be refused."""
    outside: dict[int, frozenset[str]] = field(default_factory=dict)
    """Preconditions that a step breaks, of a step that was not run: the subject claims to check none of them."""

    @property
    def left_out(self) -> str:
        """What the subject does not claim, and so was not run or compared, as words; empty if that is nothing.

        >>> Outcome(unsupported={"klen"}, outside={0: frozenset({"P-LEN", "P-TABLE"})}).left_out
        'klen, refusal for P-LEN or P-TABLE'
        """
        refusals = {f"refusal for {' or '.join(sorted(broken))}" for broken in self.outside.values()}
        return ", ".join([*sorted(self.unsupported), *sorted(refusals)])

    @property
    def ran(self) -> bool:
        """Whether anything at all was checked."""
        return self.steps > 0

    @property
    def all_outside(self) -> bool:
        """Whether nothing was run because of the preconditions that the steps break, and for no other reason."""
        return bool(self.outside) and not self.ran and not self.unsupported

    def add(self, findings: list[Finding]) -> None:
        """Keep the first finding of each signature; a step that could not be handed over is not claimed."""
        for found in findings:
            if found.verdict is not Verdict.UNSUPPORTED:
                continue
            self.unsupported.add(found.left_out)
            if found.key is None:
                self.steps = 0
            else:
                self.not_built.add((found.step, found.key))
        kept = [found.on_path(self.path) for found in findings if found.verdict is not Verdict.UNSUPPORTED]
        self.findings = distinct([*self.findings, *kept])

    @property
    def values_agree(self) -> bool:
        """Whether nothing was found but wrong forms, behind which a wrong value may still hide."""
        return all(found.on_form for found in self.findings)


@dataclass(frozen=True)
class ValidStep:
    """One valid step with what the oracle wants of it."""

    index: int
    request: Request
    wanted: dict[str, Wanted]
    related: frozenset[str] = frozenset()
    """Declared names of the fields that are held to relations instead of being compared."""
    key_sets: KeySets = field(default_factory=dict)
    """What each row is to see, where a subject gives that (F-VISIBLE)."""
    answered: dict[tuple[object, ...], dict[str, Wanted]] = field(default_factory=dict, compare=False)
    """What is wanted by the tables and states of an answer, of a subject that gives these; each pass may give them."""

    @property
    def shapes(self) -> Shapes:
        """Dtype and shape of the tensors by flat key."""
        return tensor_shapes(self.wanted)


def run_case(case: Case, subject: Subject, *, containers: bool = True) -> Outcome:
    """Run every step of a case and collect the findings; SubjectError if the subject cannot be started any more.

    A step whose batch is beyond the subject, and every field it does not claim, is UNSUPPORTED in the outcome. A step
    that breaks only preconditions which the subject does not claim to check is left out; the others are run. A table
    width (``max_num_blocks``) is a property of the caller's buffers: only passes that offer buffers have it.

    ``containers``: hold one container to its promises too, if the subject has any.
    """
    outcome = Outcome(case.path)
    valid: list[ValidStep] = []
    too_tight = allocation.beyond(case, subject.capabilities.allocates)
    for index, request in enumerate(step_requests(case, in_place=subject.capabilities.in_place)):
        beyond = subject.capabilities.lacks(request) or too_tight or fault_beyond(subject, request)
        if beyond is not None:
            outcome.unsupported.add(beyond)
            continue
        broken = {error.condition for error in request.violations()}
        if broken and not subject.capabilities.must_refuse(broken):
            outcome.outside[index] = frozenset(broken)
            continue
        outcome.steps += 1
        if broken:
            outcome.broken[index] = frozenset(broken)
            outcome.add(check_refusal(subject, request, index, broken))
        else:
            valid.append(claimed_step(request, index, subject, outcome))
    if subject.capabilities.in_place:
        tails = tails_of([step.request for step in valid], subject.capabilities)
        passes: list[list[Finding]] = []
        for pattern in PATTERNS:
            passes.append(run_pass(subject, valid, pattern, tails, case))
            if any(found.code for found in passes[-1]):  # no answer: another pattern tells no more
                break
        outcome.add(merge_passes(passes))
    if outcome.values_agree and not (subject.capabilities.in_place and case.max_num_blocks is not None):
        outcome.add(run_pass(subject, valid, None, case=case))
        if not outcome.findings and case.allocation is None:  # other builds would be other steps of its history
            outcome.add([found for step in valid for found in contradictions(subject, step)])
        if containers and not outcome.findings and case.allocation is None:
            outcome.container, found_on_it = inspected(subject, [(step.index, step.request) for step in valid])
            outcome.add(found_on_it)
    leave_out_what_was_not_built(outcome, valid)
    return outcome


def leave_out_what_was_not_built(outcome: Outcome, valid: Sequence[ValidStep]) -> None:
    """Take back what was counted as compared of fields, or of a whole case, that the subject did not build."""
    cells = {(step.index, key): want.compared() for step in valid for key, want in step.wanted.items()}
    cells |= {(step.index, key): len(want) for step in valid for key, want in step.key_sets.items()}
    compared = {place: count for place, count in cells.items() if place not in outcome.not_built}
    if not compared and outcome.not_built and not outcome.broken:
        outcome.steps = 0
    if not outcome.ran:
        compared = {}
    outcome.keys = {key for _, key in compared}
    outcome.shown = shown_by(outcome, valid, set(compared))
    outcome.cells = sum(compared.values())
    outcome.related = sum(len(step.related) for step in valid) if outcome.ran and not outcome.findings else 0


def shown_by(outcome: Outcome, valid: Sequence[ValidStep], compared: set[tuple[int, str]]) -> dict[int, frozenset[str]]:
    """The fields that each step of a case that was run says something of; refused steps with none."""
    if not outcome.ran:
        return {}
    fields: dict[int, set[str]] = {step.index: set(step.related) for step in valid}
    for index, key in compared:
        name = field_name(key)
        fields[index] |= fields_shown(outcome.path, [key]) if name in oracle.KEY_SETS else {name}
    built = {index: frozenset(names) for index, names in fields.items() if names}
    return dict.fromkeys(outcome.broken, frozenset[str]()) | built


def fault_beyond(subject: Subject, request: Request) -> str | None:
    """Why a subject is not asked to refuse the fault of the caller's buffers, or None."""
    if request.out_fault is None:
        return None
    return out_faults.beyond(request.out_fault, request.path, offered_shapes(subject, request), subject.capabilities)


def contradictions(subject: Subject, step: ValidStep) -> Iterator[Finding]:
    """Where several builds of a valid step contradict each other (M-4, M-5), within what the subject claims."""
    request = dataclasses.replace(step.request, max_num_blocks=None, gather=None)
    asked = Asked(subject)
    for name, holds in chain(relations_of(asked, request), flavours_of(asked, request)):
        try:
            holds()
        except RelationError as error:
            yield Finding(Verdict.MISMATCH, step.index, None, name, str(error))
        except SubjectError:
            raise
        except NotBuilt as error:  # another rank, mode or path of a valid batch
            found = error.finding(step.index)
            if found.verdict is not Verdict.UNSUPPORTED:  # that batch is not this one
                yield found
        except Exception as error:  # what was built there has not the form that the relation reads
            detail = f"cannot be held against other builds: {type(error).__name__}: {error}"
            yield Finding(Verdict.MISMATCH, step.index, None, name, detail)


class Asked:
    """A subject whose failures to build are told from those of whoever reads what it built."""

    def __init__(self, subject: Subject) -> None:
        self.name, self.capabilities = subject.name, subject.capabilities
        self._subject = subject

    def build(self, request: Request) -> Result:
        """The subject's answer; of a valid batch a refusal is none, nor is one that lacks a field. Raises NotBuilt.

        A batch beyond the claims is not handed over; expansions that are not wanted here are no reason.
        """
        wanted = affordable_expansions(request.config, request.sequences)
        beyond = self.capabilities.lacks(dataclasses.replace(request, expand=wanted))
        if beyond is not None:
            raise NotBuilt from Unsupported(beyond)
        try:
            result = ask(self._subject, request)
        except Rejection as error:
            raise NotBuilt from error
        for value in result.values():
            if isinstance(value, Unsupported):
                raise NotBuilt from value
        return without_tails(result, request, self.capabilities)


def merge_passes(passes: list[list[Finding]]) -> list[Finding]:
    """Findings of the poisoned passes together. A field is UNWRITTEN only if no pass saw a wrong value in it.

    A bool has no value to spare for poison: what one pattern hides or leaves in doubt, the other shows.
    """
    findings = [found for single in passes for found in single]
    wrong = {found.key for found in findings if found.verdict is Verdict.MISMATCH}
    return [found for found in findings if found.verdict is not Verdict.UNWRITTEN or found.key not in wrong]


def claimed_step(request: Request, index: int, subject: Subject, outcome: Outcome) -> ValidStep:
    """The oracle's fields and key sets of a valid step that the subject claims; others go to ``outcome.unsupported``.

    A key set is an array of the subject's own: where it is asked to fill the caller's alone, none is wanted.
    """
    able = subject.capabilities
    wanted, unclaimed = wanted_fields(request, subject, is_valid=True)
    key_sets = wanted_key_sets(able, request) if request.max_num_blocks is None else {}
    outcome.unsupported |= unclaimed - fields_shown(request.path, key_sets)
    return ValidStep(index, request, wanted, held_to_relations(able, request), key_sets)


def wanted_fields(
    request: Request, subject: Subject, rows: Sequence[int] | None = None, *, is_valid: bool = False
) -> tuple[dict[str, Wanted], set[str]]:
    """The oracle's fields that the subject claims, by flat key, and the names of the others.

    ``rows``: query rows to compare; ``is_valid``: as in :func:`inputmeta.oracle.expected_fields`.
    """
    expected = request.expected(rows, is_valid=is_valid)
    claimed = compared_fields(subject.capabilities, request.path, request.config)
    wanted = {key: Wanted.of(f) for key, f in expected.items() if field_name(key) in claimed}
    others = {field_name(key) for key in expected.keys() - wanted.keys()}
    return wanted, others - held_to_relations(subject.capabilities, request)


def run_pass(
    subject: Subject,
    steps: list[ValidStep],
    pattern: dict[str, int] | None,
    tails: Tails = NO_TAILS,
    case: Case | None = None,
) -> list[Finding]:
    """One pass over the steps of a case: on the subject's own buffers (``pattern`` None) or on poisoned ones.

    Several steps come in the same input arrays, refilled, in all passes but the first on poisoned buffers.

    Ends at the first step with findings: later steps would only repeat them. A wrong form alone does not end it: the
    same field may have a wrong value at another step. ``case``: whose steps they are, for its allocation: then a pass
    is one history, from a reset on, and a step that was not built ends it.
    """
    refills = len(steps) > 1 and pattern is not PATTERNS[0] and not subject.capabilities.fresh_inputs
    refills &= case is None or history_of(case, subject) is None  # a subject that allocates has no tables to refill
    findings = pass_over(subject, steps, pattern, tails, inputs=Inputs() if refills else None, case=case)
    wrong = [found for found in findings if found.verdict is not Verdict.UNSUPPORTED]
    if refills and wrong and not any(found.code for found in wrong):  # without an answer, another try costs its time
        return told_of_inputs(findings, pass_over(subject, steps, pattern, tails))
    return findings


def told_of_inputs(findings: list[Finding], fresh: list[Finding]) -> list[Finding]:
    """Findings where arrays were refilled; ``fresh``: those of the same steps in arrays of their own."""
    only_refilled = {found.signature for found in findings} - {found.signature for found in fresh}
    return [
        dataclasses.replace(found, detail=f"{found.detail}; {REFILLED}") if found.signature in only_refilled else found
        for found in findings
    ]


REFILLED = "in the input arrays of the step before, refilled: right in arrays of its own"


def pass_over(
    subject: Subject,
    steps: list[ValidStep],
    pattern: dict[str, int] | None,
    tails: Tails,
    *,
    inputs: Inputs | None = None,
    case: Case | None = None,
) -> list[Finding]:
    """As :func:`run_pass`. ``inputs``: the objects that every step comes in; None: each in its own."""
    history = None if case is None or not steps else history_of(case, subject)
    if history is not None:
        problem = allocation.begin(subject)
        if problem is not None:
            return [problem]
    arena = None if pattern is None else Arena([tails.shapes(step.shapes) for step in steps], pattern)
    findings: list[Finding] = []
    kept = NOTHING_KEPT
    for given in steps:
        step = given if inputs is None else dataclasses.replace(given, request=given.request.handed(inputs))
        if arena is None:
            found, kept = run_step(subject, step, kept, history)
            findings += found
        else:
            findings += run_in_place(subject, step, arena, tails, history)
        if not all(goes_on(found, history) for found in findings):
            break
    return findings


def goes_on(found: Finding, history: allocation.History | None) -> bool:
    """Whether a pass goes on behind a finding: one on a form, or what is not built; of a history not a whole step."""
    if found.verdict is Verdict.UNSUPPORTED:
        return history is None or found.key is not None
    return found.on_form


def history_of(case: Case, subject: Subject) -> allocation.History | None:
    """What the answers of a pass over the steps of a case are held to; None if its tables are given."""
    if case.allocation is None or subject.capabilities.allocates is None:
        return None
    return allocation.History(case.allocation, subject.capabilities.allocates, oracle_config(case.config))


def settled(
    history: allocation.History | None, subject: Subject, step: ValidStep, result: Result
) -> ValidStep | list[Finding]:
    """The step with the tables that its answer gave and the fields that are wanted then; or what is wrong with them."""
    if history is None:
        return step
    request = history.settled(step.request, result, step.index)
    if not isinstance(request, Request):
        return request
    given = tuple((sequence.block_table, sequence.state_id) for sequence in request.sequences)
    if given not in step.answered:
        step.answered[given], _ = wanted_fields(request, subject, is_valid=True)
    wanted = step.answered[given]
    return dataclasses.replace(step, request=request, wanted=wanted)


def run_step(
    subject: Subject, step: ValidStep, before: Kept, history: allocation.History | None = None
) -> tuple[list[Finding], Kept]:
    """Build one step on the subject's own buffers and compare; then see that the result ``before`` it is unchanged.

    Also returns the result, to be kept while the next step is built.
    """
    result = build(subject, step.request.bare(), step.index)
    if isinstance(result, Finding):
        return [result], NOTHING_KEPT
    answered = settled(history, subject, step, result)
    if not isinstance(answered, ValidStep):
        return answered, NOTHING_KEPT
    step = answered
    result, findings = own_tails(step.wanted, result, step.request, subject.capabilities, step.index)
    findings += compare_fields(step.wanted, result, step.index)
    findings += compare_key_sets(step.key_sets, result, step.index)
    if history is not None:
        findings = [allocation.told(found, step.request) for found in findings]
    right = step.shapes.keys() - {found.key for found in findings}
    changed = before.changed()
    if changed:
        detail = change_text(changed)
        findings.append(Finding(Verdict.OUT_OF_BOUNDS, step.index, None, "-", detail, code="kept"))
    return findings, Kept(result, right)


def run_in_place(
    subject: Subject, step: ValidStep, arena: Arena, tails: Tails, history: allocation.History | None = None
) -> list[Finding]:
    """Build one step into fenced buffers; compare the buffers, then the cells around them."""
    shapes = tails.shapes(step.shapes)
    before = arena.copy()
    views = arena.views(shapes)
    result = build(subject, dataclasses.replace(step.request.bare(), out=dict(views)), step.index)
    if isinstance(result, Finding):
        return [result]
    answered = settled(history, subject, step, result)
    if not isinstance(answered, ValidStep):
        return answered
    step = answered
    if is_all_right(step, result, arena, before, tails):
        return []
    old, fences = before.views(shapes), before.outside(shapes)
    findings = []
    for key, want in step.wanted.items():
        if not want.tensor:
            findings.append(compare_field(key, want, result.get(key), step.index))
            continue
        view = views[key]
        outside = arena.rows[key].written_outside(fences[key], view.shape)
        if outside:
            where = f"wrote {len(outside)} cells outside the buffer, first at offset {outside[0]} of its start"
            findings.append(finding(Verdict.OUT_OF_BOUNDS, step.index, key, want, detail=where))
        answer = result.get(key)
        if isinstance(answer, Unsupported):
            findings.append(compare_field(key, want, answer, step.index))
            continue
        rows = want.field.shape[0]
        problem = compare_field(key, want, view[:rows], step.index)
        if problem is not None:
            findings.append(unwritten(problem, want, view[:rows], old[key][:rows]) or problem)
        findings.append(tails.check(key, want, view, old[key], step.index))
    found = [each for each in findings if each is not None]
    return found if history is None else [allocation.told(each, step.request) for each in found]


def is_all_right(step: ValidStep, result: Result, arena: Arena, before: Arena, tails: Tails) -> bool:
    """Whether the buffers hold what they held ``before`` the step, but for its fields, which are as wanted.

    One comparison in place of several for each field; where it is not so, those say what is wrong.
    """
    if tails.neutral or any(want.rows is not None for want in step.wanted.values()):
        return False
    right = before.copy()
    for key, want in step.wanted.items():
        if not want.tensor:
            if compare_field(key, want, result.get(key), step.index) is not None:
                return False
            continue
        if isinstance(result.get(key), Unsupported):
            return False
        cells = right.rows[key].view(want.field.shape)
        if want.defined is None:
            cells[...] = want.values
        else:
            np.copyto(cells, want.values, where=want.defined, casting="unsafe")
            np.copyto(cells, arena.rows[key].view(want.field.shape), where=~want.defined)
    return arena.same(right)


def unwritten(problem: Finding, want: Wanted, view: np.ndarray, before: np.ndarray) -> Finding | None:
    """UNWRITTEN instead of MISMATCH, if every differing cell still holds what it held before the step."""
    if problem.cell is None:
        return None
    wrong = want.differing(view)
    untouched = wrong & ((view == before) if want.rows is None else (view == before)[want.rows])
    if not np.array_equal(wrong, untouched):
        return None
    detail = "cells that must be written were not"
    return dataclasses.replace(problem, verdict=Verdict.UNWRITTEN, detail=detail, kind="")


def build(subject: Subject, request: Request, step: int) -> Result | Finding:
    """Call the subject on a valid batch; a refusal, no answer, or a change of the request becomes a finding."""
    sent = snapshot(request)
    try:
        result = ask(subject, request)
    except Rejection as rejection:
        no_room = allocation.refused(rejection, request, step)
        if no_room is not None:
            return no_room
        where = "the configuration" if rejection.sequence is None else f"sequence {rejection.sequence}"
        detail = f"refused a valid batch: {rejection.condition} at {where}, field {rejection.field}: {rejection}"
        return Finding(Verdict.REJECTED, step, None, rejection.condition, detail)
    except NotBuilt as error:
        return error.finding(step)
    if snapshot(request) != sent:
        return Finding(Verdict.OUT_OF_BOUNDS, step, None, "-", "changed its request", code="input")
    if not isinstance(result, Mapping):
        detail = f"returned {type(result).__name__} instead of a mapping"
        return Finding(Verdict.CRASH, step, None, "-", detail, code="raised")
    return result


def snapshot(request: Request) -> list[dict[str, Any]]:
    """The values of a request, to see whether they change. All but lists are immutable: their identity is enough."""
    return [vars(request) | {"out": None, "sequences": None}, dict(vars(request.config))] + [
        {name: fixed(value) for name, value in vars(sequence).items()} for sequence in request.sequences
    ]
