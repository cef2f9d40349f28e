"""The bundled C++ engine as a subject. Imported only when it is asked for: it needs torch and the built extension."""

from __future__ import annotations

from collections.abc import Sequence

import engine
import torch

import oracle
from conformance.subjects.base import Capabilities, Rejection, Request, Result

SEQUENCE_FIELDS = (
    "seqlen_q",
    "seqlen_k",
    "block_table",
    "state_id",
    "is_placeholder",
    "swa_valid_start",
    "token_ids",
    "draft_tokens",
    "compressed_tokens",
    "recent_tokens",
    "data_len",
)
PREPARE = {"prompt": engine.prepare_prompt_v4, "decode": engine.prepare_decode_v4}


class EngineSubject:
    """``prepare_prompt_v4`` and ``prepare_decode_v4`` with their expansions, on the CPU."""

    name = "engine"

    def __init__(self) -> None:
        # Declared names are the engine's attribute names: what its container lacks, it does not claim.
        known = frozenset(engine.InputMetadataV4.__dataclass_fields__)
        self.capabilities = Capabilities(
            paths=frozenset(PREPARE), fields=known & frozenset(oracle.FIELDS), in_place=True
        )

    def build(self, request: Request) -> Result:
        """See :meth:`conformance.subjects.base.Subject.build`."""
        config = engine_config(request.config)
        out = None if request.out is None else {key: torch.from_numpy(array) for key, array in request.out.items()}
        try:
            sequences = engine_sequences(request.sequences)
            metadata = PREPARE[request.path](sequences, config, out=out)
        except engine.PreconditionError as error:
            raise Rejection(error.condition, error.sequence, error.field, str(error)) from error
        metadata.compute_attn_info(config, out=out, expansions=request.expand)
        flat = metadata.to_flatten_dict()
        return {key: value.numpy() if isinstance(value, torch.Tensor) else value for key, value in flat.items()}


def engine_config(config: oracle.MetadataConfig) -> engine.MetadataConfig:
    """The configuration as the engine's type."""
    return engine.MetadataConfig(**vars(config))


def engine_sequences(sequences: Sequence[oracle.SequenceMetadata]) -> list[engine.SequenceMetadata]:
    """The sequences as the engine's type."""
    return [engine.SequenceMetadata(**{name: getattr(s, name) for name in SEQUENCE_FIELDS}) for s in sequences]
