"""Figures that are cells: the field at fault, how its differing cells are spread, block tables, the ring."""

from __future__ import annotations

from inputmeta import oracle
from inputmeta.conformance.check.evidence import Evidence
from inputmeta.conformance.check.report import row_text
from inputmeta.conformance.check.verdicts import Finding, declared
from inputmeta.conformance.report.bars import part
from inputmeta.conformance.report.model import Cell, Grid, Row, State, shown
from inputmeta.conformance.report.scene import Pointer, Scene
from inputmeta.oracle.blocks import block_count
from inputmeta.oracle.units import Token

MOST_COLUMNS = 24
LEVELS = 4
"""Of a heat map, above none."""


def failing_cells(scene: Scene) -> Grid | None:
    """The cells around the first one that differs, each as it is and as it should be."""
    finding = scene.finding
    if finding is None or finding.key is None or finding.cell is None or finding.evidence is None:
        return None
    evidence = finding.evidence
    names = declared(finding.key).columns
    rows = tuple(
        Row(
            row_label(scene, finding.key, number),
            tuple(field_cell(finding, evidence, at, column) for column in range(len(evidence.columns))),
            bool(finding.cell.index) and number == finding.cell.index[0],
        )
        for at, number in enumerate(evidence.rows)
    )
    height, width = evidence.shape
    left = f"{len(evidence.rows)} of {height:,} rows" if len(evidence.rows) < height else ""
    if len(evidence.columns) < width:
        left += "; " * bool(left) + f"{len(evidence.columns)} of {width:,} columns"
    return Grid(
        title=f"Cells of {finding.key}",
        text=f"{finding.differing:,} of {finding.compared:,} defined cells differ.",
        columns=tuple(column_name(names, column, width) for column in evidence.columns),
        rows=rows,
        left_out=left,
    )


def column_name(names: tuple[str, ...], column: int, width: int) -> str:
    """What a column of a field is called."""
    if names:
        return names[column]
    return "cell" if width == 1 else str(column)


def row_label(scene: Scene, key: str, row: int) -> str:
    """What a row of a field stands for."""
    kind = declared(key).layout(scene.case.path, scene.config).rows
    if kind == "scalar":
        return "the scalar"
    if kind == "mirror":  # which query row it is takes the whole layout
        return f"mirrored row {row}"
    return row_text(scene.case, scene.step, kind, key, row)


def field_cell(finding: Finding, evidence: Evidence, row: int, column: int) -> Cell:
    """One cell of the field at fault."""
    got, want = evidence.got[row][column], evidence.want[row][column]
    if want is None:
        return Cell("", "undefined", note="not defined, not compared")
    if got == want:
        return Cell(str(got))
    first = (*(finding.cell.index if finding.cell is not None else ()), 0, 0)[:2]
    is_first = finding.cell is not None and first == (evidence.rows[row], evidence.columns[column])
    return Cell(str(got), "failing" if is_first or not finding.cell else "differs", want=str(want))


def heat_map(finding: Finding | None) -> Grid | None:
    """How many cells of each tile of a field differ."""
    if finding is None or finding.evidence is None:
        return None
    evidence = finding.evidence
    (height, width), (down, along) = evidence.shape, evidence.tile
    rows = []
    for place, counts in enumerate(evidence.heat):
        begin, end = place * down, min(height, (place + 1) * down)
        cells = []
        for column, count in enumerate(counts):
            left, right = column * along, min(width, (column + 1) * along)
            size = (end - begin) * (right - left)
            place_of = f"{counted('row', begin, end)}, {counted('column', left, right)}"
            note = f"{place_of}: {count} of {size} differ"
            cells.append(Cell("", "heat" if count else "plain", note=note, level=-(-LEVELS * count // size)))
        rows.append(Row(part(begin, end), tuple(cells)))
    tile = "a cell of the field each" if down * along == 1 else f"{down} by {along} cells of the field each"
    return Grid(
        title=f"Where {finding.key} differs",
        text=f"{finding.differing:,} of {finding.compared:,} defined cells differ; tiles are {tile}.",
        columns=tuple(part(left, min(width, left + along)) for left in range(0, width, along)),
        rows=tuple(rows),
        corner="rows",
    )


def counted(what: str, begin: int, end: int) -> str:
    """A row, a column, or several.

    >>> counted("row", 3, 4), counted("row", 3, 6)
    ('row 3', 'rows 3 to 5')
    """
    return f"{what}{'s' * (end - begin > 1)} {part(begin, end)}"


def block_tables(scene: Scene) -> Grid | None:
    """The physical blocks of each sequence, coloured by sequence; what the wrong cell points at is marked."""
    widest = max((len(sequence.block_table) for _, sequence in scene.drawn), default=0)
    if not widest:
        return None
    column = None
    for pointer in (scene.pointers.want, scene.pointers.got):
        if pointer is not None and pointer.kind == "block" and scene.at_fault:
            table = list(scene.sequences[scene.at_fault[0]].block_table)
            column = table.index(pointer.block) if column is None and pointer.block in table else column
    columns = shown(widest, MOST_COLUMNS, column)
    owners: dict[int, list[int]] = {}
    for index, sequence in scene.drawn:
        for block in set(sequence.block_table[columns.first : columns.end]):
            owners.setdefault(block, []).append(index)
    rows = tuple(
        Row(
            f"sequence {index}",
            tuple(
                block_cell(scene, index, sequence, place, owners)
                for place in range(columns.first, min(columns.end, len(sequence.block_table)))
            ),
            index in scene.at_fault,
        )
        for index, sequence in scene.drawn
    )
    left = [scene.shown.left_out("sequences"), columns.left_out("columns")]
    return Grid(
        title="Block tables",
        text="Physical block of each logical block." + where_text(scene, "block"),
        columns=tuple(map(str, range(columns.first, columns.end))),
        rows=rows,
        left_out="; ".join(text for text in left if text),
    )


def block_cell(
    scene: Scene, index: int, sequence: oracle.SequenceMetadata, place: int, owners: dict[int, list[int]]
) -> Cell:
    """One entry of a block table."""
    block = sequence.block_table[place]
    others = [other for other in owners[block] if other != index]
    notes = [f"sequence {index}, logical block {place}: physical block {block}"]
    notes += [f"also of sequence {', '.join(map(str, others[:4]))}"] * bool(others)
    state: State = "plain"
    config = scene.config
    if not scene.broken:
        smallest = config.ca_ratios[0]
        per_block = config.block_size // smallest
        begin = (sequence.seqlen_k - sequence.seqlen_q) // smallest
        if place >= block_count(Token(sequence.seqlen_k), Token(config.block_size), smallest):
            state = "empty"
        elif (place + 1) * per_block > begin and begin < sequence.seqlen_k // smallest and not sequence.is_placeholder:
            state = "stored"
    return Cell(str(block), scene.pointers.state("block", block) or state, index, note="; ".join(notes))


def where_text(scene: Scene, kind: str) -> str:
    """Where the wrong cell points and should point, in words; empty if it points at something else."""
    pointers = [("want", scene.pointers.want), ("got", scene.pointers.got)]
    if not any(pointer is not None and pointer.kind == kind for _, pointer in pointers):
        return ""
    places = ", ".join(f"{word} {place_text(pointer)}" for word, pointer in pointers)
    return f" The first differing cell: {places}."


def place_text(pointer: Pointer | None) -> str:
    """Where a pointer points, in words."""
    if pointer is None:
        return "nothing"
    what = "block" if pointer.kind == "block" else "state block"
    return f"{what} {pointer.block}" + (f", cell {pointer.offset}" if pointer.offset is not None else "")


def ring(scene: Scene) -> Grid | None:
    """The ring of each sequence: which position each cell holds after the step, coloured by sequence."""
    size = scene.config.swa_block_size
    if scene.broken or not scene.drawn:
        return None
    at = next((p.offset for p in scene.pointers if p is not None and p.kind == "state" and p.offset is not None), None)
    if at is None and scene.at_fault:
        at = (scene.sequences[scene.at_fault[0]].seqlen_k - 1) % size
    slots = shown(size, MOST_COLUMNS, at)
    rows = tuple(
        Row(
            f"sequence {index}, state {sequence.state_id}",
            tuple(ring_cell(scene, index, sequence, slot) for slot in range(slots.first, slots.end)),
            index in scene.at_fault,
        )
        for index, sequence in scene.drawn
    )
    left = [scene.shown.left_out("sequences"), slots.left_out("cells")]
    return Grid(
        title="Window ring",
        text=f"Position that each of the {size} cells of a state block holds after the step."
        + where_text(scene, "state"),
        columns=tuple(map(str, range(slots.first, slots.end))),
        rows=rows,
        left_out="; ".join(text for text in left if text),
    )


def ring_cell(scene: Scene, index: int, sequence: oracle.SequenceMetadata, slot: int) -> Cell:
    """One cell of a ring."""
    size = scene.config.swa_block_size
    begin = sequence.seqlen_k - sequence.seqlen_q
    end = begin if sequence.is_placeholder else sequence.seqlen_k  # a placeholder stores nothing
    position = end - 1 - (end - 1 - slot) % size
    pointed = scene.pointers.state("state", sequence.state_id, slot)
    where = f"state block {sequence.state_id}, cell {slot}"
    if position < 0:
        return Cell("", pointed or "empty", note=f"{where}: holds nothing yet")
    if position < sequence.swa_valid_start:
        return Cell(str(position), pointed or "undefined", note=f"{where}: position {position}, not to be trusted")
    is_new = position >= begin
    note = f"{where}: position {position} of sequence {index}" + ", stored by this step" * is_new
    return Cell(str(position), pointed or ("stored" if is_new else "plain"), index, note=note)
