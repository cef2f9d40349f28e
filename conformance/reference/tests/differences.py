"""The reference beside the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import array_api_compat.numpy

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.audit import audit
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.subjects.reference import reference_of


def differences(
    request: Request, xp: ModuleType = array_api_compat.numpy, rows: Sequence[int] | None = None
) -> list[Finding]:
    """What differs: keys, dtypes, shapes, values, and which cells are defined."""
    return audit(request, reference_of(request, xp), rows)
