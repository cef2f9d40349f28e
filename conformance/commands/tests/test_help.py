"""The help of every command: an example each, what the list says of it, and nothing imported for the list."""

import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.commands.main import COMMANDS, app

GROUPS = {"subject": ("list", "check"), "engines": ("list", "fetch"), "corpus": ("add", "lint", "fmt", "list")}
CALLS = [(name, *rest) for name in COMMANDS for rest in ([(one,) for one in GROUPS[name]] if name in GROUPS else [()])]


def help_of(*call: str) -> str:
    result = CliRunner().invoke(app, [*call, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return " ".join(result.output.split())


def test_the_list_begins_with_fuzz_and_has_every_exit_code() -> None:
    text = help_of()
    places = [text.index(f" {name} {COMMANDS[name]}") for name in COMMANDS]
    assert places == sorted(places)
    assert next(iter(COMMANDS)) == "fuzz"
    assert all(f" {code} " in text for code in exits.MEANINGS)


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_command_shows_an_example_of_itself(call: tuple[str, ...]) -> None:
    example = help_of(*call).partition("Example: ")[2]
    assert f"inputmeta {' '.join(call)} " in example.partition(" Options: ")[0]


@pytest.mark.parametrize("call", [(), *[(name,) for name in GROUPS], *CALLS], ids=" ".join)
def test_help_is_readable_at_80_columns(call: tuple[str, ...]) -> None:
    """No line is longer, no text is cut, and no word is broken: each that is declared is there."""
    shown = CliRunner().invoke(app, [*call, "--help"], env={"COLUMNS": "80"}).output
    assert max(map(len, shown.splitlines())) <= 80
    assert words_of(call) <= set(shown.split())
    assert {word for word in shown.split() if word.endswith(("…", "..."))} <= {
        "[ARGS]...",
        "{CASE…}...",
        "[CASE…]...",
        "CASE…",
        "{RELEASE…}...",
        "RELEASE…",
    }


def words_of(call: tuple[str, ...]) -> set[str]:
    """Every word of what a command and its options say of themselves, and the names of the options."""
    command = typer.main.get_command(app)
    for name in call:
        command = command.get_command(None, name)
    texts = [command.help.replace("\b", "")]
    for parameter in command.params:
        names = [name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")]
        texts += [getattr(parameter, "help", None) or "", *names]
    return {word for text in texts for word in text.split()}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    """Each line of the list is how the command's own help begins."""
    group = typer.main.get_command(app)
    help_text = group.get_command(None, name).help or ""
    assert " ".join(help_text.split()).startswith(COMMANDS[name].rstrip("."))


HEAVY = (
    "import atexit, sys; atexit.register(lambda: print(sorted({name.partition('.')[0] for name in sys.modules}"
    " & {'torch', 'numpy', 'hypothesis', 'msgspec', 'rich'})));"
    "from inputmeta.conformance.commands.main import app; "
)


def test_the_list_imports_no_command() -> None:
    code = HEAVY + "app(['--help'], prog_name='inputmeta')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def completed(words: str, number: int) -> list[str]:
    """What bash is offered for the last of some words, then what was imported for it."""
    asked = {"_INPUTMETA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    code = HEAVY + "app([], prog_name='inputmeta')"
    environment = {**os.environ, **asked}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_shell_completes_commands_without_importing_them_and_options() -> None:
    assert completed("inputmeta f", 1) == ["fuzz", "fields", "[]"]
    assert completed("inputmeta ", 1) == [*COMMANDS, "[]"]
    assert completed("inputmeta fuzz --se", 2)[:-1] == ["--seconds", "--seed"]
    assert completed("inputmeta corpus l", 2)[:-1] == ["lint", "list"]
    assert completed("inputmeta fuzz --path d", 3)[:-1] == ["decode", "decode_zos"]


def test_a_shell_is_told_how_to_complete() -> None:
    asked = [sys.executable, "-c", HEAVY + "app(['--show-completion', 'bash'], prog_name='inputmeta')"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "complete_bash" in done.stdout
    assert "--install-completion" in help_of()
