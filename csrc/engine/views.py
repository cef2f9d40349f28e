"""The two views of a truncated prompt step (section 8): the same step with some fields replaced, the others shared."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch

from inputmeta.engine.fields import StepFields
from inputmeta.engine.index_kernels import gather
from inputmeta.engine.mirror import NO_QUERY

_Fields = TypeVar("_Fields", bound=StepFields)

_COMPACT = {
    "total_q": "yoco_consumer_total_q",
    "cu_seqlens_q": "yoco_consumer_cu_seqlens_q",
    "query_indices": "yoco_consumer_query_indices",
    "positions": "yoco_consumer_positions",
    "slot_mapping_store_swa": "yoco_consumer_slot_mapping_store_swa",
    "kv_swa_full_index_pivots": "yoco_consumer_swa_index_pivots",
    "ks": "yoco_consumer_ks",
    "ke": "yoco_consumer_ke",
    "kv_ca_index_offset_len": "yoco_consumer_kv_ca_index_offset_len",
}
"""Field of the consumer view -> the field it is taken from (F-COMPACT)."""

_MIRRORED = {
    "cp_mirror_len": "yoco_consumer_cp_mirror_len",
    "mirror_cp_index": "yoco_consumer_mirror_cp_index",
    "mirror_cp_reverse_index": "yoco_consumer_mirror_cp_reverse_index",
    "ks": "yoco_consumer_mirror_ks",
    "ke": "yoco_consumer_mirror_ke",
}
"""The same for the second mirror (F-CONTRIB)."""

# Derived from fields that the view replaces; the last two are caches for a number of rows.
_CLEARED = (
    "kv_ca_index",
    "kv_ca_index_len",
    "klen",
    "kv_swa_full_index",
    "mlp_relu_schedule_metadata",
    "flash_mla_sched_meta_dict",
)


def mask_view(metadata: _Fields) -> _Fields:
    """`InputMetadataV4.get_mask_view`."""
    if metadata.yoco_mask_swa_index_pivots is None:
        raise ValueError('a mask view needs a prompt step that was prepared with yoco_mode "mask"')
    view = copy.copy(metadata)
    view.kv_swa_full_index_pivots = metadata.yoco_mask_swa_index_pivots
    view.kv_swa_full_index = None
    return view


def consumer_view(metadata: _Fields) -> _Fields:
    """`InputMetadataV4.get_consumer_view`."""
    if metadata.yoco_consumer_query_indices is None:
        raise ValueError('a consumer view needs a prompt step that was prepared with yoco_mode "compact"')
    if metadata.query_indices is metadata.yoco_consumer_query_indices or _has_second_mirror(metadata):
        raise ValueError("this is a consumer view already")
    view = copy.copy(metadata)
    _replace(view, _COMPACT)
    view.valid_token_mask = _valid_kept_rows(metadata)
    view.gate_force_random = kept_rows(metadata, metadata.gate_force_random)
    if metadata.yoco_consumer_mirror_cp_index is not None:
        _mirror(view, metadata.yoco_consumer_mirror_cp_index)
    for name in _CLEARED:
        setattr(view, name, None)
    return view


def kept_rows(metadata: StepFields, flags: torch.Tensor | None) -> torch.Tensor | None:
    """The kept rows [yoco_consumer_total_q] of flags [total_q] of the full layout; without rows one, false."""
    rows = metadata.yoco_consumer_query_indices
    if flags is None or rows is None:
        return flags
    if metadata.yoco_consumer_total_q == 0:
        return torch.zeros(1, dtype=torch.bool, device=flags.device)
    return gather(flags, rows, False)


def _replace(view: StepFields, names: dict[str, str]) -> None:
    for name, source in names.items():
        setattr(view, name, getattr(view, source))


def _mirror(view: StepFields, index: torch.Tensor) -> None:
    """The second mirror, on the compact layout that `view` has by now."""
    _replace(view, _MIRRORED)
    view.positions_cp = view.positions
    view.positions = _gathered(view.positions, index, 0)
    view.query_indices = _gathered(view.query_indices, index, NO_QUERY)
    view.valid_token_mask = _gathered(view.valid_token_mask, index, False)
    view.gate_force_random_cp = _gathered(view.gate_force_random, index, False)


def _gathered(source: torch.Tensor | None, index: torch.Tensor, padding: int) -> torch.Tensor | None:
    return None if source is None else gather(source, index, padding)


def _has_second_mirror(metadata: StepFields) -> bool:
    second = metadata.yoco_consumer_mirror_cp_index
    return second is not None and metadata.mirror_cp_index is second


def _valid_kept_rows(metadata: StepFields) -> torch.Tensor | None:
    """F-MASK for the kept rows, [yoco_consumer_total_q] bool, whether or not the full layout has been mirrored.

    A mirrored mask has this rank's rows only. The ring slots stay in full layout, and tell the same: a placeholder
    stores nothing, and of any other sequence the last row is always stored (F-RING).
    """
    slots, ends, kept = metadata.slot_mapping_store_swa, metadata.cu_seqlens_q, metadata.yoco_consumer_cu_seqlens_q
    if slots is None or ends is None or kept is None:
        return None
    if metadata.yoco_consumer_total_q == 0:
        return torch.zeros(1, dtype=torch.bool, device=slots.device)
    stores = slots[ends[1:] - 1] >= 0  # of a sequence without rows: another's, repeated 0 times
    # With the sum given, a GPU need not be waited for.
    return torch.repeat_interleave(stores, kept.diff(), output_size=metadata.yoco_consumer_total_q)
