"""Mutants: subjects that are wrong in one way each, with the verdict that each must get.

They measure the suite: ``python -m inputmeta.conformance.mutants`` runs them all and says which did not get their
verdict or were missed. A mutant is a subject, ``--subject mutant:NAME``, or a program that breaks the protocol,
``--subject-command "python -m inputmeta.conformance.mutants.programs NAME"``.
"""

from __future__ import annotations

from inputmeta.conformance.mutants import classes, devices, forms, formulas, history, memory, processes, refusals, wire
from inputmeta.conformance.mutants.mutant import MUTANTS, Mutant
from inputmeta.conformance.subjects.base import Subject, SubjectError

__all__ = ["MUTANTS", "Mutant", "mutant_subject"]

_MODULES = (formulas, classes, forms, memory, refusals, history, processes, devices, wire)
"""Importing them enters their mutants."""


def mutant_subject(name: str) -> Subject:
    """The mutant as a subject.

    Raises:
        SubjectError: there is no such mutant, or it is a program.
    """
    mutant = MUTANTS.get(name)
    if mutant is None:
        raise SubjectError(f"mutant {name}: none of {', '.join(sorted(MUTANTS))}")
    if mutant.make is None:
        raise SubjectError(
            f"mutant {name}: a program, --subject-command 'python -m inputmeta.conformance.mutants.programs {name}'"
        )
    return mutant.make()
