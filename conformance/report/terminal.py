"""Pictures in a terminal, by rich: bars as characters, grids as tables; no wider than the terminal is."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from inputmeta.conformance.console import plain_text
from inputmeta.conformance.report.model import Bars, Cell, Figure, Grid, Kind, Lane, Row, State
from inputmeta.conformance.report.picture import Picture

GLYPHS: dict[Kind, str] = {
    "history": "░",
    "untrusted": "?",
    "chunk": "█",
    "draft": "▓",
    "padding": "·",
    "placeholder": "x",
    "keys": "█",
    "rows": "█",
}
"""How a part of a bar is drawn, so that it can be told without colours."""
SEQUENCE_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red", "bright_cyan", "bright_magenta")
SUFFIXES: dict[State, str] = {"stored": "+", "undefined": "?", "want": "<want", "got": "<got", "empty": "-"}
"""What stands behind the text of a cell, for the same reason."""
STYLES: dict[State, str] = {
    "failing": "bold reverse red",
    "differs": "red",
    "want": "bold green",
    "got": "bold red",
    "undefined": "dim",
    "empty": "dim",
    "stored": "bold",
}
HEAT = " ░▒▓█"
LEAST_BAR, MOST_BAR = 16, 64
FAULT = "> "


def drawn(picture: Picture, width: int) -> RenderableType:
    """A picture as something that rich prints on ``width`` columns."""
    parts: list[RenderableType] = [Text(plain_text(picture.title), style="bold"), Text(f"  {plain_text(picture.text)}")]
    for figure in picture.figures:
        parts += ["", *figure_parts(figure, width)]
    return Group(*parts)


def figure_parts(figure: Figure, width: int) -> Iterator[RenderableType]:
    """Title, caption, what is drawn, and its legend."""
    left = f" ({figure.left_out})" if figure.left_out else ""
    yield Text.assemble((plain_text(figure.title) + left, "bold"))
    yield Text(f"  {plain_text(figure.text)}")
    yield from (drawing for drawing in drawings(figure, width) if not isinstance(drawing, Text) or drawing.plain)


def drawings(figure: Figure, width: int) -> Iterator[RenderableType]:
    """What is drawn, and its legend, which may be empty."""
    if isinstance(figure, Bars):
        yield bars_table(figure, width)
        yield legend([f"{GLYPHS[kind]} {text}" for kind, text in figure.kinds.items()])
        return
    table, columns = grid_table(figure, width)
    yield table
    if columns < len(figure.columns):
        yield Text(f"  {columns} of the {len(figure.columns)} columns fit {width} characters", style="dim")
    yield legend([f"{SUFFIXES[state]} {text}" for state, text in figure.states.items() if state in SUFFIXES])


def legend(parts: list[str]) -> Text:
    """What the characters mean."""
    return Text("  " + "   ".join(parts) if parts else "", style="dim")


def bars_table(figure: Bars, width: int) -> Table:
    """A line a lane: its label, the bar, what it shows."""
    labels = max((len(lane.label) for lane in figure.lanes), default=0) + len(FAULT)
    texts = max((len(text) for lane in figure.lanes for text in (lane.text, marks_said(lane))), default=0)
    bar = max(LEAST_BAR, min(MOST_BAR, width - labels - texts - 4))
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(no_wrap=True, min_width=labels)
    table.add_column(width=bar, no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for lane in figure.lanes:
        label = Text((FAULT if lane.is_at_fault else " " * len(FAULT)) + plain_text(lane.label))
        table.add_row(label, bar_text(figure, lane, bar), Text(plain_text(lane.text)))
        if lane.marks:
            table.add_row("", marks_text(figure, lane, bar), Text(marks_said(lane)))
    return table


def marks_said(lane: Lane) -> str:
    """What is pointed at, in words."""
    return ", ".join(mark.text for mark in lane.marks)


def place(figure: Bars, at: int, bar: int) -> int:
    """Which character of a bar a place on its axis is at; ``bar`` at its end."""
    return min(bar, max(0, (at - figure.begin) * bar // max(1, figure.end - figure.begin)))


def bar_text(figure: Bars, lane: Lane, bar: int) -> Text:
    """The bar: every span at least a character, a later one over an earlier one."""
    glyphs: list[tuple[str, str]] = [(" ", "")] * bar
    for span in lane.spans:
        first = min(bar - 1, place(figure, span.start, bar))
        end = max(first + 1, place(figure, span.start + span.length, bar))
        glyphs[first:end] = [(GLYPHS[span.kind], sequence_style(span.sequence))] * (end - first)
    return Text.assemble(*glyphs)


def marks_text(figure: Bars, lane: Lane, bar: int) -> Text:
    """What is pointed at, below the bar."""
    glyphs: list[tuple[str, str]] = [(" ", "")] * bar
    for mark in lane.marks:
        glyphs[min(bar - 1, place(figure, mark.at, bar))] = (
            {"want": "w", "got": "g"}.get(mark.state, "^"),
            STYLES[mark.state],
        )
    return Text.assemble(*glyphs)


def sequence_style(sequence: int | None) -> str:
    """The colour of a sequence."""
    return "" if sequence is None else SEQUENCE_COLOURS[sequence % len(SEQUENCE_COLOURS)]


def grid_table(figure: Grid, width: int) -> tuple[Table, int]:
    """The grid as a table of as many columns as fit, and how many these are."""
    labels = max((len(row.label) for row in figure.rows), default=0) + len(FAULT) + 2
    widths = [
        max([len(name), *(len(cell_text(row.cells[at])) for row in figure.rows if at < len(row.cells))]) + 1
        for at, name in enumerate(figure.columns)
    ]
    is_heat = figure.is_heat
    if is_heat:  # tiles lie side by side: what columns they are is in the caption
        widths = [1] * len(widths)
    columns = fitting(widths, width - labels)
    table = Table(box=None, show_header=not is_heat, padding=(0, 0 if is_heat else 1, 0, 0), pad_edge=False)
    table.add_column(Text(plain_text(figure.corner)), no_wrap=True)
    for name in figure.columns[:columns]:
        table.add_column(Text(plain_text(name)), no_wrap=True, justify="right")
    for row in figure.rows:
        label = Text((FAULT if row.is_at_fault else " " * len(FAULT)) + plain_text(row.label) + " ")
        table.add_row(label, *cells_of(row, columns))
    return table, columns


def fitting(widths: list[int], room: int) -> int:
    """How many columns fit, at least one.

    >>> fitting([3, 3, 3], 7), fitting([10], 5)
    (2, 1)
    """
    used = count = 0
    for each in widths:
        used += each
        if used > room and count:
            break
        count += 1
    return count


def cells_of(row: Row, columns: int) -> list[Text]:
    """The cells of a row that fit."""
    return [Text(cell_text(cell), style=cell_style(cell)) for cell in row.cells[:columns]]


def cell_text(cell: Cell) -> str:
    """A cell in characters: as it is, as it should be, what it is."""
    if cell.state == "heat" or cell.level:
        return HEAT[cell.level]
    if cell.want:
        return f"{cell.text}, want {cell.want}" if cell.state == "failing" else f"{cell.text}≠{cell.want}"
    return plain_text(cell.text) + SUFFIXES.get(cell.state, "")


def cell_style(cell: Cell) -> str:
    """The colours of a cell: of its state, else of its sequence."""
    return STYLES.get(cell.state) or sequence_style(cell.sequence)
