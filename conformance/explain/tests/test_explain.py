"""The instrumented oracle computes what the oracle does, and every cell of the corpus leads back to its inputs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.cases.request import Request, step_request
from inputmeta.conformance.explain.cell import NoCellError, explained, explained_fields
from inputmeta.conformance.explain.instrument import instrumented
from inputmeta.conformance.explain.numbers import Cells, Input, Marks, Number, Span, Step
from inputmeta.conformance.explain.telling import in_numbers, summands, tell

EACH = pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.slow)])


def requests(every: int) -> Iterator[tuple[str, Request]]:
    """The steps that keep their preconditions, of so many cases of the corpus each."""
    for path, case in list(load_corpus(bundled_corpus()))[::every]:
        for index in range(len(case.steps)):
            request = step_request(case, index)
            if not request.violations():
                yield path.stem, request


def case_of(name: str) -> Case:
    """The case of the corpus whose file begins so."""
    (path,) = bundled_corpus().glob(f"{name}*.json")
    return load_case(path)


@EACH
def test_it_computes_what_the_oracle_does_and_every_run_has_the_value_that_its_line_says(every: int) -> None:
    runs = 0
    for name, request in requests(every):
        found = explained_fields(request, request.expand)
        expected = request.expected()
        assert list(found) == list(expected)
        seen: set[int] = set()
        for key, of in expected.items():
            assert (found[key].shape, found[key].cells) == (of.shape, of.cells), (name, key)
            for cell in found[key].cells:
                for number in steps_with_values(cell, seen):
                    step = number.origin
                    assert isinstance(step, Step)
                    if not re.fullmatch(r"[-+*/%() \d]+", in_numbers(step)) or len(summands(step)) > len(step.operands):
                        continue
                    runs += 1
                    value = eval(compile(ast.parse(in_numbers(step), mode="eval"), "line", "eval"))
                    assert step.expression.is_item or value == number, (name, key, in_numbers(step))
    assert runs > 10_000 // every


def steps_with_values(value: object, seen: set[int]) -> Iterator[Number]:
    """Every number that a run made, behind a number and itself, each once."""
    if not isinstance(value, Number | Span) or id(value.origin) in seen:
        return
    seen.add(id(value.origin))
    if isinstance(value.origin, Input):
        yield from steps_with_values(value.origin.index, seen)
        return
    if isinstance(value, Number):
        yield value
    for _, operand in value.origin.operands:
        yield from steps_with_values(operand, seen)


@EACH
def test_a_cell_without_an_origin_is_neutral_or_the_leading_zero(every: int) -> None:
    for name, request in requests(every):
        for key, of in explained_fields(request, request.expand).items():
            for place, cell in enumerate(of.cells):
                if type(cell) is int or type(cell) is bool:
                    leading = of.field.rows == "boundary" and place == 0
                    assert leading or cell == of.field.neutral_cell(request.config), (name, key, place, cell)


def test_a_pivot_is_told_down_to_its_inputs() -> None:
    request = step_request(case_of("agree-compact-truncation"), 0)
    lines = list(tell(explained(request, "kv_swa_full_index_pivots", (1, 2))))
    assert lines[0] == "kv_swa_full_index_pivots[1, 2] = 4  F-PIVOT"
    text = "\n".join(lines)
    assert "new_rows_begin + new_lo = 4 + 0 = 4  [sliding_window.visible_runs]" in text
    assert "\n    lowest_visible = clamp(lowest, 0, pos + 1) = clamp(3, 0, 6 + 1) = 3" in text
    assert "P0 = sec1 + start, P1 = W - start" in text
    assert "seqlen_k = 10  input sequences[0].seqlen_k" in text
    assert "size = 4  input config.window_size" in text


@pytest.mark.parametrize(
    ("case", "key", "place", "line"),
    [
        ("agree-eager-decode-of-drafts", "cu_seqlens_k", (3,), "total + count = 0 + 9 + 2 + 16 = 27"),
        ("agree-eager-decode-of-drafts", "cu_seqlens_k", (0,), "the leading 0 of the prefix sums"),
        ("agree-eager-decode-of-drafts", "block_tables", (3, 0), "8  input sequences[1].block_table[0]"),
        ("agree-eager-decode-of-drafts", "ngram_token_ids", (2, 1), "as not looked_at < 0: 7 < 0"),
        ("agree-eager-decode-of-drafts", "is_prompt", (), "is_prompt = False  F-COUNT"),
        ("cp-7-rows-on-2-ranks-rank-0", "mirror_cp_index", (3,), "the neutral cell: row 3 has no query"),
        ("f-caplan-two-ratios", "load_segments_ca.8", (0, 2), "min(per_block, num - done) = min(1, 1 - 0) = 1"),
    ],
)
def test_a_cell_is_told(case: str, key: str, place: tuple[int, ...], line: str) -> None:
    told = tell(explained(step_request(case_of(case), 0), key, place))
    assert any(line in found for found in told)


@pytest.mark.parametrize(
    ("key", "place", "message"),
    [
        ("position", (0,), "position: no such field on decode: perhaps positions"),
        ("nothing", (0,), "nothing: no such field on decode"),
        ("positions", (), "positions: it has the shape [7]: give a row"),
        ("positions", (7,), "positions: row 7 of 7"),
        ("block_tables", (0, 9), "block_tables: column 9 of 2"),
        ("total_q", (0,), "total_q: it has the shape []: give no index"),
    ],
)
def test_a_cell_that_is_not_there_is_one_line(key: str, place: tuple[int, ...], message: str) -> None:
    with pytest.raises(NoCellError) as caught:
        explained(step_request(case_of("agree-eager-decode-of-drafts"), 0), key, place)
    assert str(caught.value).startswith(message)


def test_a_module_with_another_formula_tells_the_other_formula() -> None:
    """What is told comes from the source that runs, not from a second list of formulas."""
    marks = Marks()
    source = 'def f(x, y):\n    """F-X ``x + 2 y``."""\n    twice = y * 2\n    return x + twice\n'
    space: dict[str, object] = {"_marks": marks}
    exec(compile(instrumented("m", source, marks, frozenset()), "m", "exec"), space)
    found = space["f"](Number.of(1, Input("x")), Cells("y", [7])[0])  # type: ignore[operator]
    assert (found, in_numbers(found.origin)) == (15, "1 + 14")
    assert dict(summands(found.origin))["twice"].origin.expression.text == "y * 2"  # type: ignore[attr-defined]
