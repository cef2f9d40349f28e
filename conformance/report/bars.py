"""Figures that are bars: the sequences of a step, the key ranges of its rows, the zigzag by rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from inputmeta import oracle
from inputmeta.conformance.check.report import query_place
from inputmeta.conformance.check.verdicts import declared, field_name
from inputmeta.conformance.report.model import Bars, Kind, Lane, Mark, Span, shown
from inputmeta.conformance.report.scene import Scene
from inputmeta.oracle.mirror import block_rows, mirror_begins, mirror_block_length, owned_blocks
from inputmeta.oracle.units import Rank, Token

MOST_ROWS = 24
MOST_RANKS = 8
RANGES = {"ks": True, "ke": True, "klen": True, "kv_ca_index_offset_len": False, "kv_ca_index_len": False}
"""Fields that the stairs are made of, and whether these are of a sparse ratio."""
LENGTHS = ("klen", "kv_ca_index_len")


def sequence_bars(scene: Scene) -> Bars:
    """A bar a sequence along its positions: history, chunk, drafts, padding; the row at fault is marked."""
    lanes = [sequence_lane(scene, index, sequence) for index, sequence in scene.drawn]
    return Bars(
        title="Sequences",
        text="Positions of each sequence: what earlier steps left, what this one adds.",
        unit="positions",
        begin=0,
        end=max([1, *(span.start + span.length for lane in lanes for span in lane.spans)]),
        lanes=tuple(lanes),
        left_out=scene.shown.left_out("sequences"),
    )


def sequence_lane(scene: Scene, index: int, sequence: oracle.SequenceMetadata) -> Lane:
    """The bar of one sequence."""
    marks = []
    if scene.query is not None:
        at, row = query_place(scene.sequences, scene.query)
        if at == index:
            position = sequence.seqlen_k - sequence.seqlen_q + row
            marks.append(Mark(position, "failing", f"position {position}"))
    said = [f"{sequence.seqlen_k - sequence.seqlen_q} + {sequence.seqlen_q}", f"state {sequence.state_id}"]
    said += ["placeholder"] * sequence.is_placeholder
    said += [f"trusted from {sequence.swa_valid_start}"] * (sequence.swa_valid_start > 0)
    said += [f"data_len {sequence.data_len}"] * (scene.config.yoco_mode != "off")
    said += [f"breaks {error.condition}: {error.field}" for error in scene.broken if error.sequence == index][:1]
    spans = tuple(span for span in sequence_spans(scene, index, sequence) if span.length > 0)
    return Lane(f"sequence {index}", ", ".join(said), spans, tuple(marks), index in scene.at_fault)


def sequence_spans(scene: Scene, index: int, sequence: oracle.SequenceMetadata) -> Iterator[Span]:
    """The parts of a sequence, some of them empty."""
    rows = max(0, sequence.seqlen_q)
    begin, end = max(0, sequence.seqlen_k - rows), max(0, sequence.seqlen_k)
    untrusted = min(max(0, sequence.swa_valid_start), begin)
    yield Span(0, untrusted, "untrusted", f"history {part(0, untrusted)}, not to be trusted in the ring", index)
    yield Span(untrusted, begin - untrusted, "history", f"history {part(untrusted, begin)}", index)
    if scene.case.path == "prompt":
        kind: Kind = "placeholder" if sequence.is_placeholder else "chunk"
        yield Span(begin, end - begin, kind, f"{kind} {part(begin, end)}", index)
        if scene.config.cp_size > 1:
            padding = 2 * scene.config.cp_size * mirror_block_length(Token(rows), scene.config.cp_size) - rows
            yield Span(end, padding, "padding", f"{padding} rows of padding on all ranks")
        return
    kept = rows
    gather = scene.case.gather[scene.step] if scene.case.gather else None
    if gather is not None and gather.varlen is not None and index < len(gather.varlen.seqlens_q):
        kept = min(rows, max(0, gather.varlen.seqlens_q[index]))
    first = min(1, kept)
    yield Span(begin, first, "placeholder" if sequence.is_placeholder else "chunk", f"row at position {begin}", index)
    yield Span(begin + first, kept - first, "draft", f"drafts {part(begin + first, begin + kept)}", index)
    yield Span(begin + kept, rows - kept, "padding", f"{rows - kept} extracted rows that the step leaves out")


def part(begin: int, end: int) -> str:
    """A range in words.

    >>> part(3, 7), part(3, 4)
    ('3 to 6', '3')
    """
    return f"{begin} to {end - 1}" if end - begin > 1 else str(begin)


def stairs(scene: Scene) -> Bars | None:
    """The compressed keys that each row of a prompt sees; None where a batch has none, or is not valid.

    Of many rows some are shown, evenly spread over the shown sequences, the one at fault among them.
    """
    if scene.case.path != "prompt" or scene.broken:
        return None
    first = sum(sequence.seqlen_q for sequence in scene.sequences[: scene.shown.first])
    total = sum(sequence.seqlen_q for _, sequence in scene.drawn)
    ranges = ranges_of(scene)
    if ranges is None or not total:
        return None
    rows = spread(first, total, scene.query)
    begins, name = key_ranges(scene, rows, ranges)
    lanes = []
    for row, (begin, end) in zip(rows, begins, strict=True):
        sequence, offset = query_place(scene.sequences, row)
        position = scene.sequences[sequence or 0].seqlen_k - scene.sequences[sequence or 0].seqlen_q + offset
        seen = f"keys {part(begin, end)}" if end > begin else f"no key, at {begin}"
        spans = (Span(begin, end - begin, "keys", seen, sequence),) if end > begin else ()
        label = f"sequence {sequence}, row {offset}"
        marks = range_marks(scene, begin) if row == scene.query else ()
        lanes.append(Lane(label, f"position {position}: {seen}", spans, marks, row == scene.query))
    places = [mark.at for lane in lanes for mark in lane.marks]
    return Bars(
        title=f"Key ranges: {name}",
        text="Rows of the buffer of compressed keys that each query row sees.",
        unit="key rows",
        begin=min([*(begin for begin, _ in begins), *places]),
        end=max([1, *(end for _, end in begins), *(place + 1 for place in places)]),
        lanes=tuple(lanes),
        left_out=f"{len(rows)} of {total:,} rows" if len(rows) < total else scene.shown.left_out("sequences"),
    )


def ranges_of(scene: Scene) -> tuple[int, bool] | None:
    """The ratio whose ranges are drawn, and whether it is a sparse one: the finding's, else the smallest."""
    key = (scene.finding.key if scene.finding is not None else None) or ""
    config = scene.config
    if field_name(key) in RANGES:
        return int(key.partition(".")[2]), RANGES[field_name(key)]
    if config.sparse:
        return config.sparse[0], True
    return (config.dense[0], False) if config.dense else None


def key_ranges(scene: Scene, rows: list[int], ranges: tuple[int, bool]) -> tuple[list[tuple[int, int]], str]:
    """First key and one past the last of some query rows, by the oracle; and the fields that say so."""
    ratio, is_sparse = ranges
    whole = dataclasses.replace(scene.config, cp_size=1, cp_rank=0, yoco_mode="off")  # as before any mirror
    fields = oracle.expected_fields("prompt", whole, scene.sequences, rows=rows, expand=(), is_valid=True)
    if is_sparse:
        pairs = zip(fields[f"ks.{ratio}"].cells, fields[f"ke.{ratio}"].cells, strict=True)
        return [(int(begin or 0), int(end or 0)) for begin, end in pairs], f"ks.{ratio} to ke.{ratio}"
    key = f"kv_ca_index_offset_len.{ratio}"
    cells = [int(cell or 0) for cell in fields[key].cells]
    return [(begin, begin + length) for begin, length in zip(cells[::2], cells[1::2], strict=True)], key


def range_marks(scene: Scene, begin: int) -> tuple[Mark, ...]:
    """Where the first differing cell has an end of the range, and where it should have it."""
    finding = scene.finding
    if finding is None or finding.cell is None or field_name(finding.key or "") not in RANGES:
        return ()
    column = finding.cell.index[1] if len(finding.cell.index) > 1 else 0
    is_length = field_name(finding.key or "") in LENGTHS or column == 1
    base = begin if is_length else 0
    want, got = int(finding.cell.want), int(finding.cell.got)
    return Mark(base + want, "want", f"want {want}"), Mark(base + got, "got", f"got {got}")


def spread(first: int, total: int, at: int | None) -> list[int]:
    """At most :data:`MOST_ROWS` of ``total`` rows from ``first`` on, the first, the last and ``at`` among them.

    >>> spread(3, 4, None), len(spread(0, 10_000, 777)), 777 in spread(0, 10_000, 777)
    ([3, 4, 5, 6], 24, True)
    """
    most = min(total, MOST_ROWS)
    steps = max(1, most - 1)
    rows = {first + place * (total - 1) // steps for place in range(most)}
    if at is not None and first <= at < first + total and at not in rows:
        rows.discard(min(rows - {first, first + total - 1}, key=lambda row: abs(row - at)))
        rows.add(at)
    return sorted(rows)


def zigzag(scene: Scene) -> Bars | None:
    """A bar a rank along its mirrored rows: which rows of each chunk it owns; None without context parallelism."""
    config = scene.config
    if scene.case.path != "prompt" or config.cp_size <= 1 or scene.broken:
        return None
    begins = mirror_begins([Token(sequence.seqlen_q) for sequence in scene.sequences], config.cp_size)
    ranks = shown(config.cp_size, MOST_RANKS, config.cp_rank)
    lanes = [
        Lane(
            f"rank {rank}" + " (this one)" * (rank == config.cp_rank),
            rank_text(scene, rank),
            tuple(rank_spans(scene, rank, begins)),
            mirror_marks(scene, rank, begins[-1]),
            rank == config.cp_rank,
        )
        for rank in range(ranks.first, ranks.end)
    ]
    left = [scene.shown.left_out("sequences"), ranks.left_out("ranks")]
    return Bars(
        title="Zigzag by rank",
        text="Mirrored rows of each rank: of every chunk its block and the opposite one, then padding.",
        unit="mirrored rows",
        begin=begins[scene.shown.first],
        end=max(begins[scene.shown.end], begins[scene.shown.first] + 1),
        lanes=tuple(lanes),
        left_out="; ".join(text for text in left if text),
    )


def rank_text(scene: Scene, rank: int) -> str:
    """What a rank owns, in words."""
    size = scene.config.cp_size
    first, second = owned_blocks(Rank(rank), size)
    lengths = [Token(sequence.seqlen_q) for _, sequence in scene.drawn]
    own = sum(
        len(block_rows(block, mirror_block_length(length, size), length))
        for length in lengths
        for block in (first, second)
    )
    return f"blocks {first} and {second}, {own} rows"


def rank_spans(scene: Scene, rank: int, begins: list[int]) -> Iterator[Span]:
    """The blocks of a rank, chunk by chunk, each with its padding behind."""
    for index, sequence in scene.drawn:
        length = Token(sequence.seqlen_q)
        size = mirror_block_length(length, scene.config.cp_size)
        for place, block in enumerate(owned_blocks(Rank(rank), scene.config.cp_size)):
            rows = block_rows(block, size, length)
            start = begins[index] + place * size
            if rows:
                text = f"sequence {index}, rows {part(rows.start, rows.stop)}"
                yield Span(start, len(rows), "rows", text, index)
            if len(rows) < size:
                yield Span(start + len(rows), size - len(rows), "padding", f"{size - len(rows)} rows of padding")


def mirror_marks(scene: Scene, rank: int, mirror_len: int) -> tuple[Mark, ...]:
    """The first differing cell on the rank that it belongs to; of the reverse index where it points."""
    finding = scene.finding
    if finding is None or finding.cell is None or finding.key is None or not finding.cell.index:
        return ()
    marks = []
    if finding.key == "mirror_cp_reverse_index":
        for state, value in (("want", int(finding.cell.want)), ("got", int(finding.cell.got))):
            if value >= 0 and value // max(1, mirror_len) == rank:
                marks.append(Mark(value % mirror_len, "want" if state == "want" else "got", f"{state} {value}"))
    elif rank == scene.config.cp_rank and declared(finding.key).layout("prompt", scene.config).rows == "mirror":
        row = finding.cell.index[0]
        marks.append(Mark(row, "failing", f"mirrored row {row}"))
    return tuple(marks)
