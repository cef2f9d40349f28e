"""What a member of the zoo is: a subject that is wrong in one way, and the verdict that it must get."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Result, Subject
from inputmeta.conformance.subjects.oracle import OracleSubject

Fields = dict[str, Any]
"""An answer while it is being spoilt: arrays and scalars by flat key."""
Spoil = Callable[[Request, Fields], object]
Spoiler = TypeVar("Spoiler", bound=Spoil)


class Wrong(OracleSubject):
    """The oracle as a subject, with places to go wrong before and after it has built a batch."""

    def __init__(self, name: str, spoil: Spoil | None = None) -> None:
        super().__init__(name=f"zoo:{name}")
        self.spoil = spoil

    def claim(self, *, in_place: bool = True, neutral_tails: bool = False) -> None:
        """Change what is claimed."""
        self.capabilities = dataclasses.replace(self.capabilities, in_place=in_place, neutral_tails=neutral_tails)

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        self.before(request)
        fields = dict(super().build(request))
        self.after(request, fields)
        return fields

    def before(self, request: Request) -> None:
        """Called with every batch, an invalid one too."""

    def after(self, request: Request, fields: Fields) -> object:
        """Called with the right answer of a valid batch; in the caller's arrays, if it gave some."""
        return None if self.spoil is None else self.spoil(request, fields)


WrongKind = TypeVar("WrongKind", bound=type[Wrong])


@dataclass(frozen=True)
class Specimen:
    """One member of the zoo."""

    name: str
    kind: str
    """A class of ``corpus_tools.BUG_CLASSES``, or how it misbehaves as a program: CRASH, HANG, MEMORY, WIRE, …"""
    declared: str
    """The signature of each of its findings, or how it begins: ``MISMATCH:F-POS:positions``, ``CRASH:SIGSEGV``; with
    `` or `` between several that it may have."""
    stands_for: str
    """The fault of a real engine that it stands for."""
    make: Callable[[], Subject] | None
    """Makes the subject; None: it is a program of its own, see :attr:`command`."""
    label: str = "deterministic"
    """What replays say of it: ``deterministic``, ``flaky``, ``after earlier cases``; or ``not flaky``: the case that is
    found may hold the earlier steps that it needs, or not."""
    paths: tuple[str, ...] = oracle.PATHS
    """Paths on which it shows."""
    gpu: bool = False
    """Needs a CUDA device."""

    @property
    def command(self) -> list[str]:
        """The command line of a member that is a program, for ``--subject-command``."""
        return [sys.executable, "-m", "inputmeta.conformance.mutants.programs", self.name]

    def fits(self, signature: str) -> bool:
        """Whether a signature is a declared one, or begins with it.

        >>> Specimen("a", "HANG", "HANG:timeout", "", None).fits("HANG:timeout:-")
        True
        """
        return signature.startswith(tuple(self.declared.split(" or ")))


MEMBERS: dict[str, Specimen] = {}
"""Every member by name, in the order of the modules of this package."""


def add(specimen: Specimen) -> None:
    """Enter a member; names are unique."""
    if specimen.name in MEMBERS:
        raise ValueError(f"two members of the zoo are named {specimen.name}")
    MEMBERS[specimen.name] = specimen


def wrong_class(
    name: str,
    kind: str,
    declared: str,
    stands_for: str,
    *,
    label: str = "deterministic",
    paths: tuple[str, ...] = oracle.PATHS,
    gpu: bool = False,
) -> Callable[[WrongKind], WrongKind]:
    """Decorator: the class is a member."""

    def enter(cls: WrongKind) -> WrongKind:
        add(Specimen(name, kind, declared, stands_for, lambda: cls(name), label, paths, gpu))
        return cls

    return enter


def wrong_answer(
    name: str,
    kind: str,
    declared: str,
    stands_for: str,
    *,
    in_place: bool = True,
    paths: tuple[str, ...] = oracle.PATHS,
) -> Callable[[Spoiler], Spoiler]:
    """Decorator: the function spoils a right answer. ``in_place`` False: no caller's buffers, a form of its own."""

    def enter(spoil: Spoiler) -> Spoiler:
        def make() -> Subject:
            subject = Wrong(name, spoil)
            subject.claim(in_place=in_place)
            return subject

        add(Specimen(name, kind, declared, stands_for, make, paths=paths))
        return spoil

    return enter


def planted_fault(
    fault_id: str, kind: str, declared: str, stands_for: str, paths: tuple[str, ...] = oracle.PATHS
) -> None:
    """Enter a fault of :mod:`inputmeta.conformance.mutants.formulas` under its own id."""

    def make() -> Subject:
        from inputmeta.conformance.mutants.formulas import fault_subject  # noqa: PLC0415 - makes a copy of the oracle

        return fault_subject(fault_id)

    add(Specimen(fault_id, kind, declared, stands_for, make, paths=paths))


def any_sequence(request: Request, holds: Callable[[oracle.SequenceMetadata], object]) -> bool:
    """Whether some sequence of the batch has a property."""
    return any(holds(sequence) for sequence in request.sequences)
