"""Pictures of cases: what is marked, what is left out, and the same in a terminal."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from rich.console import Console

from inputmeta import oracle
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.cases.model import Case, oracle_config, oracle_sequences
from inputmeta.conformance.check.evidence import WINDOW
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.report.bars import MOST_RANKS, MOST_ROWS
from inputmeta.conformance.report.grids import MOST_COLUMNS
from inputmeta.conformance.report.model import Bars, Cell, Figure, Grid
from inputmeta.conformance.report.picture import Picture, picture_of
from inputmeta.conformance.report.scene import MOST_SEQUENCES
from inputmeta.conformance.report.terminal import drawn

from .cases import DECODE, FAILING, MANY, PROMPT, ZIGZAG, finding_on, findings_of


def figures(picture: Picture) -> dict[str, Figure]:
    """By the first word of their titles."""
    return {figure.title.split(" ")[0].strip(":"): figure for figure in picture.figures}


def marked(grid: Figure, state: str) -> list[tuple[str, str, Cell]]:
    """Rows and columns of the cells of a state."""
    assert isinstance(grid, Grid)
    return [
        (row.label, name, cell)
        for row in grid.rows
        for name, cell in zip(grid.columns, row.cells, strict=False)
        if cell.state == state
    ]


def bars(figure: Figure) -> Bars:
    assert isinstance(figure, Bars)
    return figure


def test_every_step_of_the_corpus_can_be_drawn_within_its_bounds() -> None:
    kinds, count = set(), 0
    for _, case in load_corpus(bundled_corpus()):
        for step in range(len(case.steps)):
            count += 1
            for figure in picture_of(case, step).figures:
                if isinstance(figure, Bars):
                    assert len(figure.lanes) <= max(MOST_SEQUENCES, MOST_ROWS, MOST_RANKS)
                    spans = [span for lane in figure.lanes for span in lane.spans]
                    assert all(figure.begin <= s.start and s.start + s.length <= figure.end and s.length for s in spans)
                    kinds |= figure.kinds.keys()
                else:
                    assert len(figure.rows) <= MOST_SEQUENCES
                    assert len(figure.columns) <= MOST_COLUMNS
    assert count > 300
    assert kinds == {"history", "untrusted", "chunk", "draft", "padding", "placeholder", "keys", "rows"}


def test_a_wrong_slot_is_marked_in_its_field_in_the_ring_and_on_its_sequence() -> None:
    found = finding_on(PROMPT, "F-RING.lost-modulo", "slot_mapping_store_swa")
    shown = figures(picture_of(PROMPT, 0, found))
    assert found.cell is not None
    ((row, _, cell),) = marked(shown["Cells"], "failing")
    assert (cell.text, cell.want) == (str(found.cell.got), str(found.cell.want))
    assert row == "sequence 0, row 0, position 9"
    # state 1, B = 6: position 9 belongs into cell 3; without the modulo it is at 1 * 6 + 9 = 15, cell 3 of state 2
    ((want_row, want_slot, _),) = marked(shown["Window"], "want")
    ((got_row, got_slot, _),) = marked(shown["Window"], "got")
    assert (want_row, want_slot) == ("sequence 0, state 1", "3")
    assert (got_row, got_slot) == ("sequence 1, state 2", "3")
    lanes = bars(shown["Sequences"]).lanes
    assert [lane.is_at_fault for lane in lanes] == [True, False, False]
    assert [mark.at for mark in lanes[0].marks] == [9]
    assert [span.kind for span in lanes[2].spans] == ["untrusted", "history", "chunk"]
    assert [span.kind for span in lanes[1].spans] == ["placeholder"]


@pytest.mark.parametrize("case", [PROMPT, DECODE])
def test_a_ring_holds_what_the_oracle_stores(case: Case) -> None:
    size = case.config.swa_block_size
    fields = oracle.expected_fields(case.path, oracle_config(case.config), oracle_sequences(case.steps[0]), expand=())
    slots, positions = fields["slot_mapping_store_swa"].cells, fields["positions"].cells
    stored = {divmod(slot, size): position for slot, position in zip(slots, positions, strict=True) if slot >= 0}
    ring = figures(picture_of(case, 0))["Window"]
    shown = {(int(row.rpartition(" ")[2]), int(slot)): int(cell.text) for row, slot, cell in marked(ring, "stored")}
    assert shown == stored
    assert isinstance(ring, Grid)
    for row, sequence in zip(ring.rows, case.steps[0], strict=True):
        held = [int(cell.text) for cell in row.cells if cell.text]
        end = sequence.seqlen_k - sequence.seqlen_q * sequence.is_placeholder
        assert sorted(held) == list(range(max(0, end - size), end))


def test_a_wrong_block_is_marked_in_the_table() -> None:
    found = finding_on(DECODE, "F-CAOFF.identity-table", "kv_ca_index.2")
    shown = figures(picture_of(DECODE, 0, found))
    ((row, column, cell),) = marked(shown["Block"], "want")
    assert (row, column, cell.text) == ("sequence 0", "0", "8")
    grid = shown["Block"]
    assert isinstance(grid, Grid)
    assert "want block 8, cell 0, got block 0, cell 0" in grid.text
    kinds = [span.kind for span in bars(shown["Sequences"]).lanes[0].spans]
    assert kinds == ["history", "chunk", "draft"]


def test_a_wrong_end_of_a_key_range_is_a_wrong_stair() -> None:
    found = finding_on(PROMPT, "F-KS.key-plus-one", "ke.4")
    ranges = bars(figures(picture_of(PROMPT, 0, found))["Key"])
    (lane,) = [lane for lane in ranges.lanes if lane.marks]
    assert [(mark.state, mark.at) for mark in lane.marks] == [
        ("want", int(found.cell.want)),
        ("got", int(found.cell.got)),
    ]
    assert lane.spans[0].start + lane.spans[0].length == found.cell.want
    ends = [span.start + span.length for each in ranges.lanes[:5] for span in each.spans]
    assert ends == sorted(ends)


def test_ranks_own_every_row_once_and_the_wrong_row_is_on_this_one() -> None:
    found = finding_on(ZIGZAG, "F-ZIGZAG.swapped", "mirror_cp_index")
    lanes = bars(figures(picture_of(ZIGZAG, 0, found))["Zigzag"]).lanes
    assert [lane.is_at_fault for lane in lanes] == [False, True, False]
    assert [len(lane.marks) for lane in lanes] == [0, 1, 0]
    for rank, lane in enumerate(lanes):
        config = dataclasses.replace(oracle_config(ZIGZAG.config), cp_rank=rank)
        sequences = oracle_sequences(ZIGZAG.steps[0])
        wanted = oracle.expected_fields("prompt", config, sequences, expand=())["mirror_cp_index"].cells
        places = {"padding": [], "rows": []}
        for span in lane.spans:
            places[span.kind] += range(span.start, span.start + span.length)
        assert places["padding"] == [place for place, row in enumerate(wanted) if row == -1]
        assert places["rows"] == [place for place, row in enumerate(wanted) if row != -1]
    rows = [span.length for lane in lanes for span in lane.spans if span.kind == "rows"]
    padding = [span.length for lane in lanes for span in lane.spans if span.kind == "padding"]
    assert (sum(rows), sum(padding)) == (18, 6)
    by_index = finding_on(ZIGZAG, "F-REVERSE.owner-stride", "mirror_cp_reverse_index")
    again = bars(figures(picture_of(ZIGZAG, 0, by_index))["Zigzag"]).lanes
    assert sorted(mark.state for lane in again for mark in lane.marks) in (["want"], ["got", "want"])


def test_a_heat_map_has_every_cell_that_differs() -> None:
    for case, mutant in FAILING.values():
        for found in findings_of(case, mutant):
            assert found.evidence is not None
            assert sum(map(sum, found.evidence.heat)) == found.differing
            grid = figures(picture_of(case, 0, found))["Where"]
            tiles = [int(cell.note.split(": ")[1].split(" ")[0]) for _, _, cell in marked(grid, "heat")]
            assert sum(tiles) == found.differing
            assert 0 not in tiles
            assert isinstance(grid, Grid)
            assert {len(row.cells) for row in grid.rows} == {len(grid.columns)}


@pytest.mark.slow
def test_of_many_sequences_those_at_fault_are_shown_and_the_others_counted() -> None:
    case, found = MANY, finding_on(MANY, "F-SWADEC.full-window", "kv_swa_index_offset_len")
    picture = picture_of(case, 0, found)
    shown = figures(picture)
    assert bars(shown["Sequences"]).left_out == "sequences 2492 to 2507 of 4,000"
    assert [lane.label for lane in bars(shown["Sequences"]).lanes if lane.is_at_fault] == ["sequence 2500"]
    cells, heat = shown["Cells"], shown["Where"]
    assert isinstance(cells, Grid)
    assert isinstance(heat, Grid)
    assert [row for row, _, _ in marked(cells, "failing")] == ["sequence 2500, row 0, position 2"]
    assert (len(cells.rows), cells.left_out) == (WINDOW[0], "12 of 4,000 rows")
    assert [cell.note for _, _, cell in marked(heat, "heat")] == [
        "rows 2338 to 2504, column 0: 1 of 167 differ",
        "rows 2338 to 2504, column 1: 1 of 167 differ",
    ]
    assert len(msgspec.json.encode(found)) < 10_000


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("name", FAILING)
def test_a_terminal_shows_the_same_and_no_line_is_wider(name: str, width: int) -> None:
    case, mutant = FAILING[name]
    found = findings_of(case, mutant)[0]
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(drawn(picture_of(case, 0, found), width))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.startswith("> ") for line in lines)
    assert found.cell is not None
    assert any(f"{int(found.cell.got)}, want {int(found.cell.want)}" in line for line in lines)


def test_a_step_that_is_refused_says_which_sequence_breaks_what() -> None:
    broken = msgspec.structs.replace(PROMPT.steps[0][1], seqlen_q=2**62)
    case: Case = msgspec.structs.replace(PROMPT, steps=((PROMPT.steps[0][0], broken),))
    picture = picture_of(case, 0, Finding(verdict="ACCEPTED", step=0, key=None, formula="P-LEN", detail=""))  # type: ignore[arg-type]
    assert "breaks P-LEN" in picture.title
    lanes = bars(figures(picture)["Sequences"]).lanes
    assert [lane.is_at_fault for lane in lanes] == [False, True]
    assert "breaks P-LEN: seqlen_q" in lanes[1].text
    assert "Window" not in figures(picture)
