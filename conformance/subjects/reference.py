"""The vectorised reference as a subject: another opinion on every field, at the speed of numpy."""

from __future__ import annotations

from types import ModuleType

import array_api_compat.numpy
import numpy as np

from inputmeta import oracle
from inputmeta.conformance import reference
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Capabilities, Rejection, Result
from inputmeta.conformance.subjects.oracle import check_buffer, check_stacks


class ReferenceSubject:
    """Builds every field of every path with numpy. What is refused the oracle says: the reference has formulas only."""

    name = "reference"

    def __init__(self) -> None:
        self.capabilities = Capabilities(
            paths=frozenset(oracle.PATHS),
            fields=frozenset(oracle.FIELDS),
            in_place=True,
            int32_arrays=True,
            max_cp_size=2**16,
            yoco_modes=frozenset({"off", "mask", "compact"}),
            read_only=True,
        )

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        broken = request.violations()
        if broken:
            raise Rejection(broken[0].condition, broken[0].sequence, broken[0].field, str(broken[0]))
        step = reference_of(request)
        fields = reference.as_numpy(step.fields)
        if request.out is not None and request.path == "decode_zos":
            check_stacks(request.out)
        return fields if request.out is None else in_place(step, fields, request.out)


def reference_of(
    request: Request, xp: ModuleType = array_api_compat.numpy, device: object = None
) -> reference.Expected:
    """What the reference has for a valid request, in arrays of ``xp`` on a device of it."""
    return reference.expected(
        request.path,
        request.sequences,
        request.config,
        xp=xp,
        device=device,
        expand=request.expand,
        gather=request.gather,
        max_num_blocks=request.max_num_blocks,
    )


def in_place(step: reference.Expected, fields: Result, out: dict[str, np.ndarray]) -> Result:
    """The caller's arrays, their defined cells written; nothing is written when one of them does not fit (P-OUT)."""
    arrays = {key: value for key, value in fields.items() if isinstance(value, np.ndarray)}
    for key, value in arrays.items():
        check_buffer(key, value.dtype.name, value.shape, out)
    for key, value in arrays.items():
        defined = step.defined(key)
        np.copyto(out[key], value, where=True if defined is None else np.asarray(defined))
    return {**fields, **{key: out[key] for key in arrays}}
