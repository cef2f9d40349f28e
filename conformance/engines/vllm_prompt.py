"""``vllm-prompt``: a step of prompt chunks of vLLM's second model runner, with the rows that truncation keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import dialects_of, translate
from inputmeta.conformance.dialects.base import INT32
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.vllm_decode import COUNTS, MOST_REQUESTS, MOST_ROWS
from inputmeta.conformance.engines.vllm_runtime import (
    Step,
    Vllm,
    builder,
    common_metadata,
    compressed_slots,
    dense_builder,
    host,
    input_batch,
    load,
    prepared,
)
from inputmeta.conformance.subjects.base import Capabilities, Result, Unsupported

DIALECTS = (
    "int64",
    "token-rows",
    "overwritten-rows-stored",
    "cyclic-table",
    "workspaces-by-request",
    "floor-steps",
    "compressed-by-request",
    "no-query-sentinel",
    "padded-width",
)
NO_KEY = Unsupported("None for a batch without a full compressed token")
KEPT = {
    "yoco_consumer_total_q",
    "yoco_consumer_cu_seqlens_q",
    "yoco_consumer_query_indices",
    "yoco_consumer_positions",
    "yoco_consumer_slot_mapping_store_swa",
}
ODD_WINDOW = Unsupported("W no power of two, which a range of the kernel has to be")
LATE_START = Unsupported("swa_valid_start past the first row, which a replay never is")
MODULES = ("backend_utils", "sparse_swa", "sparse_mla", "indexer", "cache_utils", "model_state")
"""What is imported of it."""


class VllmPrompt(Adapter):
    """vLLM's chunks of prompts as a subject."""

    subject = "vllm-prompt"
    package = "vllm"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=frozenset(
            {
                *COUNTS,
                *KEPT,
                "positions",
                "input_ids",
                "query_indices",
                "slot_mapping_store_swa",
                "slot_mapping_store_ca",
                "cu_seqlens_k",
                "ks",
                "ke",
                "total_k_compressed",
                "kv_swa_full_index",
                "kv_ca_index",
            }
        ),
        yoco_modes=frozenset({"off", "compact"}),
        max_total_q=MOST_ROWS,
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        dialects=frozenset(DIALECTS),
        conditions=Conditions(
            largest_token_slot=int(INT32.max),
            empty_steps=False,
            other_data_len=False,
            least_keep=1,
        ),
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
        """What vLLM builds of a batch, by the specification's flat keys."""
        step = prepared(self.vllm, request)
        raw: dict[str, Any] = {
            **counted(self.vllm, step),
            "positions": host(step.buffers.positions[: step.rows]),
            "input_ids": input_ids(self.vllm, request, step),
            "slot_mapping_store_swa": host(step.slots[1]),
            **compressed_fields(self.vllm, request, step),
            **dense_fields(self.vllm, request, step),
        }
        if "kv_swa_full_index" in request.expand and window_problem(request) is None:
            raw["kv_swa_full_index"] = window_index(self.vllm, request, step)
        if request.config.yoco_mode == "compact":
            raw |= kept_fields(self.vllm, request, step)
        return raw

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """See :meth:`inputmeta.conformance.engines.adapter.Adapter.translated`."""
        found: dict[str, Any] = translate(dialects_of(DIALECTS), request, raw)
        problem = window_problem(request)
        if problem is not None:
            found["kv_swa_full_index"] = problem
        for ratio in request.config.ca_ratios:
            del found[f"cu_compressed_seqlens_q.{ratio}"]  # vLLM has none: the dialect has counted the rows
            if f"total_k_compressed.{ratio}" not in raw:
                keys = [f"total_k_compressed.{ratio}"]
                keys += [f"{name}.{ratio}" for name in ("ks", "ke") if ratio in request.config.sparse_ratios]
                found |= dict.fromkeys(keys, NO_KEY)
        return found


def window_problem(request: Request) -> Unsupported | None:
    """Why vLLM does not list the windows of a batch, or None."""
    if request.config.window_size & (request.config.window_size - 1):
        return ODD_WINDOW
    late = any(sequence.swa_valid_start > sequence.seqlen_k - sequence.seqlen_q for sequence in request.sequences)
    return LATE_START if late else None


def counted(vllm: Vllm, step: Step) -> dict[str, Any]:
    """What the split of a batch counts, here with every sequence a prompt; and the owner of each row."""
    common = common_metadata(vllm, step, 0, int(step.key_lens.max()))
    decodes, prompts, decode_rows, prompt_rows = vllm.modules.backend_utils.split_decodes_and_prefills(
        common, decode_threshold=0
    )
    return {
        "num_reqs": decodes + prompts,
        "total_q": decode_rows + prompt_rows,
        "is_prompt": prompts > 0,
        "query_indices": host(common.token_to_req_indices(vllm.full((step.capacity,), "int32"))),
    }


def input_ids(vllm: Vllm, request: Request, step: Step) -> np.ndarray:
    """``input_ids``, int32 [rows]: tokens of the runner's table."""
    count = len(step.states)
    tokens = vllm.full((count + 2, max(len(sequence.token_ids) for sequence in request.sequences)), "int32")
    lengths, computed = vllm.full((count + 2,), "int32"), vllm.full((count + 2,), "int32")
    for state, sequence in zip(step.states.tolist(), request.sequences, strict=True):
        tokens[state, : len(sequence.token_ids)] = vllm.tensor(list(sequence.token_ids), "int32")
        lengths[state] = len(sequence.token_ids)
        computed[state] = sequence.seqlen_k - sequence.seqlen_q
    vllm.modules.input_batch.prepare_prefill_inputs(
        step.buffers.input_ids,
        vllm.full((1, count + 2), "int32"),
        step.idx_mapping,
        step.query_start_loc,
        tokens,
        lengths,
        computed,
    )
    return host(step.buffers.input_ids[: step.rows])


def compressed_fields(vllm: Vllm, request: Request, step: Step) -> dict[str, Any]:
    """Slots of every ratio, and what the indexer plans for it: ranges of keys, and how many these are.

    At ratio 1 its sums are those of all keys. A ratio without a full compressed token has no plan.
    """
    raw: dict[str, Any] = {}
    config = request.config
    lens = step.buffers.seq_lens[: len(step.states)]
    on_host = vllm.torch.tensor(step.key_lens, dtype=vllm.torch.int32)
    for ratio in sorted({1, *config.ca_ratios}):
        plan = vllm.modules.indexer.build_prefill_chunk_metadata(
            0,
            len(step.states),
            step.query_start_loc,
            step.query_start_loc_cpu,
            lens,
            lens // ratio,
            on_host // ratio,
            step.tables[0],
            ratio,
        )
        if ratio == 1:
            raw["cu_seqlens_k"] = host(plan.cu_seq_lens)
        if ratio not in config.ca_ratios:
            continue
        raw[f"slot_mapping_store_ca.{ratio}"] = compressed_slots(vllm, request, step, ratio)
        if plan is None:
            continue
        raw[f"total_k_compressed.{ratio}"] = plan.total_seq_lens
        if ratio in config.sparse_ratios:
            raw |= {f"ks.{ratio}": host(plan.cu_seqlen_ks), f"ke.{ratio}": host(plan.cu_seqlen_ke)}
    return raw


def dense_fields(vllm: Vllm, request: Request, step: Step) -> dict[str, Any]:
    """All compressed keys that each row sees, of the dense ratios."""
    raw: dict[str, Any] = {}
    if "kv_ca_index" in request.expand:
        for ratio in sorted(set(request.config.dense_ratios)):
            mla, common = dense_builder(vllm, request, step, ratio, decode_threshold=-1)
            owners = common.token_to_req_indices(vllm.full((step.capacity,), "int32"))
            built = mla._build_c128a_metadata(common, owners)
            raw[f"kv_ca_index.{ratio}"] = host(built["c128a_prefill_topk_indices"])
    return raw


def window_index(vllm: Vllm, request: Request, step: Step) -> np.ndarray:
    """``kv_swa_full_index``, int32 [rows, W rounded up]: each row's keys in the workspaces that are gathered for it."""
    count, window = len(step.states), request.config.window_size
    lens = step.buffers.seq_lens[:count]
    swa = builder(
        vllm.modules.sparse_swa.DeepseekSparseSWAMetadataBuilder,
        window_size=window,
        max_model_len=request.config.max_model_len,
        max_num_batched_tokens=step.capacity,
    )
    starts = vllm.tensor([sequence.swa_valid_start for sequence in request.sequences], "int32")
    planned = swa._build_deepseek_v4_metadata(
        0, count, lens, lens.cpu(), step.query_start_loc, step.query_start_loc_cpu, starts
    )
    index, _ = vllm.modules.cache_utils.combine_topk_swa_indices(
        vllm.full((step.rows, 1), "int32"),
        step.query_start_loc,
        lens,
        planned["prefill_gather_lens"],
        window,
        0,
        0,
        window - 1 + int(step.query_lens.max()),
        0,
    )
    return host(index)


def kept_fields(vllm: Vllm, request: Request, step: Step) -> dict[str, Any]:
    """The rows that the layers behind the last source of keys compute, each sequence's last ones, as many as the
    scheduler's window says.
    """
    count, rows, keep = len(step.states), step.rows, request.config.yoco_prefill_keep_tokens
    kept = np.minimum(step.query_lens, keep)
    state = builder(
        vllm.modules.model_state.DeepseekV41ModelState,
        pcp_size=1,
        device=vllm.device,
        decoder_replay_layers=SimpleNamespace(window=keep),
        _dropped_before=vllm.modules.buffer_utils.UvaBufferPool(count + 1, vllm.torch.int32),
        _kept_rows=vllm.full((rows,), "int64"),
        _kept_query_start_loc=vllm.full((count + 1,), "int32"),
        _kept_positions=vllm.full((rows,), "int64"),
        _kept_slot_mappings=vllm.full((2, rows), "int64"),
        _kept_kv_start=vllm.full((count,), "int32"),
    )
    batch = input_batch(
        vllm,
        num_reqs=count,
        query_start_loc=step.query_start_loc,
        query_start_loc_np=step.query_start_loc_cpu.numpy(),
        seq_lens=step.buffers.seq_lens[:count],
        positions=step.buffers.positions[:rows],
    )
    replayed = vllm.full((count,), "int32", 0)
    total = int(kept.sum())
    made, slots = state._kept_input_batch(batch, step.slots, replayed, kept, total)
    return {
        "yoco_consumer_total_q": made.num_tokens,
        "yoco_consumer_cu_seqlens_q": host(made.query_start_loc),
        "yoco_consumer_query_indices": host(state._kept_rows[:total]),
        "yoco_consumer_positions": host(made.positions),
        "yoco_consumer_slot_mapping_store_swa": host(slots[1]),
    }
