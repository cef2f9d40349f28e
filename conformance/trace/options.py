"""What a replay can be told, and the engine configuration that follows from it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import Literal

from inputmeta import oracle
from inputmeta.conformance.trace.reader import HASH_BLOCK_TOKENS
from inputmeta.conformance.trace.tokens import COMPRESSED_VOCABULARY, lookup_table

RING_STEP = 8
"""The ring is W plus the drafts, rounded up to this many slots: with W = 128 and 3 drafts 136, no power of two."""

RARE_TOKEN = 5
"""A compressed value taken as the image token: about one token in a thousand cuts the n-grams behind it."""


SWING_MS = 600_000.0
"""Period of the swing of step durations, in ms."""


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """Options of a replay; lengths in tokens unless said otherwise. The defaults are the real constants."""

    seed: int = 0
    limit: int | None = None
    """Requests to read; None: all."""
    rows: int | None = 512
    """Rows of each sequence to compare (:func:`inputmeta.conformance.trace.rows.choose_rows`); None: every row."""

    chunk_tokens: int = 8192
    """Prompt tokens that one step computes at most, over all its sequences."""
    max_running: int = 64
    """Sequences that run at once: the number of state slots."""
    total_blocks: int = 6144
    """Physical KV blocks. The default makes the conversation trace preempt now and then."""
    drafts: int = 3
    """Speculative tokens of a decode row."""
    acceptance: float = 0.6
    """Probability that a draft is accepted, given that those before it were."""
    padding: float = 1 / 16
    """Fraction of decode steps that are padded with placeholders, as another rank's larger batch demands."""
    decode_path: Literal["decode", "decode_zos"] = "decode"

    cp_size: int = 1
    """Ranks of the context parallel group. A prompt step is checked on one of them, in turn."""
    yoco_mode: Literal["off", "mask", "compact"] = "off"
    yoco_prefill_keep_tokens: int = 4096
    """Tokens of a prompt that prefill truncation keeps, with a ``yoco_mode``."""

    step_ms: float = 40.0
    """Simulated duration of a step, in ms, without its tokens."""
    token_ms: float = 0.015
    """Simulated duration of one query token, in ms."""
    swing: float = 0.9
    """How far durations swing around these, as a fraction of them: see :meth:`duration_ms`."""

    block_size: int = 128
    window_size: int = 128
    dense_ratios: tuple[int, ...] = (1, 128)
    sparse_ratios: tuple[int, ...] = (4,)
    max_model_len: int = 131_072
    max_ngram_size: int = 3
    hash_block_tokens: int = HASH_BLOCK_TOKENS
    """Prompt tokens of one hash id; anything but 512 is for tests with scaled-down constants."""

    def __post_init__(self) -> None:
        """Refuse what the scheduler cannot run: ValueError, one line with name, value and rule."""
        _at_least(1, chunk_tokens=self.chunk_tokens, max_running=self.max_running, total_blocks=self.total_blocks)
        _at_least(1, block_size=self.block_size, window_size=self.window_size, max_model_len=self.max_model_len)
        _at_least(0, drafts=self.drafts, max_ngram_size=self.max_ngram_size, seed=self.seed)
        _at_least(1, cp_size=self.cp_size)
        seen = self.window_size - 1 if self.yoco_mode == "compact" else 0  # I-42: by the first decode row
        _at_least(seen, yoco_prefill_keep_tokens=self.yoco_prefill_keep_tokens)
        _at_least(0, step_ms=self.step_ms, token_ms=self.token_ms)
        if self.limit is not None:
            _at_least(0, limit=self.limit)
        if self.rows is not None:
            _at_least(1, rows=self.rows)
        for name in ("acceptance", "padding", "swing"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}: {getattr(self, name)}: must be from 0 to 1")
        if self.hash_block_tokens < 1 or self.hash_block_tokens % self.block_size:
            rule = f"must be a multiple of block_size {self.block_size}"
            raise ValueError(f"hash_block_tokens: {self.hash_block_tokens}: {rule}")

    @property
    def swa_block_size(self) -> int:
        """Ring slots B of a state block: W + drafts rounded up, so that M-3 holds (B >= W + seqlen_q - 1)."""
        return -(-(self.window_size + self.drafts) // RING_STEP) * RING_STEP

    def duration_ms(self, clock_ms: float, rows: int) -> float:
        """Simulated duration of a step of ``rows`` query rows that starts at ``clock_ms``.

        It falls and rises in a period of ten minutes, slow at the start: one replay so meets a long queue with
        preemptions, a light load, and idleness. A triangle, not a sine: exact on every machine.

        >>> TraceOptions(step_ms=10, token_ms=1, swing=0.5).duration_ms(0.0, 2)
        18.0
        >>> TraceOptions(step_ms=10, token_ms=1, swing=0.5).duration_ms(300_000.0, 2)
        6.0
        """
        phase = clock_ms % SWING_MS / SWING_MS
        return (self.step_ms + self.token_ms * rows) * (1.0 + self.swing * (4.0 * abs(phase - 0.5) - 1.0))


def trace_config(options: TraceOptions) -> oracle.MetadataConfig:
    """The engine configuration of a replay. ``pad_token`` lies outside the compressed vocabulary."""
    return oracle.MetadataConfig(
        block_size=options.block_size,
        dense_ratios=options.dense_ratios,
        sparse_ratios=options.sparse_ratios,
        window_size=options.window_size,
        swa_block_size=options.swa_block_size,
        max_model_len=options.max_model_len,
        max_ngram_size=options.max_ngram_size,
        pad_token=COMPRESSED_VOCABULARY,
        image_sentinel=RARE_TOKEN,
        lookup_table=array("i", lookup_table()),
        cp_size=options.cp_size,
        yoco_mode=options.yoco_mode,
        yoco_prefill_keep_tokens=options.yoco_prefill_keep_tokens,
    )


def step_config(config: oracle.MetadataConfig, index: int) -> oracle.MetadataConfig:
    """The configuration of step ``index``: the ranks of a context parallel group are checked in turn."""
    return config if config.cp_size == 1 else replace(config, cp_rank=index % config.cp_size)


def _at_least(least: int, **values: float) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name}: {value}: must be at least {least}")
