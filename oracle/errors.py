"""Refusals: one exception class a precondition, one line of text each."""

from __future__ import annotations

from typing import ClassVar


class PreconditionError(ValueError):
    """A batch breaks a precondition (P-...). Nothing is built then.

    ``sequence`` is the index in the batch, None where the condition is on the whole batch or the configuration;
    ``value`` is the offending value (a length where a length is at fault), ``rule`` what should have held.

    >>> str(TableError(2, "block_table", 3, "covers cdiv(seqlen_k // m, block_size // m) = 4 blocks", "has 3 blocks"))
    'P-TABLE: sequence 2: block_table has 3 blocks; rule: covers cdiv(seqlen_k // m, block_size // m) = 4 blocks'
    >>> str(RatioError(None, "window_size", 0, "W >= 1"))
    'P-RATIO: window_size = 0; rule: W >= 1'
    """

    condition: ClassVar[str] = "P-?"

    def __init__(self, sequence: int | None, field: str, value: int, rule: str, says: str | None = None) -> None:
        super().__init__(sequence, field, value, rule, says)
        self.sequence = sequence
        self.field = field
        self.value = value
        self.rule = rule
        self.says = says

    def __str__(self) -> str:
        """The refusal in one line: condition, sequence, field, value, rule."""
        place = "" if self.sequence is None else f"sequence {self.sequence}: "
        finding = f"= {self.value}" if self.says is None else self.says
        return f"{self.condition}: {place}{self.field} {finding}; rule: {self.rule}"


class RatioError(PreconditionError):
    """P-RATIO: the configuration does not fit together."""

    condition = "P-RATIO"


class LengthError(PreconditionError):
    """P-LEN: lengths of a sequence contradict each other, or there is no sequence."""

    condition = "P-LEN"


class TableError(PreconditionError):
    """P-TABLE: the block table is too short or holds a negative block."""

    condition = "P-TABLE"


class StateError(PreconditionError):
    """P-STATE: a negative state slot, valid start or data length."""

    condition = "P-STATE"


class NgramError(PreconditionError):
    """P-NGRAM: the look-back leaves what the sequence knows, or the table."""

    condition = "P-NGRAM"


class Int32Error(PreconditionError):
    """P-INT32: a value does not fit in int32."""

    condition = "P-INT32"


class OutError(PreconditionError):
    """P-OUT: the output given does not have the shape that the path writes."""

    condition = "P-OUT"
