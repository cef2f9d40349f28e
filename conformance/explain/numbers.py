"""Integers that remember how they were made, and the marks that the instrumented oracle calls to make them.

An expression of the oracle is run once, with each name, attribute, call or subscript in it noted as an operand. If an
integer comes out, it becomes a :class:`Number` that holds the expression and its operands; integers flow through the
oracle as they are, so the cell at the end leads back to the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload


@dataclass(frozen=True)
class Expression:
    """A place in the oracle's source: its text, the texts of its operands, and the function it stands in.

    ``formula``: the function's docstring without its examples, if it names a formula or a decision. ``is_item``: the
    integer is an item of the expression, not its value.
    """

    text: str
    operands: tuple[str, ...]
    function: str
    formula: str
    is_item: bool


@dataclass(frozen=True)
class Step:
    """One run of an expression: its operands by place, and the conditions under which it was reached."""

    expression: Expression
    operands: tuple[tuple[int, object], ...]
    because: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Condition:
    """A test that was passed on the way."""

    step: Step
    holds: bool


@dataclass(frozen=True)
class Input:
    """A number of the case: where it stands in it, and the index that was asked for, where it is a cell."""

    place: str
    index: object = None


class Number(int):
    """An integer with its origin. ``is_flag``: it stands for a bool, of which there are no subclasses."""

    origin: Step | Input
    is_flag: bool

    @classmethod
    def of(cls, value: int, origin: Step | Input) -> Number:
        """The integer, from there."""
        number = cls(value)
        number.origin = origin
        number.is_flag = isinstance(value, bool) or (isinstance(value, Number) and value.is_flag)
        return number

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


class Cells(Sequence[Number]):
    """An array of the case: its cells are numbers that know their place in it."""

    def __init__(self, place: str, values: Sequence[int], first: int = 0) -> None:
        self.place = place
        self.values = values
        self.first = first

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Number: ...
    @overload
    def __getitem__(self, index: slice) -> Cells: ...
    def __getitem__(self, index: int | slice) -> Number | Cells:
        if isinstance(index, slice):
            begin, _, _ = index.indices(len(self.values))
            return Cells(self.place, self.values[index], self.first + begin)
        place = self.first + (int(index) if index >= 0 else len(self.values) + int(index))
        return Number.of(int(self.values[index]), Input(f"{self.place}[{place}]", index))


class Span(Sequence[Number]):
    """A range whose bounds have an origin: its items know that they are of it."""

    def __init__(self, values: range, origin: Step) -> None:
        self.values = values
        self.origin = origin

    @property
    def start(self) -> int:
        """The first item."""
        return self.values.start

    @property
    def stop(self) -> int:
        """One past the last item."""
        return self.values.stop

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, item: object) -> bool:
        return item in self.values

    @overload
    def __getitem__(self, index: int) -> Number: ...
    @overload
    def __getitem__(self, index: slice) -> Span: ...
    def __getitem__(self, index: int | slice) -> Number | Span:
        if isinstance(index, slice):
            return Span(self.values[index], self.origin)
        item = replace(self.origin.expression, is_item=True)
        return Number.of(self.values[index], Step(item, self.origin.operands))


class Recorder:
    """Notes the operands of one run of an expression."""

    def __init__(self) -> None:
        self.operands: dict[int, object] = {}

    def __call__(self, place: int, value: object) -> object:
        """The value itself, noted."""
        if value is None or isinstance(value, int | Span):
            self.operands[place] = value
        return value


Reasons = dict[int, Condition]
"""Of one call of a function: the last outcome of each of its tests."""


class Marks:
    """What the instrumented modules call. ``expressions``: every place that was instrumented, by number."""

    def __init__(self) -> None:
        self.expressions: list[Expression] = []

    def made(self, number: int, recorder: Recorder, reasons: Reasons) -> Step:
        """A run of an expression."""
        return Step(self.expressions[number], tuple(recorder.operands.items()), tuple(reasons.values()))

    def step(self, number: int, reasons: Reasons, run: Callable[[Recorder], object]) -> object:
        """The value of an expression; an integer knows from now on that it is."""
        recorder = Recorder()
        value = run(recorder)
        if isinstance(value, range):
            return Span(value, self.made(number, recorder, reasons))
        if not isinstance(value, int):
            return value
        return Number.of(value, self.made(number, recorder, reasons))

    def passed(self, number: int, reasons: Reasons, run: Callable[[Recorder], object]) -> object:
        """The value of a name, as a result: as it is, unless it has no origin or conditions led to it."""
        recorder = Recorder()
        value = run(recorder)
        if not isinstance(value, int) or (isinstance(value, Number) and not reasons):
            return value
        return Number.of(value, self.made(number, recorder, reasons))

    def test(self, number: int, reasons: Reasons, run: Callable[[Recorder], object]) -> object:
        """The outcome of a test, noted among the reasons of what follows."""
        recorder = Recorder()
        value = run(recorder)
        reasons[number] = Condition(self.made(number, recorder, {}), bool(value))
        return value

    def each(self, number: int, run: Callable[[Recorder], Iterable[object]]) -> Iterator[object]:
        """The items of an iteration; integers among them, or in tuples, know which one they are."""
        recorder = Recorder()
        items = run(recorder)
        step = self.made(number, recorder, {})
        for item in items:
            if type(item) is int:
                yield Number.of(item, step)
            elif type(item) is tuple:
                yield tuple(Number.of(part, step) if type(part) is int else part for part in item)
            else:
                yield item
