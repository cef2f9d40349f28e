"""Which border conditions a case visits, computed from its numbers alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from inputmeta.conformance.cases.allocated import with_tables
from inputmeta.conformance.cases.corpus import BUG_CLASSES
from inputmeta.conformance.cases.model import Case

from . import base, compressed, histories, keys, ngram, parallel, refusals, steps, window
from .facts import Step, step_facts
from .feature import BugClass, Feature


def _declared() -> dict[str, Feature]:
    groups = (base, ngram, compressed, window, keys, parallel, steps, histories, refusals)
    features = [feature for group in groups for feature in group.FEATURES]
    classes = [BugClass.of(name, text, features) for name, text in BUG_CLASSES.items()]
    features += [bug_class for bug_class in classes if bug_class.members]
    return {feature.id: feature for feature in features}


FEATURES: dict[str, Feature] = _declared()
"""Every feature by id, in the order of the specification; the classes of bug reports come last."""

_CLASSES = {feature.id: tuple(f"BUG:{name}" for name in feature.classes) for feature in FEATURES.values()}


def features(case: Case, shown: Mapping[int, Collection[str]] | None = None) -> frozenset[str]:
    """Ids of the features that the case visits. A refused step shows only what it breaks.

    ``shown``: by step that was run, the declared names of the fields that were compared, none for one that was refused.
    What lies in other steps, or is of a formula of other fields, was not visited. None: all is.
    """
    history = None if case.allocation is None else (case, case.allocation)
    case = with_tables(case)
    fields: list[Collection[str] | None] = [None] * len(case.steps)
    if shown is not None:
        ran = sorted(shown)
        gather = tuple(case.gather[index] for index in ran) if case.gather else ()
        case = replace(case, steps=tuple(case.steps[index] for index in ran), gather=gather)
        fields = [shown[index] for index in ran]
    found: set[str] = set()
    valid: list[Step | None] = []
    for sequences, compared in zip(case.steps, fields, strict=True):
        refused = refusals.broken(case, sequences)
        step = None if refused else step_facts(case, sequences)
        valid.append(step)
        found |= refused if step is None else _seen(_of_step(step), compared)
    found |= _seen(steps.of_case(case, valid), None if shown is None else set().union(*shown.values()))
    if history is not None and (shown is None or len(shown) == len(case.steps)):
        found |= histories.of_history(*history)
    found.update(*(_CLASSES[name] for name in found))
    return frozenset(found)


def _seen(found: set[str], fields: Collection[str] | None) -> set[str]:
    """The features that comparing these fields shows."""
    return found if fields is None else {name for name in found if FEATURES[name].seen_in(fields)}


def _of_step(step: Step) -> set[str]:
    """Features of one valid step."""
    groups = (base, compressed, window, keys, parallel)
    found = set().union(*(group.of_step(step) for group in groups))
    for row in step.rows:
        found |= base.of_row(step, row)
        found |= ngram.of_row(step, row)
        found |= compressed.of_row(step, row)
        found |= window.of_row(step, row)
        found |= keys.of_row(step, row)
        found |= parallel.of_row(step, row)
    return found


__all__ = ["FEATURES", "Feature", "features"]
