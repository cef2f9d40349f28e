"""How the rows of a chunk are spread over the ranks of a context parallel group, by flavour (F-ZIGZAG, F-REVERSE)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Share = list[list[range]]
"""Of one chunk: the runs of its rows that each rank has, in the order in which the rank holds them."""


@dataclass(frozen=True)
class Flavour:
    """One way to spread rows over ranks."""

    name: str
    share: Callable[[int, int], Share]
    """From a chunk's length and the number of ranks to each rank's runs."""
    padded: bool
    """Whether every run is padded with -1 to the length of the chunk's longest."""
    seconds_last: bool
    """Whether a rank holds the first runs of all sequences before any second one, or goes sequence by sequence."""


def ceil_blocks(length: int, ranks: int) -> Share:
    """F-ZIGZAG: 2p blocks of cdiv(length, 2p) rows, the last ones shorter or empty; rank r has r and 2p - 1 - r.

    >>> ceil_blocks(9, 2)
    [[range(0, 3), range(9, 9)], [range(3, 6), range(6, 9)]]
    """
    block = -(-length // (2 * ranks))
    cuts = [min(length, block * cut) for cut in range(2 * ranks + 1)]
    return blocks_of_two(cuts, ranks)


def balanced_blocks(length: int, ranks: int) -> Share:
    """2p blocks whose lengths differ by at most one, the longer ones first; rank r has r and 2p - 1 - r.

    >>> balanced_blocks(9, 2)
    [[range(0, 3), range(7, 9)], [range(3, 5), range(5, 7)]]
    """
    short, longer = divmod(length, 2 * ranks)
    cuts = [short * cut + min(cut, longer) for cut in range(2 * ranks + 1)]
    return blocks_of_two(cuts, ranks)


def round_robin(length: int, ranks: int) -> Share:
    """Row j of a chunk goes to rank j % p.

    >>> round_robin(5, 2)
    [[range(0, 5, 2)], [range(1, 5, 2)]]
    """
    return [[range(rank, length, ranks)] for rank in range(ranks)]


def blocks_of_two(cuts: Sequence[int], ranks: int) -> Share:
    """Blocks r and 2p - 1 - r of each rank, between cuts."""
    blocks = [range(begin, end) for begin, end in pairwise(cuts)]
    return [[blocks[rank], blocks[2 * ranks - 1 - rank]] for rank in range(ranks)]


CEIL = Flavour("ceil", ceil_blocks, padded=True, seconds_last=False)
"""The specification's."""
BALANCED = Flavour("balanced", balanced_blocks, padded=False, seconds_last=True)
ROUND_ROBIN = Flavour("round-robin", round_robin, padded=False, seconds_last=False)


def rank_rows(lengths: Sequence[int], ranks: int, flavour: Flavour) -> list[np.ndarray]:
    """``mirror_cp_index`` of every rank, int64, the shorter ones padded with -1 to the longest: global rows.

    >>> [rows.tolist() for rows in rank_rows([9], 2, BALANCED)]
    [[0, 1, 2, 7, 8], [3, 4, 5, 6, -1]]
    """
    held: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(ranks)]
    begin = 0
    for length in lengths:
        share = flavour.share(length, ranks)
        longest = max(len(run) for runs in share for run in runs)
        for rank, runs in enumerate(share):
            for place, run in enumerate(runs):
                rows = np.array(run, dtype=np.int64) + begin
                padding = longest - len(rows) if flavour.padded else 0
                held[rank].append((place, np.pad(rows, (0, padding), constant_values=-1)))
        begin += length
    empty = np.zeros(0, dtype=np.int64)
    laid = []
    for runs_of_rank in held:
        order = sorted(runs_of_rank, key=lambda run: run[0]) if flavour.seconds_last else runs_of_rank
        laid.append(np.concatenate([empty, *(rows for _, rows in order)]))
    width = max(len(rows) for rows in laid)
    return [np.pad(rows, (0, width - len(rows)), constant_values=-1) for rows in laid]


def reverse_of(held: Sequence[np.ndarray], total: int) -> np.ndarray:
    """F-REVERSE: where each of ``total`` global rows lies in all ranks' rows laid end to end, int64 [total]."""
    rows = np.concatenate(held)
    reverse = np.full(total, -1, dtype=np.int64)
    places = np.flatnonzero(rows >= 0)
    reverse[rows[places]] = places
    return reverse
