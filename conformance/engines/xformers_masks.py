"""xformers' attention biases of packed sequences (F-CU, and F-VISIBLE: the keys that each row sees).

``xformers.ops.fmha.attn_bias``: sequence starts, and two masks made whole: the local causal one from the bottom right,
and the causal one, which is what a row sees at ratio 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import key_set_of_mask
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.standins import module_by_path
from inputmeta.conformance.subjects import Capabilities, Conditions, Result, Unsupported

MOST_ROWS = 512
MOST_KEYS = 4096
"""Of a sequence: a mask has a cell for each row and key of the batch."""


class XformersMasks(Adapter):
    """``BlockDiagonalMask`` and the local mask that it makes."""

    subject = "xformers-masks"
    package = "xformers"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=frozenset({"cu_seqlens_q", "cu_seqlens_k", "visible_swa", "visible_ca"}),
        max_total_q=MOST_ROWS,
        max_num_reqs=16,
        refuses=frozenset(),
        conditions=Conditions(least_seqlen_q=1, most_seqlen_k=MOST_KEYS, empty_steps=False, valid_starts="zero"),
    )

    def load(self) -> None:
        """Import the one file, which needs torch alone."""
        file = packages.folder(self.package, self.version) / "xformers/ops/fmha/attn_bias.py"
        self.module: Any = module_by_path(file, "xformers_attn_bias", {})
        self.device = self.module.torch.device("cpu")

    def call(self, request: Request) -> Raw:
        """``starts_q``, ``starts_k`` int32 [n_seq + 1]; ``window``, ``causal`` bool [total_q, total_k]."""
        rows = [sequence.seqlen_q for sequence in request.sequences]
        keys = [sequence.seqlen_k for sequence in request.sequences]
        blocks = self.module.BlockDiagonalMask.from_seqlens(rows, keys, device=self.device)
        window = blocks.make_local_attention_from_bottomright(request.config.window_size)
        causal = blocks.make_causal_from_bottomright()
        shape = (sum(rows), sum(keys))
        return {
            "starts_q": blocks.q_seqinfo.seqstart.numpy(),
            "starts_k": blocks.k_seqinfo.seqstart.numpy(),
            "window": (window.materialize(shape) == 0).numpy(),
            "causal": (causal.materialize(shape) == 0).numpy(),
        }

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """The starts, and what the masks show; of a ratio above 1 it says nothing."""
        causal = key_set_of_mask(request, np.asarray(raw["causal"]))
        other = Unsupported("a ratio other than 1")
        return {
            "cu_seqlens_q": np.asarray(raw["starts_q"]),
            "cu_seqlens_k": np.asarray(raw["starts_k"]),
            "visible_swa": key_set_of_mask(request, np.asarray(raw["window"])),
            **{f"visible_ca.{ratio}": causal if ratio == 1 else other for ratio in request.config.ca_ratios},
        }
