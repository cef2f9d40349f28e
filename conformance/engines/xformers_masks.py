"""xformers' attention biases of packed sequences (F-CU, and F-PIVOT as the keys that each row sees).

``xformers.ops.fmha.attn_bias``: sequence starts, and the local causal mask from the bottom right, made whole. Which
keys a row sees is read from the mask; where they lie in the specification's buffer the adapter says
(``mask-for-index``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import narrowed
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.standins import module_by_path
from inputmeta.conformance.subjects import Capabilities, Conditions, Result

MOST_ROWS = 512
MOST_KEYS = 4096
"""Of a sequence: a mask has a cell for each row and key of the batch."""


class XformersMasks(Adapter):
    """``BlockDiagonalMask`` and the local mask that it makes."""

    subject = "xformers-masks"
    package = "xformers"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=frozenset({"cu_seqlens_q", "cu_seqlens_k", "kv_swa_full_index"}),
        max_total_q=MOST_ROWS,
        max_num_reqs=16,
        refuses=frozenset(),
        dialects=frozenset({"mask-for-index"}),
        conditions=Conditions(
            least_seqlen_q=1,
            most_seqlen_k=MOST_KEYS,
            empty_steps=False,
            valid_starts="zero",
            expansions=frozenset({"kv_swa_full_index"}),
        ),
    )

    def load(self) -> None:
        """Import the one file, which needs torch alone."""
        file = packages.folder(self.package, self.version) / "xformers/ops/fmha/attn_bias.py"
        self.module: Any = module_by_path(file, "xformers_attn_bias", {})
        self.device = self.module.torch.device("cpu")

    def call(self, request: Request) -> Raw:
        """``starts_q``, ``starts_k`` int32 [n_seq + 1]; ``visible`` bool [total_q, total_k]."""
        rows = [sequence.seqlen_q for sequence in request.sequences]
        keys = [sequence.seqlen_k for sequence in request.sequences]
        blocks = self.module.BlockDiagonalMask.from_seqlens(rows, keys, device=self.device)
        mask = blocks.make_local_attention_from_bottomright(request.config.window_size)
        return {
            "starts_q": blocks.q_seqinfo.seqstart.numpy(),
            "starts_k": blocks.k_seqinfo.seqstart.numpy(),
            "visible": (mask.materialize((sum(rows), sum(keys))) == 0).numpy(),
        }

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """Keys as rows of [W history rows a sequence][new rows]; one outside its sequence's window is right nowhere."""
        visible, width = np.asarray(raw["visible"]), request.config.window_size
        index = np.full((len(visible), max(width, int(visible.sum(1).max()))), -1, dtype=np.int64)
        places = np.concatenate(key_rows(request))
        for row, sees in zip(index, visible, strict=True):
            keys = np.flatnonzero(sees)
            row[: len(keys)] = places[keys]
        return {
            "cu_seqlens_q": np.asarray(raw["starts_q"]),
            "cu_seqlens_k": np.asarray(raw["starts_k"]),
            "kv_swa_full_index": narrowed(index),
        }


def key_rows(request: Request) -> list[np.ndarray]:
    """Of each sequence, the buffer's row of each of its keys; -2 of one before the history."""
    width, begin, found = request.config.window_size, 0, []
    for index, sequence in enumerate(request.sequences):
        old = np.arange(-(sequence.seqlen_k - sequence.seqlen_q), 0)  # from the first new row
        history = np.where(old >= -width, (index + 1) * width + old, -2)
        new = len(request.sequences) * width + begin + np.arange(sequence.seqlen_q)
        found.append(np.concatenate([history, new]))
        begin += sequence.seqlen_q
    return found
