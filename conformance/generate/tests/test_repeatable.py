"""A seed means the same cases wherever the suite is installed and whatever else is loaded; nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import find, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from inputmeta.conformance.generate.repeatable import CACHE, READER, repeatable_draws

DRAW = """
import constants_of_this_test, hashlib, msgspec
from inputmeta.conformance.campaign.generated import generated_cases, profile_for
from inputmeta.conformance.subjects.oracle import OracleSubject
from inputmeta import oracle
cases = generated_cases(profile_for(OracleSubject(), oracle.PATHS), 3, 60)
print(hashlib.sha256(msgspec.json.encode(cases)).hexdigest())
"""


def drawn(at: Path, constants: range) -> str:
    """Hash of the cases of one seed, in a process that has loaded a module with some constants."""
    at.mkdir()
    (at / "constants_of_this_test.py").write_text(f"SOME = {list(constants)}\n")
    environment = {name: value for name, value in os.environ.items() if name != "HYPOTHESIS_STORAGE_DIRECTORY"}
    ended = subprocess.run(
        [sys.executable, "-c", DRAW], cwd=at, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert [path.name for path in at.iterdir() if path.name != "__pycache__"] == ["constants_of_this_test.py"]
    return ended.stdout


@pytest.mark.slow
def test_a_seed_does_not_depend_on_what_else_is_loaded(tmp_path: Path) -> None:
    assert drawn(tmp_path / "a", range(101, 300)) == drawn(tmp_path / "b", range(1000, 1200))


def test_other_tests_in_the_process_keep_their_constants() -> None:
    before = getattr(providers, READER), getattr(providers, CACHE)
    with pytest.raises(ZeroDivisionError), repeatable_draws():  # noqa: PT012 - looked at from within
        assert getattr(providers, READER) is not before[0]
        assert find(st.integers(0, 10**6), lambda value: value > 500, settings=settings(database=None)) == 501
        raise ZeroDivisionError
    assert (getattr(providers, READER), getattr(providers, CACHE)) == before
