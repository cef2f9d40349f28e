"""The bundled C++ engine as a subject. Imported only when it is asked for: it needs torch and the built extension."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from inputmeta import engine, oracle
from inputmeta.conformance.cases.model import Gather
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.arrays import formed
from inputmeta.conformance.subjects.base import Capabilities, Rejection, Result
from inputmeta.conformance.subjects.device import Buffers, tensors_over
from inputmeta.engine.broadcast.errors import RefusedError
from inputmeta.engine.broadcast.manifest import assemble, decode, describe, encode
from inputmeta.engine.broadcast.receive import fill

MOST_STEPS = 6
"""Steps of which the engine's sequences are kept: as many as a case has."""


class EngineSubject:
    """The three construction paths with mirror, truncation and expansions, on the CPU."""

    name = "engine"
    device = torch.device("cpu")
    """Where the fields of a step end up."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Sequence[oracle.SequenceMetadata], list[engine.SequenceMetadata]]] = {}
        """Sequences of the last steps in both types, by identity, which their presence here keeps theirs."""
        # Declared names are the engine's attribute names: what its container lacks, it does not claim.
        known = frozenset(engine.InputMetadataV4.__dataclass_fields__)
        self.capabilities = Capabilities(
            paths=frozenset(oracle.PATHS),
            fields=known & frozenset(oracle.FIELDS),
            in_place=True,
            int32_arrays=True,
            varlen=True,
            max_cp_size=2**16,
            yoco_modes=frozenset({"off", "mask", "compact"}),
        )

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        out = None if request.out is None else tensors_over(request.out)
        flat = self.container(request, out).to_flatten_dict()
        return {key: value.numpy() if isinstance(value, torch.Tensor) else value for key, value in flat.items()}

    def container(self, request: Request, out: Buffers = None) -> engine.InputMetadataV4:
        """The engine's own container for a batch, with the expansions that were asked for; ``out`` is on the device."""
        config = engine_config(request.config)
        builders = {"prompt": self.prompt, "decode": self.decode, "decode_zos": self.decode_zos}
        try:
            sequences = self.sequences(request.sequences)
            metadata = builders[request.path](request, sequences, config, out)
            metadata.compute_attn_info(config, out=out, expansions=request.expand)
        except engine.PreconditionError as error:
            raise Rejection(error.condition, error.sequence, error.field, str(error)) from error
        return metadata

    def sequences(self, sequences: Sequence[oracle.SequenceMetadata]) -> list[engine.SequenceMetadata]:
        """The sequences as the engine's type; the same objects again for a step that is built several times.

        Of arrays nothing is kept: the memory of a large batch is to be let go, and to be borrowed costs nothing.
        """
        if not all(type(getattr(each, name)) is tuple for each in sequences for name in oracle.SEQUENCE_ARRAYS):
            return engine_sequences(sequences)
        made = self._made.pop(id(sequences), None) or (sequences, engine_sequences(sequences))
        self._made[id(sequences)] = made
        if len(self._made) > MOST_STEPS:
            del self._made[next(iter(self._made))]
        return made[1]

    def expand(self, container: engine.InputMetadataV4, request: Request) -> None:
        """Have a container, or a view of one, make ``request.expand``."""
        container.compute_attn_info(engine_config(request.config), expansions=request.expand)

    def extract(self, request: Request) -> engine.MetadataZOS:
        """What the host extracts for a ZOS decode step."""
        return engine.prepare_decode_zos_inputs(self.sequences(request.sequences), engine_config(request.config))

    def image_container(
        self, request: Request, images_seq_mask: np.ndarray, mm_token_type: np.ndarray
    ) -> engine.InputMetadataV4VL:
        """The container of a model that reads images, with the caller's mask and types of the full layout."""
        config = engine_config(request.config)
        if request.path == "prompt":
            step = engine.prepare_prompt_v4(self.sequences(request.sequences), config)
        else:
            step = self.container(dataclasses.replace(request, expand=frozenset()))
        images = {"images_seq_mask": images_seq_mask, "mm_token_type": mm_token_type}
        tensors = {name: torch.from_numpy(array) for name, array in images.items()}
        container = engine.InputMetadataV4VL.from_flatten_dict(step.to_flatten_dict() | tensors)
        container.prepare_for_mirror_cp(config)
        container.compute_attn_info(config, expansions=request.expand)
        return container

    def broadcast(
        self, container: engine.InputMetadataV4, receiver: engine.InputMetadataV4 | None
    ) -> engine.InputMetadataV4:
        """What another rank has after a broadcast: through the manifest and back, without a group to carry it."""
        try:
            manifest, tensors = describe(container)
        except RefusedError as error:
            raise TypeError(f"{error.path}: {error.rule}") from error
        brought = assemble(type(container), decode(encode(manifest)), [tensor.clone() for tensor in tensors])
        return brought if receiver is None else fill(receiver, brought)

    def prompt(
        self, request: Request, sequences: list[engine.SequenceMetadata], config: engine.MetadataConfig, out: Buffers
    ) -> engine.InputMetadataV4:
        """A prompt step; with context parallel ranks, this rank's mirror of it (I-15)."""
        parallel = request.config.cp_size > 1
        full = full_layout(out) if parallel else out
        host = engine.prepare_prompt_v4(sequences, config, out=self.host_buffers(request, full))
        metadata = self.placed(host, full)
        if parallel:
            self.mirror(metadata, host, config, out)
        return metadata

    def decode(
        self, request: Request, sequences: list[engine.SequenceMetadata], config: engine.MetadataConfig, out: Buffers
    ) -> engine.InputMetadataV4:
        """An eager decode step."""
        return self.placed(engine.prepare_decode_v4(sequences, config, out=self.host_buffers(request, out)), out)

    def decode_zos(
        self, request: Request, sequences: list[engine.SequenceMetadata], config: engine.MetadataConfig, out: Buffers
    ) -> engine.InputMetadataV4:
        """A ZOS decode step with its expansions; tokens gathered (F-GATHER), rows fewer (F-VARLEN) as asked."""
        inputs = engine.prepare_decode_zos_inputs(sequences, config)
        if out is not None or request.gather is not None:
            inputs = inputs.to(self.device)  # else the next call sends the step over
        if request.gather is not None:
            inputs = self.following(inputs, request.gather)
        return engine.prepare_decode_v4_zos(inputs, config, out=out, device=self.device, expansions=request.expand)

    def following(self, inputs: engine.MetadataZOS, gather: Gather) -> engine.MetadataZOS:
        """The step as one that follows another, its rows those that the last step's sampler left it."""
        width = max((len(row) for row in gather.prev_predict), default=0)
        predicted = torch.tensor(gather.prev_predict, dtype=torch.int32).reshape(len(gather.prev_predict), width)
        inputs = dataclasses.replace(
            inputs,
            input_ids=self.ids(gather.fresh_input_ids),
            remap=self.ids(gather.remap),
            prev_sampled_token_ids=self.ids(gather.prev_sampled),
            prev_predict_token_ids=predicted.to(self.device),
        )
        if gather.varlen is None:
            return inputs
        inputs = dataclasses.replace(
            inputs,
            seqlens_q=self.ids(gather.varlen.seqlens_q),
            prev_seqlens_q=self.ids(gather.varlen.prev_seqlens_q),
            prev_num_accepted_tokens=self.ids(gather.varlen.prev_num_accepted_tokens),
        )
        return engine.prepare_decode_inputs_zos_varlen(inputs)

    def ids(self, values: Sequence[int]) -> torch.Tensor:
        """One dimension of int32 on the device."""
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def host_buffers(self, request: Request, out: Buffers) -> Buffers:
        """What a path that is built on the host fills."""
        return out

    def placed(self, host: engine.InputMetadataV4, out: Buffers) -> engine.InputMetadataV4:
        """A step that was built on the host, on the device."""
        return host

    def mirror(
        self,
        metadata: engine.InputMetadataV4,
        host: engine.InputMetadataV4,
        config: engine.MetadataConfig,
        out: Buffers,
    ) -> None:
        """Give a prompt step, ``host`` before it was placed, the layout of its rank."""
        metadata.prepare_for_mirror_cp(config, out=out)


def full_layout(out: Buffers) -> Buffers:
    """Buffers for the step before it is mirrored: the caller's where it keeps the field, scratch where it does not."""
    if out is None:
        return None
    positions = out.get("positions_cp")  # of the full layout; the lengths of an invalid batch say nothing
    rows = 1 if positions is None else positions.shape[0]
    full = {}
    for key, buffer in out.items():
        if oracle.FIELDS[key.partition(".")[0]].mirrored:
            full[key] = torch.empty((rows, *buffer.shape[1:]), dtype=buffer.dtype, device=buffer.device)
        else:
            full[key] = buffer
    full.pop("positions", None)  # scratch could be of the right size, and the caller's would not be missed
    if positions is not None:
        full["positions"] = positions
    return full


def engine_config(config: oracle.MetadataConfig) -> engine.MetadataConfig:
    """The configuration as the engine's type."""
    return engine.MetadataConfig(**vars(config))


def engine_sequences(sequences: Sequence[oracle.SequenceMetadata]) -> list[engine.SequenceMetadata]:
    """The sequences as the engine's type, their integers in another form from array to array."""
    return [engine.SequenceMetadata(**vars(s) | formed(s, index)) for index, s in enumerate(sequences)]
