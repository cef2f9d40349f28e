"""Builds of the engine beside the installed one: for an interpreter that it is not installed in, and with a fault."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from inputmeta.conformance.gpu.processes import ROOT, Python, Ran, run

TIMEOUT = 900.0


@dataclass(frozen=True)
class Build:
    """A folder that holds the package ``inputmeta`` with its own engine, or the step of its build that failed."""

    site: Path
    failed: Ran | None = None


def build_engine(folder: Path, *, plant: str = "", architecture: str = "", jobs: int = 2) -> Build:
    """Configure, compile and lay out the engine under ``folder``; what is there from the last time is used again.

    ``plant``: the CMake variable INPUTMETA_PLANT, the fault to compile in. ``architecture``: the GPU's, in CMake's
    notation ("90"); all that csrc names if left out. Needs cmake, a C++20 compiler, nvcc and the
    Python package pybind11; no network.

    """
    tree, site = folder / "cmake", folder / "site"
    # The interpreter's own cmake and ninja, if it has them, before the system's.
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = Python().environment({"PATH": programs})
    ninja = ["-G", "Ninja"] if shutil.which("ninja", path=programs) and not (tree / "CMakeCache.txt").exists() else []
    found = run([sys.executable, "-m", "pybind11", "--cmakedir"], folder / "pybind11.log", environment, TIMEOUT)
    variables = {
        "CMAKE_BUILD_TYPE": "Release",
        "Python_EXECUTABLE": sys.executable,
        "pybind11_DIR": found.last_line,
        "INPUTMETA_PLANT": plant,
    }
    if architecture:
        variables["CMAKE_CUDA_ARCHITECTURES"] = architecture
    settings = [f"-D{name}={value}" for name, value in variables.items()]
    steps = {
        "configure": ["cmake", "-S", str(ROOT / "csrc"), "-B", str(tree), *ninja, *settings],
        "compile": ["cmake", "--build", str(tree), "--parallel", str(jobs)],
        "install": ["cmake", "--install", str(tree), "--prefix", str(site)],
    }
    shutil.rmtree(site, ignore_errors=True)
    if found.code:
        return Build(site, found)
    for name, command in steps.items():
        ran = run(command, folder / f"{name}.log", environment, TIMEOUT)
        if ran.code:
            return Build(site, ran)
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "csrc" / "engine", lay_out(site) / "engine", ignore=ignored, dirs_exist_ok=True)
    return Build(site)


def lay_out(site: Path) -> Path:
    """Make ``site`` the checkout but for the engine; returns the folder of the package ``inputmeta`` in it."""
    package = site / "inputmeta"
    package.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "inputmeta" / "__init__.py", package)
    for part in ("oracle", "conformance", "corpus"):
        (package / part).symlink_to(ROOT / part)
    for part in ("csrc", "pyproject.toml"):
        (site / part).symlink_to(ROOT / part)
    return package
