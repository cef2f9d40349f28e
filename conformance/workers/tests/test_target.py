"""A subject in another interpreter: it runs there with what is there, and what stands in the way is one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.workers.target import Target

MODULE = """
import sys
from inputmeta.conformance.subjects.oracle import OracleSubject
def subject():
    return OracleSubject(name=f"in {sys.flags.no_user_site}")
"""
BESIDE = Path(__file__).resolve().parents[3]


def interpreter(folder: Path, words: str) -> str:
    """An interpreter of another name, which can be told from ours by a flag."""
    script = folder / "other-python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_a_subject_runs_in_the_interpreter_that_is_named(tmp_path, monkeypatch) -> None:
    (tmp_path / "subject_of_this_test.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(BESIDE), str(tmp_path)]))
    python = interpreter(tmp_path, "-s")
    target = Target(subject="subject_of_this_test:subject", python=python)
    assert target.options == f"--subject subject_of_this_test:subject --subject-python {python}"
    with target.open() as subject:
        assert subject.name == "in 1"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-I -S", r"other-python: cannot import the suite \(ModuleNotFoundError: No module named 'inputmeta'\): pip "),
        (None, "nowhere/python: No such file or directory"),
    ],
)
def test_an_interpreter_that_cannot_serve_is_said_in_one_line(tmp_path, words, says) -> None:
    python = "nowhere/python" if words is None else interpreter(tmp_path, words)
    with pytest.raises(SubjectError, match=says) as raised, Target(subject="oracle", python=python).open():
        pass
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("wrong", [{"command": "true"}, {"in_process": True}])
def test_an_interpreter_belongs_to_a_subject_in_a_worker(wrong) -> None:
    with pytest.raises(SubjectError, match="--subject-python"), Target(python=sys.executable, **wrong).open():
        pass
