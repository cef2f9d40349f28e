"""Generated cases: the profile that a subject's claims allow, and the draws of a seed.

A seed stands for rounds (:mod:`inputmeta.conformance.generate.rounds`). The same seed and profile give the same cases
in fuzzing, ``check``, pytest and the GPU stages, until a failure is shrunk. Hypothesis shrinks what fails in any round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any
from unittest import SkipTest

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from inputmeta import oracle
from inputmeta.conformance.cases.conditions import WINDOWS_EXPANDED
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.key_sets import fields_shown
from inputmeta.conformance.generate import Profile, batches, drawable
from inputmeta.conformance.generate.recorded import Recorded, keyed
from inputmeta.conformance.generate.repeatable import repeatable_draws
from inputmeta.conformance.generate.rounds import ROUND_EXAMPLES, is_random, random_cases, seed_of
from inputmeta.conformance.subjects.base import Capabilities, Subject

LEAST_LOOKS, LOOK_SECONDS = 10, 10.0
"""How long others are looked for after the first failure of a round, as Hypothesis does it: until so many cases, or
twice as many as up to the last new failure, and no longer than this."""
LARGEST_CP = 8
"""Largest context parallel group that is drawn."""


OF_HISTORIES: dict[str, Any] = {
    "invalid": 0.0,
    "refusals": (),
    "tiers": ("small",),
    "varlen": False,
    "read_only": False,
    "wide_windows": False,
}
"""What a profile has not for a subject that allocates."""


def claimed_paths(subject: Subject, paths: Sequence[str] | None = None) -> tuple[str, ...]:
    """The paths that the subject claims, cut down to ``paths`` if any are given."""
    wanted = frozenset(paths or oracle.PATHS) & subject.capabilities.paths
    return tuple(path for path in oracle.PATHS if path in wanted)


def profile_for(subject: Subject, paths: Sequence[str]) -> Profile:
    """The generator's profile: what the subject claims, on ``paths``, at least one.

    Raises:
        NothingToDrawError: its claims leave nothing.
    """
    return profile_of(subject.capabilities, paths)


def profile_of(able: Capabilities, paths: Sequence[str]) -> Profile:
    """As :func:`profile_for`, of claims alone. P-OUT is broken only for a subject that is given buffers."""
    refusals = able.refuses if able.in_place else able.refuses - {"P-OUT"}
    if able.allocates is not None:  # its steps are valid, and of a few requests
        given = profile_of(replace(able, allocates=None), paths)
        return drawable(replace(given, **OF_HISTORIES, allocates=able.allocates))
    profile = Profile(
        paths=tuple(paths),
        max_cp_size=min(LARGEST_CP, able.max_cp_size),
        yoco_modes=tuple(mode for mode in ("off", "mask", "compact") if mode in able.yoco_modes),
        refusals=tuple(refusals),
        varlen=able.varlen,
        read_only=able.read_only,
        wide_windows=WINDOWS_EXPANDED.isdisjoint(able.conditions.expansions),
        conditions=able.conditions,
        fields=frozenset((path, name) for path in paths for name in fields_shown_by(able, path)),
        max_total_q=able.max_total_q,
        max_num_reqs=able.max_num_reqs,
        max_table_columns=able.max_table_columns,
    )
    return drawable(profile)


def fields_shown_by(able: Capabilities, path: str) -> frozenset[str]:
    """Declared names of the fields of a path that comparing what is claimed says something of."""
    claimed = able.fields_of(path)
    named = frozenset(name for name in claimed & oracle.FIELDS.keys() if path in oracle.FIELDS[name].paths)
    return named | fields_shown(path, claimed & oracle.KEY_SETS.keys())


def run_round(
    profile: Profile,
    seed_value: int,
    index: int,
    use: Callable[[Case], None],
    *,
    examples: int = ROUND_EXAMPLES,
    shrink: bool = False,
    first: int = 0,
) -> None:
    """Call ``use`` with the cases of one round; what it raises ends the round.

    ``shrink``: an Exception is a failing case, which Hypothesis makes smaller before it raises it again, one of each
    class. ``first``: of a random round, the first case that is used.
    """
    number = seed_of(seed_value, index)
    if not is_random(index):
        phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
        _hypothesis_run(profile, number, use, phases, examples=examples)
        return
    drawn = islice(random_cases(profile, seed_value, index), first, examples)
    failed = _failed_of_random(enumerate(drawn, first), use, look_on=shrink)
    if failed:
        recorded = [choices for choices, _ in failed]
        _hypothesis_run(profile, number, use, (Phase.reuse, Phase.shrink), examples=examples, recorded=recorded)
        raise failed[0][1]  # none of them failed again


def _failed_of_random(
    drawn: Iterable[tuple[int, tuple[Case, list[int]]]], use: Callable[[Case], None], *, look_on: bool
) -> list[tuple[list[int], Exception]]:
    """Call ``use`` with numbered cases of a random round.

    Returns the draws of those that failed, the smallest of each class, or raises what failed if not to ``look_on``.
    """
    failed: dict[type[Exception], tuple[list[int], Exception]] = {}
    last_new, begin = 0, 0.0
    for ran, (case, choices) in drawn:
        if failed and (ran >= max(LEAST_LOOKS, 2 * last_new) or time.monotonic() - begin > LOOK_SECONDS):
            break
        try:
            use(case)
        except Exception as error:
            if not look_on:
                raise
            begin = begin or time.monotonic()
            before = failed.get(type(error))
            if before is None:
                last_new = ran + 1
            if before is None or _size(choices) < _size(before[0]):
                failed[type(error)] = (choices, error)
    return list(failed.values())


def _size(choices: list[int]) -> tuple[int, list[int]]:
    """What Hypothesis goes by when it calls a case smaller."""
    return len(choices), choices


def _hypothesis_run(
    profile: Profile,
    number: int,
    use: Callable[[Case], None],
    phases: Sequence[Phase],
    *,
    examples: int,
    recorded: Sequence[Sequence[int]] = (),
) -> None:
    """Call ``use`` with cases that Hypothesis draws from this seed, or with those of ``recorded`` draws."""
    draw = settings(
        max_examples=examples,
        database=Recorded(recorded) if recorded else None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=True,
        print_blob=False,
        verbosity=Verbosity.quiet,
    )

    def example(case: Case) -> None:  # Hypothesis wants a function of our own
        use(case)

    with repeatable_draws():
        test = draw(seed(number)(given(batches(profile))(example)))  # in this order: a seed takes the database away
        with suppress(SkipTest):  # nothing could be replayed
            keyed(test)()


def generated_cases(profile: Profile, seed_value: int, count: int) -> list[Case]:
    """The first ``count`` cases of a seed."""
    cases: list[Case] = []
    for_each_case(profile, seed_value, count, cases.append)
    return cases


def for_each_case(profile: Profile, seed_value: int, count: int, use: Callable[[Case], None]) -> None:
    """Call ``use`` with the first ``count`` cases of a seed, whatever a subject makes of them."""
    for index, begin in enumerate(range(0, count, ROUND_EXAMPLES)):
        run_round(profile, seed_value, index, use, examples=min(count - begin, ROUND_EXAMPLES))
