"""The constants of the engines that are drawn, by tier, and those of them that a profile's conditions take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from inputmeta.conformance.cases.conditions import SPARE_COLUMNS, Conditions
from inputmeta.conformance.cases.request import MAX_EXPANDED_CELLS

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
WARP = 32
"""Lanes of a warp: the tier ``many`` has more sequences."""

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


class Constants:
    """A tier's constants within conditions. Lists keep their order; without conditions they are the tier's.

    Where the conditions take none of a tier's values, those that they name stand for them. ``shortest``: context that
    the shortest sequence needs, tokens.
    """

    def __init__(self, conditions: Conditions, usual: Tier, shortest: int = 1) -> None:
        self.conditions = conditions
        self.usual = usual
        self.shortest = shortest
        named = (self.conditions.dense_ratios or frozenset()) | (self.conditions.sparse_ratios or frozenset())
        self.ratios = tuple(filter(self._takes, self.usual.ratios)) or tuple(filter(self._takes, sorted(named)))
        self.window_sizes = _kept(self.usual.window_sizes, self.conditions.window_sizes)
        self.block_sizes = self._fitting(_kept(self.usual.block_sizes, self.conditions.block_sizes))
        if not self.block_sizes and self.conditions.block_sizes is None:
            multiples = (ratio * times for ratio in self.ratios for times in (1, 2))
            self.block_sizes = self._fitting((*multiples, *self.window_sizes))

    @property
    def surpluses(self) -> tuple[int, ...]:
        """B - W, tokens, but for W itself."""
        return (0,) if self.conditions.ring_is_window else self.usual.surpluses

    @property
    def max_model_lens(self) -> tuple[int, ...]:
        """Those in which the shortest sequence has room."""
        longer = (length for length in self.usual.max_model_lens if length >= self.shortest)
        return tuple(longer) or (self.shortest,)

    @staticmethod
    def of(profile: Profile, tier: str) -> Constants:
        """Those of a profile's cases of a tier."""
        return Constants(profile.conditions, TIER_CONSTANTS[tier], profile.shortest_context)

    def ratios_of(self, block_size: int) -> list[int]:
        """Ratios that divide a block size; the block size is one more, of one compressed token a block."""
        return [r for r in (*self.ratios, block_size) if block_size % r == 0 and self._takes(r)]

    def windows_of(self, block_size: int) -> list[int]:
        """Window sizes that go with a block size, tokens."""
        if not self.conditions.block_divides_window:
            return list(self.window_sizes)
        multiples = [window for window in self.window_sizes if window % block_size == 0]
        return multiples or ([block_size, 2 * block_size] if self.conditions.window_sizes is None else [])

    def takes_dense(self, ratio: int) -> bool:
        """Whether a ratio may be dense. Where dense keys are always expanded, a row of them must be affordable."""
        allowed = self.conditions.dense_ratios
        if "kv_ca_index" in self.conditions.expansions:
            columns = min(self.max_model_lens) // ratio + SPARE_COLUMNS
            if columns > MAX_EXPANDED_CELLS:
                return False
        return allowed is None or ratio in allowed

    def takes_sparse(self, ratio: int) -> bool:
        """Whether a ratio may be sparse."""
        allowed = self.conditions.sparse_ratios
        return allowed is None or ratio in allowed

    def _takes(self, ratio: int) -> bool:
        return self.takes_dense(ratio) or self.takes_sparse(ratio)

    def _fitting(self, sizes: Iterable[int]) -> tuple[int, ...]:
        """The block sizes that some ratio divides and some window goes with."""
        return tuple(size for size in sizes if self.ratios_of(size) and self.windows_of(size))


class NothingToDrawError(ValueError):
    """Claims that leave no batch to draw; ``str()`` is one line that names them."""


def drawable(profile: Profile) -> Profile:
    """The profile with the tiers of which its conditions and sizes leave something.

    Raises:
        NothingToDrawError: they leave nothing on a path, or in no tier.
    """
    for path in profile.paths:
        problem = _too_short(profile, path)
        if problem is not None:
            raise NothingToDrawError(f"nothing is left to draw on path {path}: {problem}")
    tiers = tuple(tier for tier in profile.tiers if Constants.of(profile, tier).block_sizes)
    if not tiers:
        raise NothingToDrawError(f"nothing is left to draw: {_unfit(profile)}")
    several = tuple(tier for tier in tiers if tier != "many" or profile.most_sequences > WARP)
    return replace(profile, tiers=several or tiers)


def _too_short(profile: Profile, path: str) -> str | None:
    """Which claims leave a path no number of ranks or rows, or None."""
    claimed = profile.conditions
    limits = {
        "most_seqlen_q": claimed.most_seqlen_q,
        "most_seqlen_k": claimed.most_seqlen_k,
        "max_total_q": profile.max_total_q,
    }
    name, most = min(
        ((name, limit) for name, limit in limits.items() if limit is not None), key=_second, default=("", None)
    )
    if not profile.cp_sizes(path):
        ranks = f"of {claimed.least_cp_size} to {profile.max_cp_size} ranks"
        return f"no chunk is `{claimed.cp_chunks}` {ranks}" + f" within {name} {most}" * (most is not None)
    fewest = max(1, min(claimed.fewest_rows(path, size) for size in profile.cp_sizes(path)))
    if most is not None and fewest > most:
        return f"{name} is {most}, and a sequence has at least {fewest} rows"
    return None


def _second(pair: tuple[str, int]) -> int:
    return pair[1]


def _unfit(profile: Profile) -> str:
    """The claims that leave no block size with a ratio and a window, in words."""
    claimed = profile.conditions
    sets = {
        name: value
        for name in ("block_sizes", "dense_ratios", "sparse_ratios", "window_sizes")
        if (value := getattr(claimed, name)) is not None
    }
    told = [f"{name} {sorted(value) or 'empty'}" for name, value in sets.items()]
    told += ["block_divides_window"] * claimed.block_divides_window
    told += [f"expansions {sorted(claimed.expansions)}"] * bool(claimed.expansions)
    return f"no block size, ratio and window go together by {', '.join(told)}"


def _kept(usual: Sequence[int], claimed: frozenset[int] | None) -> tuple[int, ...]:
    """The usual values that are claimed, or else the claimed ones."""
    if claimed is None:
        return tuple(usual)
    return tuple(value for value in usual if value in claimed) or tuple(sorted(claimed))
