"""``vllm-pcp``: how vLLM's second model runner spreads the rows of prompts over a context parallel group."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import dialects_of, translate
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.vllm_runtime import SPARE_ROWS, Vllm, host, input_batch, load
from inputmeta.conformance.subjects.base import Capabilities, Result

DIALECTS = ("int64", "zigzag-packed")
MODULES = ("pcp_manager",)
"""What is imported of it."""


class VllmPcp(Adapter):
    """vLLM's ``DualChunkSwap`` as a subject; one rank's batch, and the index that restores the whole one."""

    subject = "vllm-pcp"
    package = "vllm"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=frozenset({"cp_mirror_len", "mirror_cp_index", "mirror_cp_reverse_index", "positions", "positions_cp"}),
        max_cp_size=8,
        yoco_modes=frozenset({"off", "mask", "compact"}),
        refuses=frozenset(),
        dialects=frozenset(DIALECTS),
        conditions=Conditions(least_cp_size=2, empty_steps=False),
    )

    @classmethod
    def preload(cls, version: str | None = None) -> None:
        """See :meth:`inputmeta.conformance.engines.adapter.Adapter.preload`."""
        super().preload(version)
        load(*MODULES)

    def load(self) -> None:
        """See :meth:`inputmeta.conformance.engines.adapter.Adapter.load`."""
        self.vllm = load(*MODULES)

    def call(self, request: Request) -> Raw:
        """What vLLM builds of a batch, by the specification's flat keys; the rows of all ranks laid end to end."""
        vllm, config = self.vllm, request.config
        query_lens = np.array([sequence.seqlen_q for sequence in request.sequences], dtype=np.int32)
        computed = np.array([sequence.seqlen_k for sequence in request.sequences], dtype=np.int32) - query_lens
        positions = global_positions(vllm, query_lens, computed)
        count, rows = len(query_lens), int(query_lens.sum())
        manager = vllm.modules.pcp_manager.PCPManager(
            config.cp_size,
            config.cp_rank,
            vllm.device,
            shard_decode_requests=False,
            max_num_reqs=count,
            max_num_tokens=rows,
        )
        batch = input_batch(
            vllm,
            req_ids=[""] * count,
            num_reqs=count,
            num_tokens=rows,
            num_scheduled_tokens=query_lens,
            num_computed_tokens_np=computed,
            is_prefilling_np=np.ones(count, dtype=np.bool_),
            has_prefill=True,
            prefill_len_np=computed + query_lens,
            query_start_loc_np=np.append(0, np.cumsum(query_lens)).astype(np.int32),
            idx_mapping_np=np.arange(count),
            seq_lens_cpu_upper_bound=vllm.torch.from_numpy(computed + query_lens),
            expanded_local_pos=vllm.full((count,), "int32"),
            input_ids=vllm.full((rows,), "int32"),
            positions=positions,
        )
        modes = import_module("vllm.config").CUDAGraphMode
        local = manager.partition_batch(batch, SimpleNamespace(cg_mode=modes.NONE))
        return {
            "cp_mirror_len": local.num_tokens_after_padding,
            "mirror_cp_index": np.where(host(local.is_padding), -1, host(manager._local_gather_idx)),
            "mirror_cp_reverse_index": host(manager._hidden_restore_idx),
            "positions": host(local.positions),
            "positions_cp": host(positions),
        }

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """See :meth:`inputmeta.conformance.engines.adapter.Adapter.translated`."""
        found: dict[str, Any] = translate(dialects_of(DIALECTS), request, raw)
        return found


def global_positions(vllm: Vllm, query_lens: np.ndarray, computed: np.ndarray) -> Any:
    """``positions`` of the whole batch, int64 [rows], on the device."""
    count, rows = len(query_lens), int(query_lens.sum())
    positions, states = vllm.full((rows + SPARE_ROWS,), "int64"), vllm.full((count + 2,), "int32")
    idx_mapping = vllm.tensor(np.arange(count, 0, -1), "int64")
    states[idx_mapping] = vllm.tensor(computed, "int32")
    vllm.modules.input_batch.prepare_pos_seq_lens(
        idx_mapping,
        vllm.tensor(np.append(0, np.cumsum(query_lens)), "int32"),
        states,
        positions,
        vllm.full((count + 2,), "int32"),
    )
    return positions[:rows]
