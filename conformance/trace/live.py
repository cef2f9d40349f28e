"""One request on its way through the scheduler: its tokens, what of them is computed, and its rows of a step."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass, field

from inputmeta import oracle
from inputmeta.conformance.trace.blocks import Node
from inputmeta.conformance.trace.options import TraceOptions
from inputmeta.conformance.trace.reader import TraceRequest
from inputmeta.conformance.trace.tokens import VOCABULARY, compress, generated_tokens, prompt_tokens

COMPRESS_EVERY = 8
"""The compressed history grows by whole groups of this many tokens, so that 0 to 7 known tokens stay raw."""


@dataclass(eq=False, slots=True)
class Live:
    """A request that waits or runs. Lengths in tokens.

    Arrays grow in place and are shared with the steps' sequences: nothing is copied that is as long as the context.
    """

    index: int
    """Place in the trace, from 0: the order of arrival."""
    request: TraceRequest
    output_length: int
    """Tokens to generate; less than the trace's if the context ends before."""

    tokens: array[int] = field(default_factory=lambda: array("i"))
    """Raw tokens known: the prompt and what was generated. Empty until the first admission."""
    outputs: array[int] = field(default_factory=lambda: array("i"))
    """What the model says, all of it."""
    compressed: array[int] = field(default_factory=lambda: array("i"))
    generated: int = 0

    table: array[int] = field(default_factory=lambda: array("i"))
    chain: list[Node] = field(default_factory=list)
    """Cached nodes held, root first; node i stands for hash block i of the prompt."""
    settled: int = 0
    """Leading hash blocks whose table entries are those of ``chain``; every later entry is private."""
    state_id: int = -1
    computed: int = 0
    """Tokens whose KV is in the cache."""
    prefill_end: int = 0
    """Tokens to compute before the next one is sampled."""
    valid_start: int = 0
    """``swa_valid_start``: the ring holds nothing below this position."""

    @property
    def waits_for_prefill(self) -> bool:
        """Whether prompt chunks are still to be computed."""
        return self.computed < self.prefill_end

    @property
    def finished(self) -> bool:
        """Whether every output token is there."""
        return self.generated >= self.output_length

    def known_length(self) -> int:
        """Tokens to compute when (re)admitted: the prompt and everything generated so far."""
        return self.request.input_length + self.generated

    def materialise(self, options: TraceOptions) -> None:
        """Make the token arrays, at the first admission: a waiting request costs nothing."""
        if self.tokens:
            return
        request = self.request
        self.tokens = prompt_tokens(request.hash_ids, request.input_length, options.hash_block_tokens, options.seed)
        self.outputs = generated_tokens(self.index, request.input_length, self.output_length, options.seed)
        if options.max_ngram_size:
            self.compress_known()

    def start(self, state_id: int, chain: list[Node], shared_blocks: list[int], first: int) -> None:
        """Begin to run at position ``first`` with a cached prefix, whose blocks are the table's head.

        The ring of the new state slot holds another request's tokens: nothing below ``first`` is to be trusted.
        """
        self.state_id, self.chain = state_id, chain
        self.table = array("i", shared_blocks)
        self.computed = self.valid_start = first
        self.prefill_end = self.known_length()

    def compress_known(self) -> None:
        """Bring ``compressed`` up to the last whole group; O(tokens added)."""
        whole = len(self.tokens) // COMPRESS_EVERY * COMPRESS_EVERY
        if whole > len(self.compressed):
            self.compressed.extend(compress(self.tokens[len(self.compressed) : whole]))

    def prompt_rows(self, chunk: int, ngrams: bool) -> oracle.SequenceMetadata:
        """The next ``chunk`` tokens as a sequence of a prompt step."""
        return self._rows(chunk, self.computed + chunk, array("i"), ngrams)

    def draft_count(self, drafts: int, max_model_len: int) -> int:
        """Drafts of the next decode row: none beyond the last output, none beyond the context."""
        return min(drafts, self.output_length - self.generated - 1, max_model_len - len(self.tokens))

    def decode_rows(self, drafts: array[int], ngrams: bool) -> oracle.SequenceMetadata:
        """The last known token and ``drafts`` as a sequence of a decode step.

        With Engram the drafts follow the raw tokens in ``recent_tokens``: P-NGRAM wants seqlen_k tokens in all.
        """
        return self._rows(1 + len(drafts), len(self.tokens) + len(drafts), drafts, ngrams)

    def _rows(self, seqlen_q: int, seqlen_k: int, drafts: array[int], ngrams: bool) -> oracle.SequenceMetadata:
        return oracle.SequenceMetadata(
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            block_table=self.table,
            state_id=self.state_id,
            swa_valid_start=self.valid_start,
            token_ids=self.tokens,
            draft_tokens=drafts,
            compressed_tokens=self.compressed,
            recent_tokens=self.tokens[len(self.compressed) :] + drafts if ngrams else (),
            data_len=self.prefill_end,
        )

    def propose(self, count: int, acceptance: float, choice: random.Random) -> tuple[array[int], int]:
        """``count`` drafts and how many of them will be accepted; the first rejected one is a wrong token."""
        accepted = 0
        while accepted < count and choice.random() < acceptance:
            accepted += 1
        drafts = self.outputs[self.generated : self.generated + count]
        if accepted < count:
            drafts[accepted] = (drafts[accepted] + 1) % VOCABULARY
        return drafts, accepted

    def advance_prompt(self, chunk: int, ngrams: bool) -> None:
        """The chunk is computed; behind the last one the next token is sampled."""
        self.computed += chunk
        if not self.waits_for_prefill:
            self._append(1, ngrams)

    def advance_decode(self, accepted: int, ngrams: bool) -> None:
        """The row and ``accepted`` drafts are computed; one more token is sampled behind them."""
        self.computed += 1 + accepted
        self._append(1 + accepted, ngrams)

    def _append(self, count: int, ngrams: bool) -> None:
        self.tokens.extend(self.outputs[self.generated : self.generated + count])
        self.generated += count
        if ngrams:
            self.compress_known()
