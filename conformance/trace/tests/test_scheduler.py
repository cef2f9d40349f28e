"""The scheduler's batches keep the preconditions, its accounts balance, and everything that can happen does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from inputmeta import oracle
from inputmeta.conformance.trace import PLACEHOLDER, Scheduler, TraceRequest

from .synthetic import SMALL, conversations


def check_accounts(scheduler):
    """A block is free, in one node, or private to one sequence; a state slot is free or taken, once."""
    nodes = list(scheduler.pool.nodes())
    owned = {block for node in nodes for block in node.blocks}
    private = [block for live in scheduler.running.values() for block in live.table if block not in owned]
    everything = [*scheduler.pool.free(), *(block for node in nodes for block in node.blocks), *private]
    assert sorted(everything) == list(range(scheduler.options.total_blocks))
    slots = [*scheduler.state_slots, *(live.state_id for live in scheduler.running.values())]
    assert sorted(slots) == list(range(scheduler.options.max_running))
    holders = Counter(node for live in scheduler.running.values() for node in live.chain)
    assert all(node.holders == holders[node] for node in nodes)
    assert scheduler.pool.available == len(scheduler.pool.free()) + sum(len(n.blocks) for n in nodes if not n.holders)


def one(input_length, output_length, timestamp=0, first_id=0):
    ids = tuple(range(first_id, first_id - (-input_length // 16)))
    return TraceRequest(timestamp=timestamp, input_length=input_length, output_length=output_length, hash_ids=ids)


def run(requests, options=SMALL):
    """Every step's path, requests and lengths, in values that outlive the step; batches are checked on the way."""
    scheduler = Scheduler(requests, options)
    steps = []
    for step in scheduler:
        assert oracle.violations(step.path, scheduler.config, step.sequences) == []
        check_accounts(scheduler)
        lengths = [(s.seqlen_q, s.seqlen_k, len(s.token_ids), s.state_id, *s.block_table) for s in step.sequences]
        steps.append((step.index, step.path, step.requests, step.accepted, lengths))
    check_accounts(scheduler)
    return scheduler, steps


@pytest.mark.parametrize("seed", range(4))
def test_batches_are_valid_and_everything_returns(seed):
    requests = list(conversations(80, seed))
    scheduler, steps = run(requests, replace(SMALL, seed=seed))
    assert [step[0] for step in steps] == list(range(len(steps))) == list(range(scheduler.counts.steps))
    assert scheduler.counts.finished == len(requests)
    assert not scheduler.running
    assert not scheduler.waiting
    assert scheduler.pool.available == SMALL.total_blocks
    assert all(not node.holders for node in scheduler.pool.nodes())


@pytest.mark.parametrize("seed", range(4))
def test_every_request_ends_with_its_output_length(seed):
    requests = list(conversations(80, seed))
    _, steps = run(requests, replace(SMALL, seed=seed))
    totals = {}
    for _, path, numbers, accepted, lengths in steps:
        for number, drafts, (_, seqlen_k, known, *_) in zip(numbers, accepted, lengths, strict=True):
            if number != PLACEHOLDER:
                totals[number] = known + 1 + drafts if path != "prompt" or seqlen_k == known else known
    assert totals == {n: r.input_length + r.output_length for n, r in enumerate(requests)}


def test_everything_happens():
    counts = run(conversations(150, seed=5))[0].counts
    for name in ("prompt_steps", "decode_steps", "idle_steps", "hits", "hit_tokens", "replayed_tokens", "evictions"):
        assert getattr(counts, name) > 0, name
    for name in ("preemptions", "placeholders", "drafts_rejected"):
        assert getattr(counts, name) > 0, name
    assert counts.drafts > counts.drafts_rejected


def test_batches_have_the_shapes_that_matter():
    """Chunks cut off blocks and ratios, several prompts in a step, drafts of mixed length, reused ids, no identity."""
    _, steps = run(conversations(150, seed=5))
    prompts = [lengths for _, path, _, _, lengths in steps if path == "prompt"]
    decodes = [lengths for _, path, _, _, lengths in steps if path == "decode"]
    starts = {(k - q) % 4 for lengths in prompts for q, k, *_ in lengths}
    assert starts == {0, 1, 2, 3}
    assert any(len(lengths) > 2 for lengths in prompts)
    assert any(len({q for q, *_ in lengths}) > 1 for lengths in decodes)
    assert sum(table != sorted(table) for lengths in decodes for _, _, _, _, *table in lengths) > 100
    assert {state for lengths in decodes for _, _, _, state, *_ in lengths} == set(range(SMALL.max_running))


def test_the_same_seed_gives_the_same_steps():
    first, again = (run(conversations(50, seed=2))[1] for _ in range(2))
    assert first == again
    assert first != run(conversations(50, seed=2), replace(SMALL, seed=2))[1]


def test_a_preempted_request_goes_on_with_what_it_said():
    """Two requests that fit alone: the later one is preempted, and its generated tokens belong to the new prompt."""
    options = replace(SMALL, total_blocks=16, padding=0.0, drafts=0)
    scheduler, steps = run([one(20, 30), one(17, 20, first_id=50)], options)
    assert scheduler.counts.preemptions >= 1
    ends = {
        seqlen_k
        for _, path, numbers, _, lengths in steps
        if path == "prompt"
        for number, (_, seqlen_k, *_) in zip(numbers, lengths, strict=True)
        if number == 1
    }
    assert 17 in ends
    assert max(ends) > 17


def test_a_prefix_hit_replays_at_least_a_window():
    """A prompt of 32 cached tokens starts at 28: W - 1 = 3 tokens before the end, rounded down to a block of 4."""
    options = replace(SMALL, padding=0.0)
    scheduler = Scheduler([one(40, 1), one(40, 2, timestamp=5000)], options)
    prompts = [step.sequences[0] for step in scheduler if step.path == "prompt"]
    hit = prompts[-1]
    assert (hit.seqlen_q, hit.seqlen_k, hit.swa_valid_start) == (12, 40, 28)
    assert (scheduler.counts.hits, scheduler.counts.hit_tokens, scheduler.counts.replayed_tokens) == (1, 32, 4)


def test_equal_prefixes_have_equal_tokens():
    scheduler = Scheduler([one(40, 1), one(40, 1, timestamp=5000), one(40, 1, 9000, first_id=7)], SMALL)
    known = {}
    for step in scheduler:
        for number, sequence in zip(step.requests, step.sequences, strict=True):
            if number != PLACEHOLDER:
                known[number] = sequence.token_ids[:40].tolist()
    assert known[0] == known[1] != known[2]


def test_the_longest_context_is_reached_and_not_passed():
    """The last token is sampled at position max_model_len and never computed; drafts are clipped before it."""
    options = replace(SMALL, acceptance=0.0, max_model_len=64)
    requests = [one(50, 99), one(64, 5, first_id=20), one(65, 1, first_id=40)]
    scheduler, steps = run(requests, options)
    assert scheduler.counts.truncated == 2
    assert scheduler.counts.refused == {"prompt longer than max_model_len": 1}
    assert scheduler.counts.finished == 2
    assert max(seqlen_k for _, _, _, _, lengths in steps for _, seqlen_k, *_ in lengths) == 64


def test_a_request_larger_than_the_cache_is_refused():
    scheduler, _ = run([one(100, 10), one(10, 3, first_id=20)], replace(SMALL, total_blocks=20))
    assert scheduler.counts.refused == {"more blocks than there are": 1}
    assert scheduler.counts.finished == 1


def test_a_gap_between_arrivals_gives_one_idle_step():
    scheduler, steps = run([one(5, 1), one(5, 1, timestamp=9000, first_id=3)])
    idle = [numbers for _, _, numbers, _, _ in steps if set(numbers) == {PLACEHOLDER}]
    assert len(idle) == scheduler.counts.idle_steps == 1
    assert scheduler.clock_ms >= 9000


def test_requests_are_read_a_bounded_number_ahead():
    requests = iter([one(30, 5)] * 1000)
    next(iter(Scheduler(requests, SMALL)))
    assert 1000 - len(list(requests)) <= 5 * SMALL.max_running


def test_limit_counts_requests():
    assert run(conversations(50), replace(SMALL, limit=7))[0].counts.requests == 7


def test_no_requests_give_no_steps():
    assert run([])[1] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunk_tokens": 0}, "chunk_tokens: 0: must be at least 1"),
        ({"acceptance": 1.5}, "acceptance: 1.5: must be from 0 to 1"),
        ({"hash_block_tokens": 6}, "hash_block_tokens: 6: must be a multiple of block_size 4"),
        ({"rows": 0}, "rows: 0: must be at least 1"),
        ({"limit": -1}, "limit: -1: must be at least 0"),
    ],
)
def test_options_that_cannot_run_are_refused(changes, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        replace(SMALL, **changes)
