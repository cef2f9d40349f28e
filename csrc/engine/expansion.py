"""The expansions of `InputMetadataV4.compute_attn_info`: index tensors from the fields that hold ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from inputmeta.engine import _core, device
from inputmeta.engine.device import HOST, device_of
from inputmeta.engine.errors import ExpansionTooLargeError
from inputmeta.engine.fields import StepFields
from inputmeta.engine.index_kernels import expand_blocks, expand_offsets, expand_pivots, expand_ring, gather
from inputmeta.engine.memory import available_bytes
from inputmeta.engine.tensors import FieldPlan, allocate, prefix_for, tensor_for

EXPANSIONS = ("kv_swa_full_index", "kv_swa_index", "kv_ca_index")
"""What compute_attn_info can make; `kv_ca_index_len` goes with `kv_ca_index`."""

_INT32_BYTES = 4
_NO_MATTER = 2**22
"""Bytes of expansions that are made without asking what is free, which takes longer than to make them."""


@dataclass(frozen=True)
class Target:
    """One tensor to make: its attribute, its bucket (None: a plain field) and its shape."""

    name: str
    bucket: str | None
    shape: tuple[int, ...]

    @property
    def plan(self) -> FieldPlan:
        key = self.name if self.bucket is None else f"{self.name}.{self.bucket}"
        return key, "int32", self.shape

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * _INT32_BYTES


@dataclass(frozen=True)
class _Job:
    """Tensors that are made together, and what fills them."""

    targets: tuple[Target, ...]
    write: Callable[..., object]


def expand(
    metadata: StepFields,
    config: _core.MetadataConfig,
    out: Mapping[str, Any] | None,
    expansions: Collection[str],
) -> dict[str, Any]:
    """The attributes that `metadata` lacks, filled. Raises before it writes; see `compute_attn_info`."""
    require_known(expansions)
    made: dict[str, Any] = {name: {} for name in _missing_buckets(metadata, expansions)}
    jobs = [*_window_jobs(metadata, config, expansions), *_bucket_jobs(metadata, config, set(made))]
    targets = [target for job in jobs for target in job.targets]
    where = device_of(metadata.positions)
    if out is None:
        tensors = _host_tensors(targets) if where == HOST else device_tensors(targets, where)
    else:
        # A decode step's buffers are captured for the largest step.
        find = tensor_for if metadata.is_prompt else prefix_for
        tensors = [find(target.plan, out, where) for target in targets]
    remaining = iter(tensors)
    for job in jobs:
        job.write(*(next(remaining) for _ in job.targets))
    for target, tensor in zip(targets, tensors, strict=True):
        if target.bucket is None:
            made[target.name] = tensor
        else:
            made[target.name][target.bucket] = tensor
    return made


def require_known(expansions: Collection[str]) -> None:
    """ValueError unless all are names of expansions."""
    unknown = set(expansions) - set(EXPANSIONS)
    if unknown:
        raise ValueError(f"not an expansion: {', '.join(sorted(unknown))}; there are {', '.join(EXPANSIONS)}")


def decode_targets(
    config: _core.MetadataConfig, buckets: Sequence[str], rows: int, expansions: Collection[str]
) -> list[Target]:
    """What `expansions` of a decode step of `rows` rows are written to; `buckets`: the dense ratios."""
    require_known(expansions)
    targets = []
    if "kv_swa_index" in expansions:
        targets.append(Target("kv_swa_index", None, (rows, config.window_size)))
    for bucket in buckets if "kv_ca_index" in expansions else ():
        targets += [_dense_target(config, bucket, rows), Target("kv_ca_index_len", bucket, (rows,))]
    return targets


def _dense_target(config: _core.MetadataConfig, bucket: str, rows: int) -> Target:
    return Target("kv_ca_index", bucket, (rows, _core.dense_index_width(config.max_model_len, int(bucket))))


def _host_tensors(targets: Sequence[Target]) -> list[torch.Tensor]:
    if sum(target.size for target in targets) <= _NO_MATTER:
        return [allocate("int32", target.shape) for target in targets]
    available = available_bytes()
    for target in targets:
        if target.size > available:
            raise ExpansionTooLargeError(target.plan[0], target.size, available)
        available -= target.size
    return [allocate("int32", target.shape) for target in targets]


def device_tensors(targets: Sequence[Target], where: torch.device) -> list[torch.Tensor]:
    """New tensors on a GPU; ExpansionTooLargeError for one that it cannot hold.

    The allocator knows what is free: to ask the GPU first would take longer than the launches.
    """
    tensors: list[torch.Tensor] = []
    for target in targets:
        try:
            if target.size > torch.cuda.get_device_properties(where).total_memory:
                raise torch.cuda.OutOfMemoryError
            tensors.append(allocate("int32", target.shape, where))
        except torch.cuda.OutOfMemoryError:
            refusal = ExpansionTooLargeError(target.plan[0], target.size, device.available_bytes(where))
            raise refusal from None
    return tensors


def _missing_buckets(metadata: StepFields, expansions: Collection[str]) -> Iterator[str]:
    if metadata.klen is None and metadata.is_prompt:
        yield "klen"
    if "kv_ca_index" in expansions:
        for name in ("kv_ca_index", "kv_ca_index_len"):
            if getattr(metadata, name) is None:
                yield name


def _window_jobs(metadata: StepFields, config: _core.MetadataConfig, expansions: Collection[str]) -> Iterator[_Job]:
    """kv_swa_full_index of a prompt (F-PIVOT), kv_swa_index of a decode step (F-SWADEC): [rows, W]."""
    pivots, windows = metadata.kv_swa_full_index_pivots, metadata.kv_swa_index_offset_len
    if pivots is not None and metadata.kv_swa_full_index is None and "kv_swa_full_index" in expansions:
        pivots = _in_layout(metadata, pivots)
        index = Target("kv_swa_full_index", None, (pivots.shape[0], config.window_size))
        yield _Job((index,), partial(expand_pivots, pivots))
    if windows is not None and metadata.kv_swa_index is None and "kv_swa_index" in expansions:
        index = Target("kv_swa_index", None, (windows.shape[0], config.window_size))
        yield _Job((index,), partial(expand_ring, windows, config.swa_block_size))


def _bucket_jobs(metadata: StepFields, config: _core.MetadataConfig, missing: set[str]) -> Iterator[_Job]:
    """Dense expansions [rows, width] and lengths [rows] (F-CAOFF), and a prompt's klen [rows]."""
    has_dense = bool(missing & {"kv_ca_index", "kv_ca_index_len"})
    for bucket, full_ranges in (metadata.kv_ca_index_offset_len or {}).items() if has_dense else ():
        ranges = _in_layout(metadata, full_ranges)
        yield _dense_job(metadata, config, bucket, ranges, missing)
    if "klen" in missing:
        for bucket, ends in (metadata.ke or {}).items():
            klen = Target("klen", bucket, (ends.shape[0],))
            yield _Job((klen,), partial(_subtract, ends, (metadata.ks or {})[bucket]))


def _in_layout(metadata: StepFields, ranges: torch.Tensor) -> torch.Tensor:
    """The ranges of the container's rows: ranges stay in full layout where their expansions are mirrored (I-15).

    A padding row has empty ranges, which expand to -1 with length 0.
    """
    return ranges if metadata.mirror_cp_index is None else gather(ranges, metadata.mirror_cp_index, 0)


def _dense_job(
    metadata: StepFields, config: _core.MetadataConfig, bucket: str, ranges: torch.Tensor, missing: set[str]
) -> _Job:
    """Index and lengths in one pass; either alone when the other is there."""
    rows = ranges.shape[0]
    lens = Target("kv_ca_index_len", bucket, (rows,))
    if "kv_ca_index" not in missing:
        return _Job((lens,), partial(_copy, ranges[:, 1]))
    index = _dense_target(config, bucket, rows)
    tables, tokens_per_block = metadata.block_tables, config.block_size // int(bucket)
    write: Callable[..., None] = (
        partial(expand_offsets, ranges) if tables is None else partial(expand_blocks, ranges, tables, tokens_per_block)
    )
    return _Job((index, lens) if "kv_ca_index_len" in missing else (index,), write)


def _copy(source: torch.Tensor, tensor: torch.Tensor) -> None:
    tensor.copy_(source)


def _subtract(ends: torch.Tensor, begins: torch.Tensor, tensor: torch.Tensor) -> None:
    torch.sub(ends, begins, out=tensor)
