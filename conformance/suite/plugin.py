"""The pytest plugin: ``pytest --pyargs inputmeta.conformance --subject NAME`` runs the suite for the user's subject.

pytest loads this module in every run of an environment that has the package, so it imports pytest alone; without
``--subject`` or ``--subject-command`` it adds its options and keeps the suite out of the run. The options are named
after the subject: ``--timeout`` belongs to another plugin that many have.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from inputmeta.conformance.suite.options import FOLDER, PACKAGE, SUITE, SUITE_NAMES, has_subject, open_session

if TYPE_CHECKING:
    from inputmeta.conformance.suite.session import SuiteSession


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    group = parser.getgroup(
        "inputmeta", "conformance of input metadata (pytest --pyargs inputmeta.conformance --subject …)"
    )
    group.addoption("--subject", metavar="NAME", help="what is tested: a bundled name, or package.module:attribute")
    group.addoption("--subject-command", metavar="CMD", help="a program that speaks the suite's protocol, instead")
    group.addoption("--subject-json", action="store_true", help="the program speaks JSON lines")
    group.addoption("--subject-timeout", type=float, default=10.0, metavar="S", help="seconds a batch (default 10)")
    group.addoption("--subject-memory-limit", type=int, default=8192, metavar="MIB", help="of a worker (default 8192)")
    group.addoption(
        "--subject-startup-seconds", type=float, default=120.0, metavar="S", help="for a worker to start (default 120)"
    )
    group.addoption("--subject-in-process", action="store_true", help="run the subject in pytest's own process")
    group.addoption("--subject-valid-only", action="store_true", help="leave out what breaks a precondition")
    group.addoption("--subject-seed", type=int, default=0, metavar="N", help="of the generated batches (default 0)")
    group.addoption("--subject-examples", type=int, default=200, metavar="N", help="batches a path (default 200)")
    group.addoption(
        "--subject-shrink", type=float, default=20.0, metavar="S", help="seconds to make failures small (default 20)"
    )
    group.addoption("--subject-corpus", type=Path, metavar="DIR", help="folder of cases; the installed one if left out")
    group.addoption(
        "--subject-case-budget", type=float, default=1.0, metavar="N", help="times what a case may cost (default 1)"
    )
    group.addoption(
        "--subject-save-dir", type=Path, default=Path("inputmeta-failures"), metavar="DIR", help="for failing cases"
    )
    group.addoption("--known-failures", type=Path, metavar="FILE", help="a TOML file of known failures")


def pytest_configure(config: pytest.Config) -> None:
    """Check the options; count what the suite does, in the process that reports it."""
    if not has_subject(config):
        if config.getoption("pyargs") and any(name in SUITE_NAMES for name in config.args):
            raise pytest.UsageError("the suite needs something to test: --subject or --subject-command")
        return
    if config.getoption("subject") and config.getoption("subject_command"):
        raise pytest.UsageError("--subject and --subject-command: give one of them")
    if config.getoption("subject_examples") < 1 or config.getoption("subject_timeout") <= 0:
        raise pytest.UsageError("--subject-examples and --subject-timeout must be above 0")
    if config.getoption("subject_startup_seconds") <= 0:
        raise pytest.UsageError("--subject-startup-seconds must be above 0")
    from inputmeta.conformance.cases import budget  # noqa: PLC0415 - only where the suite runs

    try:
        budget.allow(config.getoption("subject_case_budget"), "--subject-case-budget")
    except ValueError as error:
        raise pytest.UsageError(f"--subject-case-budget: {error}") from error
    if not hasattr(config, "workerinput"):
        from inputmeta.conformance.suite.tally import Tally  # noqa: PLC0415 - only where the suite runs

        config.pluginmanager.register(Tally(config), "inputmeta-tally")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without a subject there is nothing that the suite could test."""
    module = collection_path.parent == FOLDER and collection_path.name.startswith("test_")
    return True if module and not has_subject(config) else None


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """With a subject, the package holds the suite and nothing else."""
    if path not in {PACKAGE, FOLDER}:
        return None
    if not has_subject(parent.config):
        return None  # our own tests
    from inputmeta.conformance.suite.collecting import PackageFolder, SuiteFolder  # noqa: PLC0415 - only where the suite runs

    kind = PackageFolder if path == PACKAGE else SuiteFolder
    return kind.from_parent(parent, path=path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a subject prints is part of a report of ours: nothing of it is taken by a terminal for a command."""
    report = yield
    if item.nodeid.startswith(SUITE + "/"):
        from inputmeta.conformance.console import readable  # noqa: PLC0415 - only where the suite runs

        report.sections = [(name, readable(text)) for name, text in report.sections]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_warning_recorded(warning_message: warnings.WarningMessage, nodeid: str) -> None:
    """As above, of what it warns of."""
    if nodeid.startswith(SUITE + "/"):
        from inputmeta.conformance.console import readable  # noqa: PLC0415 - only where the suite runs

        warning_message.message = readable(str(warning_message.message))


@pytest.fixture(scope="session")
def inputmeta_suite(pytestconfig: pytest.Config) -> SuiteSession:
    """The subject and what is known of it, for the suite's own tests."""
    return open_session(pytestconfig)
