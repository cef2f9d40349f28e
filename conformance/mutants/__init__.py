"""The zoo: subjects that are wrong in one way each, with the verdict that each must get.

They measure the suite: ``python -m inputmeta.conformance.mutants`` runs them all and says which did not get their
verdict. A member is a subject, ``--subject zoo:NAME``, or a program that breaks the protocol, ``--subject-command
"python -m inputmeta.conformance.mutants.programs NAME"``. Formula by formula, planted faults do the same:
:mod:`inputmeta.conformance.mutants.formulas`.
"""

from __future__ import annotations

from inputmeta.conformance.mutants import classes, devices, forms, history, memory, processes, refusals, wire
from inputmeta.conformance.mutants.mutant import MEMBERS, Specimen
from inputmeta.conformance.subjects.base import Subject, SubjectError

__all__ = ["MEMBERS", "Specimen", "zoo_subject"]

_MODULES = (classes, forms, memory, refusals, history, processes, devices, wire)
"""Importing them enters their members."""


def zoo_subject(name: str) -> Subject:
    """The member as a subject.

    Raises:
        SubjectError: there is no such member, or it is a program.
    """
    member = MEMBERS.get(name)
    if member is None:
        raise SubjectError(f"zoo {name}: none of {', '.join(MEMBERS)}")
    if member.make is None:
        raise SubjectError(
            f"zoo {name}: a program, --subject-command 'python -m inputmeta.conformance.mutants.programs {name}'"
        )
    return member.make()
