"""The specification of the input metadata (SPEC.md) as plain Python on unbounded integers.

``expected_fields`` says what every field of a batch holds, ``violations`` which preconditions a batch breaks,
``FIELDS`` what is declared of each field, ``Pool`` whether the tables that an engine gave keep the rules of allocation.
Standard library only; nothing here is shared with an engine.
"""

from __future__ import annotations

from .allocation import (
    ALLOCATION,
    NO_REQUEST,
    Breach,
    Grant,
    Need,
    Pool,
    blocks_needed,
    first_fit,
    most_needed,
    plan_problems,
)
from .batch import expected_fields
from .container import PROMISES
from .declaration import CALLS, EXPANSIONS, Call, Cell, Field, Layout, flat_key
from .errors import (
    Int32Error,
    LengthError,
    NgramError,
    OutError,
    PreconditionError,
    RatioError,
    StateError,
    TableError,
)
from .fields import FIELDS, keys_of
from .formulas import FORMULAS, PRECONDITIONS
from .inputs import (
    CONFIG_ARRAYS,
    PATHS,
    SEQUENCE_ARRAYS,
    GatherInputs,
    MetadataConfig,
    Path,
    SequenceMetadata,
    VarlenInputs,
)
from .preconditions import violations
from .shapes import field_shapes
from .sheet import ExpectedField
from .varlen import varlen_problems
from .visibility import KEY_SETS, KeySet, VisibleKey, key_set_keys, visible_keys

__all__ = [
    "ALLOCATION",
    "CALLS",
    "CONFIG_ARRAYS",
    "EXPANSIONS",
    "FIELDS",
    "FORMULAS",
    "KEY_SETS",
    "NO_REQUEST",
    "PATHS",
    "PRECONDITIONS",
    "PROMISES",
    "SEQUENCE_ARRAYS",
    "Breach",
    "Call",
    "Cell",
    "ExpectedField",
    "Field",
    "GatherInputs",
    "Grant",
    "Int32Error",
    "KeySet",
    "Layout",
    "LengthError",
    "MetadataConfig",
    "Need",
    "NgramError",
    "OutError",
    "Path",
    "Pool",
    "PreconditionError",
    "RatioError",
    "SequenceMetadata",
    "StateError",
    "TableError",
    "VarlenInputs",
    "VisibleKey",
    "blocks_needed",
    "expected_fields",
    "field_shapes",
    "first_fit",
    "flat_key",
    "key_set_keys",
    "keys_of",
    "most_needed",
    "plan_problems",
    "varlen_problems",
    "violations",
    "visible_keys",
]
