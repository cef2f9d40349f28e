"""Chapter 8, the two views of one container: which fields a view swaps, and which it clears (I-23).

A view is a shallow copy: what it does not name is shared, so nothing of it may be written in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .fields import FIELDS
from .units import NO_SLOT

Content = TypeVar("Content")
Plain = Any
"""A field of plain values: a scalar, or a list with an entry a row."""


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
"""With cp_size > 1, before what a row has is gathered by the consumer mirror."""

GATHERED = ("positions", "query_indices", "valid_token_mask")
"""Fields of the consumer view that the consumer mirror gathers (I-8, I-23)."""


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


def consumer_view(fields: Mapping[str, Plain], full_mask: Sequence[bool]) -> dict[str, Plain]:
    """``get_consumer_view``: the compact fields in place; under CP those of the mirrored compact layout (I-23).

    ``fields``: a compact container's flat dict, scalars and lists of rows. ``full_mask``: valid_token_mask of the full
    layout, a cell a sequence's row; the container's own is mirrored under CP. I-24: ``query_indices`` of the view holds
    global rows, a placeholder's too.

    >>> view = consumer_view({"total_q": 3, "yoco_consumer_total_q": 2, "positions": [0, 1, 2],
    ...                       "yoco_consumer_positions": [1, 2], "query_indices": [0, 0, 998244353],
    ...                       "yoco_consumer_query_indices": [1, 2], "gate_force_random": [True] * 3},
    ...                      full_mask=[True, True, False])
    >>> view["total_q"], view["positions"], view["query_indices"], view["valid_token_mask"], view["gate_force_random"]
    (2, [1, 2], [1, 2], [True, False], [True, True])
    """
    mirrored = "yoco_consumer_cp_mirror_len" in fields
    view = view_of(fields, CONSUMER_MIRROR_VIEW if mirrored else CONSUMER_VIEW)
    kept = fields["yoco_consumer_query_indices"] if fields["yoco_consumer_total_q"] else [NO_SLOT]
    view["valid_token_mask"] = gathered(full_mask, kept, neutral=False)
    view["gate_force_random"] = gathered(fields["gate_force_random"], kept, neutral=False)
    if mirrored:
        index = view["mirror_cp_index"]
        for name in GATHERED:
            view[name] = gathered(view[name], index, neutral=FIELDS[name].neutral)
        view["gate_force_random_cp"] = gathered(view["gate_force_random"], index, neutral=False)
    return view


def gathered(rows: Sequence[Plain], index: Sequence[int], *, neutral: Plain) -> list[Plain]:
    """The rows that ``index`` names; the neutral cell for -1.

    >>> gathered([10, 11, 12], [2, -1, 0], neutral=0)
    [12, 0, 10]
    """
    return [neutral if place < 0 else rows[place] for place in index]


def image_mask(fields: Mapping[str, Plain]) -> list[bool]:
    """``images_seq_mask`` (VL): the caller's, and under CP that of the mirrored rows, padding false.

    >>> image_mask({"images_seq_mask_full": [True, False, True], "mirror_cp_index": [2, -1], "images_seq_mask": []})
    [True, False]
    >>> image_mask({"images_seq_mask": [True, False]})
    [True, False]
    """
    if "mirror_cp_index" not in fields:
        return list(fields["images_seq_mask"])
    return gathered(fields["images_seq_mask_full"], fields["mirror_cp_index"], neutral=False)


def consumer_image_mask(fields: Mapping[str, Plain]) -> list[bool]:
    """``images_seq_mask`` of the consumer view: the full mask's kept rows, gathered by the consumer mirror under CP.

    >>> full = {"yoco_consumer_total_q": 2, "yoco_consumer_query_indices": [1, 2]}
    >>> consumer_image_mask(full | {"images_seq_mask": [False, False, True]})
    [False, True]
    >>> mirrored = {"images_seq_mask_full": [False, False, True], "yoco_consumer_mirror_cp_index": [-1, 1]}
    >>> consumer_image_mask(full | mirrored)
    [False, True]
    """
    mask = fields["images_seq_mask_full" if "yoco_consumer_mirror_cp_index" in fields else "images_seq_mask"]
    kept = fields["yoco_consumer_query_indices"] if fields["yoco_consumer_total_q"] else [NO_SLOT]
    compact = gathered(mask, kept, neutral=False)
    if "yoco_consumer_mirror_cp_index" not in fields:
        return compact
    return gathered(compact, fields["yoco_consumer_mirror_cp_index"], neutral=False)
