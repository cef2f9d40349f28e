"""The table of all fields, one entry each: listings, comparison and schema are derived from it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from .declaration import (
    A_QUERY,
    A_SEQUENCE,
    ALL,
    COMPACT,
    COMPACT_CP,
    CP,
    DECODE,
    DENSE,
    EAGER,
    EXPANSIONS,
    LOOK_BACK,
    MASK,
    NGRAM,
    PIVOTS,
    PROMPT,
    RUN,
    SEGMENT,
    SINGLE,
    TABLE,
    WINDOW,
    Field,
)
from .inputs import MetadataConfig, Path
from .units import NO_SEQUENCE

DECODED: tuple[tuple[Path, str], ...] = (("decode", "F-CDEC"), ("decode_zos", "F-CDEC"))
MIRRORED: tuple[tuple[Literal["mirror"], str], ...] = (("mirror", "F-MIRRORKS"),)

DECLARATIONS = (
    # name, where, dtype, rows, columns, bucket, neutral cell
    #     formulas, unit, meaning
    # Scalars of the step
    Field("num_reqs",                 ALL,    "int",   "scalar",      SINGLE,    None,     None,
          ("F-COUNT",), "sequences", "sequences of the step, placeholders included"),
    Field("total_q",                  ALL,    "int",   "scalar",      SINGLE,    None,     None,
          ("F-COUNT",), "query rows", "query rows of the step; 0 for an empty batch"),
    Field("is_prompt",                ALL,    "bool",  "scalar",      SINGLE,    None,     None,
          ("F-COUNT",), "flag", "whether the step is a prompt step"),
    Field("total_k_swa",              PROMPT, "int",   "scalar",      SINGLE,    None,     None,
          ("F-SWAPLAN",), "key rows", "history rows of the window buffer"),
    Field("total_k_compressed",       PROMPT, "int",   "scalar",      SINGLE,    "ca",     None,
          ("F-CAPLAN", "F-KSTEP"), "key rows", "rows of the buffer of compressed keys"),
    Field("max_num_blocks",           DECODE, "int",   "scalar",      SINGLE,    None,     None,
          ("F-BLOCKS",), "blocks", "columns of block_tables"),
    # Chapter 2: the common base
    Field("positions",                ALL,    "int32", "query",       SINGLE,    None,     0,
          ("F-POS",), "tokens", "absolute position of the row", mirrored=True),
    Field("input_ids",                ALL,    "int32", "query",       SINGLE,    None,     0,
          ("F-IDS", "F-GATHER"), "token id", "token of the row"),
    Field("gate_force_random",        ALL,    "bool",  "query",       SINGLE,    None,     False,
          ("F-GATE",), "flag", "the MoE gate routes at random"),
    Field("valid_token_mask",         ALL,    "bool",  "query",       SINGLE,    None,     False,
          ("F-MASK",), "flag", "the row belongs to a request", mirrored=True),
    Field("query_indices",            ALL,    "int32", "query",       SINGLE,    None,     NO_SEQUENCE,
          ("F-QIDX",), "sequence index", "the row's sequence in the batch; 998244353 faults", mirrored=True),
    Field("ngram_token_ids",          NGRAM,  "int32", "query",       LOOK_BACK, None,     "pad_token",
          ("F-NGRAM",), "compressed token id", "look-back of the row, nearest first", mirrored=True),
    Field("cu_seqlens_q",             ALL,    "int32", "boundary",    SINGLE,    None,     None,
          ("F-CU",), "query rows", "where sequences begin; ZOS: where they end", other_rows=A_SEQUENCE),
    Field("cu_seqlens_k",             EAGER,  "int32", "boundary",    SINGLE,    None,     None,
          ("F-CU",), "tokens", "prefix sums of the key lengths"),
    # Chapters 3, 4 and 6: compressed tokens, block tables, key ranges
    Field("cu_compressed_seqlens_q",  PROMPT, "int32", "boundary",    SINGLE,    "ca",     None,
          ("F-NCQ",), "compressed rows", "where each sequence's new compressed tokens begin"),
    Field("positions_c",              ALL,    "int32", "compressed",  SINGLE,    "ca",     0,
          ("F-CPOS", "F-CDEC", "F-NCQ"), "tokens", "first original position of the compressed token stored",
          other_rows=A_QUERY, other_formulas=DECODED),
    Field("slot_mapping_store_ca",    ALL,    "int32", "compressed",  SINGLE,    "ca",     -1,
          ("F-CSLOT", "F-CPOS", "F-CDEC", "F-NCQ"), "pool cell", "where the compressed token is stored, -1 nowhere",
          other_rows=A_QUERY, other_formulas=DECODED),
    Field("block_tables",             DECODE, "int32", "query",       TABLE,     None,     None,
          ("F-BLOCKS",), "physical block", "the sequence's block table, a copy a row",
          defined="columns below cdiv(seqlen_k // m, block_size // m) of the row's sequence; no cell of a neutral row"),
    Field("load_segments_ca",         PROMPT, "int32", "ca_segment",  SEGMENT,   "ca",     None,
          ("F-CAPLAN", "F-KSTEP"), "block, cells, cells, key row",
          "copies of compressed keys from blocks into the buffer; block -1 fills zeros"),
    Field("ks",                       PROMPT, "int32", "query",       SINGLE,    "sparse", 0,
          ("F-KS", "F-KSTEP", "F-MIRRORKS"), "key row", "first compressed key of the row", mirrored=True,
          other_formulas=MIRRORED),
    Field("ke",                       PROMPT, "int32", "query",       SINGLE,    "sparse", 0,
          ("F-KS", "F-KSTEP", "F-MIRRORKS"), "key row", "one past the row's last key", mirrored=True,
          other_formulas=MIRRORED),
    Field("klen",                     ALL,    "int32", "query",       SINGLE,    "sparse", 0,
          ("F-KLEN", "F-KS"), "compressed tokens", "compressed keys the row may see", mirrored=True),
    Field("kv_ca_index_offset_len",   ALL,    "int32", "query",       RUN,       "dense",  0,
          ("F-CAOFF", "F-KSTEP", "F-KLEN"), "key row, compressed tokens",
          "the row's run of compressed keys: offset, length"),
    Field("kv_ca_index",              ALL,    "int32", "query",       DENSE,     "dense",  -1,
          ("F-CAOFF", "F-CSLOT", "F-BLOCKS"), "key row (prompt), pool cell (decode)",
          "the row's compressed keys one by one, then -1", mirrored=True, expansion="kv_ca_index"),
    Field("kv_ca_index_len",          ALL,    "int32", "query",       SINGLE,    "dense",  0,
          ("F-CAOFF", "F-KLEN"), "compressed tokens", "length of the expanded row", mirrored=True,
          expansion="kv_ca_index"),
    Field("context_lens",             DECODE, "int32", "query",       SINGLE,    None,     0,
          ("F-CTXLEN",), "tokens", "context of the row, itself included"),
    # Chapter 5: the sliding window and its ring
    Field("slot_mapping_store_swa",   ALL,    "int32", "query",       SINGLE,    None,     -1,
          ("F-RING",), "state cell", "where the row's window key is stored, -1 nowhere"),
    Field("state_block_idx",          ALL,    "int32", "sequence",    SINGLE,    None,     0,
          ("F-RING",), "state block", "state slot of the sequence; decode: of the row's sequence", other_rows=A_QUERY),
    Field("load_segments_swa",        PROMPT, "int32", "swa_segment", SEGMENT,   None,     None,
          ("F-SWAPLAN",), "state block, cells, cells, key row",
          "copies of the ring's history into the buffer; block -1 fills zeros"),
    Field("kv_swa_full_index_pivots", PROMPT, "int32", "query",       PIVOTS,    None,     0,
          ("F-PIVOT",), "key row, tokens, key row, tokens", "the row's visible keys as two runs"),
    Field("kv_swa_full_index",        PROMPT, "int32", "query",       WINDOW,    None,     -1,
          ("F-PIVOT",), "key row", "the row's visible keys one by one, then -1", mirrored=True,
          expansion="kv_swa_full_index"),
    Field("kv_swa_index_offset_len",  DECODE, "int32", "query",       RUN,       None,     0,
          ("F-SWADEC", "F-RING"), "state cell, tokens", "first cell and length of the row's window in the ring"),
    Field("kv_swa_index",             DECODE, "int32", "query",       WINDOW,    None,     -1,
          ("F-SWADEC", "F-RING"), "state cell", "the row's window cell by cell, oldest first, then -1",
          expansion="kv_swa_index"),
    # Chapter 7: what a context parallel prompt adds
    Field("cp_mirror_len",            PROMPT, "int",   "scalar",      SINGLE,    None,     None,
          ("F-ZIGZAG",), "mirrored rows", "rows of every rank's mirrored layout"),
    Field("mirror_cp_index",          CP,     "int32", "mirror",      SINGLE,    None,     -1,
          ("F-ZIGZAG",), "query row", "global row of each mirrored row, -1 for padding"),
    Field("mirror_cp_reverse_index",  CP,     "int32", "query",       SINGLE,    None,     -1,
          ("F-REVERSE", "F-ZIGZAG"), "mirrored row of all ranks",
          "where a global row lies in all ranks' mirrored rows laid end to end"),
    Field("positions_cp",             CP,     "int32", "query",       SINGLE,    None,     0,
          ("F-POS",), "tokens", "positions before the mirror"),
    Field("gate_force_random_cp",     CP,     "bool",  "mirror",      SINGLE,    None,     False,
          ("F-GATE",), "flag", "gate_force_random of mirrored rows"),
    # Chapter 8: prefill truncation (I-16, I-31)
    Field("yoco_mask_swa_index_pivots",            MASK,       "int32", "query",           PIVOTS, None,     0,
          ("F-VIS", "F-PIVOT", "F-RECT"), "key row, tokens, key row, tokens",
          "visible keys of the truncated rows, all rows kept"),
    Field("yoco_consumer_total_q",                 COMPACT,    "int",   "scalar",          SINGLE, None,     None,
          ("F-COMPACT", "F-CLIP"), "query rows", "rows kept"),
    Field("yoco_consumer_cu_seqlens_q",            COMPACT,    "int32", "boundary",        SINGLE, None,     None,
          ("F-COMPACT", "F-CLIP"), "query rows", "where each sequence's kept rows begin"),
    Field("yoco_consumer_query_indices",           COMPACT,    "int32", "consumer",        SINGLE, None,    NO_SEQUENCE,
          ("F-COMPACT", "F-CLIP"), "query row", "global row of each kept row, a placeholder's too"),
    Field("yoco_consumer_positions",               COMPACT,    "int32", "consumer",        SINGLE, None,     0,
          ("F-COMPACT", "F-POS"), "tokens", "absolute position of each kept row"),
    Field("yoco_consumer_slot_mapping_store_swa",  COMPACT,    "int32", "consumer",        SINGLE, None,     -1,
          ("F-COMPACT", "F-RING", "F-RECT"), "state cell", "where the kept row's window key is stored, -1 nowhere"),
    Field("yoco_consumer_ks",                      COMPACT,    "int32", "consumer",        SINGLE, "sparse", 0,
          ("F-COMPACT", "F-KS", "F-KSTEP"), "key row", "first compressed key of the kept row"),
    Field("yoco_consumer_ke",                      COMPACT,    "int32", "consumer",        SINGLE, "sparse", 0,
          ("F-COMPACT", "F-KS", "F-KSTEP"), "key row", "one past the kept row's last compressed key"),
    Field("yoco_consumer_kv_ca_index_offset_len",  COMPACT,    "int32", "consumer",        RUN,    "dense",  0,
          ("F-COMPACT", "F-CAOFF", "F-KSTEP"), "key row, compressed tokens", "the kept row's run of compressed keys"),
    Field("yoco_consumer_swa_index_pivots",        COMPACT,    "int32", "consumer",        PIVOTS, None,     0,
          ("F-COMPACT", "F-VIS", "F-PIVOT", "F-CLIP", "F-RECT"), "key row, tokens, key row, tokens",
          "the kept row's visible keys as two runs"),
    Field("yoco_consumer_cp_mirror_len",           COMPACT_CP, "int",   "scalar",          SINGLE, None,     None,
          ("F-CONTRIB", "F-ZIGZAG"), "mirrored rows", "rows of every rank's mirrored compact layout"),
    Field("yoco_consumer_cp_contrib_pad_len",      COMPACT_CP, "int",   "scalar",          SINGLE, None,     None,
          ("F-CONTRIB",), "mirrored rows", "rows that every rank sends: the most that any keeps"),
    Field("yoco_consumer_mirror_cp_index",         COMPACT_CP, "int32", "consumer_mirror", SINGLE, None,     -1,
          ("F-ZIGZAG", "F-COMPACT"), "kept row", "kept row of each mirrored row, -1 for padding"),
    Field("yoco_consumer_mirror_cp_reverse_index", COMPACT_CP, "int32", "consumer",        SINGLE, None,     -1,
          ("F-REVERSE", "F-COMPACT"), "mirrored row of all ranks",
          "where a kept row lies in all ranks' mirrored compact rows"),
    Field("yoco_consumer_mirror_ks",               COMPACT_CP, "int32", "consumer_mirror", SINGLE, "sparse", 0,
          ("F-MIRRORKS", "F-COMPACT", "F-KSTEP"), "key row", "ks of the mirrored compact rows"),
    Field("yoco_consumer_mirror_ke",               COMPACT_CP, "int32", "consumer_mirror", SINGLE, "sparse", 0,
          ("F-MIRRORKS", "F-COMPACT", "F-KSTEP"), "key row", "ke of the mirrored compact rows"),
    Field("yoco_cp_contrib_index",                 COMPACT_CP, "int32", "contribution",    SINGLE, None,     -1,
          ("F-CONTRIB", "F-CLIP"), "mirrored row of this rank", "this rank's full-mirror rows that are kept, then -1"),
    Field("yoco_cp_boundary_index",                COMPACT_CP, "int32", "consumer_mirror", SINGLE, None,     -1,
          ("F-CONTRIB", "F-ZIGZAG", "F-CLIP"), "row of all ranks' contributions",
          "place of each mirrored compact row in the gathered contributions, -1 for padding"),
)  # fmt: skip

FIELDS: dict[str, Field] = {field.name: field for field in DECLARATIONS}
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
