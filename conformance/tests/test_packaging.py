"""The wheel holds what users need and nothing else, and the sdist what it takes to build that wheel.

The sdist is not compiled here: that takes 20 seconds of a core, and follows from what is cheaper. Its C++ is the
checkout's, file by file and byte by byte, and CMake can lay out a build of it; and the wheel made of it without the
native part is the checkout's wheel without the native part.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 2_000_000
"""Of the wheel: 1 MB with the kernels of one architecture."""
LINKED = {"oracle": "oracle", "conformance": "conformance", "corpus": "corpus", "engine": "csrc/engine"}
"""What stands behind the links of the folder ``inputmeta``."""
NOT_SOURCES = {"__pycache__", ".hypothesis", ".pytest_cache", "inputmeta-failures"}


def files_under(folder: Path) -> set[str]:
    """Paths of the source files below a folder, relative to it."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".so" and not NOT_SOURCES & set(path.parts)
    }


def sources() -> set[str]:
    """What belongs into the package, by its name there; the tests are in an sdist only."""
    links = {f"inputmeta/{name}/{path}" for name, folder in LINKED.items() for path in files_under(ROOT / folder)}
    return links | {"inputmeta/__init__.py", "inputmeta/py.typed"}


def packaged(names: set[str]) -> set[str]:
    """The names without those of tests."""
    return {name for name in names if "/tests/" not in name}


def members(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_is_one_package_and_complete(wheel: Path) -> None:
    names = members(wheel)
    assert {name.split("/")[0] for name in names} == {"inputmeta", "inputmeta_conformance-0.1.0.dist-info"}
    native = {name for name in names if name.endswith(".so")}
    modules = {name.partition(".")[0] for name in native}
    assert {"inputmeta/engine/_core"} <= modules <= {"inputmeta/engine/_core", "inputmeta/engine/_cuda"}
    assert {name for name in names if name.startswith("inputmeta/")} - native == packaged(sources())
    for name in ("corpus/cases", "corpus/case.schema.json", "oracle/SPEC.md", "conformance/PROTOCOL.md"):
        assert any(member.startswith(f"inputmeta/{name}") for member in names), name
    assert "inputmeta_conformance-0.1.0.dist-info/licenses/LICENSE" in names
    assert wheel.stat().st_size < MOST_BYTES


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist of the checkout."""
    folder = tmp_path_factory.mktemp("sdist")
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True, timeout=60, capture_output=True)
    (archive,) = folder.glob("inputmeta_conformance-*.tar.gz")
    with tarfile.open(archive) as packed:
        assert not [member.name for member in packed if not (member.isfile() or member.isdir())]  # no links
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def test_a_source_stands_in_the_sdist_once(sdist: Path) -> None:
    names = files_under(sdist)
    native = {f"csrc/{name}" for name in files_under(ROOT / "csrc") if not name.startswith("engine/")}
    documents = {"README.md", "LICENSE", "pyproject.toml"}
    assert names >= sources() | native | documents
    rest = names - sources() - native - documents
    assert not {name for name in rest if name.endswith((".py", ".cpp", ".h", ".cu", ".cuh", ".json"))}
    for name in native | documents | {"inputmeta/__init__.py"}:
        assert (sdist / name).read_bytes() == (ROOT / name).read_bytes(), name


def test_cmake_lays_out_a_build_of_the_sdist(sdist: Path, tmp_path: Path) -> None:
    """Configuring and generating fail on a source that is named and not there."""
    options = ["-DINPUTMETA_CUDA=OFF", "-DINPUTMETA_PYTHON=OFF", "-DINPUTMETA_BUILD_TESTS=ON", "-GNinja"]
    command = [str(Path(sys.executable).with_name("cmake")), "-S", str(sdist / "csrc"), "-B", str(tmp_path), *options]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(command, check=True, timeout=60, capture_output=True, env=environment)
    (sdist / "csrc" / "core" / "blocks.cpp").rename(tmp_path / "blocks.cpp")
    try:
        broken = subprocess.run(command, check=False, timeout=60, capture_output=True, env=environment, text=True)
    finally:
        (tmp_path / "blocks.cpp").rename(sdist / "csrc" / "core" / "blocks.cpp")
    assert broken.returncode != 0
    assert "blocks.cpp" in broken.stderr


def test_the_wheel_of_the_sdist_is_that_of_the_checkout(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    settings = ["--config-settings=wheel.cmake=false", f"--wheel-dir={tmp_path}"]
    subprocess.run([*command, *settings, str(sdist)], check=True, timeout=60)
    (built,) = tmp_path.glob("*.whl")
    assert members(built) == {name for name in members(wheel) if not name.endswith(".so")}
