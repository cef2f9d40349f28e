"""Interleaved timing of rival functions, so that their *ratio* survives a noisy machine.

One *round* times every contender once; a round's times are divided by each other before the medians are taken. A drift
of the clock, a busy neighbour or a cold cache therefore hits both sides of a ratio. Time is the processor time of the
process, all its threads together: no contender waits for anything, so on an idle machine that is the wall-clock time,
and on a shared one it leaves out what the neighbours took. Nothing here asserts a time.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from time import process_time_ns
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

Run = Callable[[], object]
Timer = Callable[[Run, int], float]
"""Mean nanoseconds of one call over so many calls."""

SAMPLE_NS = 2_000_000
"""A sample repeats its call until it has lasted about this long, so that the timer's own cost does not show."""
MOST_CALLS = 500


class Spread(msgspec.Struct, frozen=True):
    """Median, quartiles and extremes of one quantity over the rounds."""

    median: float
    lower_quartile: float
    upper_quartile: float
    least: float
    most: float


def spread_of(values: list[float]) -> Spread:
    """The `Spread` of at least one value.

    >>> spread_of([3.0, 1.0, 2.0])
    Spread(median=2.0, lower_quartile=1.5, upper_quartile=2.5, least=1.0, most=3.0)
    """
    if len(values) == 1:
        values = values * 2
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, lower, upper, min(values), max(values))


@contextmanager
def collector_off() -> Iterator[None]:
    """Keeps the cyclic garbage collector out of the samples, as `timeit` does."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def timed(run: Run, calls: int) -> float:
    """Mean nanoseconds of processor time of one call over `calls` calls."""
    begin = process_time_ns()
    for _ in range(calls):
        run()
    return (process_time_ns() - begin) / calls


def interleaved(
    contenders: Mapping[str, Run], rounds: int, timer: Timer = timed, most_calls: int = MOST_CALLS
) -> dict[str, list[float]]:
    """Nanoseconds a call, one value a round for each contender; the order turns by one place each round.

    A sample is one call of `timer`, with at most `most_calls` calls of the contender. Each contender is called twice
    before, once to touch its pages and once to settle how often a sample calls it.
    """
    names = list(contenders)
    samples: dict[str, list[float]] = {name: [] for name in names}
    with collector_off():
        calls = {}
        for name, run in contenders.items():
            run()
            calls[name] = max(1, min(most_calls, int(SAMPLE_NS / max(1.0, timer(run, 1)))))
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                samples[name].append(timer(contenders[name], calls[name]))
    return samples


def spreads_of_ratios(samples: Mapping[str, list[float]], names: Mapping[str, tuple[str, str]]) -> dict[str, Spread]:
    """Of each name's two contenders the first divided by the second, round by round.

    >>> spreads_of_ratios({"a": [2.0, 9.0], "b": [1.0, 3.0]}, {"a / b": ("a", "b")})["a / b"].most
    3.0
    """
    return {
        name: spread_of([one / other for one, other in zip(samples[above], samples[below], strict=True)])
        for name, (above, below) in names.items()
    }
