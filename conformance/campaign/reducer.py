"""A smaller case with the same signature: fewer steps and sequences, shorter ones, lower numbers, a plainer engine.

The reducer asks one question, whether a smaller case still fails, and knows nothing of subjects. It ends where none of
its single moves (one step or sequence less, two sequences as one, one feature or ratio less, one value lower by one or
at its least) still fails, or when its time is up, with the best so far. The same answers give the same case.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from inputmeta.conformance.campaign.ahead import Ahead
from inputmeta.conformance.campaign.column import ALL, Column
from inputmeta.conformance.campaign.columns import BROKEN_COLUMNS, COLUMNS, in_small_blocks, ratio_sets, renamed
from inputmeta.conformance.campaign.parts import Parts, Place, concentrated, without_unread
from inputmeta.conformance.campaign.reduce import shortest
from inputmeta.conformance.cases.files import CaseError, case_id, check_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import broken_by
from inputmeta.conformance.check.report import sequences_at_fault
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.interrupts import Interrupted
from inputmeta.conformance.subjects.base import SubjectError

MOST_PAIRS = 16
"""Sequences of a step of which each two neighbours are tried as one."""
MOST_TOLD = 3
"""Thresholds that are told."""

Element = TypeVar("Element")
Probe = Callable[[Case], Finding | None]
"""Runs a case; the finding that is looked for, or None."""


class TimeUp(Exception):  # noqa: N818 - how a search ends, not an error
    """No more cases are to be run."""


@dataclass(frozen=True)
class Reduced:
    """The smallest case that was found, and what is to be said of it."""

    case: Case
    finding: Finding
    tried: int
    """Cases that were run."""
    ended: str
    """Why the search ended before no single move still failed; empty if it did not."""
    thresholds: tuple[str, ...]
    """``from row 256 of a chunk on: 257 query rows of sequence 0 fail, 256 pass``; the largest numbers first."""

    def __str__(self) -> str:
        """One line: how it was made smaller, and from which sizes on it fails."""
        how = f"not fully reduced: {self.ended}" if self.ended else "reduced until no single step further fails"
        return f"{how} ({self.tried} cases run)" + "".join(f"; {text}" for text in self.thresholds)


def reduce_case(
    case: Case,
    finding: Finding,
    probe: Probe,
    deadline: float = math.inf,
    *,
    sequences_only: bool = False,
    on_try: Callable[[Reducer], None] = lambda _: None,
    ahead: Ahead | None = None,
) -> Reduced:
    """The smallest case found that ``probe`` still finds something on. ``finding``: what it says of ``case``.

    ``deadline``: by the monotonic clock; from then on no more cases are run. What ends a run or keeps a subject from
    being started, raised by ``probe``, ends the search as well: the best so far stands. ``sequences_only``: steps and
    sequences are left out and nothing else is tried, for where a run is dear. ``on_try``: called before each case that
    is run. ``ahead``: runs cases that are likely to be asked for next; ``probe`` asks it.
    """
    reducer = Reducer(case, finding, probe, deadline, on_try=on_try, ahead=ahead)
    ended = reducer.run_fewer() if sequences_only else reducer.run()
    return Reduced(reducer.case, reducer.finding, reducer.runs, ended, reducer.thresholds())


def _least_but(column: Column, whole: Parts, above: Sequence[Place], kept: Sequence[Place]) -> Parts:
    """The least value of a column at all places but those kept."""
    chosen = set(kept)
    return column.cut(whole, {place: column.least for place in above if place not in chosen})


class Reducer:
    """One search. ``case``, ``finding``: the best so far."""

    def __init__(
        self,
        case: Case,
        finding: Finding,
        probe: Probe,
        deadline: float = math.inf,
        *,
        on_try: Callable[[Reducer], None] = lambda _: None,
        ahead: Ahead | None = None,
    ) -> None:
        self.case = case
        self.finding = finding
        self.parts = Parts.of(case)
        self.runs = 0
        self._probe = probe
        self._deadline = deadline
        self._on_try = on_try
        self._ahead = ahead
        self._tried: dict[str, bool] = {case_id(case): False}
        """Cases by id; whether they were run, and passed."""
        self._broken = {error.condition for _, error in broken_by(case)}
        self._columns = (*COLUMNS, *BROKEN_COLUMNS) if self._broken else COLUMNS

    def run(self) -> str:
        """Search until nothing smaller is found; why it ended before that, or nothing."""
        return self._until_nothing_moves(self._caps, self._concentrate, self._places, self._fewer, self._ratios)

    def run_fewer(self) -> str:
        """As :meth:`run`, leaving out steps and sequences alone."""
        return self._until_nothing_moves(self._fewer)

    def run_alone(self) -> bool:
        """Whether the sequence at fault alone still fails, or else its step: the cheapest runs that may tell most."""
        try:
            return self._sequence_at_fault() or self._step_at_fault()
        except TimeUp:
            return False

    def _sequence_at_fault(self) -> bool:
        return self._keep([(self.finding.step, place) for place in sequences_at_fault(self.case, self.finding)[:1]])

    def _step_at_fault(self) -> bool:
        return self._keep([place for place in self.parts.places if place[0] == self.finding.step])

    def _until_nothing_moves(self, *moves: Callable[[], None]) -> str:
        try:
            self._fewer_at_once()
            while True:
                before = case_id(self.case)
                for move in moves:
                    move()
                if case_id(self.case) == before:
                    return ""
        except TimeUp as error:
            return str(error)
        except (Interrupted, SubjectError, CaseError) as error:  # the best so far is told
            return str(error)

    def _fails(self, parts: Parts) -> bool:
        """Whether a smaller case still fails; then it is the best so far. What was run before is not run again."""
        parts = parts.mended()
        case = parts.case()
        key = case_id(case)
        if key in self._tried:
            return False
        self._tried[key] = False
        if not parts.steps or not self._allowed(case):
            return False
        if time.monotonic() >= self._deadline:
            raise TimeUp("time was up")
        self._on_try(self)
        self.runs += 1
        found = self._probe(case)
        if found is None:
            self._tried[key] = True
            return False
        self.case, self.finding, self.parts = case, found, parts
        return True

    def _next(self, likely: Iterator[Parts]) -> None:
        """Have cases run that are asked for next if none of them fails, the first of them in any case."""
        if self._ahead is None or not self._ahead.jobs:
            return
        cases = (parts.mended().case() for parts in likely if parts.steps)
        unknown = (case for case in cases if case_id(case) not in self._tried and self._allowed(case))
        first = next(unknown, None)  # is asked for at once
        if first is not None:
            self._ahead.offer(list(islice(unknown, self._ahead.jobs)))

    def _allowed(self, case: Case) -> bool:
        """Whether a case may be run: consistent, and it breaks nothing that the first one does not break."""
        try:
            check_case(case)
        except CaseError:
            return False
        return {error.condition for _, error in broken_by(case)} <= self._broken

    def _fewer_at_once(self) -> None:
        """The likely ones alone; the first steps and sequences up to some; then the last ones from some on."""
        self._step_at_fault()
        self._sequence_at_fault()
        places = self.parts.places
        self._least(len(places), lambda count: self.parts.only(places[:count]), least=1)
        behind = self.parts.places
        self._least(len(behind), lambda count: self.parts.only(behind[len(behind) - count :]), least=1)

    def _keep(self, places: Sequence[Place]) -> bool:
        return bool(places) and self._fails(self.parts.only(places))

    def _least(self, high: int, make: Callable[[int], Parts], *, least: int) -> None:
        """The least number, by bisection, of which ``make`` gives what fails; ``high`` is known to."""
        if high <= least or self._fails(make(least)):
            return
        while high - least > 1:
            middle = (least + high) // 2
            ways = (middle, (middle + high) // 2, (least + middle) // 2)
            self._next(make(number) for number in ways if least < number < high)
            if self._fails(make(middle)):
                high = middle
            else:
                least = middle

    def _caps(self) -> None:
        """Every column under one cap over all sequences; ids by small ones in their place; what is not read, away."""
        self._fails(without_unread(self.parts))
        self._fails(in_small_blocks(self.parts))
        self._fails(renamed(self.parts))
        self._fails(self.parts.renumbered())
        for index, column in enumerate(self._columns):
            self._next(map(self._at_least, self._columns[index:]))
            self._cap(column, None)

    def _at_least(self, column: Column) -> Parts:
        """The least value of a column everywhere, which is what :meth:`_cap` tries first."""
        return column.cut(self.parts, dict.fromkeys(column.above(self.parts), column.least))

    def _cap(self, column: Column, place: Place | None) -> None:
        """The least cap of a column, over all of it or at one place."""
        whole = self.parts
        values = column.above(whole)
        if place is not None:
            values = {place: values[place]} if place in values else {}
        if not values:
            return

        def capped(cap: int) -> Parts:
            return column.cut(whole, {where: cap for where, value in values.items() if value > cap})

        self._least(max(values.values()), capped, least=column.least)

    def _fewer(self) -> None:
        """Steps, then sequences, of which none can be left out."""
        whole = self.parts
        steps = range(len(whole.steps))
        if len(steps) > 1:

            def of_steps(kept: Sequence[int]) -> Parts:
                return whole.only([place for place in whole.places if place[0] in kept])

            self._shortest(steps, of_steps)
        self._fewer_requests()
        self._shortest(self.parts.places, self.parts.only)

    def _fewer_requests(self) -> None:
        """Of a history: requests with all of their steps, then ends, of which none can be left out."""
        whole = self.parts

        def of_requests(kept: Sequence[int]) -> Parts:
            return whole.only([place for place in whole.places if whole.part(place).request in {-1, *kept}])

        if len(whole.requests) > 1:
            self._shortest(whole.requests, of_requests)
        if self.parts.ends:
            self._shortest(self.parts.ends, self.parts.with_ends)

    def _shortest(self, items: Sequence[Element], make: Callable[[Sequence[Element]], Parts]) -> list[Element]:
        """The fewest items of which ``make`` gives what fails."""
        return shortest(items, lambda kept: self._fails(make(kept)), lambda likely: self._next(map(make, likely)))

    def _concentrate(self) -> None:
        """All sequences of a step as one; then, of few, each two neighbours."""
        for step in range(len(self.parts.steps)):
            last = len(self.parts.steps[step].parts) - 1
            if last > 0 and not self._merged(step, 0, last) and last < MOST_PAIRS:
                for first in reversed(range(last)):
                    self._merged(step, first, first + 1)

    def _merged(self, step: int, first: int, last: int) -> bool:
        return any(self._fails(concentrated(self.parts, step, first, last, context=c)) for c in ("last", "all"))

    def _ratios(self) -> None:
        """Ratios left out and lowered until none can be."""
        while any(self._fails(make()) for make in ratio_sets(self.parts)):
            pass

    def _places(self) -> None:
        """Every column at its least in as many sequences as may be, and as low as may be in each of the others."""
        for column in self._columns:
            whole = self.parts
            above = list(column.above(whole))
            if len(above) < 2:
                continue

            for place in self._shortest(above, partial(_least_but, column, whole, above)):
                self._cap(column, place)

    def thresholds(self) -> tuple[str, ...]:
        """What fails from some number on, where one less was run and passes."""
        told: list[tuple[int, str]] = []
        for kind, count in (("sequences", len(self.parts.places)), ("steps", len(self.parts.steps))):
            if count > 1 and self._pass_without_any(kind):
                told.append((count, f"{count} {kind} fail, one fewer passes"))
        for column in self._columns:
            for place, value in column.above(self.parts).items():
                less = column.cut(self.parts, {place: value - 1})
                if column.told and self._tried.get(case_id(less.case())):
                    where = self._where(place)
                    told.append((value, column.told.format(name=column.name, where=where, value=value, less=value - 1)))
        told.sort(key=lambda each: -each[0])
        return tuple(text for _, text in told[:MOST_TOLD])

    def _where(self, place: Place) -> str:
        step, sequence = place
        if step < 0:
            return ""
        told = "" if sequence == ALL else f" of sequence {sequence}"
        return told + f" of step {step}" * (len(self.parts.steps) > 1)

    def _pass_without_any(self, kind: str) -> bool:
        places = self.parts.places
        dropped = places if kind == "sequences" else [(step, -1) for step in range(len(self.parts.steps))]
        fewer = (
            [place for place in places if place != one and (kind == "sequences" or place[0] != one[0])]
            for one in dropped
        )
        return all(self._tried.get(case_id(self.parts.only(kept).case())) for kept in fewer)
