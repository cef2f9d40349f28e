"""Transformers' continuous batching over steps: its cache gives the blocks, and its inputs are built from them.

``generation.continuous_batching.cache.PagedAttentionCache``, of one full attention layer on the CPU, and
``input_outputs.ContinuousBatchingIOs`` on it, as its generation loop has them: a request that ended is freed, each
request of a step is stored (``can_store_request_tokens``), and the batch is prepared. A history has a cache of its own.

The cache keeps two sectors, here of a block each, for what nobody reads or writes: block ids begin at 2. Where no
request of a step has a past, nothing is read back from the cache: a row's keys are then the new rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.allocated import Allocates
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import narrowed
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.transformers_ring import (
    NOWHERE,
    PACKAGE,
    as_segments,
    block_cells,
    decode_keys,
    segments,
    split,
)
from inputmeta.conformance.engines.transformers_steps import FIELDS, MOST_REQUESTS, MOST_ROWS, TransformersSteps
from inputmeta.conformance.subjects import (
    ALLOCATED_BLOCKS,
    Capabilities,
    Conditions,
    Rejection,
    Result,
    SubjectError,
    Unsupported,
)

TRASH = 2
"""Blocks of the cache that no request gets."""
HEAD_DIM = 64
"""Cells of two bytes of a token's key: a page is then a multiple of 128 bytes, and a sector is a block."""
MODEL = SimpleNamespace(
    num_hidden_layers=1,
    num_attention_heads=1,
    num_key_value_heads=1,
    head_dim=HEAD_DIM,
    hidden_size=HEAD_DIM,
    vocab_size=2,
    _attn_implementation="flash_attention_2",
)
"""What the cache and the inputs ask of a model's configuration."""
FULL = "full_attention"
DECODE = FIELDS | {"slot_mapping_store_ca", "kv_ca_index", "kv_ca_index_len", "block_tables"}
PROMPT = FIELDS | {"slot_mapping_store_ca", "load_segments_ca"}
SEVERAL_ROWS = "a block table where a request has several rows"


class TransformersPaged(Adapter):
    """A cache that allocates, and the steps that are built on it."""

    subject = "transformers-paged"
    package = "transformers"
    capabilities = Capabilities(
        paths=frozenset({"decode", "prompt"}),
        fields=DECODE | PROMPT,
        fields_on={"decode": DECODE, "prompt": PROMPT},
        yoco_modes=frozenset({"off", "mask"}),
        max_total_q=MOST_ROWS,
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        dialects=frozenset({"int64"}),
        allocates=Allocates(reserved_blocks=TRASH, states=False),
        conditions=Conditions(
            dense_ratios=frozenset({1}),
            sparse_ratios=frozenset(),
            least_seqlen_q=1,
            placeholders=False,
            empty_steps=False,
        ),
    )

    def load(self) -> None:
        """Import the cache and what is built on it."""
        try:
            import_module(f"{PACKAGE}.cache_allocators")
        except ModuleNotFoundError as error:
            raise SubjectError(f"{self.name}: transformers {self.version} has no cache_allocators") from error
        modules = [import_module(f"{PACKAGE}.{name}") for name in ("input_outputs", "cache", "requests")]
        self.inputs: Any = modules[0]
        self.caches: Any = modules[1]
        self.requests: Any = modules[2]
        import torch  # noqa: PLC0415 - the engine has it

        self.torch: Any = torch
        self.processors = SimpleNamespace(
            tensors_required=0, fill_defaults=lambda into: None, prepare_tensor_args=lambda **given: None
        )
        self.cache: Any = None
        self.steps: Any = None

    def reset(self) -> None:
        """A history begins; the first step brings the size of its cache."""
        self.cache = self.steps = None

    def begin(self, page: int, num_blocks: int) -> None:
        """A cache of so many blocks of ``page`` tokens beside its trash, and the inputs on it."""
        config = SimpleNamespace(
            max_blocks_per_request=max(1, num_blocks),
            fallback_max_blocks_per_request=1,
            page_size=page,
            num_blocks=num_blocks,
            allow_block_sharing=False,
            max_batch_tokens=MOST_ROWS,
            max_requests_per_batch=MOST_REQUESTS,
            max_memory_percent=1.0,
            use_async_batching=False,
            return_logprobs=False,
            cuda_graph_booleans=(False, False),
        )
        cpu, dtype = self.torch.device("cpu"), self.torch.float16
        self.caches.get_device_and_memory_breakdown = lambda: (cpu, 2**40, 0, 0)  # not what this machine has
        self.cache = self.caches.PagedAttentionCache(MODEL, config, cpu, SimpleNamespace(tp_size=1), dtype)
        self.steps = self.inputs.ContinuousBatchingIOs(self.cache, MODEL, config, cpu, dtype, self.processors)

    def call(self, request: Request) -> Raw:
        """What a model gets of a step, and the tables.

        ``input_ids``, ``position_ids`` int32 [rows], ``cu_q``, ``cu_k`` int32 [requests + 1], ``write`` int64 [rows],
        ``read`` int64 [keys], or of none; ``stride``: cells from block to block; ``tables`` int64 [requests, width], -1
        behind the ids. Where each request has one row, ``kernel_tables`` int32 [requests, width], in pages of
        ``page_stride`` a block.
        """
        step = request.allocation
        assert step is not None
        if self.cache is None:
            self.begin(request.config.block_size, step.num_blocks)
        for ended in step.ended:
            self.cache.free_blocks(str(ended))
        for place, (whose, sequence) in enumerate(zip(step.requests, request.sequences, strict=True)):
            past = sequence.seqlen_k - sequence.seqlen_q
            state = SimpleNamespace(request_id=str(whose), current_len=lambda past=past: past)
            if not self.cache.can_store_request_tokens(state, sequence.seqlen_q):
                raise Rejection("A-FIT", place, "block_table", "can_store_request_tokens is False")
        given = self.prepared(request, step.requests, fast=False)
        allocator = self.cache.cache_allocators[FULL]
        tables = [allocator.block_table[str(whose)] for whose in step.requests]
        width = max(map(len, tables))
        raw: dict[str, np.ndarray | int | bool] = {
            "input_ids": given["input_ids"][0].numpy().copy(),
            "position_ids": given["position_ids"][0].numpy().copy(),
            "cu_q": given["cu_seq_lens_q"].numpy().copy(),
            "cu_k": given["cu_seq_lens_k"][FULL].numpy().copy(),
            "write": given["write_index"][0].numpy().copy(),
            "read": given["read_index"][0].numpy().copy(),
            "stride": allocator.block_physical_stride,
            "tables": np.array([[*table, *[-1] * (width - len(table))] for table in tables], dtype=np.int64),
        }
        if request.path == "decode" and all(sequence.seqlen_q == 1 for sequence in request.sequences):
            given = self.prepared(request, step.requests, fast=True)
            raw["kernel_tables"] = given["block_table"][0].numpy()[:, :width].copy()
            raw["page_stride"] = allocator.block_physical_stride // allocator.tokens_per_page
        return raw

    def prepared(self, request: Request, requests: Sequence[int], *, fast: bool) -> Any:  # noqa: ANN401 - of the engine
        """The batch as a model gets it; ``fast``: with block tables in place of cells."""
        states = []
        for whose, sequence in zip(requests, request.sequences, strict=True):
            past = sequence.seqlen_k - sequence.seqlen_q
            known = list(sequence.token_ids[past : sequence.seqlen_k])
            tokens = known if request.path == "prompt" else [*known, *sequence.draft_tokens]
            state = SimpleNamespace(request_id=str(whose), position_offset=past, tokens_to_process=tokens)
            states.append(self.requests.FutureRequestState(state, True, {}, sequence.seqlen_q))
        rows = sum(sequence.seqlen_q for sequence in request.sequences)
        read = sum(sequence.seqlen_k - sequence.seqlen_q for sequence in request.sequences)
        self.steps.prepare_batch_tensors(states, self.processors, fast, rows, read, False)
        return self.steps.get_model_kwargs()

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """Cells as slots of the blocks; keys per row, or as segments."""
        page = request.config.block_size
        cells = {"full_stride": raw["stride"], "full_first": 0}
        write = block_cells(cells, np.asarray(raw["write"]), page)
        read = block_cells(cells, np.asarray(raw["read"]), page)
        lengths = np.diff(np.asarray(raw["cu_k"]))
        keys = split(read if len(read) else write, lengths)
        fields = {
            **TransformersSteps.translated(request, raw),
            "slot_mapping_store_ca.1": narrowed(write),
            ALLOCATED_BLOCKS: np.asarray(raw["tables"]),
        }
        if request.path == "decode":
            return {**fields, **decode_keys(request, keys), "block_tables": kernel_tables(request, raw)}
        bases = np.cumsum([0, *(max(1, len(each)) for each in keys)])
        plan = [row for each, base in zip(keys, bases, strict=False) for row in segments(each, int(base), page)]
        return {**fields, "load_segments_ca.1": as_segments(plan)}


def kernel_tables(request: Request, raw: Raw) -> np.ndarray | Unsupported:
    """F-BLOCKS: the tables of a kernel, of one row a request; its columns are those of the longest."""
    if "kernel_tables" not in raw:
        return Unsupported(SEVERAL_ROWS)
    width = max(-(-sequence.seqlen_k // request.config.block_size) for sequence in request.sequences)
    blocks, rest = np.divmod(np.asarray(raw["kernel_tables"])[:, :width].astype(np.int64), raw["page_stride"])
    return narrowed(np.where(rest == 0, blocks, NOWHERE))
