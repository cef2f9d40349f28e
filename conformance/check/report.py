"""A finding as text, in the order in which an engine developer reads it.

Verdict; field and formula with its text; the batch; the first differing cell, decoded; got and want; how many cells
differ; the command that replays it. Plain text: the command line colours nothing but the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case, oracle_config, oracle_sequences
from inputmeta.conformance.cases.model import Sequence as CaseSequence
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.check.verdicts import Cell, Finding, declared

SHOWN_ITEMS = 8
"""Array items shown before an ellipsis."""
FEW_ITEMS = 2
"""Of a sequence that is shown for being beside the one at fault."""
MOST_SEQUENCES = 8
"""Sequences of a step that are all shown; of more, those at fault and their neighbours."""
MOST_STEPS = 8
"""Steps of a history that are shown: the last ones."""
MOST_NAMES = 8
"""Fields that are named where any number may follow."""


def describe(finding: Finding, case: Case, command: str, label: str = "", follow: Sequence[Finding] = ()) -> str:
    """The whole message of one finding, several lines without a newline at the end.

    ``label``: how it comes back. ``follow``: findings on fields that are computed from this one.
    """
    return "\n".join(_lines(finding, case, command, label, follow))


def describe_briefly(finding: Finding, case: Case, label: str = "", follow: Sequence[Finding] = ()) -> str:
    """The message of a further finding on a case that was described: the field, the cell, how it comes back."""
    lines = [f"{finding.verdict}: {finding.detail}, on the same batch"]
    if finding.key is not None:
        lines += [f"  field    {finding.key}  {finding.formula}"]
    if finding.cell is not None and finding.key is not None:
        values = f"got {finding.cell.got}, want {finding.cell.want}"
        counts = f"{finding.differing} of {finding.compared} defined cells differ"
        lines += [f"  cell     {locate(case, finding.step, finding.key, finding.cell)}: {values}; {counts}"]
    lines += follow_lines(finding, follow)
    return "\n".join([*lines, *([f"  label    {label}"] if label else [])])


def _lines(finding: Finding, case: Case, command: str, label: str, follow: Sequence[Finding]) -> Iterator[str]:
    yield f"{finding.verdict}: {finding.detail}"
    yield from (f"  {'' if index else 'raised':8} {frame}" for index, frame in enumerate(finding.frames))
    yield from formula_lines(finding, case)
    yield from follow_lines(finding, follow)
    yield from batch_lines(case, finding)
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
    if finding.field in oracle.KEY_SETS:
        yield f"  key set  {finding.key}  int64[pairs, 3]: row, sequence, position"
    elif finding.key is not None:
        field = declared(finding.key)
        shape = field.layout(case.path, oracle_config(case.config)).shape
        yield f"  field    {finding.key}  {field.dtype}[{', '.join(shape)}]"
    texts = oracle.FORMULAS | oracle.PRECONDITIONS | oracle.ALLOCATION | oracle.PROMISES
    text = texts.get(finding.formula)
    if text:
        first, *rest = text.splitlines()
        yield f"  formula  {finding.formula}  {first}"
        yield from (f"           {line}" for line in rest)


def follow_lines(finding: Finding, follow: Sequence[Finding]) -> Iterator[str]:
    """Which fields follow from a wrong one."""
    names = list(dict.fromkeys(other.field or "" for other in follow))
    if names:
        shown = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
        count = "1 field follows" if len(names) == 1 else f"{len(names)} fields follow"
        yield f"  root     {finding.formula}; {count} from it: {shown}"


def batch_lines(case: Case, finding: Finding) -> Iterator[str]:
    """The configuration and the sequences of the finding's step; defaults left out.

    Of many sequences those at fault, marked, and their neighbours; the others are counted.
    """
    step = finding.step
    yield from history_lines(case, step)
    where = f", step {step} of {len(case.steps)}" if len(case.steps) > 1 else ""
    yield f"  batch    {case.path}{where}: {brief(case.config)}"
    sequences = case.steps[step]
    if len(sequences) <= MOST_SEQUENCES:
        for index, sequence in enumerate(sequences):
            yield f"           sequence {index}: {brief(sequence)}"
    else:
        yield from _chosen_sequences(sequences, sequences_at_fault(case, finding))
    if case.gather and case.gather[step] is not None:
        yield f"           gather: {brief(case.gather[step])}"
    if case.out_fault is not None:
        yield f"           out: {case.out_fault.key} is {case.out_fault.fault}"


def history_lines(case: Case, step: int) -> Iterator[str]:
    """Of a case with an allocation: the pool, and the requests of the steps up to this one, with their positions."""
    plan = case.allocation
    if plan is None:
        return
    yield f"  pool     {plan.num_blocks} blocks, {plan.num_states} state slots"
    begin = max(0, step + 1 - MOST_STEPS)
    yield from (f"  history  … {count} steps" for count in [begin] if count)
    for index in range(begin, step + 1):
        pairs = zip(plan.steps[index].requests, case.steps[index], strict=True)
        rows = [f"{request} [{s.seqlen_k - s.seqlen_q}, {s.seqlen_k})" for request, s in pairs if request >= 0]
        ended = f"ended {', '.join(map(str, plan.steps[index].ended))}; " if plan.steps[index].ended else ""
        head = "history " if index == 0 else ""
        yield f"  {head:8} step {index}: {ended}requests {', '.join(rows) or 'none'}"


def _chosen_sequences(sequences: Sequence[CaseSequence], at_fault: Sequence[int]) -> Iterator[str]:
    """Lines of the first sequences at fault and of those beside them, and counts of the others."""
    marked = set(at_fault[:1])
    near = {index + offset for index in marked or {0} for offset in (-1, 0, 1)}
    begin = 0
    for index in [*sorted(near & set(range(len(sequences)))), len(sequences)]:
        if index > begin:
            rows = sum(max(0, sequence.seqlen_q) for sequence in sequences[begin:index])
            yield f"           … {index - begin} sequences, {rows} query rows"
        if index < len(sequences):
            items = SHOWN_ITEMS if index in marked else FEW_ITEMS
            yield f"         {'>' if index in marked else ' '} sequence {index}: {brief(sequences[index], items)}"
        begin = index + 1
    if len(at_fault) > 1:
        yield f"           at fault too: {len(at_fault) - 1} sequences, {at_fault[1]} the first"


def sequences_at_fault(case: Case, finding: Finding) -> list[int]:
    """The sequence of the first differing cell, or those that break the precondition; empty if it is not known."""
    if finding.cell is not None and finding.key is not None and finding.cell.index:
        index = sequence_of_row(case, finding.step, finding.key, finding.cell.index[0])
        return [] if index is None else [index]
    if finding.sequence is not None:
        return [finding.sequence]
    broken = step_request(case, finding.step).violations() if finding.formula in oracle.PRECONDITIONS else []
    found = {error.sequence for error in broken if error.condition == finding.formula}
    return sorted(index for index in found if index is not None)


def sequence_of_row(case: Case, step: int, key: str, row: int) -> int | None:
    """The sequence that a row of a field belongs to; None where its kind of rows does not tell."""
    kind = declared(key).layout(case.path, oracle_config(case.config)).rows
    sequences = oracle_sequences(case.steps[step])
    if kind == "mirror":
        query = mirrored_query(case, sequences, row)
        return None if query is None else query_place(sequences, query)[0]
    if kind == "query":
        return query_place(sequences, row)[0]
    if kind == "compressed":
        return compressed_place(sequences, row, int(key.partition(".")[2]))[0]
    if kind == "sequence":
        return min(row, len(sequences) - 1)
    return max(0, row - 1) if kind == "boundary" else None


def brief(struct: object, items: int = SHOWN_ITEMS) -> str:
    """A struct's values that differ from their defaults, arrays cut after so many ``items``.

    >>> from inputmeta.conformance.cases.model import Sequence
    >>> brief(Sequence(seqlen_q=1, seqlen_k=12, token_ids=tuple(range(12))))
    'seqlen_q=1 seqlen_k=12 token_ids=[0 1 2 3 4 5 6 7 … 12 items]'
    """
    names: tuple[str, ...] = struct.__struct_fields__  # type: ignore[attr-defined]
    defaults = struct.__struct_defaults__  # type: ignore[attr-defined]
    default_of = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    shown = ((name, getattr(struct, name)) for name in names)
    return " ".join(f"{name}={_value(value, items)}" for name, value in shown if default_of.get(name, _NONE) != value)


_NONE = object()


def _value(value: object, items: int) -> str:
    if not isinstance(value, tuple):
        return str(value)
    shown = " ".join(_value(item, items) for item in value[:items])
    return f"[{shown} … {len(value)} items]" if len(value) > items else f"[{shown}]"


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
    index, j = query_place(sequences, row)
    if index is None:
        return "the neutral row"
    return f"sequence {index}, row {j}, position {sequences[index].seqlen_k - sequences[index].seqlen_q + j}"


def query_place(sequences: Sequence[oracle.SequenceMetadata], row: int) -> tuple[int | None, int]:
    """The sequence of a global query row, None of the neutral row, and the row in it."""
    start = 0
    for index, sequence in enumerate(sequences):
        if row < start + sequence.seqlen_q:
            return index, row - start
        start += sequence.seqlen_q
    return None, 0


def mirror_row_text(case: Case, sequences: Sequence[oracle.SequenceMetadata], row: int) -> str:
    """A row of this rank's mirror as the query row that it stands for."""
    query = mirrored_query(case, sequences, row)
    if query is None:
        return f"mirror row {row}, padding"
    return f"mirror row {row}, {query_row_text(sequences, query)}"


def mirrored_query(case: Case, sequences: Sequence[oracle.SequenceMetadata], row: int) -> int | None:
    """The query row that a row of this rank's mirror stands for; None for padding."""
    index = oracle.expected_fields(case.path, oracle_config(case.config), sequences, expand=())["mirror_cp_index"].cells
    query = index[row]
    return None if query is None or query < 0 else query


def compressed_row_text(sequences: Sequence[oracle.SequenceMetadata], row: int, ratio: int) -> str:
    """A row of compressed tokens of a prompt as sequence and compressed token."""
    index, token = compressed_place(sequences, row, ratio)
    if index is None:
        return f"row {row}"
    return f"sequence {index}, " + ("the row of an empty range" if token is None else f"compressed token {token}")


def compressed_place(
    sequences: Sequence[oracle.SequenceMetadata], row: int, ratio: int
) -> tuple[int | None, int | None]:
    """The sequence of a row of compressed tokens of a prompt, None past the last; and the token, None of no token."""
    start = 0
    for index, sequence in enumerate(sequences):
        first, end = (sequence.seqlen_k - sequence.seqlen_q) // ratio, sequence.seqlen_k // ratio
        count = max(1, end - first)
        if row < start + count:
            return index, first + row - start if end > first else None
        start += count
    return None, None
