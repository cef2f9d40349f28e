"""Settings of the user's repository: defaults of options, over which the command line wins."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.commands import check, compare, fuzz, reduce, replay, trace
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.settings import Settings, SettingsError, find, load, of_command


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in whose subfolder the commands run."""
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.slow
def test_they_are_the_defaults_of_the_commands(repo: Path) -> None:
    (repo / "inputmeta.toml").write_text(
        'subject = "mutant:F-POS.one-late"\nsave-dir = "made"\nvalid-only = true\n'
        "[check]\nexamples = 0\n[fuzz]\nseconds = 5\nseed = 5\n"
    )
    fuzzed = run("fuzz", "--in-process")
    assert fuzzed.stdout.startswith("fuzz mutant:F-POS.one-late: seed 5, 5 s"), fuzzed.output
    assert list((repo / "made").glob("*.json"))  # relative to the file, not to where the command was called
    assert not (repo / "inner" / "made").exists()
    done = run("check", "--in-process", "--subject", "oracle")
    assert done.stdout.startswith("corpus cases: "), done.output
    assert "generated" not in done.stdout


def test_the_command_line_wins(repo: Path) -> None:
    (repo / "pyproject.toml").write_text(
        '[tool.inputmeta]\nsubject = "nothing:here"\n[tool.inputmeta.fuzz]\nseed = 5\n'
    )
    done = run("fuzz", "--in-process", "--subject", "oracle", "--seconds", "0.2", "--seed", "6")
    assert done.stdout.startswith("fuzz oracle: seed 6, 0.2 s"), done.output
    assert run("fuzz", "--in-process").exit_code == exits.NO_SUBJECT


def test_a_subject_of_the_command_line_replaces_a_program_of_the_settings(repo: Path) -> None:
    (repo / "inputmeta.toml").write_text('subject-command = "no-such-program"\nsubject-json = true\n')
    done = run("fuzz", "--in-process", "--subject", "oracle", "--seconds", "0.2", "--seed", "6")
    assert done.exit_code == exits.CONFORMS, done.output
    (repo / "inputmeta.toml").write_text('subject = "oracle"\n')
    done = run("fuzz", "--subject-command", "no-such-program")
    assert done.exit_code == exits.NO_SUBJECT
    assert "give one of them" not in done.output


def test_the_nearest_file_counts_and_a_project_without_the_table_is_passed_over(repo: Path) -> None:
    (repo / "inputmeta.toml").write_text("")
    (repo / "inner" / "pyproject.toml").write_text("[tool.other]\n")
    assert find(Path.cwd()) == repo / "inputmeta.toml"
    (repo / "inner" / "pyproject.toml").write_text("[tool.inputmeta]\n")
    assert find(Path.cwd()) == repo / "inner" / "pyproject.toml"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("inputmeta.toml", "subjet = 'x'", "Object contains unknown field `subjet`"),
        ("inputmeta.toml", "[fuzz]\nexamples = 3", "Object contains unknown field `examples` - at `$.fuzz`"),
        ("inputmeta.toml", "timeout = 'long'", "Expected `float | null`, got `str` - at `$.timeout`"),
        ("inputmeta.toml", "timeout = 0", "Expected `float` > 0.0 - at `$.timeout`"),
        ("inputmeta.toml", "[check]\nseed = -1", "Expected `int` >= 0 - at `$.check.seed`"),
        ("inputmeta.toml", "subject = 'x'\nsubject-command = 'y'", "subject and subject-command: give one of them"),
        ("inputmeta.toml", "subject = ", "no TOML: "),
        ("pyproject.toml", "[tool.inputmeta]\nseed = 1", "tool.inputmeta: Object contains unknown field `seed`"),
    ],
)
def test_what_means_nothing_is_one_line(name: str, text: str, says: str, repo: Path) -> None:
    (repo / name).write_text(text)
    done = run("fields")
    assert done.exit_code == exits.BAD_USAGE
    assert done.stderr.count("\n") == 1
    assert f"{repo / name}: " in done.stderr
    assert says in done.stderr


def test_two_files_of_one_folder_are_one_too_many(repo: Path) -> None:
    (repo / "inputmeta.toml").write_text("")
    (repo / "pyproject.toml").write_text("[tool.inputmeta]\n")
    with pytest.raises(SettingsError, match=r"has a table \[tool.inputmeta\] too; keep one of them"):
        find(repo)


def test_every_key_is_an_option_of_a_command() -> None:
    """A key that no command has would be taken and mean nothing."""
    commands = {"check": check, "compare": compare, "fuzz": fuzz, "reduce": reduce, "replay": replay, "trace": trace}
    options = {}
    for name, module in commands.items():
        command = typer.main.get_command(module.app)
        assert not isinstance(command, TyperGroup)
        options[name] = {opt.removeprefix("--") for parameter in command.params for opt in parameter.opts}
    tables = {"fuzz", "check", "compare", "reduce", "trace"}
    for name in Settings.__struct_fields__:
        key = name.replace("_", "-")
        if name in tables:
            own = getattr(Settings(), name).__struct_fields__
            assert {part.replace("_", "-") for part in own} <= options[name]
        else:
            assert name == "case_budget" or any(key in of for of in options.values()), key


def test_values_of_every_kind_arrive(tmp_path: Path) -> None:
    file = tmp_path / "inputmeta.toml"
    file.write_text(
        'corpus = ["cases", "/all"]\nknown-failures = "known.toml"\npath = ["decode"]\n[reduce]\njobs = 2\n'
    )
    settings = load(file)
    assert settings.corpus == (str(tmp_path / "cases"), "/all")
    assert of_command(settings, "reduce") == {
        "corpus": (str(tmp_path / "cases"), "/all"),
        "known-failures": str(tmp_path / "known.toml"),
        "path": ("decode",),
        "jobs": 2,
    }
    assert msgspec.structs.asdict(settings.fuzz) == {"seconds": None, "seed": None, "coverage": None}
