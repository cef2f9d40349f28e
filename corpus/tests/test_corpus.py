"""The bundled corpus as a whole: it is in order, covers every formula and class, and the oracle conforms to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from inputmeta import oracle
from inputmeta.conformance.cases.corpus import BUG_CLASSES, lint_corpus
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.cases.model import Case, StepExpected
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta.conformance.subjects.paged import PagedSubject

CASES = Path(__file__).parents[1] / "cases"
FILES = sorted(CASES.glob("*.json"))
BEYOND_ONE_BATCH = {
    "F-STACK",  # where the buffers of a captured graph lie
    "F-VISIBLE",  # a set in place of fields: the cases of F-PIVOT, F-SWADEC, F-CAOFF and F-KS show it
    "F-EXTRACT",  # the host stage of ZOS decode, whose output is no field of the metadata
}
MAX_FILE_BYTES = 60_000
MAX_CORPUS_BYTES = 2_000_000


def tags_in_use(cases: dict[str, Case]) -> set[str]:
    """Every tag of the corpus."""
    return {tag for case in cases.values() for tag in case.tags}


def test_nothing_is_wrong_with_the_corpus():
    assert lint_corpus(CASES) == []


def test_the_corpus_stays_small():
    sizes = {path.name: path.stat().st_size for path in FILES}
    assert [name for name, size in sizes.items() if size > MAX_FILE_BYTES] == []
    assert sum(sizes.values()) < MAX_CORPUS_BYTES


@pytest.mark.parametrize("formula", sorted(set(oracle.FORMULAS) - BEYOND_ONE_BATCH))
def test_every_formula_has_a_case(formula, cases_by_title):
    assert formula in tags_in_use(cases_by_title)


@pytest.mark.parametrize("condition", oracle.PRECONDITIONS)
def test_every_precondition_is_broken_alone_by_a_case(condition, cases_by_title):
    broken = [
        {refusal.condition for refusal in expected.refused}
        for case in cases_by_title.values()
        for expected in case.expected
        if condition in case.tags
    ]
    assert {condition} in broken


def test_the_readme_has_the_table_of_bug_classes():
    readme = (CASES.parent / "README.md").read_text(encoding="utf-8")
    table = readme.split("## Bug classes", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    assert {tag: text for tag, text in rows[2:]} == BUG_CLASSES


@pytest.mark.parametrize("bug_class", BUG_CLASSES)
def test_every_bug_class_has_a_case(bug_class, cases_by_title):
    assert bug_class in tags_in_use(cases_by_title)


def test_there_are_cases_enough_on_every_path(cases_by_title):
    paths = [case.path for case in cases_by_title.values()]
    assert len(paths) >= 60
    assert all(paths.count(path) >= 15 for path in oracle.PATHS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_oracle_conforms(path):
    case = load_case(path)
    outcome = run_case(case, OracleSubject() if case.allocation is None else PagedSubject())
    assert outcome.findings == []
    assert outcome.ran
    assert outcome.unsupported == set()


def twins(cases: dict[str, Case]) -> Iterator[tuple[Case, Case]]:
    """Pairs of cases with the same batches on eager and on ZOS decode."""
    eager = [case for case in cases.values() if case.path == "decode"]
    zos = [case for case in cases.values() if case.path == "decode_zos" and not case.gather]
    for one in eager:
        for other in zos:
            buffers = (one.max_num_blocks, one.out_fault) == (other.max_num_blocks, other.out_fault)
            if buffers and (one.config, one.steps) == (other.config, other.steps):
                yield one, other


def without_sums(expected: StepExpected) -> StepExpected:
    """A step without the cumulative lengths: the one thing in which the decode paths differ."""
    rest = {key: array for key, array in expected.fields.items() if not key.startswith("cu_seqlens")}
    return msgspec.structs.replace(expected, fields=rest)


def test_eager_and_zos_twins_agree(cases_by_title):
    pairs = list(twins(cases_by_title))
    assert len(pairs) >= 8
    for eager, zos in pairs:
        for one, other in zip(eager.expected, zos.expected, strict=True):
            assert without_sums(one) == without_sums(other), zos.title
            if not one.refused:
                assert one.fields["cu_seqlens_q"].data[1:] == other.fields["cu_seqlens_q"].data, zos.title


def seen_positions(case: Case, key: str, first_new_rows: list[int], first_new_positions: list[int]) -> list[set[int]]:
    """Absolute positions of the keys that each row of a pivots field names, from the pivots alone.

    Of sequence i new rows begin at ``first_new_rows[i]`` and stand at ``first_new_positions[i]`` and after it; its
    history is the W rows from i * W on.
    """
    window, step = case.config.window_size, case.steps[0]
    begins = [len(step) * window + first for first in first_new_rows]
    seen = []
    for history, history_length, new, new_length in case.expected[0].fields[key].data:
        positions = set()
        for row in range(history, history + history_length):
            index, offset = divmod(row, window)
            positions.add(step[index].seqlen_k - step[index].seqlen_q - window + offset)
        for row in range(new, new + new_length):
            index = max(i for i, begin in enumerate(begins) if begin <= row)
            positions.add(first_new_positions[index] + row - begins[index])
        seen.append(positions)
    return seen


def truncated_twins(cases: dict[str, Case]) -> Iterator[tuple[Case, Case]]:
    """Pairs of cases that differ in mask and compact mode alone."""
    for mask in cases.values():
        for compact in cases.values():
            as_mask = msgspec.structs.replace(compact.config, yoco_mode="mask")
            if compact.config.yoco_mode == "compact" and (mask.config, mask.steps) == (as_mask, compact.steps):
                yield mask, compact


def test_mask_and_compact_twins_show_kept_rows_the_same_keys(cases_by_title):
    pairs = [pair for pair in truncated_twins(cases_by_title) if len(pair[0].steps) == 1]
    assert len(pairs) >= 3
    for mask, compact in pairs:
        step, fields = mask.steps[0], compact.expected[0].fields
        starts = [sequence.seqlen_k - sequence.seqlen_q for sequence in step]
        full = list(mask.expected[0].fields["cu_seqlens_q"].data)
        kept = list(fields["yoco_consumer_cu_seqlens_q"].data)
        clipped = [start + (full[i + 1] - full[i]) - (kept[i + 1] - kept[i]) for i, start in enumerate(starts)]
        of_mask = seen_positions(mask, "yoco_mask_swa_index_pivots", full[:-1], starts)
        of_compact = seen_positions(compact, "yoco_consumer_swa_index_pivots", kept[:-1], clipped)
        assert [of_mask[row] for row in fields["yoco_consumer_query_indices"].data] == of_compact, compact.title
