"""How a valid batch is made to break exactly one precondition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from inputmeta.conformance.cases.model import Case, Config, Sequence

from .draws import Draw
from .extremes import edit_sequence

Place = tuple[int, int]
"""Step and sequence; -1 where the configuration, or the step as a whole, is what breaks."""

NOWHERE = -1


@dataclass(frozen=True)
class Breaker:
    """One way to break one precondition."""

    id: str
    """``P-TABLE:short``: the condition and the way; also the id of the feature that a broken case shows."""
    places: Callable[[Case], list[Place]]
    """Where it applies; empty if the case offers no place."""
    edit: Callable[[Draw, Case, Place], Case]

    @property
    def condition(self) -> str:
        """``P-TABLE``."""
        return self.id.partition(":")[0]


BREAKERS: list[Breaker] = []
"""All of them, in the order of the conditions, simple ones first."""

CaseEdit = Callable[[Draw, Case], Case]
ConfigEdit = Callable[[Draw, Config], Config]
SequenceEdit = Callable[[Draw, Case, Sequence], Sequence]


def on_case(name: str, when: Callable[[Case], object]) -> Callable[[CaseEdit], CaseEdit]:
    """Register an edit of the whole case that breaks the condition in ``name``, where ``when`` holds."""

    def register(edit: CaseEdit) -> CaseEdit:
        def places(case: Case) -> list[Place]:
            return [(NOWHERE, NOWHERE)] if when(case) else []

        BREAKERS.append(Breaker(name, places, lambda draw, case, place: edit(draw, case)))
        return edit

    return register


def on_config(name: str, edit: ConfigEdit, when: Callable[[Case], object] = lambda case: True) -> None:
    """Register an edit of the configuration that breaks the condition in ``name``, where ``when`` holds."""
    on_case(name, when)(lambda draw, case: replace(case, config=edit(draw, case.config)))


def on_sequence(
    name: str, when: Callable[[Case, Sequence], bool] = lambda case, sequence: True
) -> Callable[[SequenceEdit], SequenceEdit]:
    """Register an edit of one sequence that breaks the condition in ``name``, where ``when`` holds."""

    def register(edit: SequenceEdit) -> SequenceEdit:
        def places(case: Case) -> list[Place]:
            steps = enumerate(case.steps)
            return [(s, i) for s, step in steps for i, sequence in enumerate(step) if when(case, sequence)]

        def apply(draw: Draw, case: Case, place: Place) -> Case:
            step, index = place
            return edit_sequence(case, step, index, edit(draw, case, case.steps[step][index]))

        BREAKERS.append(Breaker(name, places, apply))
        return edit

    return register


def on_member(
    name: str,
    member: str,
    value: Callable[[Draw, Case, Sequence], object],
    when: Callable[[Case, Sequence], bool] = lambda case, sequence: True,
) -> None:
    """Register a ``value`` of one member of a sequence that breaks the condition in ``name``, where ``when`` holds."""
    on_sequence(name, when)(lambda draw, case, sequence: replace(sequence, **{member: value(draw, case, sequence)}))


def is_prompt(case: Case, sequence: Sequence) -> bool:
    """For edits that only a prompt has."""
    return case.path == "prompt"


def is_decode(case: Case, sequence: Sequence) -> bool:
    """For edits that only decode has."""
    return case.path != "prompt"
