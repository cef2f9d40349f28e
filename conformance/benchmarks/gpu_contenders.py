"""What is measured on a GPU: launches that a graph captures, and calls whose host time is taken.

- `metadata`: the launch of a ZOS decode step into captured buffers, block tables of 1,024 columns, the step on the
  device already. `empty`: two kernels of one block that do nothing. `fill`, `memset`: torch's fill kernel, and
  cudaMemset, over as many bytes as the step has defined cells, in one buffer.
- `zos`: the call of the same, `zos + extraction` with the extraction from the sequences and the copy to the device.
  `eager`: the host fills pinned tensors, and each is copied into its captured buffer. `eager fresh`: the host fills one
  pinned pack, which one copy brings to new device memory.
- An expansion is captured several times in one graph: into one buffer, which then stays in the L2 cache where it fits,
  and into `BUFFERS` in turn, which together do not. `fill` and `memset` do the same to the same buffers.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from inputmeta import engine
from inputmeta.conformance.benchmarks.contenders import Buffers, EngineSide, Operation, defined_bytes, tensors_of
from inputmeta.conformance.benchmarks.measure import Run
from inputmeta.conformance.benchmarks.workloads import Workload
from inputmeta.conformance.subjects.engine import engine_config, engine_sequences

BUFFERS = 8
"""Of an expansion, in turn: 128 or 256 MiB in all, several times the L2 cache."""
EMPTY_KERNELS = 2
"""What a decode step is held against; it is one launch itself."""


def nothing(_):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - Triton reads annotations as its own types
    """The empty kernel, in Triton's language."""


def empty_kernels(count: int, device: torch.device) -> Run:
    """Launches `count` kernels of one block that do nothing."""
    kernel: Any = importlib.import_module("triton").jit(nothing)
    argument = torch.zeros(1, dtype=torch.int32, device=device)

    def run() -> None:
        for _ in range(count):
            kernel[(1,)](argument)

    return run


class DecodeSide:
    """One decode workload: its sequences, its step on the device, and buffers as a graph has captured them."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        self.workload, self.device = workload, device
        self.config = engine_config(workload.config)
        self.sequences = engine_sequences(workload.sequences)
        self.columns = workload.config.max_model_len // workload.config.block_size
        self.host = self.wide(tensors_of(engine.prepare_decode_v4(self.sequences, self.config)))
        eager = tensors_of(engine.prepare_decode_v4(self.sequences, self.config, out=self.host))
        self.eager = {key: torch.empty_like(tensor, device=device) for key, tensor in eager.items()}
        self.step = engine.prepare_decode_zos_inputs(self.sequences, self.config).to(device)
        fresh = tensors_of(engine.prepare_decode_v4_zos(self.step, self.config, device=device))
        self.fields = self.wide(fresh)
        self.captured: Mapping[str, torch.Tensor] = self.fields
        if device.type == "cuda":
            self.captured = engine.ZosBuffers(self.fields, self.config, device)

    def wide(self, fields: Buffers) -> Buffers:
        """The fields with tables for the longest context, other tensors as they are."""
        tables = fields["block_tables"]
        pinned = tables.is_cpu and self.device.type == "cuda"
        shape = (tables.shape[0], self.columns)
        return {
            **fields,
            "block_tables": torch.zeros(shape, dtype=torch.int32, device=tables.device, pin_memory=pinned),
        }

    @property
    def written(self) -> int:
        """Bytes of the defined cells."""
        return sum(defined_bytes(self.workload, key, tensor) for key, tensor in self.fields.items())

    def metadata(self) -> engine.InputMetadataV4:
        """The step, which is on the device, into the captured buffers."""
        return engine.prepare_decode_v4_zos(self.step, self.config, out=self.captured, device=self.device)

    def extracted(self) -> engine.InputMetadataV4:
        """The same from the sequences on."""
        step = engine.prepare_decode_zos_inputs(self.sequences, self.config)
        return engine.prepare_decode_v4_zos(step, self.config, out=self.captured, device=self.device)

    def eager_in_place(self) -> engine.InputMetadataV4:
        """The host's step, copied field by field to addresses that stay."""
        return engine.prepare_decode_v4(self.sequences, self.config, out=self.host).to(self.device, out=self.eager)

    def eager_fresh(self) -> engine.InputMetadataV4:
        """The host's step, copied to new device memory."""
        return engine.prepare_decode_v4(self.sequences, self.config).to(self.device)

    def graph_operation(self) -> Operation:
        """Launches to capture."""
        runs: dict[str, Run] = {
            "metadata": self.metadata,
            "empty": empty_kernels(EMPTY_KERNELS, self.device),
            **fill_runs([torch.empty(self.written, dtype=torch.uint8, device=self.device)]),
        }
        return Operation(self.workload, "graph replay", len(self.fields), self.written, runs)

    def host_operation(self) -> Operation:
        """Calls to time on the host."""
        runs: dict[str, Run] = {
            "zos": self.metadata,
            "zos + extraction": self.extracted,
            "eager": self.eager_in_place,
            "eager fresh": self.eager_fresh,
        }
        return Operation(self.workload, "host time", len(self.fields), self.written, runs)


def fill_runs(buffers: Sequence[torch.Tensor]) -> dict[str, Run]:
    """Fills of the buffers, one after the other, by torch's kernel and by cudaMemset."""
    whole = [buffer.view(-1)[: buffer.numel() // 4 * 4].view(torch.int32) for buffer in buffers]
    return {
        "fill": lambda: [buffer.fill_(1) for buffer in whole],
        "memset": lambda: [buffer.zero_() for buffer in whole],
    }


def expansion_operations(workload: Workload, device: torch.device, buffers: int = BUFFERS) -> list[Operation]:
    """One expansion of a step that is on the device, into one buffer again and again, and into several in turn."""
    side = EngineSide(workload)
    name = "kv_swa_full_index" if workload.path == "prompt" else "kv_ca_index"
    metadata = side.prepare(None).to(device)
    made = copy.copy(metadata)
    made.compute_attn_info(side.config, expansions=(name,))
    (key, like), *_ = ((key, tensor) for key, tensor in tensors_of(made).items() if key.partition(".")[0] == name)
    metadata.klen, metadata.kv_ca_index_len = made.klen, made.kv_ca_index_len  # they are there: only the index is made
    sets = [{key: torch.empty_like(like)} for _ in range(buffers)]

    def expand(into: Sequence[Buffers]) -> Run:
        def run() -> None:
            for out in into:
                copy.copy(metadata).compute_attn_info(side.config, out, expansions=(name,))

        return run

    operations = []
    for title, into in (("one buffer", sets[:1] * buffers), (f"{buffers} buffers in turn", sets)):
        runs = {"engine": expand(into), **fill_runs([out[key] for out in into])}
        operations.append(Operation(workload, f"{name}, {title}", 1, like.nbytes, runs, repeated=buffers))
    return operations
