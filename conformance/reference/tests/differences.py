"""The reference beside the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import array_api_compat.numpy

from inputmeta.conformance import reference
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.audit import audit
from inputmeta.conformance.check.verdicts import Finding


def built(request: Request, xp: ModuleType = array_api_compat.numpy) -> reference.Expected:
    """The reference's fields of a request."""
    return reference.expected(
        request.path,
        request.sequences,
        request.config,
        xp=xp,
        expand=request.expand,
        gather=request.gather,
        max_num_blocks=request.max_num_blocks,
    )


def differences(
    request: Request, xp: ModuleType = array_api_compat.numpy, rows: Sequence[int] | None = None
) -> list[Finding]:
    """What differs: keys, dtypes, shapes, values, and which cells are defined."""
    return audit(request, built(request, xp), rows)
