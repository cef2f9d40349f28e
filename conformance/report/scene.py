"""One step of a case as it is drawn: which sequences are shown, what a finding on it says of which of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case, oracle_config, oracle_sequences
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.check.report import mirrored_query, query_place, sequences_at_fault
from inputmeta.conformance.check.verdicts import Finding, declared
from inputmeta.conformance.report.model import Shown, State, shown

MOST_SEQUENCES = 16


class Pointer(NamedTuple):
    """A physical block, or a state block, that a wrong cell points into. ``offset``: the cell in it, None if it names
    the block as a whole.
    """

    kind: str
    block: int
    offset: int | None


class Pointers(NamedTuple):
    """Where the first differing cell should point, and where it does; None: nowhere."""

    want: Pointer | None = None
    got: Pointer | None = None

    def state(self, kind: str, block: int, offset: int | None = None) -> State | None:
        """Whether a block, or a cell of one, is what one of them points at."""

        def hits(pointer: Pointer | None) -> bool:
            if pointer is None or (pointer.kind, pointer.block) != (kind, block):
                return False
            return offset is None or pointer.offset in (None, offset)

        if hits(self.got):
            return "got"
        return "want" if hits(self.want) else None


@dataclass(frozen=True)
class Scene:
    """One step of a case, and the finding on it if there is one."""

    case: Case
    step: int
    finding: Finding | None = None

    @cached_property
    def config(self) -> oracle.MetadataConfig:
        """The oracle's form of the configuration."""
        return oracle_config(self.case.config)

    @cached_property
    def sequences(self) -> list[oracle.SequenceMetadata]:
        """All sequences of the step."""
        return oracle_sequences(self.case.steps[self.step])

    @cached_property
    def broken(self) -> list[oracle.PreconditionError]:
        """Preconditions that the step breaks."""
        return step_request(self.case, self.step).violations()

    @cached_property
    def at_fault(self) -> list[int]:
        """The sequence of the first differing cell, or those that break the precondition."""
        if self.finding is not None:
            return sequences_at_fault(self.case, self.finding)
        return sorted({error.sequence for error in self.broken if error.sequence is not None})

    @cached_property
    def shown(self) -> Shown:
        """The sequences that are shown."""
        return shown(len(self.sequences), MOST_SEQUENCES, self.at_fault[0] if self.at_fault else None)

    @property
    def drawn(self) -> list[tuple[int, oracle.SequenceMetadata]]:
        """The shown sequences with their indices."""
        return list(enumerate(self.sequences))[self.shown.first : self.shown.end]

    @cached_property
    def query(self) -> int | None:
        """The query row of the first differing cell, if it belongs to one."""
        finding = self.finding
        if finding is None or finding.cell is None or finding.key is None or not finding.cell.index:
            return None
        kind = declared(finding.key).layout(self.case.path, self.config).rows
        row = finding.cell.index[0]
        if kind == "mirror":
            return mirrored_query(self.case, self.sequences, row)
        return row if kind == "query" and query_place(self.sequences, row)[0] is not None else None

    @cached_property
    def pointers(self) -> Pointers:
        """What the first differing cell points at, if its values are ids or cells of blocks."""
        finding = self.finding
        if finding is None or finding.cell is None or finding.key is None:
            return Pointers()
        units = declared(finding.key).unit.split(", ")
        column = finding.cell.index[1] if len(finding.cell.index) > 1 and len(units) > 1 else 0
        unit = units[column] if column < len(units) else ""
        if unit == "key row (prompt)":  # what the decode paths have there
            unit = "" if self.case.path == "prompt" else "pool cell"
        ratio = int(finding.key.partition(".")[2] or 1)
        return Pointers(*(self._pointer(unit, ratio, int(value)) for value in (finding.cell.want, finding.cell.got)))

    def _pointer(self, unit: str, ratio: int, value: int) -> Pointer | None:
        """What a value of a unit points at."""
        if value < 0:
            return None
        if unit in ("physical block", "block"):
            return Pointer("block", value, None)
        if unit == "state block":
            return Pointer("state", value, None)
        if unit == "pool cell":
            return Pointer("block", *divmod(value, self.config.block_size // ratio))
        return Pointer("state", *divmod(value, self.config.swa_block_size)) if unit == "state cell" else None
