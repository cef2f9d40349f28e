"""One worked example of each way to bring a subject along; README.md says which to copy."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

CPP = Path(__file__).parent / "cpp"
MISSING_HEADER = ("nlohmann/json.hpp: No such file", "'nlohmann/json.hpp' file not found")
"""How GCC and Clang say it."""


class CannotBuildError(Exception):
    """The C++ example cannot be built here. ``str()`` says what is missing."""


def build_cpp(program: Path, *flags: str) -> None:
    """Compile the C++ example into ``program``.

    Raises:
        CannotBuildError: no C++ compiler, or no nlohmann/json.
        CalledProcessError: it does not compile.
    """
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        raise CannotBuildError("no C++ compiler")
    package = find_spec("nlohmann_json")  # of PyPI; a header of the system is found without
    folders = [] if package is None else package.submodule_search_locations or []
    include = [option for folder in folders for option in ("-isystem", f"{folder}/include")]
    sources = [str(CPP / name) for name in ("main.cpp", "decode.cpp")]
    command = [compiler, "-std=c++20", *flags, *include, "-o", str(program), *sources]
    ended = subprocess.run(command, check=False, timeout=170, stderr=subprocess.PIPE, text=True)
    if any(text in ended.stderr for text in MISSING_HEADER):
        raise CannotBuildError("no nlohmann/json: pip install nlohmann-json")
    if ended.returncode:
        raise subprocess.CalledProcessError(ended.returncode, command, stderr=ended.stderr)
