"""The README's table says what the adapters claim, and the expectations name what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.engines import packages, table
from inputmeta.conformance.engines.expectations import GROUPS, expectations, subjects

README = Path(__file__).resolve().parents[3] / "README.md"


def test_the_readme_has_the_table() -> None:
    """Written anew by ``python -m inputmeta.conformance.engines.table README.md``."""
    text = README.read_text(encoding="utf-8")
    assert table.with_table(text) == text


@pytest.mark.slow
def test_a_difference_is_in_the_table_whatever_the_claims_say() -> None:
    rows = {row[0]: dict(zip(table.columns(), row[1:], strict=True)) for row in table.rows()}
    assert table.DIFFERS in rows["`query_indices`"]["fla-core"]
    assert rows["`positions`"]["verl"] == table.UNDER + table.DIFFERS
    assert rows["`mirror_cp_index`"]["verl"] == table.UNDER


def test_expectations_and_groups_name_subjects_and_cases_that_there_are() -> None:
    names = subjects()
    told = [each.subject for each in expectations()]
    assert len(set(told)) == len(told)
    assert {name.partition("==")[0] for name in told} == set(names)
    assert {name for group in GROUPS.values() for name in group} <= set(names)
    corpus = [file.name for file in bundled_corpus().glob("*.json")]
    for each in expectations():
        for beginning in each.cases:
            assert len([name for name in corpus if name.startswith(beginning)]) == 1, beginning


@pytest.mark.parametrize("name", subjects())
def test_a_subject_is_of_one_engine_and_named_as_its_entry_point(name) -> None:
    owners = [package.name for package in packages.PACKAGES.values() if package.gives(name)]
    adapter = table.adapter_of(name)
    assert owners == [adapter.package]
    assert adapter.subject == name
