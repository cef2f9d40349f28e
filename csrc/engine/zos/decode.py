"""Stage three: the fields of a ZOS decode step, written by the metadata kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from inputmeta.engine import _core
from inputmeta.engine.container import InputMetadataV4
from inputmeta.engine.device import HOST, device_from
from inputmeta.engine.expansion import decode_targets
from inputmeta.engine.tensors import prefix_for, table_columns, view_of
from inputmeta.engine.zos.buffers import get_or_create, get_or_create_stacked
from inputmeta.engine.zos.captured import DTYPES, ZosBuffers
from inputmeta.engine.zos.gather import require_sources_apart
from inputmeta.engine.zos.inputs import MetadataZOS, step_views

_KERNEL_ARRAYS = (
    *("seqlens_q", "seqlens_k", "cu_seqlens_q", "state_ids", "is_placeholder", "block_tables", "input_ids"),
    "ngram_token_ids",
)


def prepare_decode_v4_zos(
    metadata_zos: MetadataZOS,
    config: _core.MetadataConfig,
    out: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
    *,
    expansions: Collection[str] = (),
) -> InputMetadataV4:
    """Every field of eager decode, with the same meaning; but cu_seqlens_q is inclusive, [n], and there is no
    cu_seqlens_k. Bucketed fields are rows of one buffer each (F-STACK). `expansions` are made with them, in the buffers
    of `out` if that is given; others are left to `compute_attn_info`, which takes launches of its own.

    `out` maps flat keys ("klen.4") to captured buffers, which may have more rows than the step; the result has prefix
    views of them, no other field is allocated, and no cell outside these views is written. `block_tables` may have more
    columns too (I-4): max_num_blocks is then their number. Keys that the path does not write are ignored. `ZosBuffers`
    are such buffers, checked once instead of at each step.

    A step that `prepare_decode_inputs_zos_varlen` has made shorter keeps its total_q rows; those past its last sum are
    neutral (F-TAIL). With `remap` the token ids of sequences that go on are gathered from the last step (F-GATHER).

    On a GPU, one kernel is launched on torch's current stream of `device`, and nothing is waited for. A step that
    lies in host memory goes over first, by one asynchronous copy into new memory; while a CUDA graph captures the
    stream it must lie on the GPU already. What its arrays hold is not checked there: nothing outside of them and of the
    result is read or written, and where they do not agree cells are not defined.

    Raises, before anything is written, Int32Error (P-INT32) when the columns of `out` break the product bound of
    F-LIMIT; OutError (P-OUT, see `get_or_create` and `get_or_create_stacked`); ValueError when `config` is not the one
    of `metadata_zos`, or, in host memory, arrays of that were changed and do not agree any more; RuntimeError when
    there is no GPU, or for a step in host memory during a capture, or when CUDA refuses a launch;
    ExpansionTooLargeError as `compute_attn_info` does.
    """
    if isinstance(out, ZosBuffers) and out.is_on(device):
        return out.write(metadata_zos, config, expansions)
    device = device_from(device)
    if device.type == "cuda":
        metadata_zos.require_engine(config)
        buffers = ZosBuffers.for_step(metadata_zos, config, out, device, expansions)
        return buffers.write(metadata_zos, config, expansions)
    metadata = _write_on_host(metadata_zos, config, out, expansions)
    if expansions:
        metadata.compute_attn_info(config, out, expansions=expansions)
    return metadata


def _write_on_host(
    metadata_zos: MetadataZOS,
    config: _core.MetadataConfig,
    out: Mapping[str, Any] | None,
    expansions: Collection[str],
) -> InputMetadataV4:
    metadata_zos.require_engine(config)
    columns = max(metadata_zos.max_num_blocks, table_columns(out) or 0)
    total_q = metadata_zos.total_q
    plain, stacks = _core.zos_outputs(config, metadata_zos.num_reqs, total_q, columns)
    flat: dict[str, Any] = {key: get_or_create(key, size, DTYPES[dtype], out, "cpu") for key, dtype, size in plain}
    written = dict(flat)
    for name, keys, size in stacks:
        written[name], buckets = get_or_create_stacked(name, keys, size, torch.int32, out, "cpu")
        flat.update((f"{name}.{key}", bucket) for key, bucket in buckets.items())
        if not buckets:
            flat[name] = {}
    dense = next(keys for name, keys, _ in stacks if name == "kv_ca_index_offset_len")
    for target in decode_targets(config, dense, max(1, total_q), expansions):
        if out is not None:
            prefix_for(target.plan, out)  # refused before anything is written
    views = {name: view_of(tensor) for name, tensor in written.items()}
    sources = metadata_zos.sources(HOST)
    require_sources_apart(metadata_zos, sources, flat)
    arrays = step_views(metadata_zos, sources, _KERNEL_ARRAYS)
    _core.zos_decode(config, arrays, views, total_q)
    flat.update(num_reqs=metadata_zos.num_reqs, total_q=total_q, is_prompt=False, max_num_blocks=columns)
    return InputMetadataV4.from_flatten_dict(flat)
