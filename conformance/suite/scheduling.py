"""How pytest-xdist shares out the suite: the generated batches of a path are drawn and run by one worker, once."""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

from inputmeta.conformance.suite.options import SUITE

GENERATED = re.compile(re.escape(f"{SUITE}/test_generated.py") + r"::\w+\[(\w+)")


class SuiteScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Tests of one path's batches stay together; every other test, the user's own too, goes where there is room."""

    def _split_scope(self, nodeid: str) -> str:
        """The group of a test: the path of its batches, or the test alone."""
        generated = GENERATED.match(nodeid)
        return generated.group(1) if generated else nodeid
