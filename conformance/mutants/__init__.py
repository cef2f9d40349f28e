"""Mutants: subjects that are wrong in one way each, with the verdict that each must get.

They measure the suite: ``python -m inputmeta.conformance.mutants`` runs them all and says which did not get their
verdict or were missed. A mutant is a subject, ``--subject mutant:NAME``, or a program that breaks the protocol,
``--subject-command "python -m inputmeta.conformance.mutants.programs NAME"``.
"""

from __future__ import annotations

from difflib import get_close_matches

from inputmeta.conformance.mutants import (
    allocation,
    classes,
    containers,
    devices,
    forms,
    formulas,
    history,
    inputs,
    key_sets,
    memory,
    processes,
    refusals,
    wire,
)
from inputmeta.conformance.mutants.mutant import MUTANTS, Mutant
from inputmeta.conformance.subjects.base import Subject, SubjectError

__all__ = ["MUTANTS", "Mutant", "mutant_subject"]

_MODULES = (
    allocation,
    formulas,
    key_sets,
    classes,
    containers,
    forms,
    inputs,
    memory,
    refusals,
    history,
    processes,
    devices,
    wire,
)
"""Importing them enters their mutants."""


def mutant_subject(name: str) -> Subject:
    """The mutant as a subject.

    Raises:
        SubjectError: there is no such mutant, or it is a program.
    """
    from inputmeta.conformance.mutants.wide import WIDE  # noqa: PLC0415 - no other mutant needs the wide tier

    mutant = {**MUTANTS, **WIDE}.get(name)
    if mutant is None:
        near = get_close_matches(name, [*MUTANTS, *WIDE])
        also = f"; near to it: {', '.join(near)}" if near else ""
        raise SubjectError(f"mutant {name}: none of the {len(MUTANTS) + len(WIDE)} mutants{also}")
    if mutant.make is None:
        raise SubjectError(
            f"mutant {name}: a program, --subject-command 'python -m inputmeta.conformance.mutants.programs {name}'"
        )
    return mutant.make()
