"""The entry: every field of a step as an array, by its flat key."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import array_api_compat.numpy
import numpy as np

from inputmeta import oracle

from . import common, compressed, expansions, key_ranges, tables, truncation, window
from .arrays import Array, Arrays
from .batch import Batch, read_batch
from .layouts import gathered, with_neutral_row
from .mirror import Zigzag, mirror_length, zigzag

Value = Array | int | bool
Fields = dict[str, Value]
"""Flat key (``klen.4``) -> int32 or bool array, or a plain scalar."""

EXPANSIONS = ("kv_swa_full_index", "kv_swa_index", "kv_ca_index")
"""What is made on demand; ``kv_ca_index_len`` goes with ``kv_ca_index``."""


@dataclass(frozen=True)
class Expected:
    """What the fields of one step should hold, and which cells of them are defined."""

    batch: Batch
    fields: Fields

    def defined(self, key: str) -> Array | None:
        """Which cells of a field are defined, bool of its shape; None: all. Only `block_tables` has others."""
        if key != "block_tables":
            return None
        return tables.defined_cells(self.batch, int(self.fields["max_num_blocks"]))


def expected(
    path: oracle.Path,
    sequences: Sequence[oracle.SequenceMetadata],
    config: oracle.MetadataConfig,
    *,
    xp: ModuleType = array_api_compat.numpy,
    device: object = None,
    expand: Collection[str] = EXPANSIONS,
    gather: oracle.GatherInputs | None = None,
    max_num_blocks: int | None = None,
) -> Expected:
    """Every field of a valid step, with the oracle's keys, shapes and dtypes; no precondition is checked.

    `xp`: an array API namespace (``array_api_compat.numpy``, ``array_api_compat.torch``), `device` where it makes its
    arrays. `expand`: which of EXPANSIONS to make. `gather`: inputs of F-GATHER (``decode_zos`` only).
    `max_num_blocks`: columns of a caller's wider block_tables (decode).
    """
    batch = read_batch(path, sequences, config, Arrays.of(xp, device))
    arrays = batch.arrays
    rows: dict[str, Array] = {
        "positions": batch.positions,
        "input_ids": common.input_ids(batch, gather),
        "gate_force_random": arrays.flags((batch.total_q,), config.force_load_balance),
        "valid_token_mask": batch.stores,
        "query_indices": common.query_indices(batch),
        **common.cu_seqlens(batch),
    }
    if config.max_ngram_size > 0:
        rows["ngram_token_ids"] = common.ngram_token_ids(batch)
    scalars: dict[str, int | bool] = {
        "num_reqs": batch.n_seq,
        "total_q": batch.total_q,
        "is_prompt": path == "prompt",
    }
    if path == "prompt":
        add_prompt(batch, rows, scalars, expand)
    else:
        add_decode(batch, rows, scalars, expand, max_num_blocks)
    return Expected(batch, {**scalars, **{k: with_neutral_row(arrays, config, k, v) for k, v in rows.items()}})


def add_decode(
    batch: Batch,
    rows: dict[str, Array],
    scalars: dict[str, int | bool],
    expand: Collection[str],
    max_num_blocks: int | None,
) -> None:
    """The fields of a decode step, eager or ZOS: chapters 3 to 6."""
    columns = tables.columns(batch, max_num_blocks)
    scalars["max_num_blocks"] = columns
    rows["block_tables"] = tables.block_tables(batch, columns)
    rows["context_lens"] = batch.positions + 1
    rows["state_block_idx"] = batch.rows(batch.state_id)
    rows.update(window.decode_ring(batch))
    for ratio in batch.ratios:
        put_bucket(rows, ratio, compressed.decode_rows(batch, ratio))
    for ratio in batch.sparse:
        rows[f"klen.{ratio}"] = key_ranges.visible(batch, ratio)
    for ratio in batch.dense:
        rows[f"kv_ca_index_offset_len.{ratio}"] = key_ranges.decode_offsets(batch, ratio, columns)
    if "kv_swa_index" in expand:
        rows.update(expand_window(batch.arrays, batch.config, rows))
    if "kv_ca_index" in expand:
        rows.update(expand_compressed(batch.arrays, batch.config, rows))


def add_prompt(batch: Batch, rows: dict[str, Array], scalars: dict[str, int | bool], expand: Collection[str]) -> None:
    """The fields of a prompt step: chapters 3 and 5 to 8."""
    config = batch.config
    scalars["total_k_swa"] = batch.n_seq * config.window_size
    scalars["cp_mirror_len"] = mirror_length(batch.seqlen_q, config.cp_size)
    rows["state_block_idx"] = batch.arrays.int32s(batch.state_id)
    rows["slot_mapping_store_swa"] = window.prompt_ring_slots(batch)
    rows["load_segments_swa"] = window.load_segments(batch)
    rows["kv_swa_full_index_pivots"] = window.pivots(batch, window.all_rows(batch))
    for ratio in batch.ratios:
        put_bucket(rows, ratio, compressed.prompt_rows(batch, ratio))
        rows[f"load_segments_ca.{ratio}"] = key_ranges.load_segments(batch, ratio)
        scalars[f"total_k_compressed.{ratio}"] = key_ranges.key_rows(batch, ratio).total
        base, visible = key_ranges.bases(batch, ratio), key_ranges.visible(batch, ratio)
        if ratio in batch.sparse:
            put_bucket(rows, ratio, {"ks": base, "ke": base + visible, "klen": visible})
        if ratio in batch.dense:
            rows[f"kv_ca_index_offset_len.{ratio}"] = batch.arrays.columns(base, visible)
    mirror = zigzag(config, batch.queries) if config.cp_size > 1 else None
    if config.yoco_mode == "mask":
        rows["yoco_mask_swa_index_pivots"] = truncation.mask_pivots(batch)
    if config.yoco_mode == "compact":
        add_compact(batch, rows, scalars, mirror)
    queries = rows  # what is expanded: the rows that this rank computes
    if mirror is not None:
        queries = mirrored_rows(batch, rows, mirror)
    if "kv_swa_full_index" in expand:
        rows.update(expand_window(batch.arrays, config, queries))
    if "kv_ca_index" in expand:
        rows.update(expand_compressed(batch.arrays, config, queries))


def mirrored_rows(batch: Batch, rows: dict[str, Array], mirror: Zigzag) -> dict[str, Array]:
    """I-15: gives `rows` the mirrored layout where plain names have it; returns what the expansions are made of."""
    names = ("positions", "ngram_token_ids", "valid_token_mask", "query_indices", "ks", "ke", "klen")
    arrays, config = batch.arrays, batch.config
    rows["positions_cp"] = rows["positions"]
    rows["mirror_cp_index"] = mirror.index
    rows["mirror_cp_reverse_index"] = mirror.reverse
    for key in [key for key in rows if key.partition(".")[0] in names]:
        rows[key] = gathered(arrays, config, key, rows[key], mirror.index)
    rows["gate_force_random_cp"] = gathered(
        arrays, config, "gate_force_random_cp", rows["gate_force_random"], mirror.index
    )
    kept = ("kv_swa_full_index_pivots", "kv_ca_index_offset_len")
    runs = {key: value for key, value in rows.items() if key.partition(".")[0] in kept}
    # The run of a padding row is empty: its expansion is -1 throughout.
    return {key: gathered(arrays, config, key, value, mirror.index) for key, value in runs.items()}


def add_compact(batch: Batch, rows: dict[str, Array], scalars: dict[str, int | bool], mirror: Zigzag | None) -> None:
    """The fields of compact truncation, and with context parallel those of its mirror (I-31)."""
    arrays, config = batch.arrays, batch.config
    kept = truncation.kept_rows(batch)
    compact = truncation.compact_fields(batch, rows, kept)
    scalars["yoco_consumer_total_q"] = kept.runs.total
    rows.update({f"yoco_consumer_{key}": value for key, value in compact.items()})
    if mirror is None:
        return
    consumer = truncation.consumer_mirror(batch, kept)
    sent = truncation.contribution(batch, kept, mirror, consumer)
    scalars["yoco_consumer_cp_mirror_len"] = consumer.length
    scalars["yoco_consumer_cp_contrib_pad_len"] = sent.pad_len
    rows["yoco_consumer_mirror_cp_index"] = consumer.index
    rows["yoco_consumer_mirror_cp_reverse_index"] = consumer.reverse
    rows["yoco_cp_contrib_index"] = sent.index
    rows["yoco_cp_boundary_index"] = sent.boundary
    for ratio in batch.sparse:
        for name in ("ks", "ke"):
            key = f"yoco_consumer_mirror_{name}.{ratio}"
            rows[key] = gathered(arrays, config, key, compact[f"{name}.{ratio}"], consumer.index)


def put_bucket(rows: dict[str, Array], ratio: int, values: Mapping[str, Array]) -> None:
    """Adds the entries of one ratio under their flat keys."""
    rows.update({f"{name}.{ratio}": value for name, value in values.items()})


def expand_window(arrays: Arrays, config: oracle.MetadataConfig, rows: Mapping[str, Array]) -> dict[str, Array]:
    """The window's keys one by one, from a prompt's pivots or a decode's offsets."""
    if "kv_swa_full_index_pivots" in rows:
        pivots = rows["kv_swa_full_index_pivots"]
        return {"kv_swa_full_index": expansions.kv_swa_full_index(arrays, config, pivots)}
    return {"kv_swa_index": expansions.kv_swa_index(arrays, config, rows["kv_swa_index_offset_len"])}


def expand_compressed(arrays: Arrays, config: oracle.MetadataConfig, rows: Mapping[str, Array]) -> dict[str, Array]:
    """kv_ca_index and kv_ca_index_len of every dense ratio."""
    expanded = {}
    for ratio in sorted(set(config.dense_ratios)):
        offset_len = rows[f"kv_ca_index_offset_len.{ratio}"]
        index = expansions.kv_ca_index(arrays, config, ratio, offset_len, rows.get("block_tables"))
        expanded[f"kv_ca_index.{ratio}"] = index
        expanded[f"kv_ca_index_len.{ratio}"] = offset_len[:, 1]
    return expanded


def as_numpy(fields: Fields) -> dict[str, np.ndarray | int | bool]:
    """The fields with their arrays in host memory; those that are there already are not copied."""
    return {key: value if isinstance(value, int) else host_array(value) for key, value in fields.items()}


def host_array(values: Array) -> np.ndarray:
    """An array of any library in host memory."""
    return np.asarray(array_api_compat.to_device(values, "cpu"))


def host_rows(values: Array, rows: np.ndarray | None) -> np.ndarray:
    """An array in host memory of which only these rows (None: all) are copied; other cells mean nothing."""
    if isinstance(values, np.ndarray) or rows is None:
        return host_array(values)
    chosen = host_array(values[array_api_compat.array_namespace(values).asarray(rows, device=values.device)])
    host = np.empty(values.shape, dtype=chosen.dtype)
    host[rows] = chosen
    return host
