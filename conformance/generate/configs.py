"""Configurations: scaled-down constants in most batches, the real ones in some."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

from inputmeta.conformance.cases.model import Config, Path

from .draws import INT32_MAX, Draw, chance, pick
from .profile import Profile


class Tier(NamedTuple):
    """Alternatives for the constants of an engine, simple ones first. Lengths in tokens."""

    block_sizes: tuple[int, ...]
    ratios: tuple[int, ...]
    window_sizes: tuple[int, ...]
    surpluses: tuple[int, ...]
    """B - W; the window size is one more alternative."""
    max_model_lens: tuple[int, ...]


REAL_BLOCK = 128

SMALL_CONSTANTS = Tier(
    block_sizes=(4, 8, 16, 12, 6, 5),
    ratios=(1, 2, 4, 8, 3),
    window_sizes=(2, 3, 4, 5, 8, 1),
    surpluses=(0, 1, 2, 3, 5, 9),
    max_model_lens=(16, 32, 64, 33, 40, 128, 129, 260, 7, 256),
)

TIER_CONSTANTS = {
    "small": SMALL_CONSTANTS,
    "many": SMALL_CONSTANTS,
    "real": Tier(
        block_sizes=(REAL_BLOCK,),
        ratios=(4, 128, 1),
        window_sizes=(128,),
        surpluses=(0, 1, 3, 8, 127),
        max_model_lens=(131_072,),
    ),
}

NGRAM_SIZES = (0, 0, 0, 2, 3, 1, 4, 8, 5, 6, 7, 12)

LOOKUP_SIZE = 24
"""Entries of the n-gram lookup table: more than any look-back, so that no two tokens in reach share one."""
SENTINEL_ENTRY = 0
"""Entry of the lookup table that maps to the image sentinel."""
RAW_SENTINEL = 1
"""The usual sentinel: also a raw token, whose own look-up is another value (I-9: compared after the look-up)."""


class Scale(NamedTuple):
    """Constants of one engine: lengths in tokens."""

    block_size: int
    dense_ratios: tuple[int, ...]
    sparse_ratios: tuple[int, ...]
    window_size: int
    swa_block_size: int
    max_model_len: int


def draw_config(draw: Draw, profile: Profile, path: Path, tier: str) -> Config:
    """A valid configuration for ``path``; the simplest has one dense ratio and every option off."""
    scale = _scale(draw, TIER_CONSTANTS[tier])
    ngram_size = pick(draw, NGRAM_SIZES)
    sentinel = pick(draw, (None, RAW_SENTINEL, RAW_SENTINEL, -1))
    cp_size = _cp_size(draw, profile, path)
    mode = _yoco_mode(draw, profile, path)
    keep = pick(draw, _keep_lengths(scale))
    is_left_over = chance(draw, 1, 6)
    return Config(
        **scale._asdict(),
        max_ngram_size=ngram_size,
        pad_token=pick(draw, (0, 0, 7, -1, INT32_MAX)),
        image_sentinel=sentinel if ngram_size else None,
        lookup_table=lookup_table(scale.max_model_len, sentinel) if ngram_size else (),
        cp_size=cp_size,
        cp_rank=pick(draw, range(cp_size)),
        yoco_prefill_keep_tokens=keep if mode != "off" or is_left_over else 0,
        yoco_mode=mode,
        force_load_balance=chance(draw, 1, 4),
    )


def lookup_table(max_model_len: int, sentinel: int | None) -> tuple[int, ...]:
    """Raw to compressed token, one to one, to values that no other input has; entry 0 is the sentinel, if any.

    >>> lookup_table(16, 1)[:4], lookup_table(16, None)[:2]
    ((1, 500001, 500002, 500003), (500000, 500001))
    """
    first = 500_000 if max_model_len < 1_000 else 5_000_000
    values = list(range(first, first + LOOKUP_SIZE))
    if sentinel is not None:
        values[SENTINEL_ENTRY] = sentinel
    return tuple(values)


def _scale(draw: Draw, tier: Tier) -> Scale:
    """The constants of an engine; the block size is one more ratio, of one compressed token a block."""
    block_size = pick(draw, tier.block_sizes)
    divisors = [ratio for ratio in (*tier.ratios, block_size) if block_size % ratio == 0]
    dense, sparse = _ratio_sets(draw, divisors)
    window = pick(draw, tier.window_sizes)
    surplus = pick(draw, (*tier.surpluses, window))
    return Scale(block_size, dense, sparse, window, window + surplus, pick(draw, tier.max_model_lens))


def _ratio_sets(draw: Draw, divisors: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dense and sparse ratios: one alone, both, overlapping, unsorted, three; a ratio twice in one list is rare."""
    first, second, third = (pick(draw, divisors) for _ in range(3))
    pair = _once(first, second)
    sets: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((first,), ()),
        ((), (first,)),
        ((first,), (second,)),
        (pair, ()),
        ((), pair),
        (pair, (third,)),
        ((first,), _once(second, third)),
        (_once(first, second, third), (second,)),
        ((first, second, first), ()),
    )
    return pick(draw, sets)


def _once(*ratios: int) -> tuple[int, ...]:
    """The ratios as drawn, each once."""
    return tuple(dict.fromkeys(ratios))


def _cp_size(draw: Draw, profile: Profile, path: Path) -> int:
    """Mostly 1; a decode ignores the group (I-15), so it rarely has one."""
    ones = 3 if path == "prompt" else 30
    sizes: tuple[int, ...] = (*(1,) * ones, *range(2, profile.max_cp_size + 1))
    return pick(draw, sizes)


def _yoco_mode(draw: Draw, profile: Profile, path: Path) -> Literal["off", "mask", "compact"]:
    """One of the profile's modes; a decode has no truncation, so it rarely has the mode set."""
    modes = cast(tuple[Literal["off", "mask", "compact"], ...], profile.yoco_modes)
    simple = 2 if path == "prompt" else 16
    return pick(draw, (*modes[:1] * simple, *modes[1:]))


def _keep_lengths(scale: Scale) -> tuple[int, ...]:
    """Tokens that a truncation keeps, at the boundaries."""
    window, block = scale.window_size, scale.block_size
    return (1, 0, 2, window - 1, window, window + 1, block, block + 1, scale.max_model_len)
