"""Configurations: scaled-down constants in most batches, the real ones in some."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

from inputmeta.conformance.cases.model import Config, Path

from .draws import INT32_MAX, Draw, chance, pick
from .profile import Profile
from .scales import Constants

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
    scale = _scale(draw, Constants.of(profile, tier))
    least_ngrams = profile.conditions.least_ngram_size
    ngram_size = pick(draw, [size for size in NGRAM_SIZES if size == 0 or size >= least_ngrams])
    sentinel = pick(draw, (None, RAW_SENTINEL, RAW_SENTINEL, -1))
    cp_size = _cp_size(draw, profile, path)
    mode = _yoco_mode(draw, profile, path)
    keep = pick(draw, _keep_lengths(scale, profile.conditions.least_keep))
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


def _scale(draw: Draw, constants: Constants) -> Scale:
    """The constants of an engine; the block size is one more ratio, of one compressed token a block."""
    block_size = pick(draw, constants.block_sizes)
    dense, sparse = _ratio_sets(draw, constants, constants.ratios_of(block_size))
    window = pick(draw, constants.windows_of(block_size))
    surplus = pick(draw, constants.surpluses if constants.conditions.ring_is_window else (*constants.surpluses, window))
    return Scale(block_size, dense, sparse, window, window + surplus, pick(draw, constants.max_model_lens))


def _ratio_sets(draw: Draw, constants: Constants, divisors: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
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
    taken = (
        (tuple(filter(constants.takes_dense, dense)), tuple(filter(constants.takes_sparse, sparse)))
        for dense, sparse in sets
    )
    return pick(draw, [each for each in taken if any(each)])


def _once(*ratios: int) -> tuple[int, ...]:
    """The ratios as drawn, each once."""
    return tuple(dict.fromkeys(ratios))


def _cp_size(draw: Draw, profile: Profile, path: Path) -> int:
    """Mostly 1; a decode ignores the group (I-15), so it rarely has one."""
    ones = 3 if path == "prompt" else 30
    sizes = profile.cp_sizes(path)
    return pick(draw, (*sizes[: sizes[0] == 1] * ones, *(size for size in sizes if size > 1)))


def _yoco_mode(draw: Draw, profile: Profile, path: Path) -> Literal["off", "mask", "compact"]:
    """One of the profile's modes; a decode has no truncation, so it rarely has the mode set."""
    modes = cast(tuple[Literal["off", "mask", "compact"], ...], profile.yoco_modes)
    simple = 2 if path == "prompt" else 16
    return pick(draw, (*modes[:1] * simple, *modes[1:]))


def _keep_lengths(scale: Scale, least: int) -> list[int]:
    """Tokens that a truncation keeps, at the boundaries, ``least`` of them."""
    window, block = scale.window_size, scale.block_size
    lengths = (1, 0, 2, window - 1, window, window + 1, block, block + 1, scale.max_model_len)
    return [length for length in lengths if length >= least] or [least]
