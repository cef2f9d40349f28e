"""An engine that gives block tables and state slots itself: ``--subject
inputmeta.conformance.examples.paged_subject:PagedSubject``.

:class:`BlockManager` is the part that an engine has: a paged pool with a free list. :class:`PagedSubject` is the
adapter: it tells the manager which requests ended and which tokens each request has, builds the fields out of the
manager's tables, and hands these over with them. Block 0 is a null block, which no request gets.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from inputmeta.conformance.subjects import (
    ALLOCATED_BLOCKS,
    ALLOCATED_STATES,
    Allocates,
    Capabilities,
    Rejection,
    Request,
    Result,
)

NULL_BLOCK = 0


class OutOfBlocksError(Exception):
    """The pool has no block, or no state slot, left for a request."""


class BlockManager:
    """A pool of blocks and state slots; the longest free ones are handed out first."""

    def __init__(self, num_blocks: int, num_states: int, block_size: int) -> None:
        """``num_blocks``: without the null block. ``block_size`` in tokens."""
        self.block_size = block_size
        self.free_blocks = deque(range(NULL_BLOCK + 1, NULL_BLOCK + 1 + num_blocks))
        self.free_states = deque(range(num_states))
        self.tables: dict[int, list[int]] = {}
        self.states: dict[int, int] = {}

    def free(self, request: int) -> None:
        """Take back what a request that ended had."""
        self.free_blocks.extend(self.tables.pop(request))
        self.free_states.append(self.states.pop(request))

    def allocate(self, request: int, tokens: int) -> None:
        """Have a request, known or new, hold a slot and the blocks of so many tokens; raises OutOfBlocksError."""
        if request not in self.tables:
            if not self.free_states:
                raise OutOfBlocksError("no state slot is free")
            self.tables[request], self.states[request] = [], self.free_states.popleft()
        table = self.tables[request]
        missing = -(-tokens // self.block_size) - len(table)
        if missing > len(self.free_blocks):
            raise OutOfBlocksError(f"{missing} blocks are needed, {len(self.free_blocks)} are free")
        table.extend(self.free_blocks.popleft() for _ in range(missing))


class PagedSubject:
    """Block tables, compressed and ring slots of decode steps and the states of prompts, for tables of its own."""

    name = "paged-example"
    version = "1.0"
    capabilities = Capabilities(
        paths=frozenset({"prompt", "decode"}),
        fields=frozenset({"block_tables", "max_num_blocks", "slot_mapping_store_ca", "state_block_idx"}),
        fields_on={"prompt": frozenset({"state_block_idx"})},
        refuses=frozenset(),
        allocates=Allocates(reserved_blocks=NULL_BLOCK + 1),
    )

    def __init__(self) -> None:
        self.manager: BlockManager | None = None

    def reset(self) -> None:
        """A history begins: no request lives. The pool's size comes with its first step."""
        self.manager = None

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        step, config = request.allocation, request.config
        assert step is not None  # a subject that claims `allocates` gets no other batch
        if self.manager is None:
            self.manager = BlockManager(step.num_blocks, step.num_states, config.block_size)
        manager = self.manager
        for ended in step.ended:
            manager.free(ended)
        tables, states = [], []
        for place, (whose, sequence) in enumerate(zip(step.requests, request.sequences, strict=True)):
            if whose < 0:  # a placeholder: its table is given, and nothing is kept of it
                tables.append(list(sequence.block_table))
                states.append(sequence.state_id)
                continue
            try:
                manager.allocate(whose, sequence.seqlen_k)
            except OutOfBlocksError as error:
                raise Rejection("A-FIT", place, "block_table", str(error)) from error
            tables.append(manager.tables[whose])
            states.append(manager.states[whose])
        fields = prompt_fields(states) if request.path == "prompt" else decode_fields(request, tables, states)
        return {
            **fields,
            ALLOCATED_BLOCKS: padded(tables, max(map(len, tables))),
            ALLOCATED_STATES: np.array(states, dtype=np.int32),
        }


def padded(tables: list[list[int]], width: int) -> np.ndarray:
    """The tables as rows of int32 [n, width], cut or filled with -1."""
    return np.array([[*table[:width], *[-1] * (width - len(table))] for table in tables], dtype=np.int32)


def prompt_fields(states: list[int]) -> dict[str, np.ndarray | int]:
    """``state_block_idx`` of a prompt: one a sequence."""
    return {"state_block_idx": np.array(states, dtype=np.int32)}


def decode_fields(request: Request, tables: list[list[int]], states: list[int]) -> dict[str, np.ndarray | int]:
    """Fields of a decode step, a row a query row (F-BLOCKS, F-CDEC)."""
    config, sequences = request.config, request.sequences
    queries = np.array([sequence.seqlen_q for sequence in sequences])
    smallest = min(config.ca_ratios)
    columns = max(1, *(-(-(s.seqlen_k // smallest) // (config.block_size // smallest)) for s in sequences))
    fields: dict[str, np.ndarray | int] = {
        "max_num_blocks": columns,
        "block_tables": padded(tables, columns).repeat(queries, axis=0),
        "state_block_idx": np.array(states, dtype=np.int32).repeat(queries),
    }
    for ratio in config.ca_ratios:
        per_block = config.block_size // ratio
        rows = (
            (position // ratio if (position + 1) % ratio == 0 and not sequence.is_placeholder else None, table)
            for sequence, table in zip(sequences, tables, strict=True)
            for position in range(sequence.seqlen_k - sequence.seqlen_q, sequence.seqlen_k)
        )
        slots = (-1 if c is None else table[c // per_block] * per_block + c % per_block for c, table in rows)
        fields[f"slot_mapping_store_ca.{ratio}"] = np.array(list(slots), dtype=np.int32)
    return fields
