"""What transformers' continuous batching hands to a model each step (F-POS, F-IDS, F-CU).

``generation.continuous_batching.input_outputs.ContinuousBatchingIOs``: one object for all batches, whose static tensors
each step fills anew, as in its generation loop; prompts and decodes alike. Where its cache lies is the matter of
:mod:`inputmeta.conformance.engines.transformers_ring`: here its allocators have block tables of consecutive ids.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.transformers_ring import PACKAGE, NewAllocators
from inputmeta.conformance.subjects import Capabilities, Conditions, Result, SubjectError

FIELDS = frozenset({"num_reqs", "total_q", "positions", "input_ids", "cu_seqlens_q", "cu_seqlens_k"})
MOST_ROWS, MOST_REQUESTS, MOST_KEYS = 4096, 256, 4096
PAGE = 4
"""Tokens a page; no field here depends on it."""


class TransformersSteps(Adapter):
    """Steps of at most as many rows, requests and keys as its static tensors have room for."""

    subject = "transformers-steps"
    package = "transformers"
    capabilities = Capabilities(
        paths=frozenset({"decode", "prompt"}),
        fields=FIELDS,
        yoco_modes=frozenset({"off", "mask"}),
        max_total_q=MOST_ROWS,
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        conditions=Conditions(least_seqlen_q=1, most_seqlen_k=MOST_KEYS, placeholders=False, empty_steps=False),
    )

    def load(self) -> None:
        """Import it, and make the static tensors."""
        try:
            allocators = NewAllocators(import_module(f"{PACKAGE}.cache_allocators"))
        except ModuleNotFoundError as error:
            raise SubjectError(f"{self.name}: transformers {self.version} has no cache_allocators") from error
        modules = [import_module(f"{PACKAGE}.{name}") for name in ("input_outputs", "cache", "requests")]
        inputs, cache, self.requests = modules
        torch: Any = allocators.torch
        self.cache = SimpleNamespace(
            cache_allocators={
                f"{name}_attention": allocators.make(kind, PAGE, PAGE)[0]
                for name, kind in (("full", "full"), ("sliding", "swa"))
            },
            max_batch_tokens=MOST_ROWS,
            max_blocks_per_request=0,
            max_tokens_read=MOST_REQUESTS * MOST_KEYS,
        )
        extend = cache.PagedAttentionCache.extend_read_and_write_indices
        self.cache.extend_read_and_write_indices = partial(extend, self.cache)
        self.processors = SimpleNamespace(
            tensors_required=0, fill_defaults=lambda into: None, prepare_tensor_args=lambda **given: None
        )
        self.steps: Any = inputs.ContinuousBatchingIOs(
            cache=self.cache,
            config=SimpleNamespace(_attn_implementation="flash_attention_2"),
            continuous_batching_config=SimpleNamespace(
                max_requests_per_batch=MOST_REQUESTS, cuda_graph_booleans=(False, False), return_logprobs=False
            ),
            device=torch.device("cpu"),
            model_dtype=torch.float32,
            logit_processor=self.processors,
        )

    def call(self, request: Request) -> Raw:
        """``input_ids``, ``position_ids`` int32 [rows], ``cu_q``, ``cu_k`` int32 [requests + 1]: what a model gets."""
        states = []
        for index, sequence in enumerate(request.sequences):
            past = sequence.seqlen_k - sequence.seqlen_q
            known = list(sequence.token_ids[past : sequence.seqlen_k])
            tokens = known if request.path == "prompt" else [*known, *sequence.draft_tokens]
            state = SimpleNamespace(request_id=str(index), position_offset=past, tokens_to_process=tokens)
            states.append(self.requests.FutureRequestState(state, True, {}, sequence.seqlen_q))
            for allocator in self.cache.cache_allocators.values():
                allocator.block_table[str(index)] = range(2, 2 + MOST_KEYS)
        rows = sum(sequence.seqlen_q for sequence in request.sequences)
        read = sum(sequence.seqlen_k - sequence.seqlen_q for sequence in request.sequences)
        self.steps.prepare_batch_tensors(states, self.processors, False, rows, read, False)
        given = self.steps.get_model_kwargs()
        arrays = {
            "input_ids": given["input_ids"][0],
            "position_ids": given["position_ids"][0],
            "cu_q": given["cu_seq_lens_q"],
            "cu_k": given["cu_seq_lens_k"]["full_attention"],
        }
        return {name: tensor.numpy().copy() for name, tensor in arrays.items()}

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """The same arrays; the counts are what the arrays have room for."""
        names = {"positions": "position_ids", "input_ids": "input_ids", "cu_seqlens_q": "cu_q", "cu_seqlens_k": "cu_k"}
        arrays = {field: np.asarray(raw[name]) for field, name in names.items()}
        return {**arrays, "num_reqs": len(arrays["cu_seqlens_q"]) - 1, "total_q": len(arrays["input_ids"])}
