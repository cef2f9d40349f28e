"""A small continuous-batching scheduler that turns a request trace into the batches of an engine's steps.

A step is a prompt step or a decode step. While a running sequence has prompt chunks left, or the oldest waiting request
has a state slot and blocks, the step is a prompt step; otherwise every running sequence decodes.

Prefix hits. A cached prefix of h tokens lends its compressed KV, but the ring of the new state slot holds nothing of
it, so at least W - 1 tokens before h are computed again, from ``q_start`` on, with ``swa_valid_start = q_start``: by
the first decode row the whole window is trusted (M-1). Two decisions of an engine developer:

- ``q_start`` is rounded down to a block. A replay that began inside the group of a ratio would write that group's
  compressed token (F-CPOS counts from ``q_start // n``) from half its tokens.
- The replay does *not* write to the shared blocks. It starts from an empty window and an empty compression state, so
  what it computes is an approximation, and other sequences read these blocks in the same step. Replayed rows write to
  private blocks, which are swapped for the cached ones when the chunk that covers them is done. The same swap removes
  doubles, where two requests computed one prefix at the same time: a shared block never has a writer.

Preemption. When a running sequence needs a block and none is free or idle, the sequence that arrived last gives up its
blocks and its state slot; later it is computed again from the start, generated tokens included (its own cached prefix
may still be there). The oldest sequence always gets on, so every request ends.
"""

from __future__ import annotations

import heapq
import itertools
import random
from array import array
from collections.abc import Iterable, Iterator

from inputmeta import oracle
from inputmeta.conformance.cases.model import Path
from inputmeta.conformance.trace.blocks import BlockPool, Node
from inputmeta.conformance.trace.counts import Counts
from inputmeta.conformance.trace.live import Live
from inputmeta.conformance.trace.options import TraceOptions, trace_config
from inputmeta.conformance.trace.reader import TraceRequest
from inputmeta.conformance.trace.steps import PLACEHOLDER, Step, placeholder

MAX_PLACEHOLDERS = 8
"""Placeholders that a step is padded with at most."""


class Scheduler:
    """Iterate to get the steps; ``counts`` and the state shown by the properties are those of the last step taken.

    ``requests`` is read lazily, in order of arrival, a bounded number ahead. The same options give the same steps.
    ``config`` is that of the options unless the caller has changed it (context parallelism, truncation); its lengths
    must be those of the options.
    """

    def __init__(
        self, requests: Iterable[TraceRequest], options: TraceOptions, config: oracle.MetadataConfig | None = None
    ) -> None:
        self.options = options
        self.config = config or trace_config(options)
        self.counts = Counts()
        self.clock_ms = 0.0
        self.pool = BlockPool(options.total_blocks, options.seed)
        self.state_slots = list(range(options.max_running))
        self.running: dict[int, Live] = {}
        """Sequences that have a state slot, by number."""
        self.waiting: list[tuple[int, Live]] = []
        """Heap by number: first come, first served, also after a preemption."""
        self._arrivals = enumerate(itertools.islice(requests, options.limit))
        self._next: tuple[int, TraceRequest] | None = next(self._arrivals, None)
        self._random = random.Random(options.seed)
        self._random.shuffle(self.state_slots)
        self._ngrams = options.max_ngram_size > 0
        self._placeholder = placeholder(options)

    def __iter__(self) -> Iterator[Step]:
        """Steps in order. A step's results take effect when the next one is asked for."""
        while True:
            self._take_arrivals()
            chunks = self._plan_prompt()
            if chunks:
                yield self._prompt_step(chunks)
                for live, chunk in chunks:
                    self._finish_chunk(live, chunk)
            elif self.running:
                rows = self._plan_decode()
                yield self._decode_step(rows)
                for live, _, accepted in rows:
                    live.advance_decode(accepted, self._ngrams)
                    self._retire(live)
            elif self._next is not None:
                yield self._decode_step([])
                self.clock_ms = max(self.clock_ms, float(self._next[1].timestamp))
            else:
                return

    # Arrival and admission

    def _take_arrivals(self) -> None:
        """Queue what has arrived by now; no more than a few times what can run, so that memory stays bounded."""
        while self._next is not None and self._next[1].timestamp <= self.clock_ms:
            if len(self.waiting) >= 4 * self.options.max_running:
                return
            index, request = self._next
            self._next = next(self._arrivals, None)
            self.counts.requests += 1
            live = self._accept(index, request)
            if live is not None:
                heapq.heappush(self.waiting, (index, live))

    def _accept(self, index: int, request: TraceRequest) -> Live | None:
        """The request as a sequence to be, or None, counted, if it can never run.

        The last output token is sampled and never computed: input + output may be ``max_model_len`` + 1.
        """
        limit = self.options.max_model_len
        if request.input_length > limit:
            self.counts.refuse("prompt longer than max_model_len")
            return None
        output = min(request.output_length, limit + 1 - request.input_length)
        blocks = self._blocks_for(request.input_length + output - 1)
        if blocks + self._blocks_for(self.options.window_size) > self.options.total_blocks:
            self.counts.refuse("more blocks than there are")
            return None
        self.counts.truncated += output < request.output_length
        return Live(index, request, output)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.options.block_size)

    def _admit(self) -> Live | None:
        """Start the oldest waiting request if there are a state slot and blocks for all its known tokens.

        Blocks are taken chunk by chunk: others may take them in between, and then somebody is preempted.
        """
        if not self.waiting or not self.state_slots:
            return None
        live = self.waiting[0][1]
        chain, first = self._hit(live)
        needed = self._blocks_for(live.known_length() - first)
        if needed > self.pool.available - self.pool.idle_blocks_of(chain):
            return None
        heapq.heappop(self.waiting)
        self.pool.hold(chain)
        live.materialise(self.options)
        cached = [block for node in chain for block in node.blocks]
        live.start(self.state_slots.pop(), chain, cached[: first // self.options.block_size], first)
        live.settled = first // self.options.hash_block_tokens
        self.running[live.index] = live
        self._count_hit(live)
        return live

    def _count_hit(self, live: Live) -> None:
        if live.chain:
            hit = len(live.chain) * self.options.hash_block_tokens
            self.counts.hits += 1
            self.counts.hit_tokens += hit
            self.counts.replayed_tokens += hit - live.computed

    def _hit(self, live: Live) -> tuple[list[Node], int]:
        """The cached chain to use and the position to start from: see the module's docstring on prefix hits."""
        options = self.options
        whole = live.request.input_length // options.hash_block_tokens
        chain = self.pool.match(live.request.hash_ids[:whole])
        hit = len(chain) * options.hash_block_tokens
        start = min(hit - (options.window_size - 1), live.known_length() - 1)
        first = max(0, start) // options.block_size * options.block_size
        if not first:
            return [], 0
        return chain[: -(-first // options.hash_block_tokens)], first

    # Prompt steps

    def _plan_prompt(self) -> list[tuple[Live, int]]:
        """Sequences of a prompt step with their chunks, in tokens: those begun, oldest first, then new ones."""
        budget = self.options.chunk_tokens
        chunks = []
        for live in itertools.chain(self._running_by_age(), self._admissions()):
            if live.index not in self.running or not live.waits_for_prefill:
                continue
            chunk = min(budget, live.prefill_end - live.computed)
            if self._grow(live, live.computed + chunk):
                chunks.append((live, chunk))
                budget -= chunk
            if not budget:
                break
        return chunks

    def _admissions(self) -> Iterator[Live]:
        """Waiting requests, started one by one as they are asked for."""
        while (live := self._admit()) is not None:
            yield live

    def _prompt_step(self, chunks: list[tuple[Live, int]]) -> Step:
        sequences = [live.prompt_rows(chunk, self._ngrams) for live, chunk in chunks]
        step = self._step("prompt", sequences, tuple(live.index for live, _ in chunks), (0,) * len(chunks))
        self.counts.prompt_steps += 1
        self.counts.prompt_rows += step.total_q
        return step

    def _finish_chunk(self, live: Live, chunk: int) -> None:
        live.advance_prompt(chunk, self._ngrams)
        self._settle(live)
        self._retire(live)

    def _settle(self, live: Live) -> None:
        """Share every hash block of the prompt that is now complete; private copies of cached ones are given back."""
        whole = min(live.computed, live.request.input_length) // self.options.hash_block_tokens
        per_node = self.options.hash_block_tokens // self.options.block_size
        while live.settled < whole:
            index = live.settled
            mine = live.table[index * per_node : (index + 1) * per_node]
            if index == len(live.chain):
                parent = live.chain[-1] if live.chain else None
                live.chain.append(self.pool.insert(parent, live.request.hash_ids[index], mine))
            node = live.chain[index]
            self.pool.give([block for block in mine if block not in node.blocks])
            live.table[index * per_node : (index + 1) * per_node] = array("i", node.blocks)
            live.settled += 1

    # Decode steps

    def _plan_decode(self) -> list[tuple[Live, array[int], int]]:
        """Sequences of a decode step, oldest first, with their drafts and how many of these will be accepted."""
        options, rows = self.options, []
        for live in self._running_by_age():
            if live.index not in self.running:
                continue
            count = live.draft_count(options.drafts, options.max_model_len)
            if self._grow(live, len(live.tokens) + count):
                drafts, accepted = live.propose(count, options.acceptance, self._random)
                self.counts.drafts += count
                self.counts.drafts_rejected += count - accepted
                rows.append((live, drafts, accepted))
        return rows

    def _decode_step(self, rows: list[tuple[Live, array[int], int]]) -> Step:
        """A decode step. Without rows an idle one: this rank takes part in the others' step with placeholders."""
        sequences = [live.decode_rows(drafts, self._ngrams) for live, drafts, _ in rows]
        requests = [live.index for live, _, _ in rows]
        accepted = [accepted for _, _, accepted in rows]
        if not rows or self._random.random() < self.options.padding:
            count = self._random.randint(1, MAX_PLACEHOLDERS)
            sequences += [self._placeholder] * count
            requests += [PLACEHOLDER] * count
            accepted += [0] * count
            self.counts.placeholders += count
        step = self._step(self.options.decode_path, sequences, tuple(requests), tuple(accepted))
        if rows:
            self.counts.decode_steps += 1
        else:
            self.counts.idle_steps += 1
        self.counts.decode_rows += step.total_q
        return step

    # Blocks and slots

    def _running_by_age(self) -> list[Live]:
        return [self.running[index] for index in sorted(self.running)]

    def _grow(self, live: Live, tokens: int) -> bool:
        """Make the table cover ``tokens``, preempting the last arrived as often as needed; False if that was ``live``.

        Callers go from the oldest to the youngest, so a victim has no rows in the step that is being planned.
        """
        missing = self._blocks_for(tokens) - len(live.table)
        if missing <= 0:
            return True
        while (blocks := self.pool.take(missing)) is None:
            victim = self.running[max(self.running)]
            self._preempt(victim)
            if victim is live:
                return False
        live.table.extend(blocks)
        return True

    def _preempt(self, live: Live) -> None:
        self._release(live)
        heapq.heappush(self.waiting, (live.index, live))
        self.counts.preemptions += 1

    def _retire(self, live: Live) -> None:
        if live.finished:
            self._release(live)
            self.counts.finished += 1

    def _release(self, live: Live) -> None:
        """Give back state slot, private blocks and the cached chain, and forget what was computed."""
        del self.running[live.index]
        self.state_slots.append(live.state_id)
        per_node = self.options.hash_block_tokens // self.options.block_size
        self.pool.give(live.table[self._first_private(live, per_node) :])
        self.pool.release(live.chain)
        live.table, live.chain, live.settled, live.state_id = array("i"), [], 0, -1
        live.computed = live.prefill_end = live.valid_start = 0

    def _first_private(self, live: Live, per_node: int) -> int:
        """Index of the first table entry that no cached node owns.

        Before the replay of a hit is done, ``valid_start`` splits the last node: shared below, private from there on.
        """
        return max(live.settled * per_node, live.valid_start // self.options.block_size)

    def _step(
        self,
        path: Path,
        sequences: list[oracle.SequenceMetadata],
        requests: tuple[int, ...],
        accepted: tuple[int, ...],
    ) -> Step:
        step = Step(self.counts.steps, path, self.clock_ms, sequences, requests, accepted)
        self.clock_ms += self.options.duration_ms(self.clock_ms, step.total_q)
        self.counts.evictions = self.pool.evictions
        return step
