"""The oracle's source with marks: a copy that computes the same on numbers that remember how they were made."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from inputmeta.conformance.explain.numbers import Expression, Marks

NOTATION = ("max", "min", "len", "sum", "abs", "range", "clamp", "ceiling_division")
"""Functions that belong to the text of an expression, as operators do."""
MARKS, REASONS, RECORDER = "_marks", "_reasons", "_recorder"
NAMES_A_FORMULA = re.compile(r".*\bF-[A-Z0-9]+")

ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)


def is_arithmetic(node: ast.expr) -> bool:
    """Whether an expression computes something, rather than name it or hand it over."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in NOTATION
    return isinstance(node, ARITHMETIC)


def without_units(node: ast.expr, units: frozenset[str]) -> ast.expr:
    """The expression inside of ``Token(...)`` and the like, which say its unit and compute nothing."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in units:
        (node,) = node.args
    return node


class Operands(ast.NodeTransformer):
    """Wraps the operands of one arithmetic expression, so that a run notes them; those behind are instrumented."""

    def __init__(self, outside: Instrument) -> None:
        self.outside = outside
        self.texts: list[str] = []

    def operand(self, node: ast.expr, inside: ast.expr) -> ast.expr:
        """The operand ``inside``, noted under the text of ``node``."""
        self.texts.append(ast.unparse(node))
        return call(RECORDER, [ast.Constant(len(self.texts) - 1), inside])

    def visit(self, node: ast.AST) -> ast.AST:
        """An operator goes on to its operands; a constant stays; all else is an operand."""
        if isinstance(node, ast.Constant | ast.operator | ast.unaryop | ast.boolop | ast.cmpop):
            return node
        if not isinstance(node, ast.expr):
            return self.generic_visit(node)
        node = without_units(node, self.outside.units)
        if isinstance(node, ast.Constant):
            return node
        if isinstance(node, ast.Call) and is_arithmetic(node):
            # Its function is a name that is no operand.
            node.args = [self.argument(part) for part in node.args]
            return node
        if is_arithmetic(node):
            return self.generic_visit(node)
        return self.operand(bare(node, self.outside.units), self.outside.expression(node))

    def argument(self, node: ast.expr) -> ast.expr:
        """An argument of max, min and the like; a starred one or a list is instrumented as it stands."""
        if isinstance(node, ast.Starred | ast.GeneratorExp | ast.List | ast.ListComp):
            return self.outside.expression(node)
        visited = self.visit(node)
        assert isinstance(visited, ast.expr)
        return visited


def call(function: str, arguments: list[ast.expr], attribute: str | None = None) -> ast.Call:
    """A call of a name, or of an attribute of it."""
    name: ast.expr = ast.Name(function, ast.Load())
    return ast.Call(ast.Attribute(name, attribute, ast.Load()) if attribute else name, arguments, [])


@dataclass
class Function:
    """The function that is being instrumented."""

    name: str
    formula: str


@dataclass
class Instrument(ast.NodeTransformer):
    """Marks the expressions of one module. ``units``: names of its types of units."""

    module: str
    marks: Marks
    units: frozenset[str]
    functions: list[Function] = field(default_factory=list)

    def marked(self, kind: str, node: ast.expr) -> ast.expr:
        """A call of a mark that runs the expression, with its operands noted."""
        where = self.functions[-1]
        text = ast.unparse(bare(node, self.units))
        operands = Operands(self)
        body = operands.visit(node)
        assert isinstance(body, ast.expr)
        self.marks.expressions.append(
            Expression(text, tuple(operands.texts), f"{self.module}.{where.name}", where.formula, kind == "each")
        )
        number = ast.Constant(len(self.marks.expressions) - 1)
        arguments = ast.arguments(posonlyargs=[], args=[ast.arg(RECORDER)], kwonlyargs=[], kw_defaults=[], defaults=[])
        reasons = [] if kind == "each" else [ast.Name(REASONS, ast.Load())]
        return call(MARKS, [number, *reasons, ast.Lambda(arguments, body)], kind)

    def visit(self, node: ast.AST) -> ast.AST:
        """Arithmetic anywhere in a function is a step of its own."""
        if self.functions and isinstance(node, ast.expr) and is_arithmetic(node):
            return self.marked("step", node)
        visited: ast.AST = super().visit(node)
        return visited

    def expression(self, node: ast.expr) -> ast.expr:
        """An expression, instrumented."""
        visited = self.visit(node)
        assert isinstance(visited, ast.expr)
        return visited

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """A function: its reasons begin empty."""
        text = (ast.get_docstring(node) or "").partition(">>>")[0].strip()
        outer = f"{self.functions[-1].name}." if self.functions else ""
        self.functions.append(Function(outer + node.name, text if NAMES_A_FORMULA.match(text) else ""))
        node.body = [self.statement(part) for part in node.body]
        self.functions.pop()
        # One that marks nothing, or only the docstring, needs none; it costs nothing either.
        reasons = ast.Assign([ast.Name(REASONS, ast.Store())], ast.Dict([], []))
        node.body.insert(1 if ast.get_docstring(node) is not None else 0, reasons)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """A class: its methods."""
        node.body = [self.visit(part) if isinstance(part, ast.FunctionDef) else part for part in node.body]  # type: ignore[misc]
        return node

    def statement(self, node: ast.stmt) -> ast.stmt:
        """A statement of a function."""
        visited = self.visit(node)
        assert isinstance(visited, ast.stmt)
        return visited

    def result(self, node: ast.expr) -> ast.expr:
        """What a function hands out: a name or a constant is a step too, where conditions led to it."""
        inside = without_units(node, self.units)
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self.result(part) for part in node.elts], ast.Load())
        if is_arithmetic(inside):
            return self.marked("step", inside)
        is_number = isinstance(inside, ast.Constant) and type(inside.value) is int
        if is_number or isinstance(inside, ast.Name | ast.Attribute):
            return self.marked("passed", inside)
        return self.expression(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """What a record is made of is handed out, as a result is."""
        inside = without_units(node, self.units)
        if inside is not node:
            return self.visit(inside)
        if self.functions and isinstance(node.func, ast.Name) and node.func.id[0].isupper():
            node.args = [self.result(part) for part in node.args]
            node.keywords = [ast.keyword(part.arg, self.result(part.value)) for part in node.keywords]
            return node
        return self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> ast.Starred:
        """A list put into another: its items know where they stood."""
        if self.functions and isinstance(node.ctx, ast.Load):
            node.value = self.marked("each", node.value)
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        """A result."""
        if node.value is not None:
            node.value = self.result(node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        """An assignment; what annotates it is no expression to run."""
        if node.value is not None:
            node.value = self.expression(node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        """``x += y`` as ``x = x + y``, a step."""
        if not isinstance(node.target, ast.Name):
            return self.generic_visit(node)  # type: ignore[return-value]
        sum_of = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.Assign([node.target], self.marked("step", sum_of))

    def visit_If(self, node: ast.If) -> ast.If:
        """A branch: its test is a reason of what follows."""
        node.test = self.marked("test", node.test)
        node.body = [self.statement(part) for part in node.body]
        node.orelse = [self.statement(part) for part in node.orelse]
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        """A loop: its items know which they are."""
        node.iter = self.marked("each", node.iter)
        node.body = [self.statement(part) for part in node.body]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        """The loop of a comprehension; its tests choose items and are no reasons."""
        if self.functions:
            node.iter = self.marked("each", node.iter)
        return node


def bare(node: ast.expr, units: frozenset[str]) -> ast.expr:
    """A copy of an expression without the types of units in it: what is shown."""

    class Bare(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            inside = without_units(node, units)
            return self.generic_visit(inside) if inside is node else self.visit(inside)

    copied = ast.parse(ast.unparse(node), mode="eval").body
    visited = Bare().visit(copied)
    assert isinstance(visited, ast.expr)
    return visited


def instrumented(module: str, source: str, marks: Marks, units: frozenset[str]) -> ast.Module:
    """A module of the oracle with its expressions marked; the marks stand in its names as ``_marks``."""
    tree = Instrument(module, marks, units).visit(ast.parse(source))
    assert isinstance(tree, ast.Module)
    return ast.fix_missing_locations(tree)
