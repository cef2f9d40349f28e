"""Builds the native tests with AddressSanitizer and UndefinedBehaviorSanitizer and runs them through ctest."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1]
BUILD = SOURCES.parent / "build" / "native-asan"
SEARCH_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def tool(*names: str) -> str:
    """The first of the tools that is installed, next to Python or on the path; without any the test is skipped."""
    for name in names:
        found = shutil.which(name, path=SEARCH_PATH)
        if found:
            return found
    pytest.skip(f"no {' or '.join(names)}: the native tests cannot be built")


def run(*command: str) -> str:
    """Output of a command that must succeed."""
    environment = os.environ | {"PATH": SEARCH_PATH, "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(command)}\n{output}"
    return output


@pytest.mark.slow
def test_native_tests_are_clean_under_the_sanitizers():
    tool(os.environ.get("CXX", "c++"), "g++", "clang++")
    cmake, ninja, ctest = tool("cmake"), tool("ninja"), tool("ctest")
    options = ("PYTHON=OFF", "BUILD_TESTS=ON", "SANITIZE=ON")
    run(
        *(cmake, "-S", str(SOURCES), "-B", str(BUILD), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"),
        # -O1: what the sanitizers see is the same, and it compiles in half the time.
        *("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1 -g1", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"),
        # The core in one piece: most of the time of its files is the headers that they have in common.
        *("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0"),
        *(f"-DINPUTMETA_{option}" for option in options),
    )
    run(cmake, "--build", str(BUILD), "--parallel", "2")
    report = run(ctest, "--test-dir", str(BUILD), "--output-on-failure")
    assert "100% tests passed" in report
    assert "No tests were found" not in report
