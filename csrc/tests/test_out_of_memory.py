"""Without memory the bindings raise MemoryError, write nothing, and work again afterwards."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def test_each_allocation_of_the_bindings_fails_once(tmp_path):
    compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C++ compiler, and a loader that can preload")
    library = tmp_path / "fail_new.so"
    build = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(HERE / "fail_new.cpp")]
    subprocess.run(build, check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, str(HERE / "out_of_memory_calls.py")],
        env=os.environ | {"LD_PRELOAD": str(library)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    failed = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert len(failed) == 16
    assert all(int(failed[f"{path} {call}"]) > 3 for path in ("prompt", "decode") for call in ("sequence", "plan"))
    assert int(failed["config"]) > 3
