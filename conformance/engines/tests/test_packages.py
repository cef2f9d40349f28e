"""Fetching an engine: whole or not at all, without what it depends on, and one line about one that is not here."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.engines import packages
from inputmeta.conformance.engines.packages import Package
from inputmeta.conformance.engines.plants import Plant, PlantError, planted_folder
from inputmeta.conformance.subjects import SubjectError, load_subject
from inputmeta.conformance.subjects.entry_points import installed


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """A wheel of pure Python, as pip takes it."""
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: not-there\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for file, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(file, text)


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """An engine of two releases and what it needs, in a folder that pip takes for its registry."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    body = "def one(): return 1\ndef two(): return 1\n"
    for version in ("1.0", "2.0"):
        files = {"toy_engine/__init__.py": f"VERSION = {version!r}\n", "toy_engine/core/build.py": body}
        wheel(wheels, "toy_engine", version, files | {"toy_engine/native.so": "x", "toy_engine/core/__init__.py": ""})
    wheel(wheels, "toy_need", "3.0", {"toy_need.py": "", "toy_need.so": "y"})
    wheel(wheels, "toy_beside", "4.0", {"toy_beside.py": "PLACE = __file__\n", "toy_native.so": "z"})
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(packages.FOLDER_VARIABLE, str(tmp_path / "engines"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    toy = Package("toy-engine", ("2.0", "1.0"), needs=("toy-need==3.0",), beside=("toy-beside",))
    beside = Package("toy-beside", ("4.0",), keep=())
    monkeypatch.setattr(packages, "PACKAGES", {**packages.PACKAGES, toy.name: toy, beside.name: beside})
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(app, ["engines", *arguments])


def left(registry) -> list[str]:
    """What lies in the folder of engines, hidden or not."""
    return sorted(path.name for path in (registry / "engines").iterdir())


@pytest.mark.slow
def test_a_release_comes_with_its_needs_alone_and_without_compiled_parts_of_its_own(registry) -> None:
    done = run("fetch", "toy-engine", "toy-engine==1.0")
    assert done.exit_code == 0, done.output
    assert left(registry) == ["toy-beside-4.0", "toy-engine-1.0", "toy-engine-2.0"]
    files = {str(path.relative_to(packages.folder("toy-engine"))) for path in packages.folder("toy-engine").rglob("*")}
    assert {"toy_engine/core/build.py", "toy_need.py", "toy_need.so"} <= files
    assert "toy_engine/native.so" not in files
    assert {"release": "toy-engine==1.0", "state": "here", "subjects": []} in json.loads(run("list", "--json").output)
    assert packages.use("toy-engine", "1.0") == "1.0"
    import toy_engine  # noqa: PLC0415 - it is there by now

    assert toy_engine.VERSION == "1.0"
    import toy_beside  # noqa: PLC0415 - as above

    assert Path(toy_beside.PLACE).parent.name == "toy-beside-4.0"
    assert (packages.folder("toy-beside") / "toy_native.so").is_file()
    with pytest.raises(SubjectError, match=r"this process has toy-engine-1\.0 already"):
        packages.use("toy-engine", "2.0")


def test_a_fetch_that_fails_or_is_interrupted_leaves_nothing(registry, monkeypatch) -> None:
    done = run("fetch", "toy-engine==9.9")
    assert done.exit_code == exits.NO_SUBJECT
    assert done.stderr.startswith("inputmeta: toy-engine==9.9: pip: ERROR: No matching distribution")
    assert done.stderr.count("\n") == 1

    def interrupted(package, target):
        assert target.is_dir()
        raise KeyboardInterrupt

    monkeypatch.setattr(packages, "install", lambda *rest: None)
    monkeypatch.setattr(packages, "prune", interrupted)
    with pytest.raises(KeyboardInterrupt):
        packages.fetch("toy-engine")
    assert left(registry) == []


@pytest.mark.parametrize(
    ("release", "says"),
    [
        ("toy-engine==../x", "toy-engine: '../x' is no version"),
        ("nothing", "there is no engine 'nothing'; there are "),
        ("torch", "torch is not fetched: the environment's own release is judged"),
    ],
)
def test_what_cannot_be_fetched_is_said_in_one_line(registry, release, says) -> None:
    done = run("fetch", release)
    assert done.exit_code == exits.NO_SUBJECT
    assert done.stderr.startswith(f"inputmeta: {says}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("point", installed(), ids=lambda point: point.name)
def test_a_subject_whose_engine_is_not_here_says_how_to_get_it(point, tmp_path, monkeypatch) -> None:
    package = next((p for p in packages.PACKAGES.values() if p.gives(point.name)), None)
    if package is None or package.bundled:
        pytest.skip("not of a fetched engine")
    monkeypatch.setenv(packages.FOLDER_VARIABLE, str(tmp_path))
    ended = CliRunner().invoke(app, ["check", "--subject", point.name, "--in-process"])
    assert ended.exit_code == exits.NO_SUBJECT
    release = f"{package.name}=={package.versions[0]}"
    assert ended.stderr.endswith(f"is not here: inputmeta engines fetch {release}\n")
    assert ended.stderr.count("\n") == 1


def test_a_release_is_named_behind_the_subject() -> None:
    with pytest.raises(SubjectError, match=r"torch 0\.0\.1 is not here: the environment has"):
        load_subject("torch-zigzag==0.0.1")


def test_a_planted_release_is_links_but_for_the_changed_file(tmp_path) -> None:
    release = tmp_path / "toy-1.0"
    (release / "toy" / "core" / "__pycache__").mkdir(parents=True)
    (release / "toy" / "core" / "build.py").write_text("def f(): return x + 1\ndef g(): return x + 1\n")
    for name in ("build.cpython-311.pyc", "other.cpython-311.pyc"):
        (release / "toy" / "core" / "__pycache__" / name).touch()
    (release / "toy" / "core" / "other.py").touch()
    (release / "beside.py").touch()
    plant = Plant("two-ahead", "s", "toy/core/build.py", "+ 1", "+ 2", after="def g")
    target = tmp_path / "planted" / "toy-1.0"
    planted_folder(plant, release, target)
    assert (target / plant.file).read_text() == "def f(): return x + 1\ndef g(): return x + 2\n"
    assert (target / "beside.py").is_symlink()
    assert (target / "toy" / "core" / "other.py").is_symlink()
    assert [file.name for file in (target / "toy" / "core" / "__pycache__").iterdir()] == ["other.cpython-311.pyc"]
    with pytest.raises(PlantError, match=r"toy/core/build\.py: has no '\+ 7' behind 'def g'"):
        planted_folder(Plant("none", "s", "toy/core/build.py", "+ 7", "", after="def g"), release, tmp_path / "none")
    assert not (tmp_path / "none").exists()
