"""The context parallel mirror of a prompt step (section 7): which rows a rank has, and which fields move with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from inputmeta.engine import _core
from inputmeta.engine.copying import copy_tensors
from inputmeta.engine.device import HOST, device_of, sent, target_from
from inputmeta.engine.errors import OutError
from inputmeta.engine.fields import StepFields
from inputmeta.engine.index_kernels import gather
from inputmeta.engine.tensors import FieldPlan, tensor_for, view_of

NO_QUERY = 998244353
"""query_indices of a row that no sequence owns: any indexing with it faults, where -1 would read."""


class CpMirror(NamedTuple):
    """One rank's share of a prompt step, all int32; one neutral row when there are no rows (I-3)."""

    # [mirror_len]: global row of each mirrored row, -1 for padding (F-ZIGZAG).
    mirror_cp_index: torch.Tensor
    # [total_q]: where each global row lies in the mirrors of all ranks laid end to end (F-REVERSE).
    mirror_cp_reverse_index: torch.Tensor
    # A tensor [mirror_len] a ratio, rows of the loaded history: begin and end of the keys a row may see (F-MIRRORKS).
    ks: dict[str, torch.Tensor]
    ke: dict[str, torch.Tensor]

    def to(self, device: torch.device | str) -> CpMirror:
        """The share on a device, by copies, asynchronous to a GPU; tensors that are there already are not copied."""
        device = target_from(device)
        index, reverse_index = (sent(tensor, device) for tensor in self[:2])
        ks, ke = ({key: sent(tensor, device) for key, tensor in bounds.items()} for bounds in self[2:])
        return CpMirror(index, reverse_index, ks, ke)

    def flat(self) -> dict[str, torch.Tensor]:
        """All tensors by flat key ("ks.4")."""
        bounds = {f"{name}.{key}": tensor for name in ("ks", "ke") for key, tensor in getattr(self, name).items()}
        return {
            "mirror_cp_index": self.mirror_cp_index,
            "mirror_cp_reverse_index": self.mirror_cp_reverse_index,
            **bounds,
        }


def prepare_cp_mirror(  # noqa: PLR0917 - the engines' own order of arguments
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    cp_size: int,
    cp_rank: int,
    ratios: Sequence[int],
    total_q: int,
    mirror_len: int,
    out: Mapping[str, Any] | None = None,
) -> CpMirror:
    """The mirror of the chunks that `cu_seqlens_q` and `cu_seqlens_k` ([n + 1] int32, leading 0) bound.

    The keys are those of the whole sequences even where `cu_seqlens_q` counts kept rows only: a row's position is
    seqlen_k - seqlen_q + its row in the chunk. `total_q` and `mirror_len` must be what the boundaries make them, else
    ValueError. `out`: as in the prepare calls, with keys mirror_cp_index, mirror_cp_reverse_index, ks.r and ke.r.

    Without ratios there are no key ranges: the pass over (1,) that a kernel needs for its grid has its result dropped,
    so there is none here.
    """
    share = _allocate_mirror(ratios, total_q, mirror_len, out)
    _fill_mirror(cu_seqlens_q, cu_seqlens_k, cp_size, cp_rank, share)
    return share


@dataclass(frozen=True)
class GatheredField:
    """A field of which `mirror` gathers the rows.

    `source` is gathered into `target`; padding rows hold `padding` (None: the pad token); what `source` was is kept as
    `original`, if that has a name.
    """

    source: str
    target: str
    padding: int | None
    original: str | None = None


GATHERED = (
    GatheredField("positions", "positions", 0, original="positions_cp"),
    GatheredField("ngram_token_ids", "ngram_token_ids", None),
    GatheredField("gate_force_random", "gate_force_random_cp", False),  # later views gather it by global rows
    GatheredField("valid_token_mask", "valid_token_mask", False),  # I-2: index is not -1, and no placeholder's
    GatheredField("query_indices", "query_indices", NO_QUERY),
    GatheredField("kv_swa_full_index", "kv_swa_full_index", -1),
    GatheredField("kv_ca_index", "kv_ca_index", -1),
    GatheredField("kv_ca_index_len", "kv_ca_index_len", 0),
    GatheredField("klen", "klen", 0),
)
"""The query-aligned fields of `InputMetadataV4` (I-15). Key ranges are not gathered but made anew."""


@dataclass(frozen=True)
class _Move:
    """One tensor to gather: where it comes from, and the attribute and bucket (None: a plain field) it becomes."""

    source: torch.Tensor
    padding: int
    target: str
    bucket: str | None

    @property
    def key(self) -> str:
        return self.target if self.bucket is None else f"{self.target}.{self.bucket}"

    def plan(self, rows: int, device: torch.device) -> FieldPlan:
        return self.key, view_of(self.source, device)[2], (rows, *self.source.shape[1:])


def mirror(
    metadata: StepFields,
    config: _core.MetadataConfig,
    out: Mapping[str, Any] | None,
    gathered: Sequence[GatheredField],
    given: CpMirror | None = None,
) -> dict[str, Any]:
    """The attributes that mirroring sets. Raises before it writes; see `InputMetadataV4.prepare_for_mirror_cp`."""
    cu_seqlens_q, cu_seqlens_k = metadata.cu_seqlens_q, metadata.cu_seqlens_k
    if cu_seqlens_q is None or cu_seqlens_k is None or metadata.cp_mirror_len is None:
        raise ValueError("the mirror needs cu_seqlens_q, cu_seqlens_k and cp_mirror_len of a prompt step")
    device = device_of(metadata.positions)
    ratios = [int(bucket) for bucket in metadata.ks or {}]
    share = _share_to_write(ratios, metadata, out, device, given)
    index = share.mirror_cp_index
    moves = list(_moves(metadata, config, gathered))
    tensors = [tensor_for(move.plan(index.shape[0], device), out, device) for move in moves]
    if out is not None:
        # The share too, key ranges among it: it is written before the fields are gathered.
        written = {**share.flat(), **{move.key: tensor for move, tensor in zip(moves, tensors, strict=True)}}
        _require_apart(written, [cu_seqlens_q, cu_seqlens_k, *(move.source for move in moves)])
    if given is None:
        _fill_mirror(cu_seqlens_q, cu_seqlens_k, config.cp_size, config.cp_rank, share)
    elif share is not given:
        copy_tensors(share.flat(), given.flat())

    made: dict[str, Any] = {"mirror_cp_index": index, "mirror_cp_reverse_index": share.mirror_cp_reverse_index}
    if metadata.ks is not None:
        made.update(ks=share.ks, ke=share.ke)
    for move, tensor in zip(moves, tensors, strict=True):
        gather(move.source, index, move.padding, tensor)
        if move.bucket is None:
            made[move.target] = tensor
        else:
            made.setdefault(move.target, {})[move.bucket] = tensor
    made.update((field.original, getattr(metadata, field.source)) for field in gathered if field.original is not None)
    return made


def _share_to_write(
    ratios: Sequence[int],
    metadata: StepFields,
    out: Mapping[str, Any] | None,
    device: torch.device,
    given: CpMirror | None,
) -> CpMirror:
    """The share that the step will have: new tensors or those of `out`, or just the one that was given.

    ValueError when none was given to a step on a GPU, or one that is not this step's.
    """
    if given is None and device != HOST:
        raise ValueError("a step on a GPU needs its share: prepare_cp_mirror on the host, then CpMirror.to")
    if given is not None:
        _require_share(given, ratios, metadata, device)
        if out is None:
            return given
    return _allocate_mirror(ratios, metadata.total_q, metadata.cp_mirror_len or 0, out, device)


def _require_share(given: CpMirror, ratios: Sequence[int], metadata: StepFields, device: torch.device) -> None:
    rows = max(1, metadata.cp_mirror_len or 0)
    keys = [f"{name}.{ratio}" for name in ("ks", "ke") for ratio in ratios]
    sizes = {
        "mirror_cp_index": rows,
        "mirror_cp_reverse_index": max(1, metadata.total_q),
        **dict.fromkeys(keys, rows),
    }
    flat = given.flat()
    if flat.keys() != sizes.keys():
        raise ValueError(f"the share has {sorted(flat)}, the step needs {sorted(sizes)}")
    for key, size in sizes.items():
        _, shape, dtype = view_of(flat[key], device)
        if dtype != "int32" or shape != (size,):
            raise ValueError(f"{key} of the share is {dtype} {tuple(shape)}, the step needs int32 ({size},)")


def _moves(metadata: StepFields, config: _core.MetadataConfig, gathered: Sequence[GatheredField]) -> Iterator[_Move]:
    for field in gathered:
        value = getattr(metadata, field.source)
        padding = config.pad_token if field.padding is None else field.padding
        if isinstance(value, dict):
            for bucket, tensor in value.items():
                yield _Move(tensor, padding, field.target, bucket)
        elif value is not None:
            yield _Move(value, padding, field.target, None)


def _allocate_mirror(
    ratios: Sequence[int],
    total_q: int,
    mirror_len: int,
    out: Mapping[str, Any] | None,
    device: torch.device = HOST,
) -> CpMirror:
    rows = max(1, mirror_len)
    ranges = {
        name: {str(ratio): tensor_for((f"{name}.{ratio}", "int32", (rows,)), out, device) for ratio in ratios}
        for name in ("ks", "ke")
    }
    return CpMirror(
        mirror_cp_index=tensor_for(("mirror_cp_index", "int32", (rows,)), out, device),
        mirror_cp_reverse_index=tensor_for(("mirror_cp_reverse_index", "int32", (max(1, total_q),)), out, device),
        **ranges,
    )


def _fill_mirror(
    cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, cp_size: int, cp_rank: int, share: CpMirror
) -> None:
    ranges = [(int(ratio), view_of(share.ks[ratio]), view_of(share.ke[ratio])) for ratio in share.ks]
    _core.fill_mirror(
        view_of(cu_seqlens_q),
        view_of(cu_seqlens_k),
        cp_size,
        cp_rank,
        view_of(share.mirror_cp_index),
        view_of(share.mirror_cp_reverse_index),
        ranges,
    )


def _require_apart(written: Mapping[str, torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Refuses (P-OUT) a tensor that shares memory with what is read: `out` of the prepare call, given once more."""
    occupied = [_extent(source) for source in sources]
    for key, tensor in written.items():
        begin, end = _extent(tensor)
        if any(begin < other_end and other_begin < end for other_begin, other_end in occupied):
            raise OutError(None, key, "memory of the full layout", "shares no memory with the fields that are gathered")


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of a contiguous tensor's first byte and of the byte past its last."""
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
