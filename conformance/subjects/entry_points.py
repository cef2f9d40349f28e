"""Subjects that installed packages bring along: the entry point group ``inputmeta.subjects``."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from inputmeta.conformance.subjects.base import SubjectError
from inputmeta.conformance.subjects.loading import FORMS

GROUP = "inputmeta.subjects"


def installed() -> list[EntryPoint]:
    """The entry points of the group, by name; nothing is imported."""
    return sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))


def entry_point_object(name: str) -> object:
    """What the entry point with a name stands for, imported.

    Raises:
        SubjectError: no package brings it, or several bring different ones.

    """
    found = {point.value: point for point in installed() if point.name == name}
    if not found:
        raise SubjectError(f"subject {name}: none of {FORMS}")
    if len(found) > 1:
        raise SubjectError(f"subject {name}: several packages bring it: {', '.join(found)}; name one of these instead")
    (point,) = found.values()
    loaded: object = point.load()
    return loaded


def distribution_name(point: EntryPoint) -> str:
    """The distribution that an entry point belongs to, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "unknown"
