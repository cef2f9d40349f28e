"""Tests that were skipped for want of a GPU, or of a browser, are one counted line of the summary each."""

from collections.abc import Generator
from typing import Any

import pytest

COUNTED = ("Skipped: no GPU", "Skipped: no Chromium")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Skips are counted by place and reason: these have one place. Each stays a skipped test."""
    report = yield
    if isinstance(report.longrepr, tuple) and report.longrepr[2] in COUNTED:
        report.longrepr = ("tests that need one", None, report.longrepr[2])
    return report
