"""From a running engine to a case of its corpus: the toy engine's fault is captured, reduced and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.examples import capturing_engine

SUBJECT = ("--subject", "inputmeta.conformance.examples.capturing_engine:Builder")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.slow
def test_a_live_batch_becomes_a_case_of_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INPUTMETA_CAPTURE", "captured")
    monkeypatch.setenv("INPUTMETA_CAPTURE_EVERY", "20")
    capturing_engine.serve(requests=40, tokens=60, seed=1)
    captured = sorted(Path("captured").glob("*.json"))
    assert len(captured) == 3
    assert run("replay", *captured, *SUBJECT).exit_code == exits.DIFFERS
    assert run("reduce", *captured, *SUBJECT).exit_code == exits.DIFFERS
    (reduced,) = Path("inputmeta-failures").glob("*.json")
    ((sequence,),) = load_case(reduced).steps
    assert (sequence.seqlen_k, len(sequence.block_table)) == (2, 2)
    assert run("corpus", "add", reduced, "--corpus", "cases", "--title", "F-CDEC: the last cell").exit_code == 0
    assert run("check", *SUBJECT, "--corpus", "cases").exit_code == exits.DIFFERS
    monkeypatch.setattr(capturing_engine, "slots", right)
    assert run("check", *SUBJECT, "--in-process", "--corpus", "cases").exit_code == exits.CONFORMS


def right(lengths: list[int], tables: list[list[int]], block_size: int) -> list[int]:
    """The engine's slots without its fault."""
    last = [(length - 1, table) for length, table in zip(lengths, tables, strict=True)]
    return [table[position // block_size] * block_size + position % block_size for position, table in last]
