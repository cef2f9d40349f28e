"""What a subject does not build, as a file of known failures records it, so that it does not grow unseen.

In TOML, one table a reason and part of ``check``; ``--write-known-failures`` writes them::

    [[unsupported]]
    reason = "klen: ratio 3"
    part = "generated"       # or "corpus"
    cases = 12               # with this reason
    of = 600
    seed = 0                 # of generated cases

As many cases of the same seed may have the reason; of another seed or number as large a share of them, and three
standard deviations more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

Part = Literal["corpus", "generated"]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
MAX_REASON = 300
"""Characters of a reason; longer ones are told apart by their beginnings."""
MAX_RECORDED = 10_000


class Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How many cases of a part of a run had a reason."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_REASON)]
    part: Part
    cases: Count
    of: Count
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**62)] | None = None

    def __post_init__(self) -> None:
        """Refuse what no run can have given; msgspec turns the ValueError into one of the table."""
        if not self.reason.isprintable():
            raise ValueError("key reason: must be printable, on one line")
        if self.cases > self.of:
            raise ValueError(f"key cases: {self.cases} of {self.of}")
        if (self.seed is None) != (self.part == "corpus"):
            raise ValueError("key seed: generated cases have one, a corpus has none")

    @property
    def key(self) -> tuple[str, str]:
        """What it is recorded for."""
        return self.part, self.reason


@dataclass(frozen=True)
class Seen:
    """What a part of a run did not build: cases by reason, of all of its cases."""

    part: Part
    of: int
    reasons: Counter[str]
    seed: int | None = None

    def recorded(self) -> Iterator[Recorded]:
        """As a file records it."""
        for reason, cases in sorted(self.short().items()):
            yield Recorded(reason=reason, part=self.part, cases=cases, of=self.of, seed=self.seed)

    def short(self) -> Counter[str]:
        """Cases by reason as far as that is recorded."""
        counts: Counter[str] = Counter()
        for reason, cases in self.reasons.items():
            counts[reason[:MAX_REASON]] += cases
        return counts

    def most(self, recorded: Recorded) -> int:
        """Most cases that may have a reason by what is recorded of it.

        >>> entry = Recorded(reason="x", part="generated", cases=4, of=100, seed=1)
        >>> [Seen("generated", of, Counter(), seed).most(entry) for of, seed in ((100, 1), (100, 2), (400, 1))]
        [4, 10, 28]
        """
        if (self.of, self.seed) == (recorded.of, recorded.seed):
            return recorded.cases
        expected = recorded.cases * self.of / recorded.of
        return math.floor(expected + 3 * math.sqrt(expected))


def grown(seen: Seen, entries: Iterable[Recorded]) -> list[str]:
    """One line on each reason that has grown against what is recorded, or is not recorded for this part.

    >>> entry = Recorded(reason="x", part="corpus", cases=1, of=9)
    >>> grown(Seen("corpus", 9, Counter(x=2, y=1)), [entry])
    ['corpus: x: 2 of 9 cases, recorded are 1 of 9', 'corpus: y: 1 of 9 cases, not recorded']
    """
    known = {entry.key: entry for entry in entries}
    lines = []
    for reason, cases in sorted(seen.short().items()):
        entry = known.get((seen.part, reason))
        told = f"{seen.part}: {reason}: {cases} of {seen.of} cases"
        if entry is None:
            lines.append(f"{told}, not recorded")
        elif cases > seen.most(entry):
            lines.append(f"{told}, recorded are {entry.cases} of {entry.of}")
    return lines
