"""Chapter 8, the two views of one container: which fields a view swaps, and which it clears (I-23).

A view is a shallow copy: what it does not name is shared, so nothing of it may be written in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Content = TypeVar("Content")


@dataclass(frozen=True)
class View:
    """``swaps``: name in the view -> the field that stands there; ``cleared``: names to be expanded again on demand."""

    swaps: Mapping[str, str]
    cleared: tuple[str, ...]


MASK_VIEW = View(
    swaps={"kv_swa_full_index_pivots": "yoco_mask_swa_index_pivots"},
    cleared=("kv_swa_full_index",),
)

CONSUMER_VIEW = View(
    swaps={
        "total_q": "yoco_consumer_total_q",
        "cu_seqlens_q": "yoco_consumer_cu_seqlens_q",
        "query_indices": "yoco_consumer_query_indices",
        "positions": "yoco_consumer_positions",
        "slot_mapping_store_swa": "yoco_consumer_slot_mapping_store_swa",
        "ks": "yoco_consumer_ks",
        "ke": "yoco_consumer_ke",
        "kv_ca_index_offset_len": "yoco_consumer_kv_ca_index_offset_len",
        "kv_swa_full_index_pivots": "yoco_consumer_swa_index_pivots",
    },
    cleared=("kv_ca_index", "kv_ca_index_len", "klen", "kv_swa_full_index"),
)

CONSUMER_MIRROR_VIEW = View(
    swaps={
        **CONSUMER_VIEW.swaps,
        "positions_cp": "yoco_consumer_positions",
        "cp_mirror_len": "yoco_consumer_cp_mirror_len",
        "mirror_cp_index": "yoco_consumer_mirror_cp_index",
        "mirror_cp_reverse_index": "yoco_consumer_mirror_cp_reverse_index",
        "ks": "yoco_consumer_mirror_ks",
        "ke": "yoco_consumer_mirror_ke",
    },
    cleared=CONSUMER_VIEW.cleared,
)
"""With cp_size > 1. ``positions`` and ``query_indices`` are then the compact ones, which the view's own
``mirror_cp_index`` gathers. ``gate_force_random`` and ``valid_token_mask`` of the kept rows are no fields of the flat
dict: a view makes them."""


def view_of(fields: Mapping[str, Content], view: View) -> dict[str, Content]:
    """A view of a container's flat dict: swapped fields under their new names, cleared ones gone, the rest shared.

    >>> view_of({"ks.4": 1, "yoco_consumer_ks.4": 2, "klen.4": 3, "input_ids": 4}, CONSUMER_VIEW)
    {'ks.4': 2, 'yoco_consumer_ks.4': 2, 'input_ids': 4}
    """
    result = {}
    for key, content in fields.items():
        name, dot, bucket = key.partition(".")
        source = view.swaps.get(name)
        if name in view.cleared:
            continue
        result[key] = content if source is None else fields[f"{source}{dot}{bucket}"]
    return result


def mask_view(fields: Mapping[str, Content]) -> dict[str, Content]:
    """``get_mask_view``: the pivots swapped for the mask ones, the expanded window index cleared.

    >>> mask_view({"kv_swa_full_index_pivots": 1, "kv_swa_full_index": 2, "yoco_mask_swa_index_pivots": 3})
    {'kv_swa_full_index_pivots': 3, 'yoco_mask_swa_index_pivots': 3}
    """
    return view_of(fields, MASK_VIEW)


def consumer_view(fields: Mapping[str, Content]) -> dict[str, Content]:
    """``get_consumer_view``: the compact fields in place; under CP those of the mirrored compact layout.

    >>> consumer_view({"total_q": 7, "yoco_consumer_total_q": 5, "cp_mirror_len": 8})
    {'total_q': 5, 'yoco_consumer_total_q': 5, 'cp_mirror_len': 8}
    """
    with_cp = "yoco_consumer_cp_mirror_len" in fields
    return view_of(fields, CONSUMER_MIRROR_VIEW if with_cp else CONSUMER_VIEW)
