"""The bundled C++ engine as a subject. Imported only when it is asked for: it needs torch and the built extension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

import engine
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
Buffers = dict[str, torch.Tensor] | None


class EngineSubject:
    """The three construction paths with mirror, truncation and expansions, on the CPU."""

    name = "engine"

    def __init__(self) -> None:
        # Declared names are the engine's attribute names: what its container lacks, it does not claim.
        known = frozenset(engine.InputMetadataV4.__dataclass_fields__)
        self.capabilities = Capabilities(
            paths=frozenset(oracle.PATHS),
            fields=known & frozenset(oracle.FIELDS),
            in_place=True,
            max_cp_size=2**16,
            yoco_modes=frozenset({"off", "mask", "compact"}),
        )

    def build(self, request: Request) -> Result:
        """See :meth:`conformance.subjects.base.Subject.build`."""
        flat = self.container(request).to_flatten_dict()
        return {key: value.numpy() if isinstance(value, torch.Tensor) else value for key, value in flat.items()}

    def container(self, request: Request) -> engine.InputMetadataV4:
        """The engine's own container for a batch, with the expansions that were asked for."""
        config = engine_config(request.config)
        out = None if request.out is None else tensors_over(request.out)
        try:
            sequences = engine_sequences(request.sequences)
            metadata = BUILDERS[request.path](request, sequences, config, out)
        except engine.PreconditionError as error:
            raise Rejection(error.condition, error.sequence, error.field, str(error)) from error
        metadata.compute_attn_info(config, out=out, expansions=request.expand)
        return metadata


def build_prompt(
    request: Request, sequences: list[engine.SequenceMetadata], config: engine.MetadataConfig, out: Buffers
) -> engine.InputMetadataV4:
    """A prompt step; with context parallel ranks, this rank's mirror of it (I-15)."""
    if request.config.cp_size <= 1:
        return engine.prepare_prompt_v4(sequences, config, out=out)
    metadata = engine.prepare_prompt_v4(sequences, config, out=full_layout(out))
    metadata.prepare_for_mirror_cp(config, out=out)
    return metadata


def full_layout(out: Buffers) -> Buffers:
    """Buffers for the step before it is mirrored: the caller's where it keeps the field, scratch where it does not."""
    if out is None:
        return None
    positions = out.get("positions_cp")  # of the full layout; the lengths of an invalid batch say nothing
    rows = 1 if positions is None else positions.shape[0]
    full = {}
    for key, buffer in out.items():
        if oracle.FIELDS[key.partition(".")[0]].mirrored:
            full[key] = torch.empty((rows, *buffer.shape[1:]), dtype=buffer.dtype)
        else:
            full[key] = buffer
    if positions is not None:
        full["positions"] = positions
    return full


def build_decode(
    request: Request, sequences: list[engine.SequenceMetadata], config: engine.MetadataConfig, out: Buffers
) -> engine.InputMetadataV4:
    """An eager decode step."""
    return engine.prepare_decode_v4(sequences, config, out=out)


def build_decode_zos(
    request: Request, sequences: list[engine.SequenceMetadata], config: engine.MetadataConfig, out: Buffers
) -> engine.InputMetadataV4:
    """A ZOS decode step; with F-GATHER inputs, its tokens are gathered."""
    inputs = engine.prepare_decode_zos_inputs(sequences, config)
    metadata = engine.prepare_decode_v4_zos(inputs, config, out=out)
    if request.gather is not None:
        gather = request.gather
        width = max((len(row) for row in gather.prev_predict), default=0)
        predicted = torch.tensor(gather.prev_predict, dtype=torch.int32).reshape(len(gather.prev_predict), width)
        metadata.input_ids = engine.gather_input_ids_zos(
            torch.tensor(gather.fresh_input_ids, dtype=torch.int32),
            torch.tensor(gather.prev_sampled, dtype=torch.int32),
            predicted,
            torch.tensor(gather.remap, dtype=torch.int32),
            inputs.seqlens_q,
            inputs.cu_seqlens_q,
            out=metadata.input_ids,
        )
    return metadata


BUILDERS = {"prompt": build_prompt, "decode": build_decode, "decode_zos": build_decode_zos}


def tensors_over(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The arrays as tensors of the same memory; arrays that are views of one allocation are views of one storage."""
    storages: dict[int, torch.Tensor] = {}
    tensors = {}
    for key, array in arrays.items():
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        address = root.ctypes.data
        storage = storages.setdefault(address, torch.from_numpy(root.reshape(-1)))
        begin = (array.ctypes.data - address) // array.itemsize
        tensors[key] = storage[begin : begin + array.size].view(array.shape)
    return tensors


def engine_config(config: oracle.MetadataConfig) -> engine.MetadataConfig:
    """The configuration as the engine's type."""
    return engine.MetadataConfig(**vars(config))


def engine_sequences(sequences: Sequence[oracle.SequenceMetadata]) -> list[engine.SequenceMetadata]:
    """The sequences as the engine's type."""
    return [engine.SequenceMetadata(**{name: getattr(s, name) for name in SEQUENCE_FIELDS}) for s in sequences]
