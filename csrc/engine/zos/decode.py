"""Stage three: the fields of a ZOS decode step, written by the metadata kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from engine import _core
from engine.container import InputMetadataV4
from engine.tensors import TensorView, table_columns, view_of
from engine.zos.buffers import get_or_create, get_or_create_stacked
from engine.zos.inputs import MetadataZOS

_DTYPES = {"int32": torch.int32, "bool": torch.bool}

_COPIED = ("cu_seqlens_q", "input_ids", "ngram_token_ids")
"""Fields that the host has made already; the last only with Engram."""

_KERNEL_ARRAYS = ("seqlens_q", "seqlens_k", "cu_seqlens_q", "state_ids", "is_placeholder", "block_tables")

_DECISIVE = ("block_size", "dense_ratios", "sparse_ratios", "window_size", "swa_block_size", "max_ngram_size")
"""What the preconditions of a step, and the bounds of what the kernel writes, depend on."""


def prepare_decode_v4_zos(
    metadata_zos: MetadataZOS,
    config: _core.MetadataConfig,
    out: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
) -> InputMetadataV4:
    """Every field of eager decode, with the same meaning; but cu_seqlens_q is inclusive, [n], and there is no
    cu_seqlens_k. Bucketed fields are rows of one buffer each (F-STACK); expansions are left to `compute_attn_info`.

    `out` maps flat keys ("klen.4") to captured buffers, which may have more rows than the step; the result has prefix
    views of them, nothing else is allocated, and no cell outside these views is written. `block_tables` may have more
    columns too (I-4): max_num_blocks is then their number. Keys that the path does not write are ignored.

    Raises, before anything is written, Int32Error (P-INT32) when the columns of `out` break the product bound of
    F-LIMIT; OutError (P-OUT, see `get_or_create` and `get_or_create_stacked`); ValueError when `config` is not the one
    of `metadata_zos`, or arrays of that were changed and do not agree any more; NotImplementedError for a device other
    than the host.
    """
    device = torch.device(device)
    if device.type != "cpu":
        raise NotImplementedError(f"ZOS decode on {device}")
    _require_same_engine(metadata_zos.config, config)
    columns = max(metadata_zos.max_num_blocks, table_columns(out) or 0)
    plain, stacks = _core.zos_outputs(config, metadata_zos.num_reqs, metadata_zos.total_q, columns)
    flat: dict[str, Any] = {key: get_or_create(key, size, _DTYPES[dtype], out, device) for key, dtype, size in plain}
    written = dict(flat)
    for name, keys, size in stacks:
        written[name], buckets = get_or_create_stacked(name, keys, size, torch.int32, out, device)
        flat.update((f"{name}.{key}", bucket) for key, bucket in buckets.items())
        if not buckets:
            flat[name] = {}
    sources = _copied_fields(metadata_zos, flat)
    _core.zos_decode(config, _kernel_arrays(metadata_zos), {name: view_of(tensor) for name, tensor in written.items()})
    for key, source in sources.items():
        flat[key].copy_(source)
    flat.update(num_reqs=metadata_zos.num_reqs, total_q=metadata_zos.total_q, is_prompt=False, max_num_blocks=columns)
    return InputMetadataV4.from_flatten_dict(flat)


def _require_same_engine(planned: _core.MetadataConfig, config: _core.MetadataConfig) -> None:
    if planned is config:
        return
    for name in _DECISIVE:
        if getattr(planned, name) != getattr(config, name):
            raise ValueError(f"{name} of the config is {getattr(config, name)}, the step was extracted with another")


def _copied_fields(metadata_zos: MetadataZOS, flat: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The host's own fields, checked before anything is written: a copy would broadcast and cast."""
    sources = {}
    for key in _COPIED:
        source = getattr(metadata_zos, key)
        if key not in flat:
            continue
        if source is None or source.shape != flat[key].shape or source.dtype != flat[key].dtype:
            raise ValueError(f"{key} of the extracted step is not {flat[key].dtype} {tuple(flat[key].shape)}")
        sources[key] = source
    return sources


def _kernel_arrays(metadata_zos: MetadataZOS) -> dict[str, TensorView]:
    arrays = {name: view_of(getattr(metadata_zos, name)) for name in _KERNEL_ARRAYS}
    offsets = metadata_zos.block_tables_offsets
    if not offsets.is_cpu or not offsets.is_contiguous() or offsets.dtype != torch.int64:
        raise ValueError("block_tables_offsets is not a contiguous int64 tensor in host memory")
    arrays["block_tables_offsets"] = (offsets.data_ptr(), offsets.shape, "int64")
    return arrays
