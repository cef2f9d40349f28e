"""Field declarations of every path. One declaration a field: listings, comparison and schema are derived from it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from .declaration import EXPANSIONS, Field, Layout
from .fields_mirror import MIRROR_FIELDS
from .fields_yoco import YOCO_FIELDS
from .inputs import PATHS, MetadataConfig, Path

PROMPT: tuple[Path, ...] = ("prompt",)
DECODES: tuple[Path, ...] = ("decode", "decode_zos")
DECODED: tuple[tuple[Path, str], ...] = (("decode", "F-CDEC"), ("decode_zos", "F-CDEC"))
MIRRORED: tuple[tuple[Literal["mirror"], str], ...] = (("mirror", "F-MIRRORKS"),)
PER_QUERY_ROW = Layout("query", ("total_q",))

SCALARS = (
    Field(
        name="num_reqs", formula="F-COUNT", formulas=("F-COUNT",), paths=PATHS, dtype="int", rows="scalar", shape=(),
        unit="sequences", meaning="sequences of the step, placeholders included", consumer="every kernel launch",
    ),
    Field(
        name="total_q", formula="F-COUNT", formulas=("F-COUNT",), paths=PATHS, dtype="int", rows="scalar", shape=(),
        unit="query rows", meaning="query rows of the step; 0 for an empty batch", consumer="every kernel launch",
    ),
    Field(
        name="is_prompt", formula="F-COUNT", formulas=("F-COUNT",), paths=PATHS, dtype="bool", rows="scalar", shape=(),
        unit="flag", meaning="whether the step is a prompt step", consumer="the model's choice of path",
    ),
    Field(
        name="total_k_swa", formula="F-SWAPLAN", formulas=("F-SWAPLAN",), paths=PROMPT, dtype="int", rows="scalar",
        shape=(), unit="key rows", meaning="history rows of the window buffer", consumer="window attention",
    ),
    Field(
        name="total_k_compressed", formula="F-CAPLAN", formulas=("F-CAPLAN", "F-KSTEP"), paths=PROMPT, dtype="int",
        rows="scalar", shape=(), bucket="ca", unit="key rows", meaning="rows of the buffer of compressed keys",
        consumer="compressed attention",
    ),
    Field(
        name="max_num_blocks", formula="F-BLOCKS", formulas=("F-BLOCKS",), paths=DECODES, dtype="int", rows="scalar",
        shape=(), unit="blocks", meaning="columns of block_tables", consumer="dense attention",
    ),
)  # fmt: skip

BASE = (
    Field(
        name="positions", formula="F-POS", formulas=("F-POS",), paths=PATHS, dtype="int32", rows="query",
        shape=("total_q",), unit="tokens", meaning="absolute position of the row", mirrored=True,
        consumer="rotary embedding, attention",
    ),
    Field(
        name="input_ids", formula="F-IDS", formulas=("F-IDS", "F-GATHER"), paths=PATHS, dtype="int32", rows="query",
        shape=("total_q",), unit="token id", meaning="token of the row", consumer="embedding, before any mirror",
    ),
    Field(
        name="gate_force_random", formula="F-GATE", formulas=("F-GATE",), paths=PATHS, dtype="bool", rows="query",
        shape=("total_q",), unit="flag", meaning="the MoE gate routes at random", consumer="MoE gate",
    ),
    Field(
        name="valid_token_mask", formula="F-MASK", formulas=("F-MASK",), paths=PATHS, dtype="bool", rows="query",
        shape=("total_q",), unit="flag", meaning="the row belongs to a request", mirrored=True, consumer="sampler, MoE",
    ),
    Field(
        name="query_indices", formula="F-QIDX", formulas=("F-QIDX",), paths=PATHS, dtype="int32", rows="query",
        shape=("total_q",), unit="sequence index", meaning="the row's sequence in the batch; 998244353 faults",
        mirrored=True, consumer="index attention, sampler",
    ),
    Field(
        name="ngram_token_ids", formula="F-NGRAM", formulas=("F-NGRAM",), paths=PATHS, dtype="int32", rows="query",
        shape=("total_q", "max_ngram_size"), unit="compressed token id", meaning="look-back of the row, nearest first",
        mirrored=True, needs="ngram", consumer="Engram",
    ),
    Field(
        name="cu_seqlens_q", formula="F-CU", formulas=("F-CU",), paths=PATHS, dtype="int32", rows="boundary",
        shape=("n_seq + 1",), unit="query rows", meaning="where sequences begin; ZOS: where they end",
        consumer="variable-length attention", other_layouts=(("decode_zos", Layout("sequence", ("n_seq",))),),
    ),
    Field(
        name="cu_seqlens_k", formula="F-CU", formulas=("F-CU",), paths=("prompt", "decode"), dtype="int32",
        rows="boundary", shape=("n_seq + 1",), unit="tokens", meaning="prefix sums of the key lengths",
        consumer="variable-length attention",
    ),
)  # fmt: skip

COMPRESSED = (
    Field(
        name="cu_compressed_seqlens_q", formula="F-NCQ", formulas=("F-NCQ",), paths=PROMPT, dtype="int32",
        rows="boundary", shape=("n_seq + 1",), bucket="ca", unit="compressed rows",
        meaning="where each sequence's new compressed tokens begin", consumer="compressor",
    ),
    Field(
        name="positions_c", formula="F-CPOS", other_formulas=DECODED, formulas=("F-CPOS", "F-CDEC", "F-NCQ"),
        paths=PATHS, dtype="int32",
        rows="compressed", shape=("compressed_rows",), bucket="ca", unit="tokens",
        meaning="first original position of the compressed token stored", consumer="compressor",
        other_layouts=tuple((path, PER_QUERY_ROW) for path in DECODES),
    ),
    Field(
        name="slot_mapping_store_ca", formula="F-CSLOT", other_formulas=DECODED,
        formulas=("F-CSLOT", "F-CPOS", "F-CDEC", "F-NCQ"),
        paths=PATHS, dtype="int32", rows="compressed", shape=("compressed_rows",), bucket="ca", unit="pool cell",
        meaning="where the compressed token is stored, -1 nowhere", consumer="compressor",
        other_layouts=tuple((path, PER_QUERY_ROW) for path in DECODES),
    ),
    Field(
        name="block_tables", formula="F-BLOCKS", formulas=("F-BLOCKS",), paths=DECODES, dtype="int32", rows="query",
        shape=("total_q", "max_num_blocks"), unit="physical block", meaning="the sequence's block table, a copy a row",
        defined="columns below cdiv(seqlen_k // m, block_size // m) of the row's sequence; no cell of a neutral row",
        consumer="dense attention",
    ),
    Field(
        name="load_segments_ca", formula="F-CAPLAN", formulas=("F-CAPLAN", "F-KSTEP"), paths=PROMPT, dtype="int32",
        rows="segment", shape=("ca_segments", "4"), bucket="ca", unit="block, cells, cells, key row",
        meaning="copies of compressed keys from blocks into the buffer; block -1 fills zeros", consumer="loader",
    ),
    Field(
        name="ks", formula="F-KS", other_formulas=MIRRORED, formulas=("F-KS", "F-KSTEP", "F-MIRRORKS"),
        paths=PROMPT, dtype="int32",
        rows="query", shape=("total_q",), bucket="sparse", unit="key row", meaning="first compressed key of the row",
        mirrored=True, consumer="index attention",
    ),
    Field(
        name="ke", formula="F-KS", other_formulas=MIRRORED, formulas=("F-KS", "F-KSTEP", "F-MIRRORKS"),
        paths=PROMPT, dtype="int32",
        rows="query", shape=("total_q",), bucket="sparse", unit="key row", meaning="one past the row's last key",
        mirrored=True, consumer="index attention",
    ),
    Field(
        name="klen", formula="F-KLEN", formulas=("F-KLEN", "F-KS"), paths=PATHS, dtype="int32", rows="query",
        shape=("total_q",), bucket="sparse", unit="compressed tokens", meaning="compressed keys the row may see",
        mirrored=True, consumer="index attention",
    ),
    Field(
        name="kv_ca_index_offset_len", formula="F-CAOFF", formulas=("F-CAOFF", "F-KSTEP", "F-KLEN"), paths=PATHS,
        dtype="int32", rows="query", shape=("total_q", "2"), bucket="dense", unit="key row, compressed tokens",
        meaning="the row's run of compressed keys: offset, length", consumer="dense attention",
    ),
    Field(
        name="kv_ca_index", formula="F-CAOFF", formulas=("F-CAOFF", "F-CSLOT", "F-BLOCKS"), paths=PATHS, dtype="int32",
        rows="query", shape=("total_q", "ca_width"), bucket="dense", unit="key row (prompt), pool cell (decode)",
        meaning="the row's compressed keys one by one, then -1", mirrored=True, expansion="kv_ca_index",
        consumer="dense attention",
    ),
    Field(
        name="kv_ca_index_len", formula="F-CAOFF", formulas=("F-CAOFF", "F-KLEN"), paths=PATHS, dtype="int32",
        rows="query", shape=("total_q",), bucket="dense", unit="compressed tokens",
        meaning="length of the expanded row",
        mirrored=True, expansion="kv_ca_index", consumer="dense attention",
    ),
    Field(
        name="context_lens", formula="F-CTXLEN", formulas=("F-CTXLEN",), paths=DECODES, dtype="int32", rows="query",
        shape=("total_q",), unit="tokens", meaning="context of the row, itself included", consumer="attention, sampler",
    ),
)  # fmt: skip

WINDOW = (
    Field(
        name="slot_mapping_store_swa", formula="F-RING", formulas=("F-RING",), paths=PATHS, dtype="int32", rows="query",
        shape=("total_q",), unit="state cell", meaning="where the row's window key is stored, -1 nowhere",
        consumer="window cache writer",
    ),
    Field(
        name="state_block_idx", formula="F-RING", formulas=("F-RING",), paths=PATHS, dtype="int32", rows="sequence",
        shape=("n_seq",), unit="state block", meaning="state slot of the sequence; decode: of the row's sequence",
        consumer="state cache", other_layouts=tuple((path, PER_QUERY_ROW) for path in DECODES),
    ),
    Field(
        name="load_segments_swa", formula="F-SWAPLAN", formulas=("F-SWAPLAN",), paths=PROMPT, dtype="int32",
        rows="segment", shape=("swa_segments", "4"), unit="state block, cells, cells, key row",
        meaning="copies of the ring's history into the buffer; block -1 fills zeros", consumer="loader",
    ),
    Field(
        name="kv_swa_full_index_pivots", formula="F-PIVOT", formulas=("F-PIVOT",), paths=PROMPT, dtype="int32",
        rows="query", shape=("total_q", "4"), unit="key row, tokens, key row, tokens",
        meaning="the row's visible keys as two runs", consumer="window attention",
    ),
    Field(
        name="kv_swa_full_index", formula="F-PIVOT", formulas=("F-PIVOT",), paths=PROMPT, dtype="int32", rows="query",
        shape=("total_q", "window_size"), unit="key row", meaning="the row's visible keys one by one, then -1",
        mirrored=True, expansion="kv_swa_full_index", consumer="window attention",
    ),
    Field(
        name="kv_swa_index_offset_len", formula="F-SWADEC", formulas=("F-SWADEC", "F-RING"), paths=DECODES,
        dtype="int32", rows="query", shape=("total_q", "2"), unit="state cell, tokens",
        meaning="first cell and length of the row's window in the ring", consumer="window attention",
    ),
    Field(
        name="kv_swa_index", formula="F-SWADEC", formulas=("F-SWADEC", "F-RING"), paths=DECODES, dtype="int32",
        rows="query", shape=("total_q", "window_size"), unit="state cell",
        meaning="the row's window cell by cell, oldest first, then -1", expansion="kv_swa_index",
        consumer="window attention",
    ),
)  # fmt: skip

FIELDS: dict[str, Field] = {
    field.name: field for field in (*SCALARS, *BASE, *COMPRESSED, *WINDOW, *MIRROR_FIELDS, *YOCO_FIELDS)
}
"""Field name -> declaration, of every path."""


def keys_of(path: Path, config: MetadataConfig, expand: Collection[str] = EXPANSIONS) -> tuple[str, ...]:
    """The flat keys that a path has under a configuration, in declaration order.

    >>> config = MetadataConfig(block_size=4, window_size=2, swa_block_size=2, max_model_len=8, sparse_ratios=(2,))
    >>> [key for key in keys_of("decode_zos", config, ()) if "swa" in key or "k" in key[:2]]
    ['klen.2', 'slot_mapping_store_swa', 'kv_swa_index_offset_len']
    """
    present = (field for field in FIELDS.values() if field.is_present(path, config))
    wanted = (field for field in present if field.expansion is None or field.expansion in expand)
    return tuple(key for field in wanted for key in field.keys(config))
