"""What first users stumble over: options that exclude each other, refusals that pass, folders of their own."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.version import VERSION

CORPUS = bundled_corpus()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def case(pattern: str) -> Path:
    return next(iter(sorted(CORPUS.glob(pattern))))


@pytest.mark.parametrize("command", [("fuzz",), ("check",), ("replay", "case.json"), ("trace", "file.jsonl")])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--subject", "oracle", "--subject-command", "x"), "--subject and --subject-command: give one of them"),
        (("--subject-json",), "--subject-json: belongs to --subject-command"),
    ],
)
def test_options_that_exclude_each_other(command: tuple[str, ...], options: tuple[str, ...], says: str) -> None:
    ended = run(*command, *options)
    assert (ended.exit_code, ended.stderr) == (exits.BAD_USAGE, f"inputmeta: {says}\n")


def test_version_and_short_help() -> None:
    assert run("--version").output == f"inputmeta {VERSION}\n"
    assert "Usage: inputmeta" in run("-h").output
    assert "Usage: inputmeta fuzz" in run("fuzz", "-h").output
    assert "Usage: inputmeta corpus add" in run("corpus", "add", "-h").output


def test_replay_says_what_was_refused_as_it_must_be(tmp_path: Path) -> None:
    broken, whole = case("p-len*.json"), case("f-pos*.json")
    ended = run("replay", broken, whole, "--subject", "oracle", "--in-process")
    assert ended.exit_code == exits.CONFORMS
    refused, compared = ended.output.splitlines()
    assert refused == f"PASS {broken}: refused as required: P-LEN, P-TABLE"
    assert "refused" not in compared
    insists = run("replay", broken, "--valid", "--subject", "oracle", "--in-process")
    assert insists.exit_code == exits.REFUSED
    assert f"{broken}: step 0: P-LEN: " in insists.stderr
    assert insists.stdout == ""
    assert run("replay", whole, "--valid", "--subject", "oracle", "--in-process").exit_code == exits.CONFORMS


def test_a_module_of_the_current_folder_is_found_in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stranger_of_this_test.py").write_text(
        "from inputmeta.conformance.subjects.oracle import OracleSubject\n"
        "class Mine(OracleSubject):\n    def __init__(self):\n        super().__init__(name='mine')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry not in {"", str(tmp_path)}])
    ended = run("replay", case("f-pos*.json"), "--subject", "stranger_of_this_test:Mine", "--in-process")
    assert ended.exit_code == exits.CONFORMS, ended.output


def test_a_corpus_is_named_before_something_is_added(tmp_path: Path) -> None:
    before = sorted(CORPUS.iterdir())
    ended = run("corpus", "add", case("f-pos*.json"))
    assert ended.exit_code == exits.BAD_USAGE
    assert "--corpus" in ended.stderr
    assert sorted(CORPUS.iterdir()) == before
    own = tmp_path / "cases"
    assert run("corpus", "add", case("f-pos*.json"), "--corpus", own).exit_code == exits.CONFORMS
    other = tmp_path / "more"
    assert run("corpus", "add", case("f-ring*.json"), "--corpus", other).exit_code == exits.CONFORMS
    both = run("check", "--subject", "oracle", "--in-process", "--examples", 0, "--corpus", own, "--corpus", other)
    assert both.output.splitlines() == [
        f"corpus {name}: 1 passed, 0 failed, 0 unsupported" for name in ("cases", "more")
    ]


def test_a_passing_check_is_short() -> None:
    call = ("check", "--subject", "oracle", "--in-process", "--examples", 100, "--path", "decode", "--corpus", CORPUS)
    assert len(run(*call).output.splitlines()) < 8
    assert "F-RING" in run(*call, "--coverage").output
