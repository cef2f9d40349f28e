"""Builds the input metadata of one step: plans sizes, checks every precondition, then fills tensors in C++.

`prepare_prompt_v4` and `prepare_decode_v4` take the step's `SequenceMetadata` and the engine's `MetadataConfig` and
give an `InputMetadataV4`. Field names and formulas are those of the specification.
"""

from engine._core import MetadataConfig, SequenceMetadata
from engine.container import InputMetadataV4
from engine.errors import (
    ExpansionTooLargeError,
    Int32Error,
    LengthError,
    NgramError,
    OutError,
    PreconditionError,
    RatioError,
    StateError,
    TableError,
)
from engine.expansion import EXPANSIONS
from engine.prepare import prepare_decode_v4, prepare_prompt_v4

__all__ = [
    "EXPANSIONS",
    "ExpansionTooLargeError",
    "InputMetadataV4",
    "Int32Error",
    "LengthError",
    "MetadataConfig",
    "NgramError",
    "OutError",
    "PreconditionError",
    "RatioError",
    "SequenceMetadata",
    "StateError",
    "TableError",
    "prepare_decode_v4",
    "prepare_prompt_v4",
]
