"""Whether the relations that a zigzag flavour is held to see the faults of context parallelism.

A mutant of the specification's layout is carried over: where the flavour holds a row, it holds what the mutant has in
that row's place. So a fault is put in the flavour's own form, and the relations must not hold of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from inputmeta.conformance.campaign.generated import generated_cases, profile_of
from inputmeta.conformance.cases.request import Request, step_request
from inputmeta.conformance.check.relations import RelationError
from inputmeta.conformance.check.zigzag import spread_holds
from inputmeta.conformance.dialects import Flavour, rank_rows, reverse_of
from inputmeta.conformance.generate.profile import YOCO_MODES
from inputmeta.conformance.mutants.mutant import MUTANTS, Mutant
from inputmeta.conformance.mutants.translated import BATCHES, SEED, Fault, Faults, Outcome, may_show
from inputmeta.conformance.subjects.base import Capabilities, Subject
from inputmeta.conformance.subjects.oracle import OracleSubject

INDEX, REVERSE = "mirror_cp_index", "mirror_cp_reverse_index"
SIGNATURES = (f"MISMATCH:F-ZIGZAG:{INDEX}", f"MISMATCH:F-REVERSE:{REVERSE}")
"""What a mutant that spreads rows wrongly shows."""
MOST_ROWS = 2_000
"""Of a batch: more tell no more."""


@dataclass(frozen=True)
class Spread:
    """The rows of a batch over the ranks: ``held`` [ranks, mirror length], ``reverse`` [rows]."""

    held: np.ndarray
    reverse: np.ndarray


def requests_of(claims: Capabilities, cases: int) -> list[Request]:
    """Valid prompts of several ranks, with rows."""
    profile = dataclasses.replace(
        profile_of(claims, ("prompt",)), yoco_modes=YOCO_MODES, invalid=0.0, varlen=True, read_only=True
    )
    found = []
    for case in generated_cases(profile, SEED, cases):
        for index in range(len(case.steps)):
            request = step_request(case, index, in_place=False)
            rows = sum(sequence.seqlen_q for sequence in request.sequences)
            if request.config.cp_size > 1 and 0 < rows <= MOST_ROWS:
                found.append(dataclasses.replace(request, expand=frozenset()))
    return found


def spread_of(subject: Subject, request: Request) -> Spread:
    """What a subject builds on every rank; KeyError or ValueError if that has no form."""
    ranks = []
    for rank in range(request.config.cp_size):
        config = dataclasses.replace(request.config, cp_rank=rank)
        ranks.append(subject.build(dataclasses.replace(request, config=config)))
    return Spread(np.stack([np.asarray(fields[INDEX]) for fields in ranks]), np.asarray(ranks[0][REVERSE]))


def carried_over(flavour: Flavour, lengths: Sequence[int], ranks: int, right: Spread, wrong: Spread) -> Spread | None:
    """A mutant's rows in the places of a flavour; None if they are not as many as the specification's."""
    if (wrong.held.shape, wrong.reverse.shape) != (right.held.shape, right.reverse.shape):
        return None
    total = sum(lengths)
    held = np.stack(rank_rows(lengths, ranks, flavour))
    places = reverse_of(list(held), total)
    theirs = wrong.held.reshape(-1)[right.reverse]
    found = np.full(held.size, -1, dtype=np.int64)
    found[places] = theirs
    spare = wrong.held.reshape(-1)[right.held.reshape(-1) < 0]
    if (spare >= 0).any():  # padding that holds a row: a rank holds one more
        held_more = np.full((ranks, 1), -1, dtype=np.int64)
        held_more[0] = spare[spare >= 0][0]
        width = held.shape[1]
        places = places // width * (width + 1) + places % width
        found = np.concatenate([found.reshape(held.shape), held_more], axis=1).reshape(-1)
    lies_at = np.full(right.held.size + 1, -1, dtype=np.int64)
    lies_at[right.reverse] = places
    inside = (wrong.reverse >= 0) & (wrong.reverse < right.held.size)
    reverse = np.where(inside, lies_at[np.where(inside, wrong.reverse, -1)], -1)
    return Spread(found.reshape(ranks, -1), reverse)


def put_spread(
    faults: Faults, flavour: Flavour, claims: Capabilities, cases: int, names: Collection[str] = ()
) -> list[str]:
    """Put the mutants of the mirror, or those named, to a flavour's relations; returns those without a form in it.

    Raises:
        RelationError: the flavour breaks its own relations, whatever the mutants are.
    """
    requests = requests_of(claims, cases)
    right = [spread_of(OracleSubject(), request) for request in requests]
    without = []
    for request in requests:
        lengths = [sequence.seqlen_q for sequence in request.sequences]
        held = rank_rows(lengths, request.config.cp_size, flavour)
        spread_holds(held, reverse_of(held, sum(lengths)), lengths, flavour)
    for name, mutant in MUTANTS.items():
        if mutant.make is not None and may_show(mutant, SIGNATURES) and (not names or name in names):
            subject, batches = mutant.make(), zip(requests, right, strict=True)
            without += [name] * put_mutant(faults, mutant, subject, flavour, batches)
    return without


def put_mutant(
    faults: Faults, mutant: Mutant, subject: Subject, flavour: Flavour, given: Iterable[tuple[Request, Spread]]
) -> bool:
    """Put a mutant to a flavour's relations, on the first batches that it spoils; whether it has a form on none."""
    spoilt = formless = 0
    for request, right in given:
        try:
            wrong = spread_of(subject, request)
        except Exception:  # no answer, or ranks of different lengths: nothing to carry over
            continue
        fields = [
            name
            for name, mine, its in ((INDEX, wrong.held, right.held), (REVERSE, wrong.reverse, right.reverse))
            if not np.array_equal(mine, its)
        ]
        if not fields:
            continue
        lengths = [sequence.seqlen_q for sequence in request.sequences]
        carried = carried_over(flavour, lengths, request.config.cp_size, right, wrong)
        if carried is None:
            formless += 1
            continue
        for name in fields:
            faults.keep(Fault(mutant.kind, mutant.name, name), outcome_of(carried, lengths, flavour), request)
        spoilt += 1
        if spoilt == BATCHES:
            break
    return bool(formless and not spoilt)


def outcome_of(carried: Spread, lengths: Sequence[int], flavour: Flavour) -> Outcome:
    """Whether the relations see that rows are spread wrongly."""
    try:
        spread_holds(list(carried.held), carried.reverse, lengths, flavour)
    except RelationError:
        return Outcome.SEEN
    return Outcome.HIDDEN
