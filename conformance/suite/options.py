"""What the parts of the suite share with pytest: where it lies, what it is called, and its session in a configuration.

pytest loads this in every run of an environment that has the package, so it imports pytest alone.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from inputmeta.conformance.suite.session import SuiteSession

PACKAGE = Path(__file__).parents[1]
FOLDER = PACKAGE / "suite"
SUITE = "inputmeta/conformance/suite"
"""What the names of the suite's tests begin with."""

SUITE_NAMES = frozenset({"inputmeta.conformance", "inputmeta.conformance.suite"})
"""How ``--pyargs`` calls it."""

session_key = pytest.StashKey["SuiteSession"]()


def has_subject(config: pytest.Config) -> bool:
    """Whether this run is to include the suite."""
    return bool(config.getoption("subject") or config.getoption("subject_command"))


def corpus_folder(config: pytest.Config) -> Path:
    """Folder of the cases to run."""
    from inputmeta.conformance.cases.corpus import bundled_corpus  # noqa: PLC0415 - only where the suite runs

    chosen: Path | None = config.getoption("subject_corpus")
    return chosen or bundled_corpus()


def open_session(config: pytest.Config) -> SuiteSession:
    """This process's session of the suite, with the subject loaded; closed with pytest's configuration.

    Raises:
        CollectError: the subject cannot be loaded, or a file cannot be used.
    """
    if session_key not in config.stash:
        from inputmeta.conformance.suite.session import start  # noqa: PLC0415 - only where the suite runs

        stack = ExitStack()
        config.add_cleanup(stack.close)
        config.stash[session_key] = start(config, stack)
    return config.stash[session_key]
