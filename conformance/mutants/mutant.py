"""What a mutant is: a subject that is wrong in one way, and the verdict that it must get."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.verdicts import RELATIONS, Signature
from inputmeta.conformance.subjects.base import Result, Subject
from inputmeta.conformance.subjects.oracle import OracleSubject

Fields = dict[str, Any]
"""An answer while it is being spoilt: arrays and scalars by flat key."""
Spoil = Callable[[Request, Fields], object]
Spoiler = TypeVar("Spoiler", bound=Spoil)


class Wrong(OracleSubject):
    """The oracle as a subject, with places to go wrong before and after it has built a batch."""

    in_place = True
    neutral_tails = False
    """What it claims."""

    def __init__(self, name: str, spoil: Spoil | None = None) -> None:
        super().__init__(name=f"mutant:{name}")
        self.spoil = spoil
        self.capabilities = dataclasses.replace(
            self.capabilities, in_place=self.in_place, neutral_tails=self.neutral_tails
        )

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
class Mutant:
    """One subject that is wrong in one way."""

    name: str
    kind: str
    """A class of :data:`inputmeta.conformance.cases.corpus.BUG_CLASSES`, or how it misbehaves: FORM, CRASH, HANG, …"""
    declared: str
    """The short signature of each of its findings, or how it begins: ``MISMATCH:F-POS:positions``, ``CRASH:SIGSEGV``;
    with `` or `` between several that it may have."""
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
    in_process: bool = False
    """Runs in this process: it neither dies nor hangs nor remembers, so that a worker would tell no more."""

    @property
    def formula(self) -> str:
        """Of a changed line, the formula or precondition that is wrong: what its name begins with; else empty."""
        formula = self.name.partition(".")[0]
        return formula if formula in {**oracle.FORMULAS, **oracle.PRECONDITIONS} else ""

    @property
    def command(self) -> list[str]:
        """The command line of a mutant that is a program, for ``--subject-command``."""
        return [sys.executable, "-m", "inputmeta.conformance.mutants.programs", self.name]

    def fits(self, signature: str) -> bool:
        """Whether a signature is a declared one, or begins with it, in its short form.

        >>> Mutant("a", "HANG", "HANG:timeout", "", None).fits("HANG:decode:-:-:timeout")
        True
        """
        return Signature.parse(signature).short.startswith(tuple(self.declared.split(" or ")))

    def may_show(self, signature: str) -> bool:
        """Whether it fits, or is a relation between builds, which a wrong value breaks as well."""
        return self.fits(signature) or Signature.parse(signature).formula in RELATIONS


MUTANTS: dict[str, Mutant] = {}
"""Every mutant by name."""


def add(mutant: Mutant) -> None:
    """Enter a mutant; names are unique."""
    if mutant.name in MUTANTS:
        raise ValueError(f"two mutants are named {mutant.name}")
    MUTANTS[mutant.name] = mutant


def name_of(thing: Callable[..., object]) -> str:
    """The mutant that a class or a function stands for: its own name in lower case with hyphens.

    >>> class Every7thCallOnAGpu: ...
    >>> def returns_int64(): ...
    >>> name_of(Every7thCallOnAGpu), name_of(returns_int64)
    ('every-7th-call-on-a-gpu', 'returns-int64')
    """
    name = thing.__name__
    words = re.findall(r"[A-Z][a-z]*|\d+[a-z]*", name) if isinstance(thing, type) else name.split("_")
    return "-".join(words).lower()


def wrong_class(
    kind: str,
    declared: str,
    stands_for: str,
    *,
    label: str = "deterministic",
    paths: tuple[str, ...] = oracle.PATHS,
    gpu: bool = False,
) -> Callable[[WrongKind], WrongKind]:
    """Decorator: the class is a mutant, by its own name."""

    def enter(cls: WrongKind) -> WrongKind:
        name = name_of(cls)
        add(Mutant(name, kind, declared, stands_for, lambda: cls(name), label, paths, gpu))
        return cls

    return enter


def wrong_answer(
    kind: str,
    declared: str,
    stands_for: str,
    *,
    paths: tuple[str, ...] = oracle.PATHS,
) -> Callable[[Spoiler], Spoiler]:
    """Decorator: the function, by whose name the mutant goes, spoils a right answer."""

    def enter(spoil: Spoiler) -> Spoiler:
        name = name_of(spoil)
        add(Mutant(name, kind, declared, stands_for, lambda: Wrong(name, spoil), paths=paths))
        return spoil

    return enter


def any_sequence(request: Request, holds: Callable[[oracle.SequenceMetadata], object]) -> bool:
    """Whether some sequence of the batch has a property."""
    return any(holds(sequence) for sequence in request.sequences)
