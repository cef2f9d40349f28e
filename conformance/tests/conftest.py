"""The wheels of this checkout, built once a run of the tests."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def built(tmp_path_factory: pytest.TempPathFactory, project: Path, *settings: str) -> Path:
    """The wheel of a project, built from the checkout. pytest-xdist's workers share it, and never build at once."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = base / f"wheel-{project.name}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("*.whl")):
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", *settings]
            subprocess.run([*command, "--wheel-dir", str(folder), str(project)], check=True, timeout=600)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite's."""
    return built(tmp_path_factory, ROOT)


@pytest.fixture(scope="session")
def engine_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine's: the native part comes from the build folder that ci/setup has filled."""
    return built(tmp_path_factory, ROOT / "csrc", "--config-settings=build-dir=../build/{wheel_tag}")
