"""What a refused call raises. Nothing has been written when one of these arrives."""

from typing import ClassVar


class PreconditionError(ValueError):
    """A batch breaks a precondition of the specification.

    `condition` is its name ("P-TABLE"), `sequence` the sequence's index in the batch (None: the configuration, the
    batch as a whole or `out`), `field` the input or output field, `value` what was found there, `rule` what it breaks.
    `str()` is one line that has them all.
    """

    condition: ClassVar[str] = "P-?"

    def __init__(self, sequence: int | None, field: str, value: int | str | None, rule: str, unit: str = "") -> None:
        """`unit` is what `value` counts ("blocks"); empty when `value` is the field's own value."""
        super().__init__(sequence, field, value, rule, unit)
        self.sequence = sequence
        self.field = field
        self.value = value
        self.rule = rule
        self.unit = unit

    def __str__(self) -> str:
        where = "" if self.sequence is None else f"sequence {self.sequence}: "
        found = "is missing" if self.value is None else f"is {self.value}"
        if self.unit:
            found = f"has {self.value} {self.unit}"
        return f"{self.condition}: {where}{self.field} {found}; rule: {self.rule}"


class RatioError(PreconditionError):
    """P-RATIO: the configuration's ratios, window, ring and context parallel group."""

    condition = "P-RATIO"


class LengthError(PreconditionError):
    """P-LEN: the lengths of a sequence and of its tokens."""

    condition = "P-LEN"


class TableError(PreconditionError):
    """P-TABLE: the block table covers the sequence, entries >= 0."""

    condition = "P-TABLE"


class StateError(PreconditionError):
    """P-STATE: state_id, swa_valid_start, data_len >= 0."""

    condition = "P-STATE"


class NgramError(PreconditionError):
    """P-NGRAM: the compressed and recent tokens cover the sequence, and recent tokens index `lookup_table`."""

    condition = "P-NGRAM"


class Int32Error(PreconditionError):
    """P-INT32: every value fits in int32, what comes in and what is written."""

    condition = "P-INT32"


class OutError(PreconditionError):
    """P-OUT: each tensor of `out` is there, with the right shape, dtype, layout and device."""

    condition = "P-OUT"


class ExpansionTooLargeError(MemoryError):
    """An expansion does not fit in the free memory. `field` is its flat key; `needed` and `available` are bytes."""

    def __init__(self, field: str, needed: int, available: int) -> None:
        super().__init__(field, needed, available)
        self.field = field
        self.needed = needed
        self.available = available

    def __str__(self) -> str:
        return f"{self.field} needs {self.needed} bytes, {self.available} are available"


_CLASSES: dict[str, type[PreconditionError]] = {
    cls.condition: cls for cls in (RatioError, LengthError, TableError, StateError, NgramError, Int32Error, OutError)
}


def precondition_error(
    *, condition: str, sequence: int | None, field: str, value: int, rule: str, unit: str
) -> PreconditionError:
    """The exception of a condition that the core found broken."""
    return _CLASSES[condition](sequence, field, value, rule, unit)
