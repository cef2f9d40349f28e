"""Every key that a scheduled row reads is the token that the specification names (M-1, M-2, M-3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inputmeta.conformance.trace import Scheduler

from .memory import Memory
from .synthetic import SMALL, conversations


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"total_blocks": 60, "acceptance": 0.9},
        {"window_size": 1, "drafts": 0},
        {"window_size": 7, "drafts": 3, "chunk_tokens": 5},
        {"window_size": 40, "chunk_tokens": 64},
        {"dense_ratios": (), "sparse_ratios": (4,), "max_ngram_size": 0},
    ],
    ids=["usual", "few-blocks", "narrow", "small-chunks", "wide-window", "one-ratio"],
)
def test_rows_read_the_right_tokens(changes):
    scheduler = Scheduler(conversations(60, seed=3), replace(SMALL, **changes))
    memory = Memory(scheduler)
    for step in scheduler:
        memory.run(step)
    counts = scheduler.counts
    assert counts.finished == 60
    assert min(counts.hits, counts.preemptions, counts.evictions, memory.reads) > 0


def replay(requests=60):
    scheduler = Scheduler(conversations(requests, seed=3), SMALL)
    memory = Memory(scheduler)
    for step in scheduler:
        memory.run(step)


def truncated(window_size, keep):
    options = replace(SMALL, window_size=window_size, yoco_mode="compact", yoco_prefill_keep_tokens=window_size)
    scheduler = Scheduler(conversations(60, seed=3), options)
    scheduler.config = replace(scheduler.config, yoco_prefill_keep_tokens=keep)  # the options refuse too few
    memory = Memory(scheduler)
    for step in scheduler:
        memory.run(step)
    assert scheduler.counts.finished == 60


@pytest.mark.parametrize(("window_size", "keep"), [(4, 3), (4, 9), (2, 1), (1, 0), (40, 39)])
def test_decode_after_truncation_reads_what_was_kept(window_size, keep):
    """M-1 and I-42: with the last W - 1 tokens kept, the first decode row has its window."""
    truncated(window_size, keep)


@pytest.mark.parametrize(("window_size", "keep"), [(2, 0), (4, 2), (40, 38)])
def test_decode_after_too_much_truncation_reads_cells_never_stored(window_size, keep):
    """I-42: one token less than W - 1 is too few."""
    with pytest.raises(AssertionError, match="read"):
        truncated(window_size, keep)


def test_memory_sees_a_replay_that_is_left_out(monkeypatch):
    """The simulation has teeth: a hit that trusts the ring without a replay is noticed at the first decode row."""
    original = Scheduler._hit

    def trusting(self, live):
        chain, first = original(self, live)
        hit = len(chain) * self.options.hash_block_tokens
        return chain, hit if hit < live.known_length() else first

    monkeypatch.setattr(Scheduler, "_hit", trusting)
    with pytest.raises(AssertionError, match="read"):
        replay()


def test_memory_sees_a_write_to_a_shared_block(monkeypatch):
    """Replaying into the cached blocks themselves is noticed."""
    original = Scheduler._admit

    def sharing(self):
        live = original(self)
        if live is not None and live.chain:
            live.table.extend(live.chain[-1].blocks[len(live.table) % 4 :])
        return live

    monkeypatch.setattr(Scheduler, "_admit", sharing)
    with pytest.raises(AssertionError, match=r"second reader|is shared"):
        replay()


def test_memory_sees_a_ring_without_room_for_drafts(monkeypatch):
    """B = W: a draft overwrites a key that the rows before it still read (M-3)."""
    monkeypatch.setattr(type(SMALL), "swa_block_size", SMALL.window_size)
    with pytest.raises(AssertionError, match="read"):
        replay()


def test_memory_sees_a_state_slot_in_use(monkeypatch):
    """Two sequences on one state slot read each other's ring."""
    original = Scheduler._admit

    def doubling(self):
        live = original(self)
        if live is not None:
            live.state_id //= 2
        return live

    monkeypatch.setattr(Scheduler, "_admit", doubling)
    with pytest.raises(AssertionError, match="read"):
        replay()


def test_options_that_keep_too_few_tokens_are_refused():
    """I-42, before a replay: with truncation that stores the kept rows alone."""
    few = {"window_size": 4, "yoco_prefill_keep_tokens": 2}
    replace(SMALL, yoco_mode="mask", **few)
    with pytest.raises(ValueError, match="yoco_prefill_keep_tokens: 2: must be at least 3"):
        replace(SMALL, yoco_mode="compact", **few)
