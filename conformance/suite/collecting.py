"""How pytest finds the suite: by itself, under names that hold wherever the package is installed.

pytest names a test by its file's path from the root folder of the run, which for an installed package depends on the
environment. JUnit reports of two machines could not be compared; so the suite's modules are named from the package on.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from inputmeta.conformance.suite.options import FOLDER, SUITE, open_session


class PackageFolder(pytest.Directory):
    """The package ``conformance`` as pytest sees it: the suite alone, none of our own tests and doctests."""

    def collect(self) -> Iterable[pytest.Collector]:
        """The suite."""
        yield SuiteFolder.from_parent(self, path=FOLDER)


class SuiteFolder(pytest.Directory):
    """The suite's modules, whatever file names the user's own pytest settings ask for."""

    def collect(self) -> Iterable[pytest.Collector]:
        """The modules in name order; with the subject loaded, whose absence is an error of this folder."""
        if not self.config.getoption("collectonly"):
            open_session(self.config)
        for path in sorted(FOLDER.glob("test_*.py")):
            yield SuiteModule.from_parent(self, path=path, nodeid=f"{SUITE}/{path.name}")


class SuiteModule(pytest.Module):
    """One module of the suite. Its tests are also found by what they stand for: ``-k F-RING``, ``-k STALE``."""

    def funcnamefilter(self, name: str) -> bool:
        """Tests begin with ``test_``, whatever the user's own settings say."""
        return name.startswith("test_")

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """The tests, each with its keywords."""
        for found in super().collect():
            if isinstance(found, pytest.Function):
                found.extra_keyword_matches.update(keywords(found))
            yield found


def keywords(item: pytest.Function) -> set[str]:
    """Formulas, tags, the id and the file name that a test can be selected by."""
    from inputmeta import oracle  # noqa: PLC0415 - not before there is a suite to run
    from inputmeta.conformance.suite.session import CorpusCase  # noqa: PLC0415

    arguments = item.callspec.params
    case, field = arguments.get("case"), arguments.get("field")
    if isinstance(case, CorpusCase):
        return {*case.case.tags, case.case.path, case.file.stem, case.id}
    if field in oracle.KEY_SETS:
        return {oracle.KEY_SETS[field].formula}
    return set(oracle.FIELDS[field].formulas) if isinstance(field, str) else set()
