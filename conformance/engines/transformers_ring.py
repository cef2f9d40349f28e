"""The cache allocators of transformers' continuous batching (windows; all keys at ratio 1).

``generation.continuous_batching.cache_allocators`` (5.23), ``…cache_manager`` before: for one request, from the cached
and the new tokens to the cells that are written and read. The adapter gives each allocator the block tables of the
batch; the ring of a state has ⌈W / page⌉ blocks of its own.

Dialects: ``int64`` lists; ids behind the sectors that nobody allocates (``blocks-behind-trash``), cells of these for
"no write" and for the new keys of the row itself (``trash-cells``); a window is read before its rows are written, as
the newest W - 1 cached keys and then the new ones (``read-before-write``). So the oldest key of a full history, which
no row sees, is not read: its cell is the first one that is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.dialects import narrowed
from inputmeta.conformance.engines.adapter import Adapter, Raw
from inputmeta.conformance.subjects import Capabilities, Conditions, Result, Unsupported

NOWHERE = -3
"""What stands for a cell of the engine that is none of the request's: no field of the specification holds it."""
PACKAGE = "transformers.generation.continuous_batching"
MANY_BLOCKS = 2**31
"""Blocks of a pool of old releases, whose trash lies behind it."""
REQUEST = "request"
DECODE = frozenset(
    {"slot_mapping_store_ca", "slot_mapping_store_swa", "kv_swa_index", "kv_swa_index_offset_len"}
    | {"kv_ca_index", "kv_ca_index_len"}
)
PROMPT = frozenset({"slot_mapping_store_ca", "slot_mapping_store_swa", "load_segments_ca", "load_segments_swa"})
MORE_ROWS = "more new rows than the window has keys"


class TransformersRing(Adapter):
    """The sliding window's allocator and, at ratio 1, the full attention's."""

    subject = "transformers-ring"
    package = "transformers"
    capabilities = Capabilities(
        paths=frozenset({"decode", "prompt"}),
        fields=DECODE | PROMPT,
        fields_on={"decode": DECODE, "prompt": PROMPT},
        refuses=frozenset(),
        dialects=frozenset({"int64", "blocks-behind-trash", "trash-cells", "read-before-write"}),
        conditions=Conditions(
            dense_ratios=frozenset({1}),
            sparse_ratios=frozenset(),
            ring_is_window=True,
            least_seqlen_q=1,
            placeholders=False,
            empty_steps=False,
            valid_starts="zero",
        ),
    )

    def load(self) -> None:
        """Import the allocators of this release."""
        try:
            module = import_module(f"{PACKAGE}.cache_allocators")
        except ModuleNotFoundError:  # before 5.23
            module = import_module(f"{PACKAGE}.cache_manager")
            self.allocators: Any = OldAllocators(module)
        else:
            self.allocators = NewAllocators(module)

    def call(self, request: Request) -> Raw:
        """Of both allocators: the cells written and read, sequence by sequence, how many are read, and the form.

        ``swa_…``, ``full_…``: ``write`` int64 [total_q], ``read`` int64 [Σ lengths], ``lengths`` int64 [n_seq].
        """
        page = request.config.block_size
        raw: dict[str, np.ndarray | int | bool] = {}
        rings = blocks_of_rings(request, page)
        tables = [list(sequence.block_table) for sequence in request.sequences]
        for kind, blocks in (("swa", rings), ("full", tables)):
            allocator, form = self.allocators.make(kind, page, request.config.window_size)
            raw |= {f"{kind}_{name}": value for name, value in form.items()}
            raw |= {f"{kind}_{name}": value for name, value in cells(allocator, form, blocks, request).items()}
        return raw

    @classmethod
    def translated(cls, request: Request, raw: Raw) -> Result:
        """The fields of the path; of a sequence with more rows than W the window's are not built."""
        sequences, page = request.sequences, request.config.block_size
        rows = np.cumsum([0, *(sequence.seqlen_q for sequence in sequences)])
        swa_write = ring_cells(request, raw, np.repeat(np.arange(len(sequences)), np.diff(rows)), "write")
        full_write = block_cells(raw, np.asarray(raw["full_write"]), page)
        owner = np.repeat(np.arange(len(sequences)), np.asarray(raw["swa_lengths"]))
        window_read = split(ring_cells(request, raw, owner, "read"), raw["swa_lengths"])
        full_read = split(block_cells(raw, np.asarray(raw["full_read"]), page), raw["full_lengths"])
        fields: dict[str, np.ndarray | int | bool | Unsupported] = {
            "slot_mapping_store_swa": narrowed(swa_write),
            "slot_mapping_store_ca.1": narrowed(full_write),
        }
        written = [swa_write[begin:end] for begin, end in pairwise(rows)]
        if request.path == "decode":
            return {**fields, **decode_windows(request, window_read, written), **decode_keys(request, full_read)}
        return {**fields, **prompt_plans(request, window_read, written, full_read)}


class OldAllocators:
    """Of releases up to 5.16: a pool of blocks, with the trash behind it."""

    def __init__(self, module: Any) -> None:  # noqa: ANN401 - a module of the engine
        self.module = module

    def make(self, kind: str, page: int, window: int) -> tuple[Any, dict[str, int]]:
        """An allocator, and what its cells mean: ``stride`` cells a block, the ``first`` block that is anyone's."""
        sentinel, trash = MANY_BLOCKS * page + 1, (MANY_BLOCKS + 1) * page
        if kind == "full":
            allocator = self.module.FullAttentionCacheAllocator(0, page, False)
        else:
            allocator = self.module.SlidingAttentionCacheAllocator(0, page, window, sentinel, trash)
        return allocator, {"stride": page, "first": 0, "sentinel": sentinel, "trash": trash}


class NewAllocators:
    """Of releases from 5.23 on: one tensor in sectors, keys and values of a page one behind the other."""

    def __init__(self, module: Any) -> None:  # noqa: ANN401 - as above
        self.module = module
        import torch  # noqa: PLC0415 - the engine has it

        self.torch = torch

    def make(self, kind: str, page: int, window: int) -> tuple[Any, dict[str, int]]:
        """As of the old ones. The tensor has one sector, of one block, beside the trash: no cell is touched."""
        name = "FullAttentionCacheAllocator" if kind == "full" else "SlidingAttentionCacheAllocator"
        allocator = getattr(self.module, name)(
            index=0,
            config=Shape(window),
            num_key_value_heads=1,
            cache_dtype=self.torch.uint8,
            page_size=page,
            layer_indices=[0],
            allow_block_sharing=False,
        )
        size = allocator.bytes_per_block
        tensor = self.torch.empty(3 * size, dtype=self.torch.uint8)
        allocator.register_cache_tensor(size, size, tensor, self.module.CachePool(1, 1))
        return allocator, {
            "stride": allocator.block_physical_stride,
            "first": 2,
            "sentinel": allocator.sentinel_index,
            "trash": allocator.write_trash_index,
        }


class Shape:
    """What the allocators ask a model's configuration for."""

    head_dim = 1

    def __init__(self, sliding_window: int) -> None:
        self.sliding_window = sliding_window


def blocks_of_rings(request: Request, page: int) -> list[range]:
    """The blocks of each sequence's ring: as many a state as hold W cells, numbered by state."""
    size = -(-request.config.window_size // page)
    return [range(sequence.state_id * size, (sequence.state_id + 1) * size) for sequence in request.sequences]


def cells(
    allocator: Any,  # noqa: ANN401 - an object of the engine
    form: dict[str, int],
    tables: Sequence[Sequence[int]],
    request: Request,
) -> dict[str, np.ndarray]:
    """What an allocator says of each sequence; see :meth:`TransformersRing.call`."""
    written: list[int] = []
    read: list[int] = []
    lengths: list[int] = []
    for table, sequence in zip(tables, request.sequences, strict=True):
        first = form["first"]
        if isinstance(table, range):  # of a ring, which may have more blocks than a list could hold
            allocator.block_table[REQUEST] = range(table.start + first, table.stop + first)
        else:
            allocator.block_table[REQUEST] = [block + first for block in table]
        past, new = sequence.seqlen_k - sequence.seqlen_q, sequence.seqlen_q
        of_one = allocator.get_read_indices(REQUEST, past, new)
        told = getattr(allocator, "get_seqlen_k", None)
        written += allocator.get_write_indices(REQUEST, past, new)
        read += of_one
        lengths.append(len(of_one) if told is None else told(past, new))
    return {
        name: np.array(values, dtype=np.int64)
        for name, values in {"write": written, "read": read, "lengths": lengths}.items()
    }


def split(values: np.ndarray, lengths: Any) -> list[np.ndarray]:  # noqa: ANN401 - an array
    """Values sequence by sequence. Raises ValueError unless the lengths add up to them."""
    ends = np.cumsum(lengths)
    if len(values) != ends[-1]:
        raise ValueError(f"{len(values)} cells are read, and the lengths add up to {ends[-1]}")
    return np.split(values, ends[:-1])


def block_cells(raw: Raw, found: np.ndarray, page: int) -> np.ndarray:
    """Cells of the full attention's pool as the specification numbers them; what is no cell of a block: NOWHERE."""
    block, offset = np.divmod(found, raw["full_stride"])
    inside = (offset < page) & (block >= raw["full_first"])
    return np.where(inside, (block - raw["full_first"]) * page + offset, NOWHERE)


def ring_cells(request: Request, raw: Raw, owner: np.ndarray, what: str) -> np.ndarray:
    """Cells of the ring: state · B + cell; -1 for the trash (written) or a new row (read); otherwise NOWHERE.

    ``owner``: the sequence of each.
    """
    found, window, page = np.asarray(raw[f"swa_{what}"]), request.config.window_size, request.config.block_size
    if len(found) != len(owner):
        raise ValueError(f"{len(found)} cells of the window, want {len(owner)}")
    none = raw["swa_trash"] if what == "write" else raw["swa_sentinel"]
    states = np.array([sequence.state_id for sequence in request.sequences], dtype=np.int64)[owner]
    block, offset = np.divmod(found, raw["swa_stride"])
    place = (block - raw["swa_first"] - states * -(-window // page)) * page + offset
    inside = (offset < page) & (place >= 0) & (place < window)
    return np.where(found == none, -1, np.where(inside, states * window + place, NOWHERE))


def decode_windows(request: Request, read: Sequence[np.ndarray], written: Sequence[np.ndarray]) -> Result:
    """F-SWADEC: of each row the newest W of what is read, new rows where they are written."""
    width = request.config.window_size
    if any(len(new) > width for new in written):
        reason = Unsupported(MORE_ROWS)
        return {key: reason for key in ("kv_swa_index", "kv_swa_index_offset_len")}
    windows = [window for old, new in zip(read, written, strict=True) for window in row_windows(old, new, width)]
    found: dict[str, np.ndarray] = {
        "kv_swa_index_offset_len": narrowed(np.array([(window[0], len(window)) for window in windows], dtype=np.int64))
    }
    if "kv_swa_index" in request.expand:
        found["kv_swa_index"] = padded(windows, width)
    return found


def row_windows(read: np.ndarray, written: np.ndarray, width: int) -> Iterator[np.ndarray]:
    """The cells that each row of a sequence sees, oldest first."""
    keys = read.copy()
    new = np.flatnonzero(keys == -1)
    if len(new) != len(written):
        raise ValueError(f"{len(new)} new keys are read, {len(written)} are written")
    keys[new] = written
    for place in new:
        yield keys[max(0, place + 1 - width) : place + 1]


def decode_keys(request: Request, read: Sequence[np.ndarray]) -> Result:
    """F-CAOFF at ratio 1: of each row the keys of its sequence up to itself."""
    if "kv_ca_index" not in request.expand:
        return {}
    rows = []
    for sequence, keys in zip(request.sequences, read, strict=True):
        rows += [keys[: len(keys) - later] for later in reversed(range(sequence.seqlen_q))]
    width = max(128, -(-request.config.max_model_len // 128) * 128)
    lengths = np.array([len(row) for row in rows], dtype=np.int32)
    return {"kv_ca_index.1": padded(rows, width), "kv_ca_index_len.1": lengths}


def padded(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Rows as one array, -1 right of each; int32 if all fits."""
    array = np.full((len(rows), width), -1, dtype=np.int64)
    for row, values in zip(array, rows, strict=True):
        row[: len(values)] = values
    return narrowed(array)


def prompt_plans(
    request: Request, read: Sequence[np.ndarray], written: Sequence[np.ndarray], full_read: Sequence[np.ndarray]
) -> Result:
    """F-SWAPLAN and F-CAPLAN: what is read, as segments."""
    width, page = request.config.window_size, request.config.block_size
    window: list[tuple[int, int, int, int]] | None = []
    keys: list[tuple[int, int, int, int]] = []
    base = 0
    for index, sequence in enumerate(request.sequences):
        past = sequence.seqlen_k - sequence.seqlen_q
        history = read[index][read[index] != -1]
        if past >= width and len(written[index]) > width:
            window = None
        if window is not None:
            oldest = written[index][:1] if past >= width else written[index][:0]
            window += history_segments(np.concatenate([oldest, history]), index * width, width)
        keys += segments(full_read[index], base, page)
        base += max(1, len(full_read[index]))
    found: dict[str, np.ndarray | Unsupported] = {"load_segments_ca.1": as_segments(keys)}
    found["load_segments_swa"] = Unsupported(MORE_ROWS) if window is None else as_segments(window)
    return found


def history_segments(history: np.ndarray, start: int, width: int) -> list[tuple[int, int, int, int]]:
    """F-SWAPLAN of one sequence: what there is not yet is filled with zeros."""
    missing = width - len(history)
    zeros = [(-1, 0, missing, start)] if missing > 0 else []
    return zeros + segments(history, start + missing, width)


def segments(found: np.ndarray, start: int, size: int) -> list[tuple[int, int, int, int]]:
    """Runs of cells within a block of ``size``: block, begin, end, and where they go."""
    cuts = np.flatnonzero((np.diff(found) != 1) | (found[1:] % size == 0)) + 1
    runs = [run for run in np.split(found, cuts) if len(run)]
    places = np.cumsum([0, *(len(run) for run in runs)])
    return [
        (int(run[0]) // size, int(run[0]) % size, int(run[0]) % size + len(run), start + int(place))
        for run, place in zip(runs, places, strict=False)
    ]


def as_segments(rows: Sequence[tuple[int, int, int, int]]) -> np.ndarray:
    """Rows of four; int32 if all fits."""
    return narrowed(np.array(rows, dtype=np.int64).reshape(-1, 4))
