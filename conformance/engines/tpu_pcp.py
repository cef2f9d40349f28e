"""tpu-inference's layout of prompts over the ranks of a context parallel group (F-ZIGZAG, F-REVERSE).

``tpu_inference.runner.pcp_utils``: the numpy functions, and ``PCPPreprocessor.prepare_inputs`` up to where it would
hand arrays to a device. With pages of one token its zigzag is the specification's, cell for cell; int64.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import narrowed
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.standins import module_by_path, standin
from inputmeta.conformance.subjects import Capabilities, Conditions, Result, Unsupported

FIELDS = frozenset({"cp_mirror_len", "mirror_cp_index", "mirror_cp_reverse_index", "positions"})
PAGE = 1
"""Tokens that its blocks are rounded up to."""


class TpuPcp(Adapter):
    """Its layout, its permutation, its slots, and the positions in rank order."""

    subject = "tpu-pcp"
    package = "tpu-inference"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=FIELDS,
        max_cp_size=64,
        yoco_modes=frozenset({"off", "mask", "compact"}),
        refuses=frozenset(),
        dialects=frozenset({"int64"}),
        conditions=Conditions(least_cp_size=2, least_seqlen_q=1, empty_steps=False),
    )

    def load(self) -> None:
        """Import the one file, with stand-ins for JAX, vLLM and the rest."""
        standins = [
            standin("jax"),
            standin("jax.sharding", Mesh=object, NamedSharding=object, PartitionSpec=object),
            standin("vllm"),
            standin("vllm.utils"),
            standin("vllm.utils.math_utils", cdiv=lambda a, b: -(-a // b)),
            standin("tpu_inference"),
            standin("tpu_inference.layers"),
            standin("tpu_inference.layers.common"),
            standin("tpu_inference.layers.common.attention_metadata", PCPMetadata=object),
            standin("tpu_inference.layers.common.sharding", ShardingAxisName=object),
            standin("tpu_inference.runner", utils=SimpleNamespace(get_padded_token_len=lambda sizes, size: size)),
            standin("tpu_inference.utils", align_to=lambda a, b: -(-a // b) * b, device_array=None),
        ]
        file = packages.folder(self.package, self.version) / "tpu_inference/runner/pcp_utils.py"
        self.module: Any = module_by_path(file, "tpu_pcp_utils", {module.__name__: module for module in standins})

    def call(self, request: Request) -> Raw:
        """``rows`` and ``positions`` of all ranks, ``slots`` of all rows, int64; -1 for positions that it refuses."""
        lengths, ranks = [sequence.seqlen_q for sequence in request.sequences], request.config.cp_size
        chunk, starts, live = self.module.pcp_token_layout(lengths, ranks, PAGE)
        total = ranks * live
        rows = self.module.pcp_token_permutation(lengths, chunk, starts, total, ranks)
        slots = [
            self.module._zigzag_slots(np.arange(length), size, start, ranks, live)
            for length, size, start in zip(lengths, chunk, starts, strict=True)
        ]
        raw: dict[str, np.ndarray | int | bool] = {"rows": rows, "slots": np.concatenate(slots)}
        refused = any(s.seqlen_q == 1 and s.seqlen_k > 1 for s in request.sequences)
        return raw if refused else {**raw, "positions": self.positions(request, total)}

    def positions(self, request: Request, total: int) -> np.ndarray:
        """The positions of all ranks' rows, as its preprocessor leaves them in the runner's buffer."""
        count = len(request.sequences)
        positions = np.zeros(total, dtype=np.int64)
        own = [np.arange(s.seqlen_k - s.seqlen_q, s.seqlen_k) for s in request.sequences]
        positions[: sum(map(len, own))] = np.concatenate(own)
        runner = SimpleNamespace(
            pcp_size=request.config.cp_size,
            page_size=PAGE,
            num_reqs_paddings=[],
            metadata_to_device=lambda *arrays, **rest: None,
        )
        self.module.PCPPreprocessor.prepare_inputs(
            runner,
            [s.seqlen_q for s in request.sequences],
            [s.seqlen_k - s.seqlen_q for s in request.sequences],
            total,
            positions,
            np.zeros(total, dtype=np.int64),
            np.zeros(2 * count, dtype=np.int64),
            np.zeros(3, dtype=np.int64),
            np.zeros(count, dtype=np.int64),
        )
        return positions

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """A rank's part of all ranks' rows."""
        rows, rank = np.asarray(raw["rows"]), request.config.cp_rank
        size = len(rows) // request.config.cp_size
        own = slice(rank * size, (rank + 1) * size)
        refused = Unsupported("one row behind history: it takes that for a decode")
        return {
            "cp_mirror_len": size,
            "mirror_cp_index": narrowed(rows[own]),
            "mirror_cp_reverse_index": narrowed(np.asarray(raw["slots"])),
            "positions": narrowed(np.asarray(raw["positions"])[own]) if "positions" in raw else refused,
        }
