"""The rounds of a seed: :data:`ROUND_EXAMPLES` cases each, drawn from a seed of their own that is derived from it.

One round in :data:`HYPOTHESIS_EVERY`, the first among them, is a Hypothesis run. The numbers of the others come from a
random generator: seed, round and place in it are the case, for whoever has the profile and this version of the suite.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random

from inputmeta.conformance.cases.model import Case

from .batches import draw_case
from .draws import RandomDraw
from .profile import Profile

ROUND_EXAMPLES = 100
HYPOTHESIS_EVERY = 10
"""One round in so many is Hypothesis's own."""
CONTAINERS_EVERY = 5
"""One generated case in so many is run on containers too, after a first round of which every case is: what they promise
hangs on fewer borders than values do, and to ask for it takes as long as all else of a case."""


def is_random(index: int) -> bool:
    """Whether the numbers of the round with this index come from a random generator."""
    return index % HYPOTHESIS_EVERY != 0


def seed_of(seed_value: int, index: int) -> int:
    """The seed of a round."""
    return seed_value * 1_000_003 + index


def on_containers(number: int) -> bool:
    """Whether the generated case with this number is run on containers too, if nothing has failed yet."""
    return number < ROUND_EXAMPLES or number % CONTAINERS_EVERY == 0


def random_cases(profile: Profile, seed_value: int, index: int) -> Iterator[tuple[Case, list[int]]]:
    """The cases of a random round, without end, each with the draws that it is made of."""
    random = Random(seed_of(seed_value, index))
    while True:
        draw = RandomDraw(random)
        yield draw_case(draw, profile), draw.choices


class RandomRound:
    """The cases of a random round, drawn as far as they are asked for."""

    def __init__(self, profile: Profile, seed_value: int, index: int) -> None:
        self._cases = random_cases(profile, seed_value, index)
        self._drawn: list[Case] = []

    def case(self, place: int) -> Case:
        """The case at this place of the round."""
        while len(self._drawn) <= place:
            self._drawn.append(next(self._cases)[0])
        return self._drawn[place]


@lru_cache(maxsize=4)
def random_round(profile: Profile, seed_value: int, index: int) -> RandomRound:
    """A random round; the last ones are kept."""
    return RandomRound(profile, seed_value, index)
