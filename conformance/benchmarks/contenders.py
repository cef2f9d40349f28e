"""The rivals of one workload as functions without arguments: engine, numpy reference, memset.

What is inside a timed call, and what is not:

- `engine`: `prepare_*` into `out`, three buffer sets in turn, as an engine with several steps in flight reuses them.
  The engine checks every precondition of the batch in that time.
- `engine fresh`: the same without `out`; allocation is inside. The allocator mostly hands back the memory that was just
  freed, still in the cache, so that this can beat the rotating sets; the largest tensors come as new pages, which have
  to be faulted in. numpy's arrays fare alike.
- `numpy`: the reference, into fresh arrays and without checking a precondition: that difference is in numpy's favour.
  It is written over the array API: lines for numpy alone are faster, by 1.1 to 1.5 times where this was measured.
- `memset`: one `memset` an output tensor, into buffer sets of its own that rotate like the engine's, of as many bytes
  as the tensor has defined cells (`block_tables` has none right of a sequence's blocks). Small tensors pay the call.
- Building the sequence objects is outside for engine and numpy alike, as a scheduler keeps them from step to step.
  What it costs to build the engine's is measured on its own (`construction_run`).
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import array_api_compat.numpy
import torch

from inputmeta import engine
from inputmeta.conformance import reference
from inputmeta.conformance.benchmarks.measure import Run, interleaved, spread_of, spreads_of_ratios
from inputmeta.conformance.benchmarks.report import Measured
from inputmeta.conformance.benchmarks.workloads import Workload
from inputmeta.conformance.subjects.engine import engine_config, engine_sequences

BUFFER_SETS = 3
Buffers = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Operation:
    """One line of the report: the same fields built by each contender.

    `repeated`: calls that one run makes; `written`: bytes of one call, in `tensors` tensors.
    """

    workload: Workload
    name: str
    tensors: int
    written: int
    runs: Mapping[str, Run]
    repeated: int = 1


Times = Callable[[Mapping[str, Run], int], dict[str, list[float]]]
"""Takes contenders and a number of rounds; nanoseconds a run, one value a round for each contender."""


def measured(
    operation: Operation, names: Mapping[str, tuple[str, str]], repeat: int, times: Times = interleaved
) -> Measured:
    """Times every contender of one operation `repeat` times; `names` says which ratios to take of which two."""
    samples = times(operation.runs, repeat)
    each = {name: [value / operation.repeated / 1e3 for value in values] for name, values in samples.items()}
    return Measured(
        workload=operation.workload.name,
        operation=operation.name,
        sequences=len(operation.workload.sequences),
        total_q=operation.workload.total_q,
        tensors=operation.tensors,
        written=operation.written,
        microseconds={name: spread_of(values) for name, values in each.items()},
        ratios=spreads_of_ratios(each, names),
    )


def construction_run(workload: Workload) -> Callable[[], list[engine.SequenceMetadata]]:
    """Builds the engine's sequence objects from numpy arrays, which they borrow."""
    return lambda: engine_sequences(workload.sequences)


def window_expansion(workload: Workload) -> str:
    """The expanded window index of the workload's path."""
    return "kv_swa_full_index" if workload.path == "prompt" else "kv_swa_index"


class EngineSide:
    """The engine's objects of one workload, built once."""

    def __init__(self, workload: Workload) -> None:
        self.config = engine_config(workload.config)
        self.sequences = engine_sequences(workload.sequences)
        self._prepare = engine.prepare_prompt_v4 if workload.path == "prompt" else engine.prepare_decode_v4

    def prepare(self, out: Buffers | None) -> engine.InputMetadataV4:
        """The step, into `out` or into fresh tensors."""
        return self._prepare(self.sequences, self.config, out)

    def prepare_expanded(self, expansion: str, out: Buffers | None) -> engine.InputMetadataV4:
        """The step and one of its expansions."""
        metadata = self.prepare(out)
        metadata.compute_attn_info(self.config, out, expansions=(expansion,))
        return metadata

    def expand(self, metadata: engine.InputMetadataV4, expansion: str, out: Buffers | None) -> engine.InputMetadataV4:
        """One expansion of a prepared step; a shallow copy (microseconds) keeps `metadata` unexpanded."""
        copied = copy.copy(metadata)
        copied.compute_attn_info(self.config, out, expansions=(expansion,))
        return copied


class NumpySide:
    """The reference of the suite (`conformance/reference/`) with numpy on one workload."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def prepare(self, expand: Collection[str] = ()) -> reference.Fields:
        """The step; a prompt's klen is among its fields, which the engine makes with the window's index."""
        workload = self.workload
        return reference.expected(workload.path, workload.sequences, workload.config, expand=expand).fields

    def prepare_with_window(self) -> reference.Fields:
        """The step and the index of its window."""
        return self.prepare((window_expansion(self.workload),))

    def expand_compressed(self, fields: reference.Fields) -> dict[str, reference.Array]:
        """kv_ca_index and kv_ca_index_len of every dense ratio."""
        rows = {key: value for key, value in fields.items() if not isinstance(value, int)}
        return reference.expand_compressed(reference.Arrays.of(array_api_compat.numpy), self.workload.config, rows)


def tensors_of(metadata: engine.InputMetadataV4) -> Buffers:
    """The tensors of a step by flat key."""
    return {key: value for key, value in metadata.to_flatten_dict().items() if isinstance(value, torch.Tensor)}


def defined_bytes(workload: Workload, key: str, tensor: torch.Tensor) -> int:
    """Bytes of the defined cells: all, but of `block_tables` only the sequences' blocks."""
    if key != "block_tables":
        return tensor.nbytes
    return sum(sequence.seqlen_q * len(sequence.block_table) for sequence in workload.sequences) * tensor.itemsize


def buffer_sets(like: Buffers) -> list[Buffers]:
    """Sets of tensors like the given ones, every page touched."""
    return [{key: torch.zeros_like(tensor) for key, tensor in like.items()} for _ in range(BUFFER_SETS)]


def memset_run(like: Buffers, sizes: Sequence[int]) -> Run:
    """Sets `sizes[t]` bytes of each tensor t to a constant, one buffer set after the other."""
    sets = buffer_sets(like)
    plans = cycle([[(t.data_ptr(), n) for t, n in zip(one.values(), sizes, strict=True)] for one in sets])

    def run() -> list[Buffers]:
        for address, size in next(plans):
            ctypes.memset(address, 1, size)
        return sets  # and so the addresses stay alive

    return run


def operation(
    workload: Workload, name: str, written: Buffers, build: Callable[[Buffers | None], object], numpy_run: Run
) -> Operation:
    """An operation that writes tensors like `written`. `build` is the engine's, given `out` or None."""
    sizes = [defined_bytes(workload, key, tensor) for key, tensor in written.items()]
    reused = cycle(buffer_sets(written))
    runs: dict[str, Run] = {
        "engine": lambda: build(next(reused)),
        "engine fresh": lambda: build(None),
        "numpy": numpy_run,
        "memset": memset_run(written, sizes),
    }
    return Operation(workload, name, len(sizes), sum(sizes), runs)


def operations(workload: Workload) -> list[Operation]:
    """What is measured of a workload: the step without and with its window index, or kv_ca_index alone."""
    ours, theirs = EngineSide(workload), NumpySide(workload)
    metadata = ours.prepare(None)
    if workload.expansion == "kv_ca_index":
        expanded = tensors_of(ours.expand(metadata, "kv_ca_index", None))
        added = {key: tensor for key, tensor in expanded.items() if key not in tensors_of(metadata)}
        fields = theirs.prepare()
        return [
            operation(
                workload,
                "kv_ca_index alone",
                added,
                lambda out: ours.expand(metadata, "kv_ca_index", out),
                lambda: theirs.expand_compressed(fields),
            )
        ]
    window = window_expansion(workload)
    both = tensors_of(ours.prepare_expanded(window, None))
    return [
        operation(workload, "prepare", tensors_of(metadata), ours.prepare, theirs.prepare),
        operation(
            workload,
            f"prepare + {window}",
            both,
            lambda out: ours.prepare_expanded(window, out),
            theirs.prepare_with_window,
        ),
    ]
