"""Two wheels, the suite's and the engine's, hold what users need and nothing else, and their sdists what builds them.

The engine's sdist is not compiled here: that takes 20 seconds of a core, and follows from what is cheaper. Its C++ is
the checkout's, file by file and byte by byte, and CMake can lay out a build of it; and the wheel made of it without the
native part is the checkout's wheel without the native part.
"""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 2_000_000
"""Of the wheel: 1 MB with the kernels of one architecture."""
LINKED = {"oracle": "oracle", "conformance": "conformance", "corpus": "corpus"}
"""What stands behind the links of the folder ``inputmeta`` that are the suite's."""
NOT_SOURCES = {"__pycache__", ".hypothesis", ".pytest_cache", "inputmeta-failures"}


def files_under(folder: Path) -> set[str]:
    """Paths of the source files below a folder, relative to it."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".so" and not NOT_SOURCES & set(path.parts)
    }


def sources() -> set[str]:
    """What belongs into the suite's package, by its name there; the tests are in an sdist only."""
    links = {f"inputmeta/{name}/{path}" for name, folder in LINKED.items() for path in files_under(ROOT / folder)}
    return links | {f"inputmeta/{name}" for name in ("__init__.py", "capture.py", "py.typed")}


def engine_sources() -> set[str]:
    """What belongs into the engine's."""
    return {f"inputmeta/engine/{path}" for path in files_under(ROOT / "csrc" / "engine")}


def packaged(names: set[str]) -> set[str]:
    """The names without those of tests."""
    return {name for name in names if "/tests/" not in name}


def members(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def tags(wheel: Path) -> str:
    """Python, ABI and platform that a wheel is for."""
    return wheel.stem.split("-", 2)[2]


def project(folder: Path) -> dict[str, Any]:
    """The project that a folder declares."""
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found


def test_the_wheel_of_the_suite_is_pure_and_complete(wheel: Path) -> None:
    names = members(wheel)
    assert tags(wheel) == "py3-none-any"
    assert {name.split("/")[0] for name in names} == {"inputmeta", "inputmeta_conformance-0.1.0.dist-info"}
    assert {name for name in names if name.startswith("inputmeta/")} == packaged(sources())
    for name in ("corpus/cases", "corpus/case.schema.json", "oracle/SPEC.md", "conformance/PROTOCOL.md"):
        assert any(member.startswith(f"inputmeta/{name}") for member in names), name
    assert "inputmeta_conformance-0.1.0.dist-info/licenses/LICENSE" in names
    assert wheel.stat().st_size < MOST_BYTES


def test_the_wheel_of_the_engine_is_compiled_and_complete(engine_wheel: Path) -> None:
    names = members(engine_wheel)
    assert re.fullmatch(r"cp3\d+-cp3\d+-.+", tags(engine_wheel))
    native = {name for name in names if name.endswith(".so")}
    modules = {name.partition(".")[0] for name in native}
    assert {"inputmeta/engine/_core"} <= modules <= {"inputmeta/engine/_core", "inputmeta/engine/_cuda"}
    assert {name for name in names if name.startswith("inputmeta/")} - native == engine_sources()
    assert {name.split("/")[0] for name in names} == {"inputmeta", "inputmeta_engine-0.1.0.dist-info"}
    assert "inputmeta_engine-0.1.0.dist-info/licenses/LICENSE" in names
    assert engine_wheel.stat().st_size < MOST_BYTES


def test_the_two_share_a_version_and_no_file(wheel: Path, engine_wheel: Path) -> None:
    assert not members(wheel) & members(engine_wheel)
    suite, engine = project(ROOT), project(ROOT / "csrc")
    assert suite["version"] == engine["version"]
    assert suite["optional-dependencies"]["engine"] == [f"{engine['name']}=={engine['version']}"]
    assert suite["requires-python"] == engine["requires-python"]


def sdist_of(project: Path, folder: Path) -> Path:
    """The unpacked sdist of a project of the checkout."""
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=project, check=True, timeout=60, capture_output=True)
    (archive,) = folder.glob("inputmeta_*.tar.gz")
    with tarfile.open(archive) as packed:
        assert not [member.name for member in packed if not (member.isfile() or member.isdir())]  # no links
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite's."""
    return sdist_of(ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def engine_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine's."""
    return sdist_of(ROOT / "csrc", tmp_path_factory.mktemp("engine_sdist"))


def test_a_source_stands_in_one_sdist_once(sdist: Path, engine_sdist: Path) -> None:
    names = files_under(sdist)
    documents = {"README.md", "LICENSE", "pyproject.toml"}
    assert names >= sources() | documents
    rest = names - sources() - documents
    assert not {name for name in rest if name.endswith((".py", ".cpp", ".h", ".cu", ".cuh", ".json", ".so"))}
    for name in documents | {"inputmeta/__init__.py"}:
        assert (sdist / name).read_bytes() == (ROOT / name).read_bytes(), name
    native = files_under(ROOT / "csrc")
    assert files_under(engine_sdist) - {"PKG-INFO"} == native
    assert not list(engine_sdist.rglob("*.so"))
    for name in native:
        assert (engine_sdist / name).read_bytes() == (ROOT / "csrc" / name).read_bytes(), name


def test_cmake_lays_out_a_build_of_the_sdist(engine_sdist: Path, tmp_path: Path) -> None:
    """Configuring and generating fail on a source that is named and not there."""
    options = ["-DINPUTMETA_CUDA=OFF", "-DINPUTMETA_PYTHON=OFF", "-DINPUTMETA_BUILD_TESTS=ON", "-GNinja"]
    command = [str(Path(sys.executable).with_name("cmake")), "-S", str(engine_sdist), "-B", str(tmp_path), *options]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(command, check=True, timeout=60, capture_output=True, env=environment)
    (engine_sdist / "core" / "blocks.cpp").rename(tmp_path / "blocks.cpp")
    try:
        broken = subprocess.run(command, check=False, timeout=60, capture_output=True, env=environment, text=True)
    finally:
        (tmp_path / "blocks.cpp").rename(engine_sdist / "core" / "blocks.cpp")
    assert broken.returncode != 0
    assert "blocks.cpp" in broken.stderr


@pytest.mark.slow
def test_the_wheels_of_the_sdists_are_those_of_the_checkout(
    sdist: Path, engine_sdist: Path, wheel: Path, engine_wheel: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    settings = ["--config-settings=wheel.cmake=false", f"--wheel-dir={tmp_path}"]
    subprocess.run([*command, *settings, str(sdist), str(engine_sdist)], check=True, timeout=60)
    for name, of_checkout in (("inputmeta_conformance", wheel), ("inputmeta_engine", engine_wheel)):
        (built,) = tmp_path.glob(f"{name}-*.whl")
        assert members(built) == {name for name in members(of_checkout) if not name.endswith(".so")}
