"""The command `explain`: what it says, and one line for what it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.commands.main import app


def case(start: str) -> Path:
    """The case of the corpus whose file begins so."""
    (path,) = bundled_corpus().glob(f"{start}*.json")
    return path


def test_it_tells_a_cell() -> None:
    done = CliRunner().invoke(app, ["explain", str(case("agree-compact")), "slot_mapping_store_swa", "1"])
    assert done.exit_code == exits.CONFORMS
    assert done.stdout.startswith("slot_mapping_store_swa[1] = 22  F-RING\n")
    assert "state_id * swa_block_size + pos % swa_block_size = 2 * 8 + 6 % 8 = 22" in done.stdout


@pytest.mark.parametrize(
    ("start", "arguments", "message"),
    [
        ("agree-compact", ("positions", "1,x"), "1,x: a cell is ROW or ROW,COLUMN, counted from 0"),
        ("agree-compact", ("positions", "9"), "positions: row 9 of 5"),
        ("agree-compact", ("positions", "0", "--step", "3"), "step 3, but there are 1"),
        ("alias-a-batch-built-again", ("positions", "0"), "steps; say which with --step"),
        ("p-len", ("positions", "0"), "the step breaks a precondition, so no field has a value: P-LEN"),
    ],
)
def test_what_it_cannot_tell_is_one_line(start: str, arguments: tuple[str, ...], message: str) -> None:
    (path, *_) = sorted(bundled_corpus().glob(f"{start}*.json"))
    done = CliRunner().invoke(app, ["explain", str(path), *arguments])
    assert done.exit_code == exits.BAD_USAGE
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
