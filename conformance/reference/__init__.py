"""The vectorised reference: every field of ``oracle/SPEC.md`` over the array API, fast enough for wide batches.

``expected(path, sequences, config)`` gives what the oracle gives, as arrays. numpy and torch (on the CPU or a GPU, with
``xp=array_api_compat.torch``) run the same lines. It is written from the specification and shares no code with oracle
or engine but the types of their inputs, so it is a third opinion. It is no second truth: where it and the oracle
differ, the suite is wrong. It checks no precondition: what it gives for a batch that breaks one means nothing.
"""

from .arrays import Array, Arrays
from .expected import (
    EXPANSIONS,
    Expected,
    Fields,
    Value,
    as_numpy,
    expand_compressed,
    expand_window,
    expected,
    host_array,
    host_rows,
)

__all__ = [
    "EXPANSIONS",
    "Array",
    "Arrays",
    "Expected",
    "Fields",
    "Value",
    "as_numpy",
    "expand_compressed",
    "expand_window",
    "expected",
    "host_array",
    "host_rows",
]
