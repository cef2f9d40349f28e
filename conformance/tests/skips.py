"""Tests that were skipped for want of a GPU are one counted line of the summary; each stays a skipped test."""

from collections.abc import Generator
from typing import Any

import pytest

NO_GPU = "Skipped: no GPU"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Skips are counted by place and reason: these have one place."""
    report = yield
    if isinstance(report.longrepr, tuple) and report.longrepr[2] == NO_GPU:
        report.longrepr = ("tests that need one", None, NO_GPU)
    return report
