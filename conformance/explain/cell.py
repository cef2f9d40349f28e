"""One cell of a step and its origin: the instrumented oracle on the step's numbers."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from types import ModuleType, SimpleNamespace

from inputmeta import oracle
from inputmeta.conformance.cases.model import Gather
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.explain.instrument import MARKS, instrumented
from inputmeta.conformance.explain.numbers import Cells, Input, Marks, Number
from inputmeta.conformance.subjects.copies import copy_of
from inputmeta.oracle.declaration import Cell, Field
from inputmeta.oracle.inputs import CONFIG_ARRAYS, SEQUENCE_ARRAYS, MetadataConfig, SequenceMetadata

UNITS = frozenset(name for name, value in vars(oracle.units).items() if hasattr(value, "__supertype__"))
"""Names of the oracle's types of units."""

COLLECTING = frozenset({"__init__", "declaration", "fields", "sheet", "batch"})
"""Modules of the oracle that declare and collect: no cell is made in them."""


class NoCellError(ValueError):
    """There is no such cell; the message is one line."""


@dataclass(frozen=True)
class Explained:
    """A cell with its origin.

    ``cell``: a :class:`Number`, or a plain value that no formula made; None: it is not defined.
    """

    key: str
    field: Field
    formula: str
    shape: tuple[int, ...]
    place: tuple[int, ...]
    cell: Cell


@cache
def instrumented_oracle() -> ModuleType:
    """The copy of the oracle whose numbers remember their origin; made once a process."""
    marks = Marks()

    def change(module: ModuleType, stem: str, source: str) -> str | ast.Module:
        module.__dict__[MARKS] = marks
        return source if stem in COLLECTING else instrumented(stem, source, marks, UNITS)

    return copy_of("inputmeta_explained_oracle", change)


def traced(values: MetadataConfig | SequenceMetadata, place: str) -> dict[str, object]:
    """The members of a configuration or a sequence, as numbers that know their place in the case."""
    members: dict[str, object] = {}
    for member in fields(values):
        value = getattr(values, member.name)
        if member.name in (*CONFIG_ARRAYS, *SEQUENCE_ARRAYS):
            members[member.name] = Cells(f"{place}.{member.name}", value)
        elif isinstance(value, int):
            members[member.name] = Number.of(value, Input(f"{place}.{member.name}"))
        else:
            members[member.name] = value
    return members


def traced_gather(gather: Gather | None) -> SimpleNamespace | None:
    """The inputs of F-GATHER and F-VARLEN, as numbers that know their place."""
    if gather is None:
        return None

    def cells(of: object, place: str, *names: str) -> dict[str, Cells]:
        return {name: Cells(f"{place}.{name}", getattr(of, name)) for name in names}

    varlen = None
    if gather.varlen is not None:
        lengths = cells(gather.varlen, "gather.varlen", "seqlens_q", "prev_seqlens_q", "prev_num_accepted_tokens")
        varlen = SimpleNamespace(**lengths)
    predict = [Cells(f"gather.prev_predict[{place}]", row) for place, row in enumerate(gather.prev_predict)]
    rows = cells(gather, "gather", "fresh_input_ids", "prev_sampled", "remap")
    return SimpleNamespace(**rows, prev_predict=predict, varlen=varlen)


def explained_fields(request: Request, expand: Collection[str]) -> dict[str, oracle.ExpectedField]:
    """The fields of a step that keeps its preconditions, by flat key, their cells with origins."""
    copy = instrumented_oracle()
    sequences = enumerate(request.sequences)
    found: dict[str, oracle.ExpectedField] = copy.batch.build(
        request.path,
        copy.MetadataConfig(**traced(request.config, "config")),
        [copy.SequenceMetadata(**traced(sequence, f"sequences[{index}]")) for index, sequence in sequences],
        expand=expand,
        gather=traced_gather(request.gather),
        max_num_blocks=request.max_num_blocks,
    )
    return found


def explained(request: Request, key: str, place: Sequence[int]) -> Explained:
    """The cell ``key[place]`` of a step that keeps its preconditions; a scalar has the place ().

    Raises:
        NoCellError: the step has no such field, or the field no such cell.
    """
    field = oracle.FIELDS.get(key.partition(".")[0])
    expansion = field.expansion if field is not None else None
    if expansion is not None and expansion not in request.expand:
        raise NoCellError(f"{key}: the expansion is too large to be built here")
    found = explained_fields(request, {expansion} if expansion else ())
    if key not in found:
        near = get_close_matches(key, found)
        raise NoCellError(f"{key}: no such field on {request.path}{': perhaps ' if near else ''}{' or '.join(near)}")
    expected = found[key]
    return Explained(key, expected.field, expected.formula, expected.shape, tuple(place), cell_at(expected, place))


def cell_at(expected: oracle.ExpectedField, place: Sequence[int]) -> Cell:
    """The cell of a field; every axis needs its index, within its length."""
    shape = expected.shape
    if len(place) != len(shape):
        wanted = "no index" if not shape else "a row" if len(shape) == 1 else "a row and a column"
        raise NoCellError(f"{expected.name}: it has the shape {list(shape)}: give {wanted}")
    flat = 0
    for axis, (index, length) in enumerate(zip(place, shape, strict=True)):
        if not 0 <= index < length:
            raise NoCellError(f"{expected.name}: {('row', 'column')[axis]} {index} of {length}")
        flat = flat * length + index
    return expected.cells[flat]
