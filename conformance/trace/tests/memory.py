"""Simulated memory (SPEC.md section 12): every cache cell carries what was last written to it.

Writes and reads go by the oracle's fields, so that scheduler and formulas are checked together. A token's identity is a
hash of everything up to it: what a row reads must be of the right content at the right position, whoever wrote it.
The ring of a state slot is wiped when a request starts to run: nothing survives from the tenant before.
"""

from __future__ import annotations

from collections.abc import Mapping

from inputmeta import oracle
from inputmeta.conformance.trace import PLACEHOLDER, Scheduler, Step

Cells = Mapping[str, oracle.ExpectedField]


class Memory:
    """Ring cells and compressed cells of every ratio, checked step by step; AssertionError on a wrong read."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.config = scheduler.config
        self.ratios = self.config.ca_ratios
        self.ring: dict[int, object] = {}
        self.kept_ring: dict[int, object] = {}
        """The ring of layers whose prefill is truncated (compact mode): decode reads it as it reads the other."""
        self.compressed: dict[int, dict[int, object]] = {ratio: {} for ratio in self.ratios}
        self.reads = 0

    def run(self, step: Step) -> None:
        """Apply one step: its writes, then every key that its rows read."""
        fields = oracle.expected_fields(step.path, self.config, step.sequences)
        if step.path == "prompt":
            Prompt(self, step, fields).run()
        else:
            Decode(self, step, fields).run()


class Batch:
    """What both paths share: identities, and writes by slot."""

    def __init__(self, memory: Memory, step: Step, fields: Cells) -> None:
        self.memory, self.config, self.step, self.fields = memory, memory.config, step, fields
        self.identities = [identities(sequence) for sequence in step.sequences]
        self.rows = [
            (index, position)
            for index, sequence in enumerate(step.sequences)
            for position in range(sequence.seqlen_k - sequence.seqlen_q, sequence.seqlen_k)
        ]

    def row_of(self, name: str, row: int) -> list[int]:
        field = self.fields[name]
        width = field.shape[1]
        return field.cells[row * width : (row + 1) * width]

    def real(self, index: int) -> bool:
        return self.step.requests[index] != PLACEHOLDER

    def in_ring(self, index: int, position: int) -> object:
        """Identity of a ring cell: the request counts too, since a ring is never shared."""
        return (self.step.requests[index], position, self.identities[index][position])

    def group(self, index: int, ratio: int, token: int) -> object:
        """Identity of a compressed token: that of the last original token in it."""
        return (token, self.identities[index][token * ratio + ratio - 1])

    def store_ring(self) -> None:
        self.store_in(self.memory.ring, "slot_mapping_store_swa", self.rows)

    def store_in(self, ring: dict[int, object], name: str, rows: list[tuple[int, int]]) -> None:
        for (index, position), slot in zip(rows, self.fields[name].cells, strict=True):
            assert self.real(index) or slot == -1, "a placeholder writes to the ring"
            if slot >= 0:
                ring[slot] = self.in_ring(index, position)

    def store_compressed(self, index: int, ratio: int, position: int, slot: int) -> None:
        if slot < 0:
            return
        assert self.real(index), "a placeholder writes compressed KV"
        sequence = self.step.sequences[index]
        assert position >= sequence.swa_valid_start, "a group is compressed from a part of its tokens"
        self.check_private(index, slot // (self.config.block_size // ratio))
        self.memory.compressed[ratio][slot] = self.group(index, ratio, position // ratio)

    def check_private(self, index: int, block: int) -> None:
        """No other sequence that runs has the block in its table, and no cached node owns it (M-2)."""
        mine = self.step.requests[index]
        for number, live in self.memory.scheduler.running.items():
            assert number == mine or block not in live.table, f"block {block} has a second reader"
        assert all(block not in node.blocks for node in self.memory.scheduler.pool.nodes()), f"block {block} is shared"

    def expect(self, got: object, want: object) -> None:
        assert got == want, f"step {self.step.index}: read {got}, want {want}"
        self.memory.reads += 1


class Prompt(Batch):
    """A prompt step: history and compressed KV are loaded into buffers, rows read the buffers."""

    def run(self) -> None:
        for sequence in self.step.sequences:
            if sequence.seqlen_k - sequence.seqlen_q == sequence.swa_valid_start:
                ring = self.config.swa_block_size
                for slot in range(sequence.state_id * ring, (sequence.state_id + 1) * ring):
                    self.memory.ring.pop(slot, None)
                    self.memory.kept_ring.pop(slot, None)
        window = self.load_window(self.memory.ring, self.rows)
        for ratio in self.memory.ratios:
            self.store_groups(ratio)
        self.store_ring()
        for row, (index, position) in enumerate(self.rows):
            trusted = self.step.sequences[index].swa_valid_start
            self.check_window(window, self.row_of("kv_swa_full_index_pivots", row), index, position, trusted)
        if self.config.yoco_mode == "compact":
            self.run_truncated()
        for ratio in self.memory.ratios:
            self.check_groups(ratio)

    def run_truncated(self) -> None:
        """The layers that compute the kept rows alone: what these see is trusted and within rect (F-RECT)."""
        kept = self.fields["yoco_consumer_query_indices"].cells[: self.fields["yoco_consumer_total_q"].cells[0]]
        rows = [self.rows[row] for row in kept]
        window = self.load_window(self.memory.kept_ring, rows)
        for row, (index, position) in enumerate(rows):
            sequence = self.step.sequences[index]
            lowest = max(sequence.data_len - self.config.yoco_prefill_keep_tokens, sequence.swa_valid_start)
            self.check_window(window, self.row_of("yoco_consumer_swa_index_pivots", row), index, position, lowest)
        if rows:
            self.store_in(self.memory.kept_ring, "yoco_consumer_slot_mapping_store_swa", rows)

    def load_window(self, cells: dict[int, object], rows: list[tuple[int, int]]) -> list[object]:
        buffer: list[object] = [None] * self.fields["total_k_swa"].cells[0]
        ring = self.config.swa_block_size
        for number in range(self.fields["load_segments_swa"].shape[0]):
            source, begin, end, target = self.row_of("load_segments_swa", number)
            for offset in range(end - begin):
                cell = None if source < 0 else cells.get(source * ring + begin + offset)
                buffer[target + offset] = cell
        return buffer + [self.in_ring(index, position) for index, position in rows]

    def check_window(
        self, buffer: list[object], pivots: list[int], index: int, position: int, lowest_seen: int
    ) -> None:
        """The window of a row is what is seen at all of [pos - W + 1, pos]."""
        first, count, new_first, new_count = pivots
        got = buffer[first : first + count] + buffer[new_first : new_first + new_count]
        lowest = max(0, position - self.config.window_size + 1, lowest_seen)
        self.expect(got, [self.in_ring(index, at) for at in range(lowest, position + 1)])

    def store_groups(self, ratio: int) -> None:
        ends = self.fields[f"cu_compressed_seqlens_q.{ratio}"].cells
        positions = self.fields[f"positions_c.{ratio}"].cells
        slots = self.fields[f"slot_mapping_store_ca.{ratio}"].cells
        for index in range(len(self.step.sequences)):
            for row in range(ends[index], ends[index + 1]):
                self.store_compressed(index, ratio, positions[row], slots[row])

    def check_groups(self, ratio: int) -> None:
        buffer: list[object] = [None] * self.fields[f"total_k_compressed.{ratio}"].cells[0]
        per_block = self.config.block_size // ratio
        name = f"load_segments_ca.{ratio}"
        for number in range(self.fields[name].shape[0]):
            source, begin, end, target = self.row_of(name, number)
            for offset in range(end - begin if source >= 0 else 0):
                buffer[target + offset] = self.memory.compressed[ratio].get(source * per_block + begin + offset)
        for row, (index, position) in enumerate(self.rows):
            first, count = self.range_of(ratio, row)
            want = [self.group(index, ratio, token) for token in range((position + 1) // ratio)]
            self.expect(buffer[first : first + count], want)

    def range_of(self, ratio: int, row: int) -> tuple[int, int]:
        if ratio in self.config.dense_ratios:
            first, count = self.row_of(f"kv_ca_index_offset_len.{ratio}", row)
            return first, count
        first, last = self.fields[f"ks.{ratio}"].cells[row], self.fields[f"ke.{ratio}"].cells[row]
        return first, last - first


class Decode(Batch):
    """A decode step: rows are written first and read ring and blocks where they lie."""

    def run(self) -> None:
        self.store_ring()
        self.store_in(self.memory.kept_ring, "slot_mapping_store_swa", self.rows)
        for ratio in self.memory.ratios:
            positions = self.fields[f"positions_c.{ratio}"].cells
            slots = self.fields[f"slot_mapping_store_ca.{ratio}"].cells
            for (index, _), position, slot in zip(self.rows, positions, slots, strict=True):
                self.store_compressed(index, ratio, position, slot)
        for row, (index, position) in enumerate(self.rows):
            if self.real(index):
                self.check_row(row, index, position)

    def check_row(self, row: int, index: int, position: int) -> None:
        """The window is trusted as a whole: M-1 has no exception for decode."""
        lowest = max(0, position - self.config.window_size + 1)
        slots = [slot for slot in self.row_of("kv_swa_index", row) if slot >= 0]
        window = [self.in_ring(index, at) for at in range(lowest, position + 1)]
        self.expect([self.memory.ring.get(slot) for slot in slots], window)
        if self.config.yoco_mode == "compact":
            self.expect([self.memory.kept_ring.get(slot) for slot in slots], window)
        table = self.row_of("block_tables", row)
        for ratio in self.memory.ratios:
            per_block = self.config.block_size // ratio
            cells = self.memory.compressed[ratio]
            for token in range((position + 1) // ratio):
                slot = table[token // per_block] * per_block + token % per_block
                self.expect(cells.get(slot), self.group(index, ratio, token))


def identities(sequence: oracle.SequenceMetadata) -> list[int]:
    """Identity of every token that the sequence has, drafts included: a hash of the tokens up to it."""
    result, value = [], 0
    for token in (*sequence.token_ids, *sequence.draft_tokens):
        value = hash((value, token))
        result.append(value)
    return result
