"""Declarations of the fields of YoCo prefill truncation (chapter 8, I-16)."""

from __future__ import annotations

from .declaration import Field

YOCO_FIELDS = (
    Field(
        name="yoco_mask_swa_index_pivots", formula="F-VIS", formulas=("F-VIS", "F-PIVOT", "F-RECT"), paths=("prompt",),
        dtype="int32", rows="query", shape=("total_q", "4"), needs="yoco_mask", unit="key row, tokens, key row, tokens",
        meaning="visible keys of the truncated rows, all rows kept", consumer="window attention of the mask view",
    ),
    Field(
        name="yoco_consumer_total_q", formula="F-COMPACT", formulas=("F-COMPACT", "F-CLIP"), paths=("prompt",),
        dtype="int", rows="scalar", shape=(), needs="yoco_compact", unit="query rows", meaning="rows kept",
        consumer="consumer layers",
    ),
    Field(
        name="yoco_consumer_cu_seqlens_q", formula="F-COMPACT", formulas=("F-COMPACT", "F-CLIP"), paths=("prompt",),
        dtype="int32", rows="boundary", shape=("n_seq + 1",), needs="yoco_compact", unit="query rows",
        meaning="where each sequence's kept rows begin", consumer="consumer layers",
    ),
    Field(
        name="yoco_consumer_query_indices", formula="F-COMPACT", formulas=("F-COMPACT", "F-CLIP"), paths=("prompt",),
        dtype="int32", rows="consumer", shape=("consumer_total_q",), needs="yoco_compact", unit="query row",
        meaning="global row of each kept row, a placeholder's too", consumer="gather into the compact layout",
    ),
    Field(
        name="yoco_consumer_positions", formula="F-COMPACT", formulas=("F-COMPACT", "F-POS"), paths=("prompt",),
        dtype="int32", rows="consumer", shape=("consumer_total_q",), needs="yoco_compact", unit="tokens",
        meaning="absolute position of each kept row", consumer="consumer layers",
    ),
    Field(
        name="yoco_consumer_slot_mapping_store_swa", formula="F-COMPACT", formulas=("F-COMPACT", "F-RING", "F-RECT"),
        paths=("prompt",), dtype="int32", rows="consumer", shape=("consumer_total_q",), needs="yoco_compact",
        unit="state cell", meaning="where the kept row's window key is stored, -1 nowhere", consumer="consumer layers",
    ),
    Field(
        name="yoco_consumer_ks", formula="F-COMPACT", formulas=("F-COMPACT", "F-KS", "F-KSTEP"), paths=("prompt",),
        dtype="int32", rows="consumer", shape=("consumer_total_q",), bucket="sparse", needs="yoco_compact",
        unit="key row", meaning="first compressed key of the kept row", consumer="consumer layers",
    ),
    Field(
        name="yoco_consumer_ke", formula="F-COMPACT", formulas=("F-COMPACT", "F-KS", "F-KSTEP"), paths=("prompt",),
        dtype="int32", rows="consumer", shape=("consumer_total_q",), bucket="sparse", needs="yoco_compact",
        unit="key row", meaning="one past the kept row's last compressed key", consumer="consumer layers",
    ),
    Field(
        name="yoco_consumer_kv_ca_index_offset_len", formula="F-COMPACT", formulas=("F-COMPACT", "F-CAOFF", "F-KSTEP"),
        paths=("prompt",), dtype="int32", rows="consumer", shape=("consumer_total_q", "2"), bucket="dense",
        needs="yoco_compact", unit="key row, compressed tokens", meaning="the kept row's run of compressed keys",
        consumer="consumer layers",
    ),
    Field(
        name="yoco_consumer_swa_index_pivots", formula="F-COMPACT",
        formulas=("F-COMPACT", "F-VIS", "F-PIVOT", "F-CLIP", "F-RECT"), paths=("prompt",), dtype="int32",
        rows="consumer", shape=("consumer_total_q", "4"), needs="yoco_compact",
        unit="key row, tokens, key row, tokens", meaning="the kept row's visible keys as two runs",
        consumer="consumer layers",
    ),
    Field(
        name="yoco_consumer_cp_mirror_len", formula="F-CONTRIB", formulas=("F-CONTRIB", "F-ZIGZAG"), paths=("prompt",),
        dtype="int", rows="scalar", shape=(), needs="yoco_compact_cp", unit="mirrored rows",
        meaning="rows of every rank's mirrored compact layout", consumer="context parallel exchange",
    ),
    Field(
        name="yoco_consumer_cp_contrib_pad_len", formula="F-CONTRIB", formulas=("F-CONTRIB",), paths=("prompt",),
        dtype="int", rows="scalar", shape=(), needs="yoco_compact_cp", unit="mirrored rows",
        meaning="rows that every rank sends: the most that any keeps", consumer="context parallel exchange",
    ),
    Field(
        name="yoco_consumer_mirror_cp_index", formula="F-ZIGZAG", formulas=("F-ZIGZAG", "F-COMPACT"),
        paths=("prompt",), dtype="int32", rows="consumer_mirror", shape=("consumer_mirror_len",),
        needs="yoco_compact_cp", unit="kept row", meaning="kept row of each mirrored row, -1 for padding",
        consumer="gather into the mirrored compact layout",
    ),
    Field(
        name="yoco_consumer_mirror_cp_reverse_index", formula="F-REVERSE", formulas=("F-REVERSE", "F-COMPACT"),
        paths=("prompt",), dtype="int32", rows="consumer", shape=("consumer_total_q",), needs="yoco_compact_cp",
        unit="mirrored row of all ranks", meaning="where a kept row lies in all ranks' mirrored compact rows",
        consumer="gather back into the compact layout",
    ),
    Field(
        name="yoco_consumer_mirror_ks", formula="F-MIRRORKS", formulas=("F-MIRRORKS", "F-COMPACT", "F-KSTEP"),
        paths=("prompt",), dtype="int32", rows="consumer_mirror", shape=("consumer_mirror_len",), bucket="sparse",
        needs="yoco_compact_cp", unit="key row", meaning="ks of the mirrored compact rows", consumer="consumer layers",
    ),
    Field(
        name="yoco_consumer_mirror_ke", formula="F-MIRRORKS", formulas=("F-MIRRORKS", "F-COMPACT", "F-KSTEP"),
        paths=("prompt",), dtype="int32", rows="consumer_mirror", shape=("consumer_mirror_len",), bucket="sparse",
        needs="yoco_compact_cp", unit="key row", meaning="ke of the mirrored compact rows", consumer="consumer layers",
    ),
    Field(
        name="yoco_cp_contrib_index", formula="F-CONTRIB", formulas=("F-CONTRIB", "F-CLIP"), paths=("prompt",),
        dtype="int32", rows="contribution", shape=("contrib_pad_len",), needs="yoco_compact_cp",
        unit="mirrored row of this rank", meaning="this rank's full-mirror rows that are kept, then -1",
        consumer="context parallel exchange",
    ),
    Field(
        name="yoco_cp_boundary_index", formula="F-CONTRIB", formulas=("F-CONTRIB", "F-ZIGZAG", "F-CLIP"),
        paths=("prompt",), dtype="int32", rows="consumer_mirror", shape=("consumer_mirror_len",),
        needs="yoco_compact_cp", unit="row of all ranks' contributions",
        meaning="place of each mirrored compact row in the gathered contributions, -1 for padding",
        consumer="context parallel exchange",
    ),
)  # fmt: skip
