"""flash-linear-attention's index builders of packed sequences (F-CU, F-POS, F-QIDX).

``fla.ops.utils.index``: torch functions of ``cu_seqlens``, each result kept by the identity of its arguments. Positions
begin at 0, so there is no history.

It differs: ``prepare_sequence_ids`` counts the rows at position 0, so an empty sequence has no number of its own and
those after it are one too low (``known/fla-index.toml``); and a ``cu_seqlens`` that is refilled in place, as a captured
graph's inputs are, gets the answer of its old contents: ``fla-index`` takes fresh inputs alone, ``fla-index-refilled``
takes any and fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import narrowed
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.standins import module_by_path, standin
from inputmeta.conformance.subjects import Capabilities, Conditions, Result

FIELDS = frozenset({"cu_seqlens_q", "positions", "query_indices"})


class FlaIndex(Adapter):
    """It needs a new ``cu_seqlens`` for each batch."""

    subject = "fla-index"
    package = "fla-core"
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=FIELDS,
        yoco_modes=frozenset({"off", "mask"}),
        refuses=frozenset(),
        dialects=frozenset({"int64"}),
        fresh_inputs=True,
        conditions=Conditions(history=False, placeholders=False, empty_steps=False),
    )

    def load(self) -> None:
        """Import two files: the functions, and the decorator that keeps results. Triton's kernel is not called."""
        import torch  # noqa: PLC0415 - the engine's

        self.torch: Any = torch
        folder = packages.folder(self.package, self.version) / "fla"
        package = standin("fla", __version__=self.version)
        environment = standin("fla.utils.env", FLA_DISABLE_TENSOR_CACHE=False, FLA_TENSOR_CACHE_SIZE=4)
        around = [package, standin("fla.utils"), environment, standin("fla.utils.hardware", custom_device_ctx=None)]
        decorators = module_by_path(
            folder / "utils/decorators.py", "fla_decorators", {module.__name__: module for module in around}
        )
        triton = standin(
            "triton",
            autotune=lambda **given: lambda kernel: kernel,
            Config=lambda *given, **rest: None,
            jit=lambda kernel: kernel,
            cdiv=lambda a, b: -(-a // b),
        )
        utils = standin("fla.utils", autotune_cache_kwargs={}, tensor_cache=decorators.tensor_cache)
        around = [package, utils, triton, standin("triton.language", constexpr=object)]
        self.module: Any = module_by_path(
            folder / "ops/utils/index.py", "fla_index_utils", {module.__name__: module for module in around}
        )

    def call(self, request: Request) -> Raw:
        """``cu_seqlens``, ``positions``, ``sequences``: int32 as it makes them, ids int64."""
        lengths = self.torch.tensor([sequence.seqlen_q for sequence in request.sequences], dtype=self.torch.int64)
        ends = request.refilled("cu_seqlens", self.module.prepare_cu_seqlens_from_lens(lengths))
        return {
            "cu_seqlens": ends.numpy().copy(),
            "positions": self.module.prepare_position_ids(ends).numpy().copy(),
            "sequences": self.module.prepare_sequence_ids(ends).numpy().copy(),
        }

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """The same arrays."""
        names = {"cu_seqlens_q": "cu_seqlens", "positions": "positions", "query_indices": "sequences"}
        return {field: narrowed(np.asarray(raw[name])) for field, name in names.items()}


class Refilled(FlaIndex):
    """The same for a caller whose batches refill one ``cu_seqlens``."""

    subject = "fla-index-refilled"
    capabilities = replace(FlaIndex.capabilities, fresh_inputs=False)
