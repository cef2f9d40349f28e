"""The head of the conversation trace with the real constants. The trace is not part of the repository."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from inputmeta import oracle
from inputmeta.conformance.trace import PLACEHOLDER, Scheduler, TraceOptions, read_trace
from inputmeta.conformance.trace.tokens import mix

TRACE = Path(__file__).resolve().parents[4] / "shared" / "traces" / "mooncake_conversation.jsonl"
DEEP_EVERY = 10
"""Steps between two whose every read is followed."""

pytestmark = pytest.mark.skipif(not TRACE.exists(), reason="the conversation trace is not here: 1 replay left out")


class Cells:
    """Ring and ratio-1 cells of the real constants as arrays, by the formulas alone: fast, and not by way of an oracle.

    A token's identity is the prefix sum of mixed (token, position): 64 bits, 0 for a cell never written.
    """

    def __init__(self, scheduler):
        self.config = scheduler.config
        slots, ring = scheduler.options.max_running, scheduler.options.swa_block_size
        self.ring = np.zeros(slots * ring, dtype=np.uint64)
        self.blocks = np.zeros(scheduler.options.total_blocks * self.config.block_size, dtype=np.uint64)

        self.known = {}

    def run(self, step, deep):
        batch = [
            (sequence, self.identities(number, sequence))
            for number, sequence in zip(step.requests, step.sequences, strict=True)
            if number != PLACEHOLDER
        ]
        for sequence, identities in batch:
            self.write(sequence, identities)
        for sequence, identities in batch if deep else ():
            self.read(sequence, identities, step.path)

    def identities(self, number, sequence):
        """Identities of the sequence's tokens and drafts; those of tokens seen before are kept, drafts are not."""
        length, drafts = len(sequence.token_ids), len(sequence.draft_tokens)
        identities, seen = self.known.pop(number, (np.zeros(length + 2100, dtype=np.uint64), 0))
        new = np.array([*sequence.token_ids[seen:], *sequence.draft_tokens], dtype=np.uint64)
        words = mix(new + np.arange(seen, length + drafts).astype(np.uint64) * np.uint64(4096))
        before = identities[seen - 1] if seen else np.uint64(0)
        identities[seen : length + drafts] = before + np.cumsum(words)
        self.known[number] = (identities, length)
        return identities

    def ring_slots(self, sequence, positions):
        ring = self.config.swa_block_size
        return sequence.state_id * ring + positions % ring

    def block_slots(self, sequence, positions):
        size = self.config.block_size
        table = np.frombuffer(sequence.block_table, dtype=np.int32).astype(np.int64)
        return table[positions // size] * size + positions % size

    def write(self, sequence, identities):
        new = np.arange(sequence.seqlen_k - sequence.seqlen_q, sequence.seqlen_k)
        kept = new[-self.config.swa_block_size :]
        self.ring[self.ring_slots(sequence, kept)] = identities[kept]
        self.blocks[self.block_slots(sequence, new)] = identities[new]

    def read(self, sequence, identities, path):
        every = np.arange(sequence.seqlen_k)
        assert np.array_equal(self.blocks[self.block_slots(sequence, every)], identities[every])
        if path == "decode":
            first = max(0, sequence.seqlen_k - sequence.seqlen_q - self.config.window_size + 1)
            window = np.arange(first, sequence.seqlen_k)
            assert np.array_equal(self.ring[self.ring_slots(sequence, window)], identities[window])


@pytest.mark.slow
def test_two_hundred_requests_keep_the_preconditions_and_read_the_right_tokens():
    options = TraceOptions(limit=200)
    scheduler = Scheduler(read_trace(TRACE), options)
    cells = Cells(scheduler)
    for step in scheduler:
        assert oracle.violations(step.path, scheduler.config, step.sequences) == []
        cells.run(step, deep=step.index % DEEP_EVERY == 0)
    counts = scheduler.counts
    assert counts.finished == counts.requests == 200
    assert counts.hit_tokens >= 200 * 512
    assert min(counts.preemptions, counts.placeholders, counts.drafts_rejected, counts.evictions) > 0
    assert scheduler.pool.available == options.total_blocks
    assert len(scheduler.state_slots) == options.max_running


def test_requests_of_the_trace_have_the_extremes_it_is_known_for():
    requests = list(islice(read_trace(TRACE), 12_031))
    assert len(requests) == 12_031
    assert max(request.input_length for request in requests) == 126_195
    assert max(request.output_length for request in requests) == 2000
