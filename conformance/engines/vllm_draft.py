"""``vllm-draft``: a draft step of vLLM's second model runner, replayed on the buffers that a graph was captured with.

A draft step has a token a request. Its metadata is built once, for a batch of padding; each step then refills lengths,
tables and slots and updates the metadata in place. Placeholders are padding rows, as the rows behind the batch are:
behind all requests, of length 0, with a table of zeros.

It differs: the update takes the rows' numbers for their slots, so no row is padding to the kernel of compressed slots,
and one of length 0 stores at the first place of block 0. Production reaches this in every padded graph, and block 0 is
vLLM's null block, from which nothing is read (``known/vllm-draft.toml``; behind the batch ``padding-in-null-block``).
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import dialects_of, translate
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.vllm_decode import (
    MOST_REQUESTS,
    indexer_builder,
    window_builder,
    with_offsets,
)
from inputmeta.conformance.engines.vllm_runtime import (
    SPARE_ROWS,
    Step,
    Vllm,
    block_tables,
    common_metadata,
    host,
    load,
)
from inputmeta.conformance.subjects.base import Capabilities, Result, Unsupported

DIALECTS = ("int64", "cyclic-table")
PADDING = "padding-in-null-block"
"""A row behind the batch may store a token of a ratio above 1 at the first place of block 0."""
NEUTRAL = {"context_lens": 0, "klen": 0, "kv_swa_index_len": 0, "valid_token_mask": 0}
"""What a field's cells hold behind the batch; -1 if it is not named."""
OF_REQUESTS = ("context_lens", "klen", "kv_swa_index", "kv_swa_index_offset_len")
IDLE = Unsupported("a padding row has no length")


class VllmDraft(Adapter):
    """vLLM's draft step as a subject."""

    subject = "vllm-draft"
    package = "vllm"
    capabilities = Capabilities(
        paths=frozenset({"decode"}),
        fields=frozenset({"slot_mapping_store_ca", "slot_mapping_store_swa", "valid_token_mask", *OF_REQUESTS}),
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        dialects=frozenset({*DIALECTS, PADDING}),
        conditions=Conditions(most_seqlen_q=1, empty_steps=False),
    )

    def load(self) -> None:
        """See :meth:`inputmeta.conformance.engines.adapter.Adapter.load`."""
        self.vllm = load("sparse_swa", "sparse_mla", "indexer")

    def call(self, request: Request) -> Raw:
        """What the buffers hold after the step, requests first, then padding rows, by the specification's flat keys."""
        vllm = self.vllm
        step, replay = captured(vllm, request)
        swa = window_builder(vllm, request, step)
        window = swa.build(0, common_metadata(vllm, step, 1, request.config.max_model_len))
        builders = {
            ratio: indexer_builder(vllm, request, step, ratio, one_kernel=ratio % 2 == 1)
            for ratio in sorted({1, *map(int, request.config.ca_ratios)})
        }
        common = common_metadata(vllm, step, 0, request.config.max_model_len)
        plans = {ratio: each.build(0, common) for ratio, each in builders.items()}
        replay()
        swa.update_draft_decode_metadata(window)
        raw = {
            "slot_mapping_store_swa": host(window.slot_mapping),
            "valid_token_mask": host(window.is_valid_token),
            "kv_swa_index": host(window.decode_swa_indices)[:, 0],
            "kv_swa_index_len": host(window.decode_swa_lens),
        }
        for ratio, plan in plans.items():
            builders[ratio].update_draft_decode_metadata(plan)
            lengths = host(plan.decode.seq_lens)[:, 0]
            if ratio == 1:
                raw["context_lens"] = lengths
            if ratio in request.config.ca_ratios:
                raw[f"slot_mapping_store_ca.{ratio}"] = host(plan.slot_mapping)
            if ratio in request.config.sparse_ratios:
                raw[f"klen.{ratio}"] = lengths
        return raw

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """See :meth:`inputmeta.conformance.engines.adapter.Adapter.translated`."""
        fields = {key: in_batch(request, key, np.asarray(value)) for key, value in raw.items()}
        found: dict[str, Any] = translate(dialects_of(DIALECTS), request, with_offsets(request, fields))
        if any(sequence.is_placeholder for sequence in request.sequences):
            found |= {key: IDLE for key in found if key.partition(".")[0] in OF_REQUESTS}
        return found


def vllm_rows(request: Request) -> list[int]:
    """The sequence of each row: requests, then placeholders."""
    idle = [sequence.is_placeholder for sequence in request.sequences]
    return sorted(range(len(idle)), key=lambda index: idle[index])


def in_batch(request: Request, key: str, values: np.ndarray) -> np.ndarray:
    """The batch's rows in its order, if those behind it are neutral; else all of them: too many."""
    order = vllm_rows(request)
    batch, behind = values[: len(order)], values[len(order) :]
    neutral = behind == NEUTRAL.get(key.partition(".")[0], -1)
    if key.startswith("slot_mapping_store_ca") and key != "slot_mapping_store_ca.1":
        neutral |= behind == 0
    return batch[np.argsort(order)] if neutral.all() else values


def captured(vllm: Vllm, request: Request) -> tuple[Step, Any]:
    """Buffers of a graph as they are when it is captured, all rows padding; and what refills them for the step."""
    real = [sequence for sequence in request.sequences if not sequence.is_placeholder]
    if not real:
        raise Unsupported("a batch of padding alone")
    count, rows = len(real), len(request.sequences) + SPARE_ROWS
    states = np.arange(count, 0, -1)
    tables, page = block_tables(vllm, dataclasses.replace(request, sequences=tuple(real)), states, rows + 1, rows)
    starts = vllm.torch.arange(rows + 1, dtype=vllm.torch.int32, device=vllm.device)
    buffers = SimpleNamespace(positions=vllm.full((rows,), "int64", 0), seq_lens=vllm.full((rows,), "int32", 1))
    idx_mapping = vllm.tensor([*states, *[-1] * (rows - count)], "int64")
    step = Step(
        query_lens=np.ones(rows, dtype=np.int64),
        key_lens=np.ones(rows, dtype=np.int64),
        states=states,
        idx_mapping=idx_mapping,
        query_start_loc=starts,
        query_start_loc_cpu=starts.cpu(),
        buffers=buffers,
        tables=tables.get_dummy_block_tables(rows),
        slots=tables.get_dummy_slot_mappings(rows),
        page=page,
    )

    def replay() -> None:
        lengths = [sequence.seqlen_k for sequence in real]
        buffers.seq_lens.copy_(vllm.tensor([*lengths, *[0] * (rows - count)], "int32"))
        buffers.positions[:count] = vllm.tensor(lengths, "int64") - 1
        tables.gather_block_tables(idx_mapping[:count], rows)
        tables.compute_slot_mappings(idx_mapping, starts, buffers.positions, rows)

    return step, replay
