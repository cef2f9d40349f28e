"""SGLang's metadata of DeepSeek-V4, a row a query token: ``sglang-decode``, ``sglang-prompt`` and their torch twins.

What a scheduler and its pools would hand over is set here: lengths, and the token's slot of each position. Block 0 and
ring 0 are null blocks, so ids are one higher; a placeholder has request slot 0 and stores at slot 0. Windows are looked
up in a table of token slots of their own: a pool of the size that block ids may ask for would not fit into memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.conditions import Conditions
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import dialects_of, translate
from inputmeta.conformance.dialects.base import INT32, Value
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.engines.triton_files import Absent, Torch, absent, files_of, host, torch_for_triton
from inputmeta.conformance.subjects.base import Capabilities, Result, Unsupported

LOW, HIGH = frozenset({1, 2}), frozenset({4, 128})
MOST_ROWS, MOST_REQUESTS = 64, 32
"""Larger batches take an interpreter longer than a worker has."""
MOST_CELLS = 2**22
"""Of a table of token slots."""
INDEX_ALIGNMENT = 128
KERNELS = "sglang.kernels.ops."
FILES = (
    KERNELS + "attention.dsv4.attn_metadata_kernels",
    KERNELS + "attention.dsv4.metadata_kernel",
    KERNELS + "attention.position",
    KERNELS + "kvcache.dsv41_window_layout",
    KERNELS + "speculative.dspark.dspark_attn_metadata",
    "sglang.srt.mem_cache.dsv41_request_window",
)
SLOTS = (
    *("int64", "null-block-0", "null-state-0", "sentinel-0", "low-ratio-sentinel", "padding-in-null-state"),
    *("token-rows", "rope-positions", "lengths-at-least-1", "no-query-sentinel", "newest-first"),
)
"""Dialects of every subject here."""


def copied(torch: ModuleType, device: str) -> Any:
    """Stand-in for the copy of host lists to the device."""
    return lambda lists, *, dtype, **_: torch.tensor(lists, dtype=dtype, device=device)


def neighbours(torch: Torch) -> Mapping[str, Mapping[str, object]]:
    """Stand-ins for what the files import of SGLang and does not say what a cell holds."""
    return {
        "sglang.srt.utils": {"is_hip": lambda: False, **absent("ceil_align")},
        "sglang.srt.utils.common": {"async_h2d": copied(torch.torch, torch.device)},
        "sglang.srt.utils.invariants": {
            "Bucket": SimpleNamespace(FATAL_CONTAINABLE=0),
            "Invariant": Absent,
            "IsTrue": Absent,
            "resolve_level": lambda: 0,
            **absent("expect"),
        },
        "sglang.srt.environ": {"InvariantCheckLevel": SimpleNamespace(WARN=1)},
        "sglang.srt.model_executor.runner_utils.capture_mode": absent("get_is_capture_mode"),
        "sglang.kernels.ops.attention.dsv4.kv_layout": {"KVLayout": SimpleNamespace(V4=0)},
        "sglang.kernels.ops.kvcache.dsv4_request_window_copy": absent("commit_packed_rows", "copy_packed_rows"),
    }


class Rows(Adapter):
    """What decode and prompt share."""

    package = "sglang"
    form = "triton"
    """Which of two twins is called."""
    torch: Torch

    def load(self) -> None:
        """Import the builders."""
        self.torch = torch_for_triton()
        folder = packages.folder(self.package, self.version)
        self.attn, self.meta, self.position, self.layout, self.ring, self.window = files_of(
            folder, FILES, neighbours(self.torch)
        )

    def owners(self, request: Request, ids: list[int], starts: Any = None) -> tuple[Any, Any]:
        """Causal length of each row, int32, and the id of its request."""
        q, k = [s.seqlen_q for s in request.sequences], [s.seqlen_k for s in request.sequences]
        found = getattr(self.attn.ExpandPrefillCausally, self.form)(
            req_pool_indices=self.torch.tensor(ids),
            seq_lens=self.torch.tensor(k, "int32"),
            extend_seq_lens=self.torch.tensor(q, "int32"),
            extend_start_loc=starts,
            seq_lens_cpu=k,
            extend_seq_lens_cpu=q,
            num_tokens=sum(q),
            padded_num_tokens=None,
        )
        return found.seq_lens_casual, found.req_pool_indices_repeated

    def pages(self, request: Request, lengths: Any, owner: Any) -> tuple[Any, Any]:
        """Page table and positions of each row, and the slot of each row's token, 0 of a placeholder's."""
        size, sequences = request.config.block_size, request.sequences
        columns = max(1, *(num_blocks(request, index) for index in range(len(sequences))))
        if len(sequences) * columns * size > MOST_CELLS:
            raise Unsupported(f"more than {MOST_CELLS} token slots")
        tokens = np.zeros((len(sequences), columns * size), dtype=np.int64)
        for index, sequence in enumerate(sequences):
            blocks = np.array(sequence.block_table[: num_blocks(request, index)], dtype=np.int64) + 1
            slots = (blocks[:, None] * size + np.arange(size)).reshape(-1)
            tokens[index, : len(slots)] = slots
        if tokens.max() > INT32.max:
            raise Unsupported("a token's slot leaves int32")
        table = self.torch.tensor(tokens, "int32")
        found = getattr(self.attn.BuildPageTablePositions, self.form)(
            req_to_token=table,
            req_pool_indices_repeated=owner,
            seq_lens_casual=lengths,
            max_seq_len=columns * size,
            page_size=size,
            swa_window=request.config.window_size,
        )
        idle = self.torch.tensor([int(s.is_placeholder) for s in sequences])[owner] == 1
        places = lengths.long() - 1
        slots = table[owner, places.clamp(max=columns * size - 1)].long()
        slots = self.torch.torch.where(idle | (places >= columns * size), 0, slots)
        return found, slots

    def compressed(self, request: Request, lengths: Any, found: Any, slots: Any) -> dict[str, Any]:
        """Slots, positions, lengths and keys of the compressed tokens, by ratio."""
        config, raw = request.config, {}
        dense = frozenset(config.dense_ratios) if "kv_ca_index" in request.expand else frozenset()
        if not LOW.isdisjoint(config.ca_ratios):
            longest = max(64, *(int(s.seqlen_k) // min(LOW & dense) for s in request.sequences)) if LOW & dense else 64
            low = self.meta.build_low_ratio_metadata(lengths, slots, longest)
            for ratio in LOW.intersection(config.ca_ratios):
                raw[f"slot.{ratio}"] = host(getattr(low, f"c{ratio}_out_loc"))
                raw[f"length.{ratio}"] = host(getattr(low, f"c{ratio}_seq_lens"))
                if ratio in dense and request.path == "decode":
                    index = getattr(low, f"c{ratio}_page_indices")
                    self.meta.fill_all_compressed_indices(
                        found.page_table,
                        getattr(low, f"c{ratio}_sparse_lens"),
                        index,
                        compress_ratio=ratio,
                        page_size=config.block_size,
                    )
                    raw[f"keys.{ratio}"] = host(index)
        if not HIGH.isdisjoint(config.ca_ratios):
            listed = 128 in dense and request.path == "decode"
            built = self.meta.init_compression_metadata(
                lengths, found.positions_casual, slots, found.page_table, config.block_size, listed
            )
            for ratio, at in ((4, 0), (128, 4)):
                if ratio in config.ca_ratios:
                    raw[f"slot.{ratio}"], raw[f"position.{ratio}"] = host(built[at]), host(built[at + 1])
                    raw[f"length.{ratio}"] = host(built[at + 3])
            if listed:
                raw["keys.128"] = host(built[8])
        return raw

    def stored(self, request: Request, found: Any, starts: Any = None) -> np.ndarray:
        """The ring cell of each row."""
        states = [0 if s.is_placeholder else s.state_id + 1 for s in request.sequences]
        _, owner = self.owners(request, states, starts)
        return host(self.ring.swa_ring_rows(owner, found.positions_casual, request.config.swa_block_size))


def num_blocks(request: Request, index: int) -> int:
    """F-BLOCKS."""
    smallest = min(request.config.ca_ratios)
    return -(-(request.sequences[index].seqlen_k // smallest) // (request.config.block_size // smallest))


def compressed_fields(request: Request, raw: Raw) -> dict[str, Value]:
    """Fields of the ratios that were built, in the engine's form."""
    config, fields = request.config, {}
    for ratio in config.ca_ratios:
        fields[f"slot_mapping_store_ca.{ratio}"] = raw[f"slot.{ratio}"]
        if ratio in HIGH:
            fields[f"positions_c.{ratio}"] = raw[f"position.{ratio}"]
        if ratio in config.sparse_ratios:
            fields[f"klen.{ratio}"] = raw[f"length.{ratio}"]
    return fields


def not_built(request: Request) -> dict[str, Unsupported]:
    """Keys of the ratios for which SGLang builds none."""
    reason = Unsupported("positions of compressed tokens are built at ratios 4 and 128")
    return {f"positions_c.{ratio}": reason for ratio in LOW.intersection(request.config.ca_ratios)}


class Decode(Rows):
    """A decode step with drafts."""

    subject = "sglang-decode"
    under: tuple[str, ...] = (*SLOTS, "padded-width", "width-by-table")
    capabilities = Capabilities(
        paths=frozenset({"decode"}),
        fields=frozenset(
            {"positions", "query_indices", "context_lens", "block_tables", "state_block_idx", "kv_swa_index"}
            | {"kv_swa_index_offset_len", "slot_mapping_store_swa", "slot_mapping_store_ca", "positions_c", "klen"}
            | {"kv_ca_index", "kv_ca_index_len"}
        ),
        max_total_q=MOST_ROWS,
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        dialects=frozenset(under),
        conditions=Conditions(
            dense_ratios=LOW | HIGH,
            sparse_ratios=LOW | HIGH,
            largest_token_slot=2**30,
            expansions=frozenset({"kv_swa_index"}),
        ),
    )

    def call(self, request: Request) -> Raw:
        """Lengths, owners, pages, windows, and what belongs to compressed tokens."""
        lengths, owner = self.owners(request, list(range(len(request.sequences))))
        found, slots = self.pages(request, lengths, owner)
        raw = {
            "owner": host(owner),
            "state": host(self.owners(request, [s.state_id + 1 for s in request.sequences])[1]),
            "length": host(found.seq_lens_casual),
            "position": host(found.positions_casual),
            "pages": host(found.page_table),
            "window": host(self.windows(request, lengths, owner)),
            "window_length": host(found.swa_topk_lengths),
        }
        if self.form == "triton":
            raw |= self.compressed(request, lengths, found, slots)
            raw["stored"] = self.stored(request, found)
        return raw

    def windows(self, request: Request, lengths: Any, owner: Any) -> Any:
        """Ring cells of each row's window, by a table from token slots to cells that ends in -1."""
        config, sequences = request.config, request.sequences
        columns = max(s.seqlen_k for s in sequences)
        if len(sequences) * columns > MOST_CELLS:
            raise Unsupported(f"more than {MOST_CELLS} token slots")
        if max(s.state_id + 2 for s in sequences) * config.swa_block_size - 1 > INT32.max:
            raise Unsupported("a ring cell, one ring higher, leaves int32")
        cells = np.zeros(len(sequences) * columns + 1, dtype=np.int64)
        for index, sequence in enumerate(sequences):
            seen = np.arange(max(0, sequence.seqlen_k - sequence.seqlen_q - config.window_size), sequence.seqlen_k)
            ring = (sequence.state_id + 1) * config.swa_block_size
            cells[index * columns + seen] = ring + seen % config.swa_block_size
        cells[-1] = -1
        tokens = np.arange(len(sequences) * columns).reshape(len(sequences), columns)
        return getattr(self.attn.BuildCausalSwaPageIndices, self.form)(
            req_to_token=self.torch.tensor(tokens, "int32"),
            full_to_swa_mapping=self.torch.tensor(cells),
            req_pool_indices_repeated=owner,
            seq_lens_casual=lengths,
            swa_window=config.window_size,
            page_index_aligned_size=INDEX_ALIGNMENT,
        )

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """See :meth:`Adapter.translated`."""
        window, lengths = np.asarray(raw["window"]), np.asarray(raw["window_length"])
        oldest = window[np.arange(len(window)), np.clip(lengths - 1, 0, window.shape[1] - 1)]
        fields: dict[str, Value] = {
            "query_indices": raw["owner"],
            "state_block_idx": raw["state"],
            "context_lens": raw["length"],
            "positions": raw["position"],
            "block_tables": raw["pages"],
            "kv_swa_index": window,
            "kv_swa_index_offset_len": np.stack([oldest, lengths], axis=1),
        }
        left: dict[str, Unsupported] = {}
        if cls.form == "triton":
            fields |= compressed_fields(request, raw)
            left = {**not_built(request), **cls.expanded(request, raw, fields)}
            if any(s.seqlen_q > request.config.swa_block_size for s in request.sequences):
                left["slot_mapping_store_swa"] = Unsupported("more rows than a ring has cells")
            else:
                fields["slot_mapping_store_swa"] = raw["stored"]
        return {**translate(dialects_of(cls.under), request, fields), **left}

    @staticmethod
    def expanded(request: Request, raw: Raw, fields: dict[str, Value]) -> dict[str, Unsupported]:
        """Puts the expanded keys of dense ratios into ``fields``; what is not built, with the reason."""
        left = {}
        early = any(s.seqlen_k == s.seqlen_q for s in request.sequences)
        for ratio in set(request.config.dense_ratios) if "kv_ca_index" in request.expand else ():
            fields[f"kv_ca_index_len.{ratio}"] = raw[f"length.{ratio}"]
            if ratio == 4:
                left["kv_ca_index.4"] = Unsupported("cells of ratio 4 are those that an indexer chose")
            elif ratio == 2 and early:
                left["kv_ca_index.2"] = Unsupported("a row without a compressed token of ratio 2 reads the first cell")
            else:
                fields[f"kv_ca_index.{ratio}"] = raw[f"keys.{ratio}"]
        return left


class DecodeTorch(Decode):
    """The torch twins of its builders, where there are any."""

    subject = "sglang-decode-torch"
    form = "torch"
    under = ("int64", "null-block-0", "null-state-0", "no-query-sentinel", "newest-first", "padded-width")
    capabilities = Capabilities(
        paths=frozenset({"decode"}),
        fields=frozenset(
            {"positions", "query_indices", "context_lens", "block_tables", "state_block_idx", "kv_swa_index"}
            | {"kv_swa_index_offset_len"}
        ),
        max_total_q=MOST_ROWS,
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        dialects=frozenset(under),
        conditions=Conditions(largest_token_slot=2**30, expansions=frozenset({"kv_swa_index"})),
    )


class Prompt(Rows):
    """A chunk of prefill; the window of a request: its history and its new rows."""

    subject = "sglang-prompt"
    under: tuple[str, ...] = SLOTS
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=frozenset(
            {"positions", "query_indices", "cu_seqlens_q", "kv_swa_full_index", "slot_mapping_store_swa", "klen"}
            | {"slot_mapping_store_ca", "positions_c", "yoco_consumer_total_q", "yoco_consumer_query_indices"}
        ),
        yoco_modes=frozenset({"off", "compact"}),
        max_total_q=MOST_ROWS,
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        dialects=frozenset({*under, "starts-without-end"}),
        conditions=Conditions(
            dense_ratios=LOW | HIGH,
            sparse_ratios=LOW | HIGH,
            largest_token_slot=2**30,
            empty_steps=False,
            other_data_len=False,
            least_keep=1,
            expansions=frozenset({"kv_swa_full_index"}),
        ),
    )

    def call(self, request: Request) -> Raw:
        """Starts, owners, positions, windows, kept rows, and what belongs to compressed tokens."""
        q = [s.seqlen_q for s in request.sequences]
        starts = self.starts(request)
        lengths, owner = self.owners(request, list(range(len(q))), starts)
        found, slots = self.pages(request, lengths, owner)
        layout = self.windows(request, owner, found.positions_casual)
        raw = {
            "owner": host(owner),
            "position": host(found.positions_casual),
            "window": host(layout.indices),
            "commit": host(layout.commit_mask),
            "stored": self.stored(request, found, starts),
        }
        if self.form == "triton":
            raw |= {"starts": host(starts), **self.compressed(request, lengths, found, slots)}
        if request.config.yoco_mode == "compact":
            kept, lengths_kept, _ = self.attn.late_layer_tail_layout(
                extend_lens_cpu=q,
                seq_lens_cpu=[s.seqlen_k for s in request.sequences],
                tail_len=request.config.yoco_prefill_keep_tokens,
                device=self.torch.torch.device(self.torch.device),
            )
            raw |= {"kept": host(kept), "kept_rows": sum(lengths_kept)}
        return raw

    def starts(self, request: Request) -> Any:
        """The first row of each sequence; a torch twin is handed it."""
        q = [s.seqlen_q for s in request.sequences]
        if self.form == "torch":
            return self.torch.tensor((np.cumsum(q) - q).tolist())
        prefix = self.torch.tensor([s.seqlen_k - s.seqlen_q for s in request.sequences])
        return self.position.compute_position_triton(prefix, self.torch.tensor(q), sum(q))[1]

    def windows(self, request: Request, owner: Any, positions: Any) -> Any:
        """``WindowLayout``: each row's window in the buffer of all histories and all new rows."""
        config = request.config
        starts = [min(s.swa_valid_start, 2**40) for s in request.sequences]
        floor = self.torch.tensor(starts)[owner]
        sizes = {"zero_row": 0, "window": config.window_size, "capacity": config.swa_block_size, "floor": floor}
        count = len(request.sequences)
        if self.form == "torch":
            return self.window.window_layout(owner.cpu(), positions.cpu(), num_groups=count, **sizes)
        runs = self.window._first_row_offsets(owner)
        return self.window.WindowLayout(
            **self.layout.build_window_layout(owner, positions, *runs, num_groups=count, padded_rows=None, **sizes)
        )

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """See :meth:`Adapter.translated`."""
        fields: dict[str, Value] = {
            "query_indices": raw["owner"],
            "positions": raw["position"],
            "kv_swa_full_index": raw["window"],
            "slot_mapping_store_swa": np.where(raw["commit"], raw["stored"], -1),
        }
        left: dict[str, Unsupported] = {}
        if any(s.seqlen_q == 0 for s in request.sequences):
            del fields["kv_swa_full_index"]
            left["kv_swa_full_index"] = Unsupported("a sequence without rows has no part of the window's buffer")
        if cls.form == "triton":
            fields |= {"cu_seqlens_q": raw["starts"], **compressed_fields(request, raw)}
            left |= not_built(request)
        if "kept" in raw:
            fields |= {"yoco_consumer_query_indices": raw["kept"], "yoco_consumer_total_q": raw["kept_rows"]}
        names = sorted(cls.capabilities.dialects)
        built = translate(dialects_of(names), request, fields)
        return {**{key: value for key, value in built.items() if not key.startswith("cu_compressed")}, **left}


class PromptTorch(Prompt):
    """The torch twins of its builders, where there are any."""

    subject = "sglang-prompt-torch"
    form = "torch"
    under = (
        *("int64", "null-block-0", "null-state-0", "sentinel-0", "padding-in-null-state", "no-query-sentinel"),
        "newest-first",
    )
    capabilities = Capabilities(
        paths=frozenset({"prompt"}),
        fields=frozenset(
            {"positions", "query_indices", "kv_swa_full_index", "slot_mapping_store_swa"}
            | {"yoco_consumer_total_q", "yoco_consumer_query_indices"}
        ),
        yoco_modes=frozenset({"off", "compact"}),
        max_total_q=MOST_ROWS,
        max_num_reqs=MOST_REQUESTS,
        refuses=frozenset(),
        dialects=frozenset(under),
        conditions=Conditions(
            largest_token_slot=2**30,
            empty_steps=False,
            other_data_len=False,
            least_keep=1,
            expansions=frozenset({"kv_swa_full_index"}),
        ),
    )
