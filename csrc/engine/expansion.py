"""The expansions of `InputMetadataV4.compute_attn_info`: index tensors from the fields that hold ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from engine import _core
from engine.errors import ExpansionTooLargeError
from engine.memory import available_bytes
from engine.mirror import gather
from engine.tensors import FieldPlan, tensor_for, view_of

if TYPE_CHECKING:
    from engine.container import InputMetadataV4

EXPANSIONS = ("kv_swa_full_index", "kv_swa_index", "kv_ca_index")
"""What compute_attn_info can make; `kv_ca_index_len` goes with `kv_ca_index`."""

_INT32_BYTES = 4


@dataclass(frozen=True)
class _Job:
    """One tensor to make: its attribute, its bucket (None: a plain field), its shape, and what fills it."""

    name: str
    bucket: str | None
    shape: tuple[int, ...]
    write: Callable[[torch.Tensor], object]

    @property
    def plan(self) -> FieldPlan:
        key = self.name if self.bucket is None else f"{self.name}.{self.bucket}"
        return key, "int32", self.shape

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * _INT32_BYTES


def expand(
    metadata: InputMetadataV4,
    config: _core.MetadataConfig,
    out: Mapping[str, Any] | None,
    expansions: Collection[str],
) -> dict[str, Any]:
    """The attributes that `metadata` lacks, filled. Raises before it writes; see `compute_attn_info`."""
    unknown = set(expansions) - set(EXPANSIONS)
    if unknown:
        raise ValueError(f"not an expansion: {', '.join(sorted(unknown))}; there are {', '.join(EXPANSIONS)}")
    made: dict[str, Any] = {name: {} for name in _missing_buckets(metadata, expansions)}
    jobs = [*_window_jobs(metadata, config, expansions), *_bucket_jobs(metadata, config, set(made))]
    if out is None:
        _require_memory(jobs)
    tensors = [tensor_for(job.plan, out) for job in jobs]
    for job, tensor in zip(jobs, tensors, strict=True):
        job.write(tensor)
        if job.bucket is None:
            made[job.name] = tensor
        else:
            made[job.name][job.bucket] = tensor
    return made


def _require_memory(jobs: list[_Job]) -> None:
    available = available_bytes()
    for job in jobs:
        if job.size > available:
            raise ExpansionTooLargeError(job.plan[0], job.size, available)
        available -= job.size


def _missing_buckets(metadata: InputMetadataV4, expansions: Collection[str]) -> Iterator[str]:
    if metadata.klen is None and metadata.is_prompt:
        yield "klen"
    if "kv_ca_index" in expansions:
        for name in ("kv_ca_index", "kv_ca_index_len"):
            if getattr(metadata, name) is None:
                yield name


def _window_jobs(
    metadata: InputMetadataV4, config: _core.MetadataConfig, expansions: Collection[str]
) -> Iterator[_Job]:
    """kv_swa_full_index of a prompt (F-PIVOT), kv_swa_index of a decode step (F-SWADEC): [rows, W]."""
    pivots, windows = metadata.kv_swa_full_index_pivots, metadata.kv_swa_index_offset_len
    if pivots is not None and metadata.kv_swa_full_index is None and "kv_swa_full_index" in expansions:
        pivots = _in_layout(metadata, pivots)
        shape = (pivots.shape[0], config.window_size)
        yield _Job("kv_swa_full_index", None, shape, partial(_expand_pivots, pivots))
    if windows is not None and metadata.kv_swa_index is None and "kv_swa_index" in expansions:
        shape = (windows.shape[0], config.window_size)
        yield _Job("kv_swa_index", None, shape, partial(_expand_ring, windows, config.swa_block_size))


def _bucket_jobs(metadata: InputMetadataV4, config: _core.MetadataConfig, missing: set[str]) -> Iterator[_Job]:
    """Dense expansions [rows, width] and lengths [rows] (F-CAOFF), and a prompt's klen [rows]."""
    has_dense = bool(missing & {"kv_ca_index", "kv_ca_index_len"})
    for bucket, full_ranges in (metadata.kv_ca_index_offset_len or {}).items() if has_dense else ():
        ranges = _in_layout(metadata, full_ranges)
        rows = ranges.shape[0]
        if "kv_ca_index" in missing:
            width = _core.dense_index_width(config.max_model_len, int(bucket))
            yield _Job("kv_ca_index", bucket, (rows, width), _dense_writer(metadata, config, bucket, ranges))
        if "kv_ca_index_len" in missing:
            yield _Job("kv_ca_index_len", bucket, (rows,), partial(_copy, ranges[:, 1]))
    if "klen" in missing:
        for bucket, ends in (metadata.ke or {}).items():
            yield _Job("klen", bucket, (ends.shape[0],), partial(_subtract, ends, (metadata.ks or {})[bucket]))


def _in_layout(metadata: InputMetadataV4, ranges: torch.Tensor) -> torch.Tensor:
    """The ranges of the container's rows: ranges stay in full layout where their expansions are mirrored (I-15).

    A padding row has empty ranges, which expand to -1 with length 0.
    """
    return ranges if metadata.mirror_cp_index is None else gather(ranges, metadata.mirror_cp_index, 0)


def _dense_writer(
    metadata: InputMetadataV4, config: _core.MetadataConfig, bucket: str, ranges: torch.Tensor
) -> Callable[[torch.Tensor], object]:
    if metadata.block_tables is None:
        return partial(_expand_offsets, ranges)
    return partial(_expand_blocks, ranges, metadata.block_tables, config.block_size // int(bucket))


def _expand_pivots(pivots: torch.Tensor, tensor: torch.Tensor) -> None:
    _core.expand_pivots(view_of(pivots), view_of(tensor))


def _expand_ring(windows: torch.Tensor, ring: int, tensor: torch.Tensor) -> None:
    _core.expand_ring(view_of(windows), ring, view_of(tensor))


def _expand_offsets(ranges: torch.Tensor, tensor: torch.Tensor) -> None:
    _core.expand_offsets(view_of(ranges), view_of(tensor))


def _expand_blocks(ranges: torch.Tensor, tables: torch.Tensor, tokens_per_block: int, tensor: torch.Tensor) -> None:
    _core.expand_blocks(view_of(ranges), view_of(tables), tokens_per_block, view_of(tensor))


def _copy(source: torch.Tensor, tensor: torch.Tensor) -> None:
    tensor.copy_(source)


def _subtract(ends: torch.Tensor, begins: torch.Tensor, tensor: torch.Tensor) -> None:
    torch.sub(ends, begins, out=tensor)
