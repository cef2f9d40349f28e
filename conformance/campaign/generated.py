"""The generated cases of a seed, one after the other, whatever a subject makes of them.

They are the cases that a fuzzing campaign of the same seed and profile meets until something fails.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from inputmeta.conformance.campaign.fuzz import ROUND_EXAMPLES
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.generate import Profile, batches


def for_each_case(profile: Profile, seed_value: int, count: int, use: Callable[[Case], None]) -> None:
    """Call ``use`` with ``count`` cases; what it raises ends the run."""
    for index, begin in enumerate(range(0, count, ROUND_EXAMPLES)):
        draw = settings(
            max_examples=min(count - begin, ROUND_EXAMPLES),
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
            print_blob=False,
        )
        seed(seed_value * 1_000_003 + index)(draw(given(batches(profile))(use)))()
