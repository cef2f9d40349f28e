"""LMDeploy's metadata of DeepSeek-V4, one step at a time, as its CUDA backend builds it.

What a scheduler would hand over is set here: lengths, block tables, state slots. Block ids are the specification's;
state slot 0 is a null block, so a sequence has ``state_id + 1``, and a placeholder -1, as a padding row of a captured
graph has. Everything else is read from what LMDeploy built.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import dialects_of, translate
from inputmeta.conformance.dialects.base import Value
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.triton_files import Absent, Torch, files_of, host, torch_for_triton
from inputmeta.conformance.subjects.base import Capabilities, Result, Unsupported

RATIOS = frozenset({4, 128})
MOST_ROWS, MOST_REQUESTS = 64, 32
"""Larger batches take an interpreter longer than a worker has."""
MOST_CELLS = 2**20
FILES = (
    "lmdeploy.pytorch.backends.cuda.attention.v4",
    "lmdeploy.pytorch.kernels.cuda.v4_sparse_indices",
)
STORED = ("null-block-0", "null-state-0", "sentinel-0", "padding-in-null-state", "int64")
"""Dialects of the cells that are stored to: rings are numbered by state slot there."""


class QuantPolicy(IntEnum):
    """Stand-in: a default value needs one member."""

    NONE = 0


NEIGHBOURS: Mapping[str, Mapping[str, object]] = {
    "lmdeploy.messages": {"QuantPolicy": QuantPolicy},
    "lmdeploy.pytorch.backends.base": {"BuildSpec": Absent},
    # Its schedule is a kernel's own, and none of the specification's fields.
    "deep_gemm": {"get_paged_mqa_logits_metadata": lambda *_: None, "get_num_sms": lambda: 1},
}


class Rings:
    """Stand-in for the cache of all rings: says which of them are gathered, in the order of the batch."""

    def index_select(self, _: int, slots: Any) -> Any:
        """The slots themselves."""
        return slots


class Lmdeploy(Adapter):
    """What decode and prompt share."""

    package = "lmdeploy"
    torch: Torch
    backend: ModuleType
    kernels: ModuleType

    def load(self) -> None:
        """Import the backend's metadata and the kernels of its indices."""
        self.torch = torch_for_triton()
        folder = packages.folder(self.package, self.version)
        self.backend, self.kernels = files_of(folder, FILES, NEIGHBOURS)

    def metadata(self, request: Request) -> Any:
        """``CudaV4AttentionMetadata`` of the step, built from what the scheduler's context says."""
        config, sequences, tensor = request.config, request.sequences, self.torch.tensor
        q, k = [s.seqlen_q for s in sequences], [s.seqlen_k for s in sequences]
        given = SimpleNamespace(
            is_decoding=request.path == "decode",
            q_seqlens=tensor(q),
            kv_seqlens=tensor(k),
            cu_seqlens_q=tensor([0, *np.cumsum(q).tolist()]),
            cu_seqlens_k=tensor([0, *np.cumsum(k).tolist()]),
            block_offsets=self.torch.table([s.block_table for s in sequences]),
        )
        context = SimpleNamespace(
            cache_config=SimpleNamespace(block_size=config.block_size, num_gpu_blocks=1),
            max_kv_seqlen=max(k),
            max_q_seqlen=max(q),
            sum_kv_seqlen=sum(k),
        )
        cells_of_128 = len(k) * given.block_offsets.shape[1] * config.block_size // 128
        if cells_of_128 > MOST_CELLS:
            raise Unsupported(f"ratio 128, which is built in any case, has more than {MOST_CELLS} cells")
        if sum(q) * (config.window_size + max(k) // 4) > MOST_CELLS:
            raise Unsupported(f"windows and compressed keys of more than {MOST_CELLS} cells")
        slots = tensor([-1 if s.is_placeholder else s.state_id + 1 for s in sequences])
        with np.errstate(divide="ignore", invalid="ignore"):  # ratio 128 is built for every block size, used or not
            return self.backend.CudaV4AttentionMetadata.from_step_context(
                given, context, window_size=config.window_size, slot=slots
            )


def cells(raw: Raw, window: int) -> np.ndarray:
    """Slot and place in its ring as a cell of the state cache, -1 where the place is: int64 [rows]."""
    slot, place = np.asarray(raw["store_slot"], dtype=np.int64), np.asarray(raw["store_place"], dtype=np.int64)
    return np.where(place >= 0, slot * window + place, -1)


def dense(request: Request) -> list[int]:
    """The dense ratios, each once; none if their expansion is not asked for."""
    return sorted(map(int, set(request.config.dense_ratios))) if "kv_ca_index" in request.expand else []


class Decode(Lmdeploy):
    """One token a request."""

    subject = "lmdeploy-decode"
    read = ("int64", "rings-by-place", "padded-width", "padding-window-1", "width-by-table")
    """Dialects of what is read: rings are gathered in the order of the batch."""
    capabilities = Capabilities(
        paths=frozenset({"decode"}),
        fields=frozenset(
            {"slot_mapping_store_swa", "kv_swa_index", "kv_swa_index_offset_len", "klen", "kv_ca_index"}
            | {"kv_ca_index_len"}
        ),
        conditions=Conditions(
            dense_ratios=RATIOS, sparse_ratios=RATIOS, ring_is_window=True, empty_steps=False, most_seqlen_q=1
        ),
        max_total_q=MOST_ROWS,
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        dialects=frozenset({*read, *STORED}),
    )

    def call(self, request: Request) -> Raw:
        """Window, cells stored to, compressed lengths and keys of each row."""
        meta = self.metadata(request)
        window = meta.decode_window
        raw = {
            "window": host(window.indices[:, 0]),
            "window_length": host(window.topk_length),
            **self.stored(request, meta),
        }
        for ratio in map(int, request.config.ca_ratios):
            raw[f"compressed_length.{ratio}"] = host(meta.get_ratio_meta(ratio).decode.topk_length)
        for ratio in dense(request):
            raw[f"compressed.{ratio}"] = host(self.compressed(meta, ratio)[:, 0])
        return raw

    def stored(self, request: Request, meta: Any) -> dict[str, np.ndarray]:
        """Slots and places to which the step's keys are written, as the call that packs them gets them."""
        written: list[Any] = []
        executor = SimpleNamespace(_pack_window_fp8=lambda keys, rings, slots, places: written.extend([slots, places]))
        slots = self.torch.tensor([-1 if s.is_placeholder else s.state_id + 1 for s in request.sequences])
        keys = slots[:, None]
        self.backend._V4DecodeExecutor._write_window(executor, keys, Rings(), slots, meta)
        return {"store_slot": host(written[0]), "store_place": host(written[1])}

    def compressed(self, meta: Any, ratio: int) -> Any:
        """Cells of every compressed token: those of 128 are precomputed, those of 4 chosen by an indexer."""
        decode = meta.get_ratio_meta(ratio).decode
        if decode.indices is not None:
            return decode.indices
        lengths = decode.topk_length
        places = self.torch.torch.arange(max(1, int(lengths.max())), device=self.torch.device)
        chosen = self.torch.torch.where(places[None] < lengths[:, None], places[None], -1)
        return self.kernels.build_decode_compressed_sparse_indices(
            chosen[:, None], meta.block_offsets, meta.block_size, ratio
        )

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """See :meth:`Adapter.translated`."""
        config = request.config
        window, lengths = np.asarray(raw["window"]), np.asarray(raw["window_length"])
        read: dict[str, Value] = {"kv_swa_index_offset_len": np.stack([window[:, 0], lengths], axis=1)}
        if "kv_swa_index" in request.expand:
            read["kv_swa_index"] = window
        for ratio in set(config.sparse_ratios):
            read[f"klen.{ratio}"] = raw[f"compressed_length.{ratio}"]
        for ratio in dense(request):
            read[f"kv_ca_index_len.{ratio}"] = raw[f"compressed_length.{ratio}"]
            read[f"kv_ca_index.{ratio}"] = raw[f"compressed.{ratio}"]
        stored = {"slot_mapping_store_swa": cells(raw, config.window_size)}
        return {
            **translate(dialects_of(cls.read), request, read),
            **translate(dialects_of(STORED), request, stored),
        }


class Prompt(Lmdeploy):
    """Chunks of prefill."""

    subject = "lmdeploy-prompt"
    read = (
        "int64",
        "no-query-sentinel",
        "padded-width",
        "buffers-by-request",
        "compressed-by-request",
        "keys-behind-windows",
        "width-by-table",
    )
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=frozenset(
            {"query_indices", "slot_mapping_store_swa", "kv_swa_full_index", "klen", "kv_ca_index", "kv_ca_index_len"}
        ),
        conditions=Conditions(
            dense_ratios=RATIOS,
            sparse_ratios=RATIOS,
            ring_is_window=True,
            empty_steps=False,
            valid_starts="zero",
        ),
        max_total_q=MOST_ROWS,
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        dialects=frozenset({*read, *STORED}),
    )

    def call(self, request: Request) -> Raw:
        """Owner of each row, cells stored to, window in the flat buffer, compressed lengths and keys."""
        meta = self.metadata(request)
        raw = {
            "owner": host(meta.prefill_shared.token_seq),
            "store_slot": host(meta.prefill_window.slot),
            "store_place": host(meta.prefill_window.ring_pos),
        }
        width = request.config.window_size
        if "kv_swa_full_index" in request.expand:
            raw["window"] = host(self.indices(meta, width, 0)[0][:, 0])
        raw["visible.4"] = host(meta.get_ratio_meta(4).index_score_meta.topk_seqlens)
        for ratio in request.config.ca_ratios:
            index, lengths = self.indices(meta, width, ratio)
            raw[f"length.{ratio}"] = host(lengths)
            if ratio in dense(request):
                raw[f"compressed.{ratio}"] = host(index[:, 0, width:])
        return raw

    def indices(self, meta: Any, window: int, ratio: int) -> tuple[Any, Any]:
        """Window and all compressed keys of each row in the flat buffer of a ratio's layers (0: window alone)."""
        shared, flat = meta.prefill_shared, meta.get_ratio_meta(ratio).prefill
        built: tuple[Any, Any] = self.kernels.build_prefill_sparse_indices(
            meta.start_pos,
            meta.kv_seqlens,
            shared.token_seq,
            shared.token_pos,
            flat.cu_seqlens_k,
            shared.uncompressed_kv_lens,
            window_size=window,
            compress_ratio=ratio,
            compress_width=flat.compress_width,
        )
        return built

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """See :meth:`Adapter.translated`."""
        config = request.config
        read: dict[str, Value] = {"query_indices": raw["owner"]}
        if "kv_swa_full_index" in request.expand:
            read["kv_swa_full_index"] = raw["window"]
        lengths = {int(ratio): np.asarray(raw[f"length.{ratio}"]) - config.window_size for ratio in config.ca_ratios}
        for ratio in set(config.sparse_ratios):
            read[f"klen.{ratio}"] = raw["visible.4"] if ratio == 4 else lengths[ratio]
        for ratio in dense(request):
            read[f"kv_ca_index_len.{ratio}"] = lengths[ratio]
            read[f"kv_ca_index.{ratio}"] = raw[f"compressed.{ratio}"]
        stored = {"slot_mapping_store_swa": cells(raw, config.window_size)}
        return {
            **translate(dialects_of(cls.read), request, read),
            **translate(dialects_of(STORED), request, stored),
        }
