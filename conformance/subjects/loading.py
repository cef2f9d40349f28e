"""From a name on the command line to a subject."""

from __future__ import annotations

import importlib

from conformance.subjects.base import Subject


class SubjectError(Exception):
    """A subject that cannot be had; ``str()`` is one line that says why."""


def load_subject(name: str) -> Subject:
    """The subject ``engine``, ``engine-cuda``, ``oracle``, ``fault:ID`` or ``package.module:attribute``.

    ``engine-cuda`` is the engine on a GPU, ``fault:ID`` the oracle with a planted fault. The attribute is a subject,
    or something that returns one when called without arguments.

    Raises:
        SubjectError: it cannot be imported, or is no subject.
    """
    try:
        subject = _load(name)
    except SubjectError:
        raise
    except Exception as error:  # importing a stranger's module may raise anything
        raise SubjectError(f"subject {name}: {type(error).__name__}: {error}") from error
    for attribute in ("name", "capabilities", "build"):
        if not hasattr(subject, attribute):
            raise SubjectError(f"subject {name}: has no attribute {attribute}")
    return subject


def _load(name: str) -> Subject:
    if name == "engine":
        return _attribute("conformance.subjects.engine", "EngineSubject", name)
    if name == "engine-cuda":
        return _attribute("conformance.subjects.engine_cuda", "EngineCudaSubject", name)
    if name == "oracle":
        return _attribute("conformance.subjects.oracle", "OracleSubject", name)
    module, colon, attribute = name.partition(":")
    if module == "fault" and colon:
        from conformance.faults import fault_subject  # noqa: PLC0415 - the copies are made only when asked for

        return fault_subject(attribute)
    if not colon or not module or not attribute:
        known = "engine, engine-cuda, oracle, fault:ID nor package.module:attribute"
        raise SubjectError(f"subject {name}: neither {known}")
    return _attribute(module, attribute, name)


def _attribute(module: str, attribute: str, name: str) -> Subject:
    found = getattr(importlib.import_module(module), attribute, None)
    if found is None:
        raise SubjectError(f"subject {name}: module {module} has no attribute {attribute}")
    subject: Subject = found() if isinstance(found, type) or not hasattr(found, "build") else found
    return subject
