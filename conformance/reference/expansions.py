"""The expansions of chapters 5 and 6, made on demand from pivots, offsets and tables; -1 right of a row's keys."""

from __future__ import annotations

from inputmeta import oracle

from .arrays import Array, Arrays


def blank_tails(arrays: Arrays, index: Array, lengths: Array) -> None:
    """Writes -1 right of each row's length; leaves alone the rows that are full and the columns that every row has."""
    xp, width = arrays.xp, index.shape[1]
    if not arrays.host:
        index[:] = xp.where(arrays.arange(width) < lengths[:, None], index, -1)
        return
    short = arrays.where_true(lengths < width)
    if short.shape[0] == 0:
        return
    narrowest = int(xp.min(lengths[short]))
    columns = arrays.arange(width, narrowest)
    if short.shape[0] == lengths.shape[0]:
        index[:, narrowest:][columns >= lengths[:, None]] = -1
    else:
        index[short, narrowest:] = xp.where(columns < lengths[short][:, None], index[short, narrowest:], -1)


def kv_swa_full_index(arrays: Arrays, config: oracle.MetadataConfig, pivots: Array) -> Array:
    """F-PIVOT expanded, [rows, W]: history run, chunk run, -1."""
    history_begin, history_len, chunk_begin, chunk_len = (pivots[:, column] for column in range(4))
    key = arrays.arange(config.window_size)
    index = (chunk_begin - history_len)[:, None] + key
    rows = arrays.rows_where(history_len > 0)
    in_history = key < history_len[rows][:, None]
    index[rows] = arrays.xp.where(in_history, history_begin[rows][:, None] + key, index[rows])
    blank_tails(arrays, index, history_len + chunk_len)
    return index


def kv_swa_index(arrays: Arrays, config: oracle.MetadataConfig, offset_len: Array) -> Array:
    """F-SWADEC expanded, [rows, W]: ring slots from the window's first position on, wrapping once at most.

    The end of the last ring may lie past int32: the way to it is counted, not the cell.
    """
    ring = config.swa_block_size
    offset, length = offset_len[:, 0], offset_len[:, 1]
    key = arrays.arange(config.window_size)
    index = offset[:, None] + key
    ring_begin = offset // ring * ring
    before_wrap = ring - (offset - ring_begin)
    rows = arrays.rows_where(length > before_wrap)
    past_the_end = key - before_wrap[rows][:, None]
    index[rows] = arrays.xp.where(past_the_end < 0, index[rows], ring_begin[rows][:, None] + past_the_end)
    blank_tails(arrays, index, length)
    return index


def kv_ca_index_width(config: oracle.MetadataConfig, ratio: int) -> int:
    """Columns of `kv_ca_index[ratio]`: the longest compressed context, rounded up to 128."""
    return max(128, -(-(config.max_model_len // ratio) // 128) * 128)


def kv_ca_index(
    arrays: Arrays, config: oracle.MetadataConfig, ratio: int, offset_len: Array, block_tables: Array | None
) -> Array:
    """F-CAOFF expanded, [rows, width]: prompt offset + k; decode through the row's own block table; then -1."""
    width = kv_ca_index_width(config, ratio)
    if block_tables is None:
        index = offset_len[:, 0][:, None] + arrays.arange(width)
    else:
        index = slots_of_tables(arrays, block_tables, config.block_size // ratio, width)
    blank_tails(arrays, index, offset_len[:, 1])
    return index


def slots_of_tables(arrays: Arrays, tables: Array, per_block: int, width: int) -> Array:
    """F-CSLOT of compressed token k of each row's table in column k, [rows, width].

    Cells of blocks that the tables do not define, or have no column for, hold rubbish: they lie right of every length.
    A block has as many cells here as there are columns, not as many as it holds, which may be 2³¹ - 1.
    """
    rows = tables.shape[0]
    cells = min(per_block, width)
    blocks = min(tables.shape[1], -(-width // cells))
    known = (tables[:, :blocks] * per_block)[:, :, None] + arrays.arange(cells)
    index = arrays.xp.reshape(known, (rows, blocks * cells))
    if blocks * cells == width:
        return index
    wide = arrays.full((rows, width), -1)
    most = min(width, blocks * cells)
    wide[:, :most] = index[:, :most]
    return wide
