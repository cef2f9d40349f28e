"""Numpy reference of the expansions that `compute_attn_info` makes on demand (SPEC.md sections 5 and 6)."""

from __future__ import annotations

import numpy as np

from inputmeta import oracle

from .numpy_base import Fields, Int32s


def _array(fields: Fields, key: str) -> Int32s:
    """The int32 array `key` of `fields`."""
    value = fields[key]
    assert isinstance(value, np.ndarray)
    return value.astype(np.int32, copy=False)


def blank_tails(index: Int32s, lengths: Int32s) -> None:
    """Writes -1 right of each row's length; leaves alone the rows that are full and the columns that every row has."""
    width = index.shape[1]
    short = np.flatnonzero(lengths < width)
    if len(short) == 0:
        return
    narrowest = int(lengths[short].min())
    columns = np.arange(narrowest, width, dtype=np.int32)
    if len(short) == len(lengths):
        np.copyto(index[:, narrowest:], -1, where=columns >= lengths[:, None])
    else:
        index[short, narrowest:] = np.where(columns >= lengths[short, None], -1, index[short, narrowest:])


def kv_swa_full_index(config: oracle.MetadataConfig, prompt: Fields) -> Int32s:
    """F-PIVOT expanded, [total_q, W]: history run, chunk run, -1."""
    history_begin, history_len, chunk_begin, chunk_len = _array(prompt, "kv_swa_full_index_pivots").T
    key = np.arange(config.window_size, dtype=np.int32)
    index: Int32s = (chunk_begin - history_len)[:, None] + key
    rows = np.flatnonzero(history_len)
    index[rows] = np.where(key < history_len[rows, None], history_begin[rows, None] + key, index[rows])
    blank_tails(index, history_len + chunk_len)
    return index


def kv_swa_index(config: oracle.MetadataConfig, decode: Fields) -> Int32s:
    """F-SWADEC expanded, [total_q, W]: ring slots from the window's first position on, wrapping once at most."""
    ring = config.swa_block_size
    offset, length = _array(decode, "kv_swa_index_offset_len").T
    index: Int32s = offset[:, None] + np.arange(config.window_size, dtype=np.int32)
    ring_end = offset // ring * ring + ring
    rows = np.flatnonzero(offset + length > ring_end)
    wrapped = index[rows]
    wrapped -= (wrapped >= ring_end[rows, None]) * np.int32(ring)
    index[rows] = wrapped
    blank_tails(index, length)
    return index


def klen(prompt: Fields, ratio: int) -> Int32s:
    """`klen[r]` of a prompt, [total_q]: ke - ks."""
    return _array(prompt, f"ke.{ratio}") - _array(prompt, f"ks.{ratio}")


def kv_ca_index_width(config: oracle.MetadataConfig, ratio: int) -> int:
    """Columns of `kv_ca_index[ratio]`: the longest compressed context, rounded up to 128."""
    return max(128, -(-(config.max_model_len // ratio) // 128) * 128)


def kv_ca_index_len(fields: Fields, ratio: int) -> Int32s:
    """`kv_ca_index_len[ratio]`, [total_q]."""
    return np.ascontiguousarray(_array(fields, f"kv_ca_index_offset_len.{ratio}")[:, 1])


def kv_ca_index(config: oracle.MetadataConfig, fields: Fields, ratio: int) -> Int32s:
    """F-CAOFF expanded, [total_q, width]: prompt offset + k, decode through the row's own block table; then -1."""
    width = kv_ca_index_width(config, ratio)
    offset, length = _array(fields, f"kv_ca_index_offset_len.{ratio}").T
    index: Int32s = np.empty((len(length), width), dtype=np.int32)
    if "block_tables" not in fields:
        np.add(offset[:, None], np.arange(width, dtype=np.int32), out=index)
    else:
        _slots_of_tables(_array(fields, "block_tables"), config.block_size // ratio, index)
    blank_tails(index, length)
    return index


def _slots_of_tables(tables: Int32s, per_block: int, index: Int32s) -> None:
    """Writes ``tables[row, c // per_block] · per_block + c % per_block`` for every whole block that fits the columns.

    Cells of blocks that the tables do not define hold rubbish and lie right of every length.

    """
    rows, width = index.shape
    whole = min(tables.shape[1], width // per_block)
    view = index[:, : whole * per_block].reshape(rows, whole, per_block, copy=False)
    np.add((tables[:, :whole] * np.int32(per_block))[:, :, None], np.arange(per_block, dtype=np.int32), out=view)
    rest = index[:, whole * per_block :]
    if whole < tables.shape[1] and rest.shape[1] > 0:
        last = tables[:, whole, None] * np.int32(per_block)
        rest[:] = last + np.arange(rest.shape[1], dtype=np.int32)
