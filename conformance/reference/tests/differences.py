"""The reference beside the oracle, as suite and tests compare any subject with it."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import array_api_compat.numpy
import numpy as np

from inputmeta.conformance import reference
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.compare import Wanted, compare_fields


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
) -> list[str]:
    """What differs: keys, dtypes, shapes, values, and which cells are defined; `rows` as the oracle's."""
    step = built(request, xp)
    fields = reference.as_numpy(step.fields)
    wanted = {key: Wanted.of(field) for key, field in request.expected(rows).items()}
    lines = [f"only one side has {key}" for key in sorted(wanted.keys() ^ fields.keys())]
    lines += [str(finding) for finding in compare_fields(wanted, fields)]
    for key, want in wanted.items():
        defined = step.defined(key)
        ours = np.ones(want.field.shape, dtype=bool) if defined is None else np.asarray(defined)
        theirs = np.ones(want.values.shape, dtype=bool) if want.defined is None else want.defined
        if not np.array_equal(ours if want.rows is None else ours[want.rows], theirs):
            lines.append(f"{key}: other cells are defined")
    return lines
