"""From a name on the command line to a subject."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import cast

from inputmeta.conformance.cases.allocated import Allocates
from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.subjects.base import Capabilities, Subject, SubjectError, content_problem
from inputmeta.conformance.subjects.frames import error_text, frames_of

BUNDLED = {
    "engine": "inputmeta.conformance.subjects.engine:EngineSubject",
    "engine-cuda": "inputmeta.conformance.subjects.engine_cuda:EngineCudaSubject",
    "oracle-paged": "inputmeta.conformance.subjects.paged:PagedSubject",
    "oracle": "inputmeta.conformance.subjects.oracle:OracleSubject",
    "reference": "inputmeta.conformance.subjects.reference:ReferenceSubject",
}
"""Names of the bundled subjects, and where they are."""
PREFIXES = {"mutant": "inputmeta.conformance.mutants:mutant_subject"}
"""What stands before the colon of a bundled subject's name, and the function that takes what stands behind it."""


def load_subject(name: str) -> Subject:
    """The subject with a name; see :data:`FORMS`.

    What ``package.module:name`` and an entry point stand for is a subject; or a class or function that gives one when
    called without arguments; or a callable that takes a request, whose claims are probed
    (:mod:`inputmeta.conformance.subjects.callables`).

    Raises:
        SubjectError: it cannot be imported, or is no subject; a callable fails at a probe.
    """
    try:
        subject = _load(name)
        problem = claims_problem(subject)
    except SubjectError:
        raise
    except Exception as error:  # importing a stranger's module may raise anything
        where = "".join(f" (at {frame})" for frame in frames_of(error)[-1:])
        missing = engine_missing(error) if name in BUNDLED and isinstance(error, ImportError) else None
        raise SubjectError(f"subject {name}: {missing or error_text(error)[:500] + where}") from error
    if problem is not None:
        raise SubjectError(f"subject {name}: {problem}")
    return subject


def preload(name: str) -> bool:
    """Import what the subject with a name needs, and make none; whether that went well: what went wrong, loading says.

    A factory may have a function ``preload`` that imports what it would import itself when it is called; it takes the
    ``version`` that the factory takes.
    """
    try:
        module, colon, attribute = BUNDLED.get(name, name).partition(":")
        version = None
        if not colon:
            from inputmeta.conformance.subjects.entry_points import entry_point  # noqa: PLC0415 - as below

            bare, _, version = name.partition("==")
            point = entry_point(bare)
            found = None if point is None else point.load()
        elif module in PREFIXES:
            found = attribute_of(PREFIXES[module])
        else:
            found = attribute_of(f"{module}:{attribute}")
        importing = getattr(found, "preload", None)
        if callable(importing):
            importing(*[version] * bool(version))
    except Exception:  # importing a stranger's module may raise anything
        return False
    return True


def engine_missing(error: ImportError) -> str | None:
    """What to install, if it is the engine that is not there, or torch, which the suite needs for it alone; else None.

    >>> engine_missing(ModuleNotFoundError("No module named 'torch'", name="torch"))
    "needs the engine: pip install 'inputmeta-conformance[engine]'"
    """
    if error.name not in ("torch", "inputmeta", "inputmeta.engine", "inputmeta.engine._core"):
        return None
    return "needs the engine: pip install 'inputmeta-conformance[engine]'"


FORMS = (
    "engine, engine-cuda, oracle, oracle-paged, reference, mutant:NAME, package.module:name, or the name of an "
    "installed entry point, NAME==VERSION for one of several releases"
)


def _load(name: str) -> Subject:
    module, colon, attribute = BUNDLED.get(name, name).partition(":")
    if not colon:
        from inputmeta.conformance.subjects.entry_points import entry_point  # noqa: PLC0415 - reads every distribution

        bare, _, version = name.partition("==")
        point = entry_point(bare)
        if point is not None:
            return subject_from(point.load(), name, version or None)
    if not module or not attribute:
        raise SubjectError(f"subject {name}: none of {FORMS}")
    if module in PREFIXES:
        make = cast(Callable[[str], Subject], attribute_of(PREFIXES[module]))
        return make(attribute)
    return subject_from(attribute_of(f"{module}:{attribute}"), name)


def attribute_of(place: str) -> object:
    """What ``package.module:name`` stands for, imported.

    Raises:
        SubjectError: the module has no such attribute.
    """
    module, _, attribute = place.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as in a worker: ``python -m`` looks in the current folder
    found: object = importlib.import_module(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise SubjectError(f"subject {place}: module {module} has no attribute {attribute}")
        found = getattr(found, part)
    return found


def subject_from(found: object, name: str, version: str | None = None) -> Subject:
    """The subject that an object is, gives, or is made into; ``version``: the release that it is to be of.

    Raises:
        SubjectError: it is none of them, or takes no ``version``.
    """
    if version is not None:
        if not takes_version(found):
            raise SubjectError(f"subject {name}: {name.partition('==')[0]} comes in one release, it takes no version")
        found = cast(Callable[..., object], found)(version=version)
    elif is_factory(found):
        found = cast(Callable[[], object], found)()
    if hasattr(found, "build"):
        return cast(Subject, found)
    if callable(found):
        from inputmeta.conformance.subjects.callables import CallableSubject  # noqa: PLC0415 - rarely needed

        return CallableSubject(found, name)
    raise SubjectError(f"subject {name}: has no attribute build and is no callable")


def is_factory(found: object) -> bool:
    """Whether an object gives a subject when it is called without arguments: a class, or a function that needs none."""
    if isinstance(found, type):
        return True
    if hasattr(found, "build") or not callable(found):
        return False
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature: take it for what handles a request
        return False
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not p.empty or p.kind in optional for p in parameters)


def takes_version(found: object) -> bool:
    """Whether an object gives a subject of a release when it is called with a ``version``."""
    try:
        return is_factory(found) and "version" in inspect.signature(cast(Callable[..., object], found)).parameters
    except (TypeError, ValueError):
        return False


def claims_problem(subject: Subject) -> str | None:
    """What is wrong with the name and the claims of a subject, or None."""
    for attribute in ("name", "capabilities", "build"):
        if not hasattr(subject, attribute):
            return f"has no attribute {attribute}"
    claims = subject.capabilities
    if not isinstance(claims, Capabilities):
        return f"capabilities is {type(claims).__name__}, not inputmeta.conformance.subjects.Capabilities"
    for name, value in vars(claims).items():
        kind = CLAIM_KINDS.get(type(getattr(NO_CLAIMS, name)), "a number or None")
        kind = ALLOCATES if name == "allocates" else kind
        kind = "a mapping of fields to integers and bools" if name == "prompt_tails" else kind
        if not CLAIM_CHECKS[kind](value):
            return f"capabilities.{name} is not {kind}"
    if claims.allocates is not None and not callable(getattr(subject, "reset", None)):
        return "allocates, and has no method reset"
    return content_problem(claims)


def _is_names(value: object) -> bool:
    return isinstance(value, set | frozenset) and all(isinstance(item, str) for item in value)


def _is_names_by_path(value: object) -> bool:
    return isinstance(value, Mapping) and _is_names(set(value)) and all(map(_is_names, value.values()))


def _is_cells_by_field(value: object) -> bool:
    return isinstance(value, Mapping) and _is_names(set(value)) and all(isinstance(v, int) for v in value.values())


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


NO_CLAIMS = Capabilities(frozenset(), frozenset())
CLAIM_KINDS: Mapping[type, str] = {
    frozenset: "a set of names",
    bool: "a bool",
    int: "a number",
    dict: "a mapping of paths to sets of names",
    Conditions: "inputmeta.conformance.subjects.Conditions",
}
"""What a claim must be, by the type of its default."""
ALLOCATES = "inputmeta.conformance.subjects.Allocates or None"
CLAIM_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "a set of names": _is_names,
    "a bool": lambda value: isinstance(value, bool),
    "a number": _is_count,
    "a mapping of paths to sets of names": _is_names_by_path,
    "a mapping of fields to integers and bools": _is_cells_by_field,
    "inputmeta.conformance.subjects.Conditions": lambda value: isinstance(value, Conditions),
    ALLOCATES: lambda value: value is None or isinstance(value, Allocates),
    "a number or None": lambda value: value is None or _is_count(value),
}
