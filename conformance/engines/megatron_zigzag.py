"""Megatron-Core's zigzag of packed sequences for sparse attention (F-ZIGZAG, F-REVERSE).

``megatron.core.transformer.experimental_attention_variant.dsa_layout``: a rank's positions in the packed batch, and the
index that puts the keys of all ranks, gathered, in order. Lengths are multiples of 2p: on a CPU others raise
ValueError, on a GPU they are not looked at. The distribution wants Python 3.12; this file runs on 3.11 as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import narrowed
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.standins import module_by_path, standin
from inputmeta.conformance.engines.torch_zigzag import FIELDS, MOST_RANKS, MULTIPLES
from inputmeta.conformance.subjects import Capabilities, Result

FILE = "megatron/core/transformer/experimental_attention_variant/dsa_layout.py"


class MegatronZigzag(Adapter):
    """``build_packed_allgather_cp_query_positions_and_key_reorder``: queries and keys of the same packed batch."""

    subject = "megatron-zigzag"
    package = "megatron-core"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=FIELDS,
        max_cp_size=MOST_RANKS,
        yoco_modes=frozenset({"off", "mask", "compact"}),
        refuses=frozenset(),
        dialects=frozenset({"int64"}),
        conditions=MULTIPLES,
    )

    def load(self) -> None:
        """Import the one file, with stand-ins for its neighbours."""
        import torch  # noqa: PLC0415 - the engine's

        self.torch: Any = torch
        around = [
            standin("megatron"),
            standin("megatron.core"),
            standin("megatron.core.packed_seq_params", PackedSeqParams=object),
            standin("megatron.core.utils", get_pg_size=lambda group: 1),
        ]
        file = packages.folder(self.package, self.version) / FILE
        self.module = module_by_path(file, "megatron_dsa_layout", {module.__name__: module for module in around})

    def call(self, request: Request) -> Raw:
        """``positions`` of this rank in the packed batch, ``restored`` [total_q]: int64."""
        starts = np.append(0, np.cumsum([sequence.seqlen_q for sequence in request.sequences]))
        ends, config = self.torch.tensor(starts, dtype=self.torch.int32), request.config
        positions, restored = self.module.build_packed_allgather_cp_query_positions_and_key_reorder(
            ends, ends, config.cp_size, config.cp_rank, self.torch.device("cpu")
        )
        return {"positions": positions.numpy(), "restored": restored.numpy()}

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """The same arrays."""
        positions = np.asarray(raw["positions"])
        return {
            "cp_mirror_len": len(positions),
            "mirror_cp_index": narrowed(positions),
            "mirror_cp_reverse_index": narrowed(np.asarray(raw["restored"])),
        }
