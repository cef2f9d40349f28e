"""A finding as text, in the order in which an engine developer reads it.

Verdict; field and formula with its text; the batch; the first differing cell, decoded; got and want; how many cells
differ; the command that replays it. Plain text: the command line colours nothing but the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import oracle_config, oracle_sequences
from inputmeta.conformance.check.verdicts import Cell, Finding, declared

SHOWN_ITEMS = 8
"""Array items shown before an ellipsis."""


def describe(finding: Finding, case: Case, command: str, label: str = "") -> str:
    """The whole message of one finding, several lines without a newline at the end. ``label``: how it comes back."""
    return "\n".join(_lines(finding, case, command, label))


def _lines(finding: Finding, case: Case, command: str, label: str) -> Iterator[str]:
    yield f"{finding.verdict}: {finding.detail}"
    yield from (f"  {'' if index else 'raised':8} {frame}" for index, frame in enumerate(finding.frames))
    yield from formula_lines(finding, case)
    yield from batch_lines(case, finding.step)
    if finding.cell is not None and finding.key is not None:
        yield f"  cell     {locate(case, finding.step, finding.key, finding.cell)}"
        yield f"  got      {finding.cell.got}"
        yield f"  want     {finding.cell.want}"
        yield f"  differ   {finding.differing} of {finding.compared} defined cells of {finding.key}"
    if label:
        yield f"  label    {label}"
    yield f"  replay   {command}"


def formula_lines(finding: Finding, case: Case) -> Iterator[str]:
    """The field, its shape, and the text of the formula or precondition behind it."""
    if finding.key is not None:
        field = declared(finding.key)
        shape = field.layout(case.path, oracle_config(case.config)).shape
        yield f"  field    {finding.key}  {field.dtype}[{', '.join(shape)}]"
    text = oracle.FORMULAS.get(finding.formula) or oracle.PRECONDITIONS.get(finding.formula)
    if text:
        first, *rest = text.splitlines()
        yield f"  formula  {finding.formula}  {first}"
        yield from (f"           {line}" for line in rest)


def batch_lines(case: Case, step: int) -> Iterator[str]:
    """The configuration and the sequences of one step; defaults left out."""
    where = f", step {step} of {len(case.steps)}" if len(case.steps) > 1 else ""
    yield f"  batch    {case.path}{where}: {brief(case.config)}"
    for index, sequence in enumerate(case.steps[step]):
        yield f"           sequence {index}: {brief(sequence)}"
    if case.gather and case.gather[step] is not None:
        yield f"           gather: {brief(case.gather[step])}"


def brief(struct: object) -> str:
    """A struct's values that differ from their defaults, long arrays cut.

    >>> from inputmeta.conformance.cases.model import Sequence
    >>> brief(Sequence(seqlen_q=1, seqlen_k=12, token_ids=tuple(range(12))))
    'seqlen_q=1 seqlen_k=12 token_ids=[0 1 2 3 4 5 6 7 … 12 items]'
    """
    names: tuple[str, ...] = struct.__struct_fields__  # type: ignore[attr-defined]
    defaults = struct.__struct_defaults__  # type: ignore[attr-defined]
    default_of = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    shown = ((name, getattr(struct, name)) for name in names)
    return " ".join(f"{name}={_value(value)}" for name, value in shown if default_of.get(name, _NONE) != value)


_NONE = object()


def _value(value: object) -> str:
    if not isinstance(value, tuple):
        return str(value)
    items = " ".join(_value(item) for item in value[:SHOWN_ITEMS])
    return f"[{items} … {len(value)} items]" if len(value) > SHOWN_ITEMS else f"[{items}]"


def locate(case: Case, step: int, key: str, cell: Cell) -> str:
    """A cell's index in words: sequence, row, position, ratio, column, as far as the field has them."""
    field = declared(key)
    if not cell.index:
        return "the scalar"
    row = cell.index[0]
    kind = field.layout(case.path, oracle_config(case.config)).rows
    parts = [row_text(case, step, kind, key, row)]
    ratio = key.partition(".")[2]
    if ratio:
        parts.append(f"ratio {ratio}")
    if len(cell.index) > 1:
        column = cell.index[1]
        parts.append(f"column {column}" + (f" ({field.columns[column]})" if field.columns else ""))
    return f"[{', '.join(map(str, cell.index))}]: " + ", ".join(part for part in parts if part)


def row_text(case: Case, step: int, kind: str, key: str, row: int) -> str:
    """What a row of a field stands for, by the kind of rows that its declaration gives."""
    sequences = oracle_sequences(case.steps[step])
    if kind == "query":
        return query_row_text(sequences, row)
    if kind == "mirror":
        return mirror_row_text(case, sequences, row)
    if kind == "sequence":
        return f"sequence {row}"
    if kind == "boundary":
        return f"boundary {row} of {len(sequences)} sequences"
    if kind == "compressed":
        return compressed_row_text(sequences, row, int(key.partition(".")[2]))
    return f"{kind} row {row}"


def query_row_text(sequences: Sequence[oracle.SequenceMetadata], row: int) -> str:
    """A global query row as sequence, row in the sequence and absolute position."""
    start = 0
    for index, sequence in enumerate(sequences):
        if row < start + sequence.seqlen_q:
            j = row - start
            return f"sequence {index}, row {j}, position {sequence.seqlen_k - sequence.seqlen_q + j}"
        start += sequence.seqlen_q
    return "the neutral row"


def mirror_row_text(case: Case, sequences: Sequence[oracle.SequenceMetadata], row: int) -> str:
    """A row of this rank's mirror as the query row that it stands for."""
    index = oracle.expected_fields(case.path, oracle_config(case.config), sequences, expand=())["mirror_cp_index"].cells
    query = index[row]
    if query is None or query < 0:
        return f"mirror row {row}, padding"
    return f"mirror row {row}, {query_row_text(sequences, query)}"


def compressed_row_text(sequences: Sequence[oracle.SequenceMetadata], row: int, ratio: int) -> str:
    """A row of compressed tokens of a prompt as sequence and compressed token."""
    start = 0
    for index, sequence in enumerate(sequences):
        first, end = (sequence.seqlen_k - sequence.seqlen_q) // ratio, sequence.seqlen_k // ratio
        count = max(1, end - first)
        if row < start + count:
            token = f"compressed token {first + row - start}" if end > first else "the row of an empty range"
            return f"sequence {index}, {token}"
        start += count
    return f"row {row}"
