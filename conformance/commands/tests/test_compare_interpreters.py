"""``compare`` with interpreters of their own for its subjects."""

from __future__ import annotations

import sys

import pytest
import typer

from inputmeta.conformance.commands.compare import again, interpreters
from inputmeta.conformance.workers.target import Target


@pytest.mark.parametrize(
    ("pythons", "want"),
    [([], [None, None]), (["p"], ["p", "p"]), (["p", "-"], ["p", None]), (["-"], [None, None])],
)
def test_one_interpreter_is_that_of_all_subjects_and_several_are_those_of_each(pythons, want) -> None:
    assert interpreters(["a", "b"], pythons) == want


@pytest.mark.parametrize(("subjects", "pythons"), [(["a"], ["p", "q"]), ([], ["p"]), (["a", "b", "c"], ["p", "q"])])
def test_interpreters_that_belong_to_no_subject_are_a_usage_error(subjects, pythons, capsys) -> None:
    with pytest.raises(typer.Exit) as ended:
        interpreters(subjects, pythons)
    assert ended.value.exit_code == 2
    assert "--subject-python" in capsys.readouterr().err


def test_the_command_that_compares_again_names_every_interpreter() -> None:
    targets = [Target("a", python=sys.executable), Target("b"), Target("", "program")]
    assert again(targets) == (
        f"--subject a --subject-python {sys.executable} --subject b --subject-python - --subject-command program"
    )
    assert again(targets[1:]) == "--subject b --subject-command program"
