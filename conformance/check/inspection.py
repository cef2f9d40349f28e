"""The container of a case's first step that is small enough, inspected, and what is found on it.

Only asked for once every field is right: a wrong value is told by its formula, not by a promise that it breaks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.containers import Broken, inspectable, inspector_of
from inputmeta.conformance.check.refusals import failure_finding
from inputmeta.conformance.check.verdicts import Finding, Verdict, field_name
from inputmeta.conformance.interrupts import at_once
from inputmeta.conformance.subjects.base import Subject, SubjectError


def inspected(subject: Subject, steps: Iterable[tuple[int, Request]]) -> tuple[bool, list[Finding]]:
    """Whether a container of one of the valid ``steps`` was inspected, and a finding for each promise it breaks.

    Raises:
        SubjectError: the subject cannot be started any more.
        Interrupted: the run is to end.
    """
    inspect = inspector_of(subject)
    if inspect is None:
        return False, []
    for step, request in steps:
        if not inspectable(request):
            continue
        bare = dataclasses.replace(request, out=None, max_num_blocks=None)
        try:
            with at_once():
                found = inspect(bare)
        except SubjectError:
            raise
        except (Exception, SystemExit) as error:  # the worker's end among them
            failure = failure_finding(error, step)
            failure = dataclasses.replace(failure, detail=f"container: {failure.detail}")
            return False, [] if failure.verdict is Verdict.UNSUPPORTED else [failure]
        return bool(found.kept or found.broken), [finding(broken, request.path, step) for broken in found.broken]
    return False, []


def finding(broken: Broken, path: str, step: int) -> Finding:
    """A broken promise as a finding, on a field if it is a declared one of the path."""
    name = field_name(broken.key or "")
    key = broken.key if name in oracle.FIELDS and path in oracle.FIELDS[name].paths else None
    return Finding(Verdict.MISMATCH, step, key, broken.number, f"container: {broken.detail}", kind=broken.kind)
