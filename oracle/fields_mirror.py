"""Declarations of the fields that a context parallel prompt adds (chapter 7)."""

from __future__ import annotations

from .declaration import Field

MIRROR_FIELDS = (
    Field(
        name="cp_mirror_len", formula="F-ZIGZAG", formulas=("F-ZIGZAG",), paths=("prompt",), dtype="int",
        rows="scalar", shape=(), unit="mirrored rows", meaning="rows of every rank's mirrored layout",
        consumer="context parallel exchange",
    ),
    Field(
        name="mirror_cp_index", formula="F-ZIGZAG", formulas=("F-ZIGZAG",), paths=("prompt",), dtype="int32",
        rows="mirror", shape=("cp_mirror_len",), needs="cp", unit="query row",
        meaning="global row of each mirrored row, -1 for padding", consumer="gather into the mirrored layout",
    ),
    Field(
        name="mirror_cp_reverse_index", formula="F-REVERSE", formulas=("F-REVERSE", "F-ZIGZAG"), paths=("prompt",),
        dtype="int32", rows="query", shape=("total_q",), needs="cp", unit="mirrored row of all ranks",
        meaning="where a global row lies in all ranks' mirrored rows laid end to end",
        consumer="gather back into the full layout",
    ),
    Field(
        name="positions_cp", formula="F-POS", formulas=("F-POS",), paths=("prompt",), dtype="int32", rows="query",
        shape=("total_q",), needs="cp", unit="tokens", meaning="positions before the mirror", consumer="compressor",
    ),
    Field(
        name="gate_force_random_cp", formula="F-GATE", formulas=("F-GATE",), paths=("prompt",), dtype="bool",
        rows="mirror", shape=("cp_mirror_len",), needs="cp", unit="flag", meaning="gate_force_random of mirrored rows",
        consumer="MoE gate",
    ),
)  # fmt: skip
