"""Units of the integers in the specification, and the few helpers of its notation.

Every quantity of the oracle is an unbounded Python integer; these names say what it counts. A type checker refuses a
plain integer or another unit where a function asks for one, which catches swapped arguments. Arithmetic is not checked:
``Block(3) + Token(5)`` is an int, and a formula names the unit of its result itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NewType

Token = NewType("Token", int)
"""A count of original tokens, or an absolute position in a sequence."""

TokenId = NewType("TokenId", int)
"""An entry of a vocabulary (raw or compressed)."""

CompressedToken = NewType("CompressedToken", int)
"""A count of compressed tokens, or the index of one within its sequence."""

Ratio = NewType("Ratio", int)
"""Original tokens in one compressed token."""

Block = NewType("Block", int)
"""The number of a physical block, or a count of blocks."""

Slot = NewType("Slot", int)
"""A cell of a KV pool or of the state cache."""

Row = NewType("Row", int)
"""A query row, in the full, the mirrored or the compact layout."""

KeyRow = NewType("KeyRow", int)
"""A key row: of a contiguous key buffer that a load plan fills, or of the flattened block tables."""

SequenceIndex = NewType("SequenceIndex", int)
"""The place of a sequence in the batch."""

Rank = NewType("Rank", int)
"""A rank of the context parallel group."""

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1

NO_SLOT = Slot(-1)
"""The sentinel of every slot and index field: nothing is stored, nothing is read."""

NO_SEQUENCE = SequenceIndex(998244353)
"""The query index of a row without a sequence: any indexing faults on it, where -1 would read."""


def ceiling_division(dividend: int, divisor: int) -> int:
    """The notation ``cdiv(a, b) = -(-a // b)`` of the specification.

    >>> ceiling_division(8, 4), ceiling_division(9, 4), ceiling_division(0, 4)
    (2, 3, 0)
    """
    return -(-dividend // divisor)


def clamp(value: int, low: int, high: int) -> int:
    """The notation ``clamp(x, lo, hi) = max(lo, min(x, hi))``; where the bounds cross, ``lo`` wins.

    >>> clamp(5, 0, 3), clamp(-2, 0, 3), clamp(2, 0, 3), clamp(2, 0, -1)
    (3, 0, 2, 0)
    """
    return max(low, min(value, high))


def prefix_sums(counts: Iterable[int]) -> list[int]:
    """Sums of all prefixes, with the leading 0: one cell more than there are counts.

    >>> prefix_sums([3, 0, 2])
    [0, 3, 3, 5]
    """
    sums = [0]
    total = 0
    for count in counts:
        total += count
        sums.append(total)
    return sums
