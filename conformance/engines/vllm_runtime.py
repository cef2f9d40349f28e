"""vLLM 0.33.0 without its engine: its modules, and one step of its second model runner up to the block tables.

Its kernels are Triton's: compiled on a GPU, else run by Triton's interpreter on a CPU. What a scheduler and a
configuration would hand over (lengths, tables, sizes of buffers) is set here; whatever a kernel or function of vLLM
computes is read from its buffers. Nothing of vLLM is imported before :func:`load`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects.base import INT32
from inputmeta.conformance.dialects.rings import pages_of
from inputmeta.conformance.subjects.base import Unsupported

POISON = 5_555_555
"""What buffers hold before a kernel writes them: a cell that stays unwritten is no right value."""
SPARE_ROWS = 3
"""Rows of every buffer past the batch."""
TAIL_BLOCK = 0
"""A block for the tokens past the last complete compressed one, where the specification's table may end before."""
MOST_TABLE_CELLS = 2**24
"""Largest block table, in cells, that is built: an interpreter takes too long for more."""
MODULES = {
    "input_batch": "v1.worker.gpu.input_batch",
    "buffer_utils": "v1.worker.gpu.buffer_utils",
    "torch_utils": "utils.torch_utils",
    "block_table": "v1.worker.gpu.block_table",
    "backend": "v1.attention.backend",
    "indexer": "v1.attention.backends.mla.indexer",
    "backend_utils": "v1.attention.backends.utils",
    "sparse_swa": "v1.attention.backends.mla.sparse_swa",
    "sparse_mla": "models.deepseek_v4.sparse_mla",
    "cache_utils": "models.deepseek_v41.common.ops.cache_utils",
    "model_state": "models.deepseek_v41.nvidia.model_state",
    "pcp_manager": "v1.worker.gpu.pcp_manager",
}
"""Name here -> module of vLLM."""


@dataclass(frozen=True)
class Vllm:
    """Modules of vLLM, imported, and the device that its kernels run on."""

    torch: ModuleType
    device: Any
    modules: SimpleNamespace

    def tensor(self, values: object, dtype: str) -> Any:
        """A tensor on the device."""
        return self.torch.tensor(values, dtype=getattr(self.torch, dtype), device=self.device)

    def full(self, shape: Sequence[int], dtype: str, value: int = POISON) -> Any:
        """A tensor on the device that holds one value, by default no right one."""
        return self.torch.full(tuple(shape), value, dtype=getattr(self.torch, dtype), device=self.device)


BASE = ("input_batch", "buffer_utils", "torch_utils", "block_table", "backend")


@cache
def load(*names: str) -> Vllm:
    """Import modules of :data:`MODULES`. Without a GPU, through Triton's interpreter: for the whole process."""
    torch = import_module("torch")
    on_gpu = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
    if not on_gpu:
        os.environ["TRITON_INTERPRET"] = "1"
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    modules = SimpleNamespace(**{name: import_module(f"vllm.{MODULES[name]}") for name in (*BASE, *names)})
    if not on_gpu:
        # No GPU, no pinned memory; and a platform without a name has no device for the copies that stand in for it.
        modules.buffer_utils.is_uva_available = lambda: False
        modules.torch_utils.PIN_MEMORY = False
        if hasattr(modules, "cache_utils"):  # programs a request, each for every so many rows: a few do, and cost less
            modules.cache_utils._COMBINE_TOPK_SWA_NUM_WORKERS = 2
        import_module("vllm.platforms").current_platform.device_type = "cpu"
    return Vllm(torch, torch.device("cuda" if on_gpu else "cpu"), modules)


def host(tensor: Any) -> np.ndarray:
    """A tensor's cells, copied to the host."""
    array: np.ndarray = tensor.detach().cpu().numpy().copy()
    return array


@dataclass(frozen=True)
class Step:
    """One batch in vLLM's buffers.

    Group 0 of the block tables is the paged KV cache; group 1 the window's, whose pages are those of each sequence's
    ring, again and again (:data:`inputmeta.conformance.dialects.rings.CYCLIC_TABLE`).
    """

    query_lens: np.ndarray
    """int64 [n], as the next one: seqlen_q and seqlen_k."""
    key_lens: np.ndarray
    states: np.ndarray
    """int64 [n]: each request's row of the runner's state, in another order than the batch."""
    idx_mapping: Any
    """int64 [n], on the device: ``states``."""
    query_start_loc: Any
    """int32 [n + 1], on the device."""
    query_start_loc_cpu: Any
    buffers: Any
    """``InputBuffers``."""
    tables: tuple[Any, Any]
    """int32 [n, columns] each: gathered in the batch's order."""
    slots: Any
    """int64 [2, rows]: each token's slot in either group."""
    page: int
    """Tokens of a page of group 1."""

    @property
    def rows(self) -> int:
        """Query rows of the batch."""
        return int(self.query_lens.sum())

    @property
    def capacity(self) -> int:
        """Rows of its buffers."""
        return self.rows + SPARE_ROWS


def prepared(vllm: Vllm, request: Request) -> Step:
    """The batch up to positions, lengths, gathered tables and slots, as the second model runner prepares it.

    Raises:
        Unsupported: it has no query row; a page of the window leaves int32; a table would be too large.
    """
    query_lens = np.array([sequence.seqlen_q for sequence in request.sequences], dtype=np.int64)
    key_lens = np.array([sequence.seqlen_k for sequence in request.sequences], dtype=np.int64)
    count, rows = len(query_lens), int(query_lens.sum())
    if not rows:
        raise Unsupported("a step without query rows is none")
    states = np.arange(count, 0, -1)
    idx_mapping = vllm.tensor(states, "int64")
    starts = np.append(0, np.cumsum(query_lens)).astype(np.int32)
    query_start_loc = vllm.tensor(starts, "int32")
    buffers = vllm.modules.input_batch.InputBuffers(count + 2, rows + SPARE_ROWS, vllm.device)
    for buffer in (buffers.input_ids, buffers.positions, buffers.seq_lens):
        buffer.fill_(POISON)
    computed = vllm.full((count + 2,), "int32")
    computed[idx_mapping] = vllm.tensor(key_lens - query_lens, "int32")
    vllm.modules.input_batch.prepare_pos_seq_lens(
        idx_mapping, query_start_loc, computed, buffers.positions, buffers.seq_lens
    )
    tables, page = block_tables(vllm, request, states, rows + SPARE_ROWS)
    gathered = tables.gather_block_tables(idx_mapping, count)
    idle = np.array([sequence.is_placeholder for sequence in request.sequences])
    tables.slot_mappings.fill_(POISON)
    slots = tables.compute_slot_mappings(
        vllm.tensor(np.where(idle, -1, states), "int64"), query_start_loc, buffers.positions, rows
    )
    return Step(
        query_lens=query_lens,
        key_lens=key_lens,
        states=states,
        idx_mapping=idx_mapping,
        query_start_loc=query_start_loc,
        query_start_loc_cpu=query_start_loc.cpu(),
        buffers=buffers,
        tables=gathered,
        slots=slots,
        page=page,
    )


def block_tables(vllm: Vllm, request: Request, states: np.ndarray, rows: int) -> tuple[Any, int]:
    """``BlockTables`` with the blocks of every request written, and the tokens of a window's page.

    A page of a window that no row of the step can see is block 0, as freed ones are.
    """
    config = request.config
    pages = pages_of(config.swa_block_size)
    page = config.swa_block_size // pages
    blocks, windows = [], []
    for sequence in request.sequences:
        needed = -(-sequence.seqlen_k // config.block_size)
        blocks.append([*sequence.block_table, *[TAIL_BLOCK] * (needed - len(sequence.block_table))])
        oldest = max(0, sequence.seqlen_k - sequence.seqlen_q - config.window_size) // page
        columns = np.arange(-(-sequence.seqlen_k // page))
        ids = np.where(columns < oldest, 0, sequence.state_id * pages + pages - 1 - columns % pages)
        if len(ids) and int(ids.max()) * page + page - 1 > INT32.max:
            raise Unsupported("a window's page of the cyclic table leaves int32")
        windows.append(ids)
    widths = [max(1, *map(len, each)) for each in (blocks, windows)]
    if sum(widths) * (len(states) + 2) > MOST_TABLE_CELLS:
        raise Unsupported(f"block tables of more than {MOST_TABLE_CELLS} cells")
    tables = vllm.modules.block_table.BlockTables([config.block_size, page], len(states) + 2, rows, widths, vllm.device)
    for table in (*tables.block_tables, *tables.input_block_tables):
        getattr(table, "gpu", table).fill_(POISON)
    for state, plain, cyclic in zip(states, blocks, windows, strict=True):
        tables.append_block_ids(int(state), (plain, cyclic.tolist()), overwrite=True)
    tables.apply_staged_writes()
    return tables, page


def common_metadata(vllm: Vllm, step: Step, group: int, max_seq_len: int) -> Any:
    """``CommonAttentionMetadata`` of a group of the step."""
    rows, count = step.rows, len(step.query_lens)
    return vllm.modules.backend.CommonAttentionMetadata(
        query_start_loc=step.query_start_loc,
        query_start_loc_cpu=step.query_start_loc_cpu,
        seq_lens=step.buffers.seq_lens[:count],
        num_reqs=count,
        num_actual_tokens=rows,
        max_query_len=int(step.query_lens.max()),
        max_seq_len=max_seq_len,
        block_table_tensor=step.tables[group],
        slot_mapping=step.slots[group],
        positions=step.buffers.positions[:rows],
        seq_lens_cpu_upper_bound=vllm.torch.tensor(step.key_lens, dtype=vllm.torch.int32),
    )


TILE = 128
"""Columns to whose multiple lists of keys are rounded up."""


def dense_builder(vllm: Vllm, request: Request, step: Step, ratio: int, decode_threshold: int) -> tuple[Any, Any]:
    """``DeepseekV4SparseMLAMetadataBuilder`` of a dense ratio, which lists all compressed keys of a row for ratio 128,
    and the step's common metadata with the longest length that its lists have room for.
    """
    rows, config = step.capacity, request.config
    width = max(1, -(-(config.max_model_len // ratio) // TILE)) * TILE
    mla = builder(
        vllm.modules.sparse_mla.DeepseekV4SparseMLAMetadataBuilder,
        compress_ratio=ratio,
        reorder_batch_threshold=decode_threshold,
        kv_cache_spec=SimpleNamespace(block_size=config.block_size),
        c128a_max_compressed=width,
        c128a_global_decode_buffer=vllm.full((rows, width), "int32"),
        c128a_decode_lens_buffer=vllm.full((rows,), "int32"),
        c128a_prefill_buffer=vllm.full((rows, width), "int32"),
    )
    return mla, common_metadata(vllm, step, 0, width * ratio)


def compressed_slots(vllm: Vllm, request: Request, step: Step, ratio: int) -> np.ndarray:
    """Slots of compressed tokens, int64 [rows], a row a query token; at ratio 1 they are the tokens' own."""
    if ratio == 1:
        return host(step.slots[0])
    return host(
        vllm.modules.sparse_mla.get_compressed_slot_mapping(
            step.rows,
            step.slots[0],
            step.query_start_loc,
            step.buffers.seq_lens[: len(step.states)],
            step.tables[0],
            request.config.block_size // ratio,
            ratio,
            out=vllm.full((step.capacity,), "int64"),
        )
    )


def builder(kind: Any, **settings: object) -> Any:
    """A metadata builder of vLLM with what its constructor would take from a model's configuration."""
    made = kind.__new__(kind)
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def input_batch(vllm: Vllm, **values: object) -> Any:
    """An ``InputBatch`` with these members, all others None."""
    batch_type = vllm.modules.input_batch.InputBatch
    return batch_type(**dict.fromkeys(member.name for member in fields(batch_type)) | values)
