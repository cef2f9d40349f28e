"""``vllm-decode``: a decode step of vLLM's second model runner, with drafts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import dialects_of, translate
from inputmeta.conformance.dialects.base import INT32
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.vllm_runtime import (
    Step,
    Vllm,
    builder,
    common_metadata,
    compressed_slots,
    dense_builder,
    host,
    load,
    prepared,
)
from inputmeta.conformance.subjects.base import Capabilities, Result, Unsupported

DIALECTS = ("int64", "overwritten-rows-stored", "cyclic-table", "no-query-sentinel")
COUNTS = ("num_reqs", "total_q", "is_prompt")
IDLE = Unsupported("a row of a placeholder reads nothing")
"""Of a field of keys: vLLM gives rows without a slot no keys, where the specification's placeholder has them."""
READ = ("kv_swa_index", "kv_ca_index_len")
"""How the names of what a row reads begin."""
MOST_ROWS, MOST_REQUESTS = 64, 32
"""Larger batches take an interpreter longer than a worker has."""
MODULES = ("sparse_swa", "sparse_mla", "indexer")
"""What is imported of it."""


class VllmDecode(Adapter):
    """vLLM's decode step as a subject."""

    subject = "vllm-decode"
    package = "vllm"
    capabilities = Capabilities(
        paths=frozenset({"decode"}),
        fields=frozenset(
            {
                *COUNTS,
                "positions",
                "input_ids",
                "query_indices",
                "valid_token_mask",
                "slot_mapping_store_swa",
                "slot_mapping_store_ca",
                "context_lens",
                "block_tables",
                "klen",
                "kv_swa_index",
                "kv_swa_index_offset_len",
                "kv_ca_index",
                "kv_ca_index_len",
            }
        ),
        max_total_q=MOST_ROWS,
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        dialects=frozenset(DIALECTS),
        conditions=Conditions(largest_token_slot=int(INT32.max)),
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
        """What vLLM builds of a batch, by the specification's flat keys; lengths of windows by themselves."""
        step = prepared(self.vllm, request)
        raw = {
            "positions": host(step.buffers.positions[: step.rows]),
            "input_ids": input_ids(self.vllm, request, step),
            **window_fields(self.vllm, request, step),
            **indexer_fields(self.vllm, request, step),
            **dense_fields(self.vllm, request, step),
        }
        if "kv_swa_index" not in request.expand:
            raw["kv_swa_index"] = raw["kv_swa_index"][:, :1]
        return {key: value for key, value in raw.items() if not (has_idle_rows(request) and key.startswith(READ))}

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """See :meth:`inputmeta.conformance.engines.adapter.Adapter.translated`."""
        fields, config = dict(raw), request.config
        columns = max(num_blocks(config, sequence) for sequence in request.sequences)
        fields["block_tables"] = np.asarray(fields["block_tables"])[:, : max(1, columns)]
        if not has_idle_rows(request):
            fields = with_offsets(request, fields)
        found: dict[str, Any] = translate(dialects_of(DIALECTS), request, fields)
        if has_idle_rows(request):
            found |= dict.fromkeys(("kv_swa_index_offset_len", "kv_swa_index"), IDLE)
            found |= {f"kv_ca_index_len.{ratio}": IDLE for ratio in config.dense_ratios}
        return found


class PastInt32(VllmDecode):
    """The same with blocks whose tokens' own slots are past int32, which a ratio above 1 allows.

    It differs: block number times block size is an int32 product, and a token whose slot wraps below 0 counts as
    padding to whatever is asked next. No cache that fits a device has such blocks.
    """

    subject = "vllm-decode-past-int32"
    capabilities = replace(VllmDecode.capabilities, conditions=Conditions())


def with_offsets(request: Request, fields: Raw) -> dict[str, np.ndarray | int | bool]:
    """The fields of a decode window, out of its cells and their count; the cells themselves if they are asked for."""
    index, lengths = np.asarray(fields["kv_swa_index"]), np.asarray(fields["kv_swa_index_len"])
    left_out = {"kv_swa_index_len", *({"kv_swa_index"} - set(request.expand))}
    offsets = {"kv_swa_index_offset_len": np.stack([index[:, 0], lengths], axis=1)}
    return {key: value for key, value in fields.items() if key not in left_out} | offsets


def has_idle_rows(request: Request) -> bool:
    """Whether a batch has a placeholder."""
    return any(sequence.is_placeholder for sequence in request.sequences)


def num_blocks(config: oracle.MetadataConfig, sequence: oracle.SequenceMetadata) -> int:
    """F-BLOCKS. vLLM has a block for the tokens past the last compressed one too: a column that is not defined here."""
    smallest = min(config.ca_ratios)
    return -(-(sequence.seqlen_k // smallest) // (config.block_size // smallest))


def input_ids(vllm: Vllm, request: Request, step: Step) -> np.ndarray:
    """``input_ids``, int32 [rows]: the last sampled token of each request, and its drafts."""
    count = len(step.states)
    most = max(1, *(len(sequence.draft_tokens) for sequence in request.sequences), 1)
    sampled = vllm.full((count + 2, 1), "int32")
    drafts = vllm.full((count + 2, most), "int32")
    prompts = vllm.full((count + 2,), "int32")
    for state, sequence in zip(step.states.tolist(), request.sequences, strict=True):
        first = sequence.seqlen_k - sequence.seqlen_q
        sampled[state] = sequence.token_ids[first]
        drafts[state, : len(sequence.draft_tokens)] = vllm.tensor(list(sequence.draft_tokens), "int32")
        prompts[state] = first
    vllm.modules.input_batch.combine_sampled_and_draft_tokens(
        step.buffers.input_ids,
        step.idx_mapping,
        sampled,
        step.query_start_loc,
        step.buffers.seq_lens,
        prompts,
        drafts,
        step.query_start_loc,  # in a decode step every row has logits
        step.rows,
    )
    return host(step.buffers.input_ids[: step.rows])


def window_builder(vllm: Vllm, request: Request, step: Step) -> Any:
    """``DeepseekSparseSWAMetadataBuilder``, with buffers of the step's capacity."""
    window, rows = request.config.window_size, step.capacity
    return builder(
        vllm.modules.sparse_swa.DeepseekSparseSWAMetadataBuilder,
        decode_threshold=int(step.query_lens.max()),
        window_size=window,
        noncausal_index_width=0,
        max_image_tokens=0,
        is_dspark=False,
        block_size=step.page,
        _layer_types=frozenset(),
        decode_swa_indices_noncausal=None,
        token_to_req_indices=vllm.full((rows,), "int32"),
        is_valid_token=vllm.full((rows,), "bool", 1),
        decode_swa_indices=vllm.full((rows, 1, window), "int32"),
        decode_swa_lens=vllm.full((rows,), "int32"),
        no_replay_start=vllm.full((len(step.query_lens) + 1,), "int32", 0),
    )


def window_fields(vllm: Vllm, request: Request, step: Step) -> dict[str, Any]:
    """Of the window's metadata builder: counts, owners, validity, slots, and each row's keys in the paged window."""
    swa = window_builder(vllm, request, step)
    built = swa.build(0, common_metadata(vllm, step, 1, request.config.max_model_len))
    return {
        "num_reqs": built.num_decodes + built.num_prefills,
        "total_q": built.num_decode_tokens + built.num_prefill_tokens,
        "is_prompt": built.num_prefills > 0,
        "query_indices": host(built.token_to_req_indices),
        "valid_token_mask": host(built.is_valid_token),
        "slot_mapping_store_swa": host(built.slot_mapping),
        "kv_swa_index": host(built.decode_swa_indices)[:, 0],
        "kv_swa_index_len": host(built.decode_swa_lens),
    }


def indexer_fields(vllm: Vllm, request: Request, step: Step) -> dict[str, Any]:
    """Of the indexer's metadata builder: slots and lengths of the sparse ratios; lengths and tables of all rows.

    Both of its ways to spread a step with drafts over rows are taken: one kernel, at ratio 1; and, at the others, the
    one of GPUs whose attention takes no rows of different lengths.
    """
    raw: dict[str, Any] = {}
    config = request.config
    for ratio in sorted({1, *config.sparse_ratios}):
        indexer = indexer_builder(vllm, request, step, ratio, one_kernel=ratio == 1)
        built = indexer.build(0, common_metadata(vllm, step, 0, config.max_model_len))
        lengths = host(built.decode.seq_lens)[:, 0]
        if ratio in config.ca_ratios:
            raw[f"slot_mapping_store_ca.{ratio}"] = host(built.slot_mapping)
        if ratio in config.sparse_ratios:
            raw[f"klen.{ratio}"] = lengths
        if ratio == 1:
            raw["context_lens"] = lengths
            raw["block_tables"] = host(built.decode.block_table)
    return raw


def indexer_builder(vllm: Vllm, request: Request, step: Step, ratio: int, *, one_kernel: bool) -> Any:
    """``DeepseekV32IndexerMetadataBuilder`` of a ratio, with buffers of the step's capacity, on one GPU."""
    rows, longest = step.capacity, int(step.query_lens.max())
    return builder(
        vllm.modules.indexer.DeepseekV32IndexerMetadataBuilder,
        vllm_config=SimpleNamespace(speculative_config=None),
        compress_ratio=ratio,
        kv_cache_spec=SimpleNamespace(num_states=request.config.block_size // ratio),
        dcp_world_size=1,
        use_pcp=False,
        pcp_world_size=1,
        cp_kv_cache_interleave_size=1,
        num_speculative_tokens=longest - 1,
        decode_threshold=longest,
        use_flattening=not one_kernel,
        supports_varlen=one_kernel,
        num_sms=1,
        arange_buffer=vllm.torch.arange(rows, dtype=vllm.torch.int32, device=vllm.device),
        compressed_slot_mapping_buffer=vllm.full((rows,), "int64"),
        decode_seq_lens_buffer=vllm.full((rows,), "int32"),
        expanded_seq_lens_buffer=vllm.full((rows,), "int32"),
        expanded_block_table_buffer=vllm.full((rows, step.tables[0].shape[1]), "int32"),
        decode_lens_buffer=vllm.full((rows,), "int32"),
        per_req_decode_lens_buffer=vllm.full((rows,), "int32"),
        decode_indices_buffer=vllm.full((rows,), "int32"),
        scheduler_metadata_buffer=vllm.full((2, 2), "int32"),
    )


def dense_fields(vllm: Vllm, request: Request, step: Step) -> dict[str, Any]:
    """Slots of the dense ratios; cells of all compressed keys that each row sees, and how many these are."""
    raw: dict[str, Any] = {}
    config = request.config
    for ratio in sorted(set(config.dense_ratios)):
        if ratio not in config.sparse_ratios:
            raw[f"slot_mapping_store_ca.{ratio}"] = compressed_slots(vllm, request, step, ratio)
        if "kv_ca_index" in request.expand:
            mla, common = dense_builder(vllm, request, step, ratio, int(step.query_lens.max()))
            owners = common.token_to_req_indices(vllm.full((step.capacity,), "int32"))
            built = mla._build_c128a_metadata(common, owners)
            raw[f"kv_ca_index.{ratio}"] = host(built["c128a_global_decode_topk_indices"])[:, 0]
            raw[f"kv_ca_index_len.{ratio}"] = host(built["c128a_decode_topk_lens"])
    return raw
