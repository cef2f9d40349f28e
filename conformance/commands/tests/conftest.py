"""What the tests of commands share."""

from pathlib import Path

import pytest

from inputmeta.conformance.cases.corpus import bundled_corpus


@pytest.fixture
def few_cases(tmp_path: Path) -> Path:
    """A corpus of every fifth case of the bundled one: some of each precondition, in a fifth of the time."""
    folder = tmp_path / "cases"
    folder.mkdir()
    for path in sorted(bundled_corpus().glob("*.json"))[::5]:
        (folder / path.name).symlink_to(path)
    return folder
