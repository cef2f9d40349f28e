"""A consumer of a decode step's metadata, as attention kernels are: it stores rows and reads what rows may see.

It runs on caches of marked cells. `launch` is captured in a graph; what it saw is compared with a walk over the
oracle's fields by numpy.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from inputmeta.conformance.gpu.tests.device.steps import BLOCKS, STATES, columns_of

NOTHING, UNSEEN = -1, -7
COLUMNS = 128


@triton.jit
def store_tokens(live, slots, tokens, cache):
    """A program a row: its token goes into its slot of the cache, if it has one."""
    row = tl.program_id(0)
    alive = row < tl.load(live)
    slot = tl.load(slots + row, mask=alive, other=-1)
    token = tl.load(tokens + row, mask=alive, other=0)
    tl.store(cache + slot, token, mask=slot >= 0)


@triton.jit
def walk_index(live, index, cache, seen, width: tl.constexpr, columns: tl.constexpr):  # noqa: PLR0917
    """A program a row: what lies in the cache at each slot of its index."""
    row = tl.program_id(0)
    alive = row < tl.load(live)
    for begin in range(0, width, columns):
        column = begin + tl.arange(0, columns)
        inside = alive & (column < width)
        slot = tl.load(index + row * width + column, mask=inside, other=-1)
        tl.store(seen + row * width + column, tl.load(cache + slot, mask=slot >= 0, other=-1), mask=inside)


@triton.jit
def walk_tables(  # noqa: PLR0917
    live, tables, table_columns, lengths, per_block, cache, seen, width: tl.constexpr, columns: tl.constexpr
):
    """A program a row: what lies in the cache at each compressed key of the row, through its block table."""
    row = tl.program_id(0)
    alive = row < tl.load(live)
    length = tl.load(lengths + row, mask=alive, other=0)
    for begin in range(0, width, columns):
        key = begin + tl.arange(0, columns)
        used = key < length
        block = tl.load(tables + row * table_columns + key // per_block, mask=used, other=0)
        found = tl.load(cache + block * per_block + key % per_block, mask=used, other=-1)
        tl.store(seen + row * width + key, found, mask=alive & (key < width))


class Consumer:
    """Caches, what was seen in them, and the launches that fill `seen`. Captured once, replayed for every step."""

    def __init__(self, config, captured, rows):
        self.config, self.rows, self.buffers = config, rows, captured.out
        device = captured.out["positions"].device
        self.live = torch.zeros(1, dtype=torch.int32, device=device)
        sizes = {"ring": STATES * config.swa_block_size}
        sizes |= {f"cache.{n}": BLOCKS * (config.block_size // n) for n in config.ca_ratios}
        self.caches = {name: torch.empty(size, dtype=torch.int32, device=device) for name, size in sizes.items()}
        self.marks = {}
        widths = {"kv_swa_index": config.window_size}
        widths |= {f"kv_ca_index.{n}": captured.out[f"kv_ca_index.{n}"].shape[1] for n in config.dense}
        widths |= {f"klen.{n}": columns_of(config) * (config.block_size // n) for n in config.sparse}
        self.seen = {key: torch.empty((rows, w), dtype=torch.int32, device=device) for key, w in widths.items()}

    def cache_of(self, key):
        """The cache that an index is of."""
        return "ring" if key == "kv_swa_index" else "cache." + key.partition(".")[2]

    def launch(self):
        """Store every row, then read what every row may see: launches on the current stream, no other work."""
        buffers, grid = self.buffers, (self.rows,)
        tokens = buffers["input_ids"]
        store_tokens[grid](self.live, buffers["slot_mapping_store_swa"], tokens, self.caches["ring"])
        for n in self.config.ca_ratios:
            store_tokens[grid](self.live, buffers[f"slot_mapping_store_ca.{n}"], tokens, self.caches[f"cache.{n}"])
        for key, seen in self.seen.items():
            cache, width = self.caches[self.cache_of(key)], seen.shape[1]
            if key.startswith("klen"):
                per_block = self.config.block_size // int(key.partition(".")[2])
                tables = buffers["block_tables"]
                where = (self.live, tables, tables.shape[1], buffers[key], per_block)
                walk_tables[grid](*where, cache, seen, width=width, columns=COLUMNS)
            else:
                walk_index[grid](self.live, buffers[key], cache, seen, width=width, columns=COLUMNS)

    def mark(self, draw, total_q):
        """New marks in every cache, nothing seen, and the number of rows that live."""
        numbers = np.random.default_rng(draw.randrange(2**32))
        for name, cache in self.caches.items():
            self.marks[name] = numbers.integers(-(2**31), -100, cache.shape[0], dtype=np.int32)
            cache.copy_(torch.from_numpy(self.marks[name]))
        for seen in self.seen.values():
            seen.fill_(UNSEEN)
        self.live.fill_(total_q)

    def differences(self, fields):
        """Caches and sights that are not what the oracle's ``fields`` make them."""
        want_caches, want_seen = self.walked(fields)
        got = {**self.caches, **self.seen}
        return [
            f"{name}: {int((got[name].cpu().numpy() != want).sum())} of {want.size} cells differ"
            for name, want in {**want_caches, **want_seen}.items()
            if not np.array_equal(got[name].cpu().numpy(), want)
        ]

    def walked(self, fields):
        """Caches and sights of every row, by the oracle's fields."""
        cells = {key: np.array(f.cells, dtype=object).reshape(f.shape) for key, f in fields.items() if f.shape}
        tokens = cells["input_ids"].astype(np.int64)
        caches = {name: marks.copy() for name, marks in self.marks.items()}
        stores = {"ring": "slot_mapping_store_swa"}
        stores |= {f"cache.{n}": f"slot_mapping_store_ca.{n}" for n in self.config.ca_ratios}
        for name, key in stores.items():
            slots = cells[key].astype(np.int64)
            caches[name][slots[slots >= 0]] = tokens[slots >= 0]
        seen = {key: np.full(tuple(sight.shape), UNSEEN, dtype=np.int32) for key, sight in self.seen.items()}
        for key, sight in seen.items():
            cache = caches[self.cache_of(key)]
            slots = self.table_slots(cells, key, sight.shape[1]) if key.startswith("klen") else cells[key]
            slots = slots.astype(np.int64)
            sight[: len(slots)] = np.where(slots >= 0, cache[slots], NOTHING)
        return caches, seen

    def table_slots(self, cells, key, width):
        """Slots [total_q, width] of the compressed keys that each row may see, then -1."""
        per_block = self.config.block_size // int(key.partition(".")[2])
        slots = np.full((len(cells[key]), width), NOTHING, dtype=np.int64)
        for row, length in enumerate(cells[key]):
            keys = np.arange(length)
            blocks = cells["block_tables"][row][keys // per_block].astype(np.int64)
            slots[row, :length] = blocks * per_block + keys % per_block
        return slots
