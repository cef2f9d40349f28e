"""The help of every command: an example each, what the list says of it, and nothing imported for the list."""

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.commands.main import COMMANDS, app

GROUPS = {"subject": ("list", "check"), "corpus": ("add", "lint", "fmt", "list")}
CALLS = [(name, *rest) for name in COMMANDS for rest in ([(one,) for one in GROUPS[name]] if name in GROUPS else [()])]


def help_of(*call: str) -> str:
    result = CliRunner().invoke(app, [*call, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return " ".join(result.output.split())


def test_the_list_begins_with_fuzz_and_has_every_exit_code() -> None:
    text = help_of()
    places = [text.index(f"│ {name} ") for name in COMMANDS]
    assert places == sorted(places)
    assert next(iter(COMMANDS)) == "fuzz"
    assert all(f" {code} " in text for code in exits.MEANINGS)


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_command_shows_an_example_of_itself(call: tuple[str, ...]) -> None:
    example = help_of(*call).partition("Example: ")[2]
    assert f"inputmeta {' '.join(call)} " in example.partition("╭")[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    """Each line of the list is how the command's own help begins."""
    group = typer.main.get_command(app)
    help_text = group.get_command(None, name).help or ""
    assert " ".join(help_text.split()).startswith(COMMANDS[name].rstrip("."))


def test_the_list_imports_no_command() -> None:
    code = (
        "import sys; from inputmeta.conformance.commands.main import app; app(['--help'], standalone_mode=False);"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'numpy', 'hypothesis', 'msgspec'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
