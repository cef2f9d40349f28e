"""FlashInfer's rows of a ragged batch (F-POS, F-QIDX): a Triton kernel.

``flashinfer.page.get_batch_indices_positions``; the lengths that it takes come from ``get_seq_lens`` beside it, of a
page table as starts and last pages' lengths (``pages-by-starts``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.triton_files import absent, files_of, host, torch_for_triton
from inputmeta.conformance.subjects import Capabilities, Conditions, Result

SPARE = 3
"""Rows past the batch that are asked for: they are to be (-1, 0)."""
TRACES = (
    "append_paged_kv_cache_trace",
    "append_paged_mla_kv_cache_trace",
    "nvfp4_quantize_append_paged_kv_cache_trace",
    "nvfp4_quantize_append_paged_kv_cache_with_slot_mapping_trace",
    "nvfp4_quantize_append_paged_mla_kv_cache_trace",
)
UTILS = ("TensorLayout", "_check_kv_layout", "_unpack_paged_kv_cache", "check_shape_dtype_device")


def plain(function: Any = None, *_: object, **__: object) -> Any:  # noqa: ANN401 - a decorator, with or without a call
    """Stands for a decorator that traces or registers: the function as it is."""
    return function if callable(function) else lambda decorated: decorated


class FlashinferPositions(Adapter):
    """Sequence and position of each row; rows past the batch have sequence -1."""

    subject = "flashinfer-positions"
    package = "flashinfer-python"
    capabilities = Capabilities(
        paths=frozenset({"decode", "prompt"}),
        fields=frozenset({"positions", "query_indices"}),
        yoco_modes=frozenset({"off", "mask"}),
        max_total_q=2048,
        max_num_reqs=64,
        refuses=frozenset(),
        dialects=frozenset({"pages-by-starts"}),
        conditions=Conditions(placeholders=False, empty_steps=False),
    )

    def load(self) -> None:
        """Import two files, with stand-ins for what compiles and traces."""
        self.torch = torch_for_triton()

        utils: dict[str, object] = {**absent(*UTILS), "register_custom_op": plain, "register_fake_op": plain}
        neighbours: dict[str, dict[str, object]] = {
            "flashinfer.api_logging": {"flashinfer_api": plain},
            "flashinfer.trace.templates.page": absent(*TRACES),
            "flashinfer.jit.page": absent("gen_page_module"),
            "flashinfer.utils": utils,
        }
        folder = packages.folder(self.package, self.version)
        self.page: Any = files_of(folder, ("flashinfer.page", "flashinfer.triton.page"), neighbours)[0]

    def call(self, request: Request) -> Raw:
        """``sequences``, ``positions`` int32 [total_q + SPARE]."""
        page = request.config.block_size
        rows = [sequence.seqlen_q for sequence in request.sequences]
        pages = [-(-sequence.seqlen_k // page) for sequence in request.sequences]
        last = [s.seqlen_k - max(0, count - 1) * page for s, count in zip(request.sequences, pages, strict=True)]
        tensor = self.torch.tensor
        starts = tensor(np.cumsum([0, *pages]).tolist(), "int32")
        lengths = self.page.get_seq_lens(starts, tensor(last, "int32"), page)
        found = self.page.get_batch_indices_positions(
            tensor(np.cumsum([0, *rows]).tolist(), "int32"), lengths, sum(rows) + SPARE
        )
        return {"sequences": host(found[0]), "positions": host(found[1])}

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """The batch's rows. Raises ValueError if a row past them is not (-1, 0)."""
        total = sum(sequence.seqlen_q for sequence in request.sequences)
        sequences, positions = np.asarray(raw["sequences"]), np.asarray(raw["positions"])
        if (sequences[total:] != -1).any() or positions[total:].any():
            raise ValueError(f"rows past the batch: {sequences[total:].tolist()}, {positions[total:].tolist()}")
        return {"query_indices": sequences[:total], "positions": positions[:total]}
