"""Generated cases: the profile that a subject's claims allow, and the draws of a seed.

A seed stands for rounds of :data:`ROUND_EXAMPLES` cases, each a Hypothesis run whose own seed is derived from it. The
same seed and profile give the same cases in fuzzing, ``check``, pytest and the GPU stages, until a failure is shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.generate import Profile, batches
from inputmeta.conformance.generate.repeatable import repeatable_draws
from inputmeta.conformance.subjects.base import Subject

ROUND_EXAMPLES = 100
LARGEST_CP = 8
"""Largest context parallel group that is drawn."""


def claimed_paths(subject: Subject, paths: Sequence[str] | None = None) -> tuple[str, ...]:
    """The paths that the subject claims, cut down to ``paths`` if any are given."""
    wanted = frozenset(paths or oracle.PATHS) & subject.capabilities.paths
    return tuple(path for path in oracle.PATHS if path in wanted)


def profile_for(subject: Subject, paths: Sequence[str]) -> Profile:
    """The generator's profile: what the subject claims, on ``paths``, at least one.

    P-OUT is broken only for a subject that is given buffers.
    """
    able = subject.capabilities
    refusals = able.refuses if able.in_place else able.refuses - {"P-OUT"}
    return Profile(
        paths=tuple(paths),
        max_cp_size=min(LARGEST_CP, able.max_cp_size),
        yoco_modes=tuple(mode for mode in ("off", "mask", "compact") if mode in able.yoco_modes),
        refusals=tuple(refusals),
        varlen=able.varlen,
        read_only=able.read_only,
    )


def run_round(
    profile: Profile,
    seed_value: int,
    index: int,
    use: Callable[[Case], None],
    *,
    examples: int = ROUND_EXAMPLES,
    shrink: bool = False,
) -> None:
    """Call ``use`` with the cases of one round; what it raises ends the round.

    ``shrink``: an Exception is a failing case, which Hypothesis makes smaller before it raises it again, one of each
    class.
    """
    draw = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=True,
        print_blob=False,
        verbosity=Verbosity.quiet,
    )

    def example(case: Case) -> None:  # Hypothesis wants a function of our own
        use(case)

    with repeatable_draws():
        seed(seed_value * 1_000_003 + index)(draw(given(batches(profile))(example)))()


def generated_cases(profile: Profile, seed_value: int, count: int) -> list[Case]:
    """The first ``count`` cases of a seed."""
    cases: list[Case] = []
    for_each_case(profile, seed_value, count, cases.append)
    return cases


def for_each_case(profile: Profile, seed_value: int, count: int, use: Callable[[Case], None]) -> None:
    """Call ``use`` with the first ``count`` cases of a seed, whatever a subject makes of them."""
    for index, begin in enumerate(range(0, count, ROUND_EXAMPLES)):
        run_round(profile, seed_value, index, use, examples=min(count - begin, ROUND_EXAMPLES))
