"""Rows without a query: the neutral row (I-3, I-14), and the padding of layouts that gather rows (I-8)."""

from __future__ import annotations

from inputmeta import oracle

from .arrays import Array, Arrays
from .common import NO_SEQUENCE

NEUTRAL = {
    "query_indices": NO_SEQUENCE,
    "slot_mapping_store_swa": -1,
    "slot_mapping_store_ca": -1,
    "kv_swa_full_index": -1,
    "kv_swa_index": -1,
    "kv_ca_index": -1,
    "mirror_cp_index": -1,
    "mirror_cp_reverse_index": -1,
    "yoco_consumer_query_indices": NO_SEQUENCE,
    "yoco_consumer_slot_mapping_store_swa": -1,
    "yoco_consumer_mirror_cp_index": -1,
    "yoco_consumer_mirror_cp_reverse_index": -1,
    "yoco_cp_contrib_index": -1,
    "yoco_cp_boundary_index": -1,
}
"""Cells of a row without a query, by field name; 0 or false in all other fields, `pad_token` in n-grams."""


def neutral_cell(config: oracle.MetadataConfig, key: str) -> int:
    """Every cell of a row without a query of the field with this flat key."""
    name = key.partition(".")[0]
    return config.pad_token if name == "ngram_token_ids" else NEUTRAL.get(name, 0)


def with_neutral_row(arrays: Arrays, config: oracle.MetadataConfig, key: str, values: Array) -> Array:
    """I-3: one neutral row instead of none."""
    if values.shape[0] > 0:
        return values
    shape = (1, *values.shape[1:])
    if arrays.is_flags(values):
        return arrays.flags(shape, False)
    return arrays.full(shape, neutral_cell(config, key))


def gathered(arrays: Arrays, config: oracle.MetadataConfig, key: str, values: Array, index: Array) -> Array:
    """``values[index]``, and a neutral row wherever the index is -1 (I-8)."""
    if values.shape[0] == 0:
        return values
    padding = index < 0
    rows = arrays.take(values, arrays.at_least(index, 0))
    rows[padding] = False if arrays.is_flags(values) else neutral_cell(config, key)
    return rows
