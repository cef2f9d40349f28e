"""The wheel of this checkout, built once a run of the tests."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the checkout: the native part comes from the build folder that the editable install has filled.

    pytest-xdist's workers share it, and never build in that folder at the same time.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("*.whl")):
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
            subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=600)
    (built,) = folder.glob("inputmeta_conformance-*.whl")
    return built
