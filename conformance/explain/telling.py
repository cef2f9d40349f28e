"""What is said of a cell: the formulas in symbols, then every intermediate with its numbers, down to the inputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from inputmeta.conformance.explain.cell import Explained
from inputmeta.conformance.explain.numbers import Condition, Input, Number, Span, Step

MOST_SUMMANDS = 12
"""Of a sum over sequences: so many are shown, the rest is counted."""


def shown(value: object) -> str:
    """A number as it is written; one that stands for a bool as that."""
    if isinstance(value, Number):
        return str(bool(value)) if value.is_flag else int.__repr__(value)
    if isinstance(value, Span):
        return f"range({value.values.start}, {value.values.stop})"
    return repr(value)


class Numbers(ast.NodeTransformer):
    """Puts the numbers of a run in the place of its operands."""

    def __init__(self, values: dict[str, object]) -> None:
        self.values = values

    def visit(self, node: ast.AST) -> ast.AST:
        """An operand that was reached gives way to its value."""
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
            text = ast.unparse(node)
            if text in self.values:
                return ast.Name(shown(self.values[text]), ast.Load())
        visited: ast.AST = super().visit(node)
        return visited


def operands_of(step: Step) -> dict[str, object]:
    """The operands of a run that were reached, by their text."""
    return {step.expression.operands[place]: value for place, value in step.operands}


def in_numbers(step: Step) -> str:
    """The expression of a run with its numbers."""
    tree = ast.parse(step.expression.text, mode="eval").body
    return ast.unparse(Numbers(operands_of(step)).visit(tree))


def one_of(step: Step) -> Step:
    """The run itself, or, where it only hands on what another function gave, that function's."""
    while len(step.operands) == 1 and not step.because and not step.expression.is_item:
        ((place, value),) = step.operands
        if step.expression.text != step.expression.operands[place]:
            break
        if not isinstance(value, Number) or not isinstance(value.origin, Step):
            break
        step = value.origin
    return step


@dataclass
class Telling:
    """One cell being told. ``lines``: so far; ``formulas``: docstrings of the functions met, in that order."""

    lines: list[str] = field(default_factory=list)
    formulas: dict[str, str] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)

    def say(self, depth: int, text: str) -> None:
        """A line."""
        self.lines.append("  " * depth + text)

    def add(self, depth: int, name: str, value: object) -> None:
        """A named value and what it is made of."""
        start = f"{name} = " if name else ""
        assert isinstance(value, Number | Span)
        origin = value.origin
        if isinstance(origin, Input):
            self.add_input(depth, start, value, origin)
            return
        step = one_of(origin)
        again = id(step) in self.told
        line = self.line(start, value, step)
        self.say(depth, line + ("  (as above)" if again and step.operands else ""))
        if again:
            return
        self.told.add(id(step))
        if step.expression.formula:
            self.formulas.setdefault(step.expression.function, step.expression.formula)
        self.add_reasons(depth + 1, step.because)
        for operand, made in parts_of(step):
            self.add(depth + 1, operand, made)

    def add_input(self, depth: int, start: str, value: Number | Span, origin: Input) -> None:
        """A number of the case, and how the index of its cell came about."""
        self.say(depth, f"{start}{shown(value)}  input {origin.place}")
        if isinstance(origin.index, Number):
            self.add(depth + 1, "index", origin.index)

    def line(self, start: str, value: Number | Span, step: Step) -> str:
        """A run in one line: symbols, numbers, value."""
        text, numbers = step.expression.text, in_numbers(step)
        where = f"  [{step.expression.function}]"
        if step.expression.is_item:
            return f"{start}{shown(value)}, of {text}{'' if numbers == text else f' = {numbers}'}{where}"
        summed = summands(step)
        if len(summed) > len(step.operands):
            numbers = " + ".join(shown(part) for _, part in summed[:MOST_SUMMANDS])
            numbers += f" + … ({len(summed)} in all)" if len(summed) > MOST_SUMMANDS else ""
        parts = [text, numbers, shown(value)]
        kept = [part for place, part in enumerate(parts) if part not in parts[:place]]
        return start + " = ".join(kept) + where

    def add_reasons(self, depth: int, reasons: tuple[Condition, ...]) -> None:
        """The conditions under which a run was reached, and where their numbers come from."""
        for reason in reasons:
            if id(reason.step) in self.told or not any(isinstance(made, Number) for _, made in reason.step.operands):
                continue
            self.told.add(id(reason.step))
            text, numbers = reason.step.expression.text, in_numbers(reason.step)
            holds = "as" if reason.holds else "as not"
            self.say(depth, f"{holds} {text}" + ("" if numbers == text else f": {numbers}"))
            for operand, made in parts_of(reason.step):
                # What else is made of it is told below.
                if id(one_of(made.origin) if isinstance(made.origin, Step) else made) not in self.told:
                    self.add(depth + 1, operand, made)


def summands(step: Step) -> list[tuple[str, object]]:
    """The operands of a run; of a running sum, those of the runs before it too, first to last."""
    later: list[tuple[str, object]] = []
    while True:
        parts = list(operands_of(step).items())
        first = parts[0][1] if parts else None
        before = first.origin if isinstance(first, Number) and len(parts) == 2 else None
        if not isinstance(before, Step) or before.expression is not step.expression:
            return [*parts, *reversed(later)]
        later.append(parts[1])
        step = before


def parts_of(step: Step) -> Iterator[tuple[str, Number | Span]]:
    """What is told below a run: operands with an origin; a plain one stands in the run's line."""
    for operand, made in summands(step)[:MOST_SUMMANDS]:
        if isinstance(made, Number | Span):
            yield operand, made


def tell(explained: Explained) -> Iterator[str]:
    """The cell, its formulas in symbols, and the numbers, each below what it is for."""
    field_of, cell = explained.field, explained.cell
    place = f"[{', '.join(map(str, explained.place))}]" if explained.place else ""
    name = f"{explained.key}{place}"
    yield f"{name} = {'not defined' if cell is None else shown(cell)}  {explained.formula}"
    yield f"  {field_of.meaning}; unit: {field_of.unit}; shape {list(explained.shape)}"
    if not isinstance(cell, Number):
        yield f"  {why_plain(explained)}"
        return
    telling = Telling()
    telling.add(0, "", cell)
    for text in telling.formulas.values():
        yield ""
        yield from (f"  {line.strip()}" for line in text.replace("``", "").splitlines() if line.strip())
    yield ""
    yield from telling.lines


def why_plain(explained: Explained) -> str:
    """Of a cell that no formula made."""
    if explained.cell is None:
        return f"not defined, not compared; defined: {explained.field.defined}"
    if explained.field.rows == "boundary" and explained.place[0] == 0:
        return "the leading 0 of the prefix sums"
    return f"the neutral cell: row {explained.place[0]} has no query"
