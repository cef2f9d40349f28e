"""The suite's wheel is pure Python: it works without torch, without the engine and without a compiler, on each Python
that is found here.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from inputmeta.conformance import exits

CONSTRAINTS = Path(__file__).resolve().parents[2] / "ci" / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
RUNNING = ".".join(map(str, sys.version_info[:2]))
NEEDS_TORCH = dict.fromkeys(
    (
        *(f"benchmarks.{name}" for name in ("contenders", "gpu", "gpu_contenders", "gpu_measure", "scaling")),
        "examples.torch_subject",
        "subjects.device",
        "subjects.engine",
        "subjects.engine_cuda",
    ),
    "torch",
)
"""Modules that are about tensors of torch."""
IMPORT_ALL = """
import importlib, json, pkgutil
import inputmeta
failed = {}
for module in pkgutil.walk_packages(inputmeta.__path__, "inputmeta."):
    if not module.name.endswith("__main__") and ".package" not in module.name:
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            failed[module.name.removeprefix("inputmeta.conformance.")] = error.name
print(json.dumps(failed))
"""
SUBJECT = """
import numpy as np

from inputmeta.conformance.subjects import Rejection


def build(request):
    for error in request.violations():
        raise Rejection(error.condition, error.sequence, error.field, str(error))
    if request.path != "decode":
        raise NotImplementedError
    rows = [np.arange(s.seqlen_k - s.seqlen_q, s.seqlen_k, dtype=np.int32) for s in request.sequences]
    return {"positions": np.concatenate(rows)}
"""


def interpreter(version: str) -> Path | None:
    """A Python of a version that runs: this one, on the PATH, or pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [sys.executable if version == RUNNING else shutil.which(f"python{version}")]
    places += sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    for place in filter(None, places):
        command = [str(place), "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
        if ended.stdout.strip() == version:
            return Path(place)
    return None


def required(found: Distribution, seen: dict[str, Distribution]) -> None:
    """Enter the distributions that one needs, without extras, as they are here."""
    for requirement in map(Requirement, found.requires or ()):
        name = canonicalize_name(requirement.name)
        if name not in seen and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            seen[name] = distribution(name)
            required(seen[name], seen)


def link_dependencies(site: Path) -> None:
    """What the installed wheel requires, and no more, from the environment that runs this test."""
    (suite,) = distributions(name="inputmeta-conformance", path=[str(site)])
    seen: dict[str, Distribution] = {}
    required(suite, seen)
    for found in seen.values():
        for top in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(str(found.locate_file(top)))


@pytest.fixture(scope="module")
def programs(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a fresh environment in which the wheel is installed with what it requires."""
    version = request.param
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version}")
    environment = tmp_path_factory.mktemp("pure") / "environment"
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(environment)], check=True, timeout=60)
    install = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    options = ["--no-compile", "--only-binary=:all:", "--disable-pip-version-check", f"--constraint={CONSTRAINTS}"]
    options += ["--no-deps"] if version == RUNNING else []
    subprocess.run([*install, *options, str(wheel)], check=True, timeout=120)
    if version == RUNNING:
        (site,) = environment.glob("lib/python*/site-packages")
        link_dependencies(site)
    return environment / "bin"


def run(programs: Path, *command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    hidden = ("PYTHONPATH", "PYTHONHOME", "PYTHONPYCACHEPREFIX")
    variables = {key: value for key, value in os.environ.items() if key not in hidden}
    return subprocess.run(
        [str(programs / command[0]), *command[1:]],
        check=False, cwd=folder, env=variables, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    "programs", [pytest.param(v, marks=[] if v == RUNNING else pytest.mark.slow) for v in PYTHONS], indirect=True
)
def test_the_suite_works_without_torch_and_engine(programs: Path, tmp_path: Path) -> None:
    every = run(programs, "python", "-W", "error::SyntaxWarning", "-c", IMPORT_ALL, folder=tmp_path)
    assert every.returncode == 0, every.stderr
    missing = json.loads(every.stdout)
    assert {name for name, module in missing.items() if module == "pytest"} >= {"suite.plugin"}
    assert {name: module for name, module in missing.items() if not name.startswith("suite.")} == NEEDS_TORCH

    (tmp_path / "their.py").write_text(SUBJECT)
    fuzzed = run(programs, "inputmeta", "fuzz", "--subject", "their:build", "--seconds", "0.5", folder=tmp_path)
    assert fuzzed.returncode == exits.CONFORMS, fuzzed.stdout + fuzzed.stderr
    assert " cells compared: PASS " in fuzzed.stdout


@pytest.mark.slow
@pytest.mark.parametrize("programs", [RUNNING], indirect=True)
def test_who_asks_for_the_engine_is_told_what_to_install(programs: Path, tmp_path: Path) -> None:
    listed = run(programs, "inputmeta", "subject", "list", folder=tmp_path)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout.startswith("engine ")
    for command in (
        ("inputmeta", "fuzz", "--seconds", "1"),
        ("inputmeta", "check", "--subject", "engine-cuda", "--in-process"),
        ("python", "-m", "inputmeta.conformance.benchmarks"),
    ):
        refused = run(programs, *command, folder=tmp_path)
        assert refused.returncode == exits.NO_SUBJECT, refused.stdout + refused.stderr
        (line,) = refused.stderr.splitlines()
        assert line.endswith("needs the engine: pip install 'inputmeta-conformance[engine]'")
