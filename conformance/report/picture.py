"""A step of a case as figures, with what a finding says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.report import brief
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.report.bars import sequence_bars, stairs, zigzag
from inputmeta.conformance.report.grids import block_tables, failing_cells, heat_map, ring
from inputmeta.conformance.report.model import Figure
from inputmeta.conformance.report.scene import Scene


@dataclass(frozen=True)
class Picture:
    """What is drawn of one step."""

    title: str
    text: str
    """The configuration."""
    figures: tuple[Figure, ...]


def several(count: int, what: str) -> str:
    """So many of something.

    >>> several(1, "row"), several(4096, "row")
    ('1 row', '4,096 rows')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"


def picture_of(case: Case, step: int, finding: Finding | None = None) -> Picture:
    """The figures of a step: its sequences, the cells at fault, then what they point into.

    The same bounds hold for every case: of more sequences, rows, columns and ranks than fit a page some are shown,
    those at fault among them, and each figure says how many there are.
    """
    scene = Scene(case, step, finding)
    figures: Sequence[Figure | None] = (
        sequence_bars(scene),
        failing_cells(scene),
        heat_map(finding),
        stairs(scene),
        zigzag(scene),
        block_tables(scene),
        ring(scene),
    )
    where = f"step {step} of {len(case.steps)}, " if len(case.steps) > 1 else ""
    rows = sum(max(0, each.seqlen_q) for each in case.steps[step])
    counts = f"{several(len(case.steps[step]), 'sequence')}, {several(rows, 'row')}"
    broken = f", breaks {', '.join(sorted({error.condition for error in scene.broken}))}" * bool(scene.broken)
    return Picture(
        title=f"{case.path}: {where}{counts}{broken}",
        text=brief(case.config),
        figures=tuple(figure for figure in figures if figure is not None),
    )
