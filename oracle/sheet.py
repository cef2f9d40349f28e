"""The fields that a batch should have, while they are built: cells checked against their declarations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from .declaration import Cell, Dtype, Field, flat_key
from .fields import FIELDS
from .inputs import MetadataConfig, Path
from .rows import Query, Selection
from .units import INT32_MAX, INT32_MIN


@dataclass(frozen=True, slots=True)
class ExpectedField:
    """What one field of a batch should hold.

    ``name`` is the flat key, ``formula`` the one of its path, ``shape`` the full shape, ``cells`` the row-major cells
    of the rows in ``rows`` (None = all rows); a cell that is None is not defined. A scalar has shape () and one cell.
    """

    name: str
    field: Field
    bucket: int | None
    formula: str
    dtype: Dtype
    shape: tuple[int, ...]
    cells: list[Cell]
    rows: tuple[int, ...] | None


class Sheet:
    """Collects the fields of one batch. ``sizes`` gives each symbolic dimension its length."""

    def __init__(self, path: Path, config: MetadataConfig, sizes: dict[str, int]) -> None:
        self.path: Path = path
        self.config = config
        self.sizes = sizes
        self.fields: dict[str, ExpectedField] = {}

    def shape_of(self, field: Field, bucket: int | None) -> tuple[int, ...]:
        """The declared shape of a field in this batch."""
        symbols = field.layout(self.path, self.config).shape
        keys = (symbol if symbol in self.sizes else flat_key(symbol, bucket) for symbol in symbols)
        return tuple(self.sizes[key] for key in keys)

    def put(
        self, name: str, cells: Sequence[Cell], *, rows: tuple[int, ...] | None = None, bucket: int | None = None
    ) -> None:
        """Add a field; its cells must be as many as the declaration says for the rows built."""
        field = FIELDS[name]
        key = flat_key(name, bucket)
        shape = self.shape_of(field, bucket)
        row_count = shape[0] if rows is None and shape else 1 if rows is None else len(rows)
        if len(cells) != row_count * prod(shape[1:]):
            raise AssertionError(f"{key}: {len(cells)} cells for {row_count} rows of shape {shape}")
        formula = field.formula_on(self.path, self.config)
        self.fields[key] = ExpectedField(key, field, bucket, formula, field.dtype, shape, list(cells), rows)

    def column(
        self, name: str, selection: Selection, formula: Callable[[Query], int], bucket: int | None = None
    ) -> None:
        """Add a field of one cell a row; a row without a query has the declared neutral one (I-3, I-8)."""
        neutral = FIELDS[name].neutral_cell(self.config)
        cells = [neutral if query is None else formula(query) for query in selection.queries]
        self.put(name, cells, rows=selection.rows, bucket=bucket)

    def columns(
        self,
        names: Sequence[str],
        selection: Selection,
        formula: Callable[[Query], Sequence[int]],
        bucket: int | None = None,
    ) -> None:
        """Add several fields of one cell a row that one formula gives together."""
        answers = [None if query is None else formula(query) for query in selection.queries]
        for place, name in enumerate(names):
            neutral = FIELDS[name].neutral_cell(self.config)
            cells = [neutral if answer is None else answer[place] for answer in answers]
            self.put(name, cells, rows=selection.rows, bucket=bucket)

    def matrix(
        self, name: str, selection: Selection, formula: Callable[[Query], Sequence[Cell]], bucket: int | None = None
    ) -> None:
        """Add a field of several cells a row."""
        field = FIELDS[name]
        neutral = [field.neutral_cell(self.config)] * self.shape_of(field, bucket)[1]
        cells: list[Cell] = []
        for query in selection.queries:
            cells.extend(neutral if query is None else formula(query))
        self.put(name, cells, rows=selection.rows, bucket=bucket)


def check_cells(expected: ExpectedField) -> None:
    """Internal consistency: cells have the declared type, fit in int32, and are defined where they must be."""
    defined = expected.cells
    if expected.field.defined != "every cell":
        defined = [cell for cell in expected.cells if cell is not None]
    wanted = bool if expected.dtype == "bool" else int
    if not set(map(type, defined)) <= {wanted}:
        raise AssertionError(f"{expected.name}: a cell is not {wanted.__name__}")
    if defined and not INT32_MIN <= min(defined) <= max(defined) <= INT32_MAX:  # type: ignore[type-var, operator]
        raise AssertionError(f"{expected.name}: a cell leaves int32 although F-LIMIT holds")
