"""Builds the input metadata of one step: plans sizes, checks every precondition, then fills tensors in C++.

`prepare_prompt_v4` and `prepare_decode_v4` take the step's `SequenceMetadata` and the engine's `MetadataConfig` and
give an `InputMetadataV4`. Field names and formulas are those of the specification.
"""

from inputmeta.engine._core import MetadataConfig, SequenceMetadata
from inputmeta.engine.container import InputMetadataV4
from inputmeta.engine.device import cuda_available
from inputmeta.engine.errors import (
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
from inputmeta.engine.expansion import EXPANSIONS
from inputmeta.engine.mirror import CpMirror, prepare_cp_mirror
from inputmeta.engine.prepare import prepare_decode_v4, prepare_prompt_v4
from inputmeta.engine.vision import InputMetadataV4VL
from inputmeta.engine.zos import (
    MetadataZOS,
    ZosBuffers,
    gather_input_ids_zos,
    prepare_decode_inputs_zos_varlen,
    prepare_decode_v4_zos,
    prepare_decode_zos_inputs,
    prepare_token_ids_zos,
)

__all__ = [
    "EXPANSIONS",
    "CpMirror",
    "ExpansionTooLargeError",
    "InputMetadataV4",
    "InputMetadataV4VL",
    "Int32Error",
    "LengthError",
    "MetadataConfig",
    "MetadataZOS",
    "NgramError",
    "OutError",
    "PreconditionError",
    "RatioError",
    "SequenceMetadata",
    "StateError",
    "TableError",
    "ZosBuffers",
    "cuda_available",
    "gather_input_ids_zos",
    "prepare_cp_mirror",
    "prepare_decode_inputs_zos_varlen",
    "prepare_decode_v4",
    "prepare_decode_v4_zos",
    "prepare_decode_zos_inputs",
    "prepare_prompt_v4",
    "prepare_token_ids_zos",
]
