"""Imports of ``conformance/`` go down."""

from pathlib import Path

import pytest

from inputmeta.conformance.tests import floors


def test_every_import_goes_down() -> None:
    assert floors.problems() == []


@pytest.mark.parametrize(
    ("file", "line", "problem"),
    [
        (
            "cases/model.py",
            "from inputmeta.conformance.check import runner",
            "check is not below cases",
        ),
        ("check/a.py", "def f():\n    import inputmeta.conformance.campaign.fuzz", "campaign is not below"),
        ("workers/a.py", "from inputmeta.conformance.mutants.b import c", "mutants is not below workers"),
        ("generate/a.py", "from inputmeta.conformance.subjects.base import Subject", "subjects is not below generate"),
        ("loose.py", "from inputmeta.conformance.cases import model", "loose is on no floor"),
        ("cases/model.py", "from .files import CaseError", "circle: cases.files -> cases.model -> cases.files"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, file: str, line: str, problem: str) -> None:
    """A planted import is seen, in a function too."""
    sources = {"cases/files.py": "from inputmeta.conformance.cases.model import Case", "cases/model.py": ""}
    for name, text in {**sources, "check/runner.py": "", "campaign/fuzz.py": "", file: line}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert any(problem in found for found in floors.problems(tmp_path)), floors.problems(tmp_path)
