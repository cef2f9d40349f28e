"""``sglang-zigzag``: how SGLang spreads the rows of a prompt over the ranks of a context parallel group.

Its blocks are balanced by design, so the mirror is held to relations (``zigzag-balanced``).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.triton_files import absent, files_of, host, torch_for_triton
from inputmeta.conformance.subjects.base import Capabilities, Result

FILES = ("sglang.srt.layers.cp.padding", "sglang.srt.layers.cp.zigzag")
RANK = SimpleNamespace(attn_cp_rank=0, attn_cp_size=1)
"""Stand-in for the process's place in its group."""
NEIGHBOURS = {
    "sglang.srt.runtime_context": {"get_parallel": lambda: RANK, **absent("get_device")},
    "sglang.srt.distributed.device_communicators.pynccl_allocator": absent("use_symmetric_memory"),
    "sglang.srt.layers.dp_attention": absent("is_allocation_symmetric"),
    "sglang.srt.mem_cache.memory_pool": absent("KVWriteLoc"),
    "sglang.srt.model_executor.forward_context": absent("get_token_to_kv_pool"),
}


class Zigzag(Adapter):
    """Context parallel prompts of at least two ranks."""

    subject = "sglang-zigzag"
    package = "sglang"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=frozenset({"cp_mirror_len", "mirror_cp_index", "mirror_cp_reverse_index"}),
        max_cp_size=8,
        refuses=frozenset(),
        dialects=frozenset({"zigzag-balanced"}),
        conditions=Conditions(least_cp_size=2, cp_chunks="at-least-2p"),
    )

    def load(self) -> None:
        """Import the strategy."""
        self.torch = torch_for_triton()
        _, self.zigzag = files_of(packages.folder(self.package, self.version), FILES, NEIGHBOURS)

    def call(self, request: Request) -> Raw:
        """Rows of this rank and of the longest, and where each row lies in those of all ranks."""
        RANK.attn_cp_rank, RANK.attn_cp_size = request.config.cp_rank, request.config.cp_size
        q, k = [s.seqlen_q for s in request.sequences], [s.seqlen_k for s in request.sequences]
        strategy = self.zigzag.ZigzagCPStrategy(request.config.cp_size)
        batch = SimpleNamespace(attn_cp_metadata=strategy.build_metadata(sum(q), k, q))
        metadata = batch.attn_cp_metadata
        longest = metadata.max_rank_len[0]
        # What the ranks' all-gather hands over, its padding taken out: each row's place instead of its hidden state.
        places = [
            range(rank * longest, rank * longest + rows) for rank, rows in enumerate(metadata.per_rank_actual_token)
        ]
        gathered = self.torch.torch.tensor([place for rank in places for place in rank])
        strategy._all_gather_reorganized = lambda x, *_: gathered
        return {
            "rows": host(strategy.local_q_indices(sum(q), batch)),
            "longest": int(longest),
            "places": host(strategy.gather_hidden_states(None, batch)),
        }

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """See :meth:`Adapter.translated`."""
        rows, longest = np.asarray(raw["rows"]), int(raw["longest"])
        index: Any = np.pad(rows, (0, longest - len(rows)), constant_values=-1)
        return {
            "cp_mirror_len": longest,
            "mirror_cp_index": index.astype(np.int32),
            "mirror_cp_reverse_index": np.asarray(raw["places"]).astype(np.int32),
        }
