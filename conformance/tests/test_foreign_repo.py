"""A repo of a stranger, with packages that are named as ours are, uses the installed wheels.

The packages ``engine``, ``oracle``, ``corpus`` and ``conformance`` below are the stranger's. The repo is installed for
editing, so that whatever a wheel puts at the top of ``site-packages`` comes before it.
"""

import os
import re
import subprocess
import sys
import textwrap
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.cases.files import load_case, save_case

pytestmark = pytest.mark.slow

NAMES = ("engine", "oracle", "corpus", "conformance")
SUBJECTS = {
    "engine.subject:build": """
        import numpy as np
        from conformance.refusing import refuse_broken
        from oracle.positions import positions

        def build(request):  # a function
            if request.path != "decode":
                raise NotImplementedError
            refuse_broken(request)
            return {"positions": positions(request.sequences), "total_q": sum(s.seqlen_q for s in request.sequences)}
        """,
    "oracle.subject:Positions": """
        from conformance.refusing import refuse_broken
        from inputmeta.conformance.subjects import Capabilities
        from oracle.positions import positions

        class Positions:  # a class, with claims
            name = "their oracle"
            capabilities = Capabilities(paths=frozenset({"decode"}), fields=frozenset({"positions"}))

            def build(self, request):
                refuse_broken(request)
                return {"positions": positions(request.sequences)}
        """,
    "corpus.subject:SUBJECT": """
        from oracle.subject import Positions

        SUBJECT = Positions()  # an object
        """,
    "conformance.subject:make": """
        from oracle.subject import Positions

        def make():  # a function that gives one
            return Positions()
        """,
}
MODULES = {
    "oracle/positions.py": """
        import numpy as np

        def positions(sequences):
            return np.concatenate([np.arange(s.seqlen_k - s.seqlen_q, s.seqlen_k, dtype=np.int32) for s in sequences])
        """,
    "conformance/refusing.py": """
        from inputmeta.conformance.subjects import Rejection

        def refuse_broken(request):
            for error in request.violations():
                raise Rejection(error.condition, error.sequence, error.field, str(error))
        """,
    "tests/test_positions.py": """
        from types import SimpleNamespace
        from oracle.positions import positions

        def test_positions():
            assert positions([SimpleNamespace(seqlen_q=2, seqlen_k=5)]).tolist() == [3, 4]
        """,
    **{
        f"tests/test_{name}.py": f"""
            import {name}

            def test_it_is_theirs():
                assert {name}.OWNER == "a stranger"
            """
        for name in NAMES
    },
    "pytest.ini": """
        [pytest]
        addopts = --import-mode=importlib -p no:cacheprovider
        """,
}
CASES = ("win-a-window-of-4-in-decode-at-positions-0-2-3-4-9", "p-table-a-negative-block-is-refused")
PROBE = """
import sys, inputmeta, inputmeta.engine._core, engine, oracle, corpus, conformance
assert not [finder for finder in sys.meta_path if "skbc" in type(finder).__module__], "an editable install of ours"
for module in (inputmeta, inputmeta.engine._core, engine, oracle, corpus, conformance):
    print(module.__file__)
"""


@dataclass(frozen=True)
class Stranger:
    """A fresh environment with the wheels in it, and the repo."""

    environment: Path
    repo: Path

    @property
    def packages(self) -> Path:
        """Folder of what is installed."""
        (found,) = self.environment.glob("lib/python*/site-packages")
        return found

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a program of the environment in the repo; neither is on the path by itself."""
        variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
        program = str(self.environment / "bin" / command[0])
        return subprocess.Popen(
            [program, *command[1:]],
            cwd=self.repo,
            env=variables | {"PYTHONSAFEPATH": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str) -> tuple[int, str]:
        """Exit code and output."""
        return ended(self.start(*command))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and output of a process once it has ended."""
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip())


@pytest.fixture(scope="module")
def stranger(wheel: Path, engine_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    """The two wheels alone are installed. Their dependencies are those of the environment that runs this test,
    which come last on the path; `.pth` files there, an editable install's among them, are not read.
    """
    base = tmp_path_factory.mktemp("stranger")
    found = Stranger(base / "environment", base / "repo")
    venv.create(found.environment, symlinks=True, with_pip=False)
    install = [sys.executable, "-m", "pip", "--python", str(found.environment / "bin" / "python"), "install"]
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*install, *options, str(wheel), str(engine_wheel)], check=True, timeout=120)
    for name in NAMES:
        write(found.repo / name / "__init__.py", "OWNER = 'a stranger'\n")
    for subject, text in SUBJECTS.items():
        write(found.repo / f"{subject.partition('.')[0]}/subject.py", text)
    for name, text in MODULES.items():
        write(found.repo / name, text)
    for name in CASES:
        save_case(load_case(bundled_corpus() / f"{name}.json"), found.repo / "cases" / f"{name}.json")
    outer = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (found.packages / "their_repo.pth").write_text(f"{found.repo}\n")
    (found.packages / "zz_dependencies.pth").write_text("".join(f"{path}\n" for path in outer))
    return found


def test_every_package_is_the_one_that_is_meant(stranger: Stranger) -> None:
    code, output = stranger.run("python", "-c", PROBE)
    assert code == 0, output
    ours, native, *theirs = map(Path, output.split())
    assert ours == stranger.packages / "inputmeta" / "__init__.py"
    assert native.parent == stranger.packages / "inputmeta" / "engine"
    assert theirs == [stranger.repo / name / "__init__.py" for name in NAMES]


def test_their_own_tests_run_beside_our_plugin(stranger: Stranger) -> None:
    code, output = stranger.run("python", "-m", "pytest")
    assert code == 0, output
    assert re.search(r"^plugins: .*inputmeta-conformance-", output, re.MULTILINE)
    assert "5 passed" in output


def test_a_subject_in_each_package_runs_the_suite(stranger: Stranger) -> None:
    options = ["--subject-corpus=cases", "--subject-examples=5", "-k", "decode and not decode_zos or cases"]
    suite = ["python", "-m", "pytest", "--pyargs", "inputmeta.conformance", *options, "--subject"]
    running = {subject: stranger.start(*suite, subject) for subject in SUBJECTS}
    for subject, process in running.items():
        code, output = ended(process)
        assert code == 0, (subject, output)
        assert " passed" in output, subject


def test_the_command_checks_a_subject_of_theirs(stranger: Stranger) -> None:
    command = ["inputmeta", "check", "--corpus", "cases", "--examples", "5", "--path", "decode", "--subject"]
    code, output = stranger.run(*command, "conformance.subject:make")
    assert code == 0, output
    assert "corpus cases: 1 passed" in output


def test_a_package_of_ours_with_such_a_name_would_break_them(stranger: Stranger) -> None:
    """What the tests above are for: a wheel with a package beside ``inputmeta`` hides the stranger's."""
    planted = [stranger.packages / name / "__init__.py" for name in NAMES]
    for path in planted:
        write(path, "")
    try:
        code, output = stranger.run("python", "-m", "pytest", "--continue-on-collection-errors")
    finally:
        for path in planted:
            path.unlink()
            path.parent.rmdir()
    assert code == 1, output
    assert "4 failed, 1 error" in output
