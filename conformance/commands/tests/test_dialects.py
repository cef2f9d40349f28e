"""A run says under which dialects its subject conforms."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.mutants import dialect_check
from inputmeta.conformance.mutants.translated import batches
from inputmeta.conformance.protocol.convert import capabilities_of, claims_message
from inputmeta.conformance.subjects.oracle import OracleSubject

SUBJECTS = '''
import dataclasses
import numpy as np
from inputmeta.conformance.dialects import Dialect, dialects_of, forward, translate
from inputmeta.conformance.subjects.oracle import OracleSubject

class Adapter(OracleSubject):
    """An engine with dialects, here the oracle spoken in them, and its adapter."""

    dialects = ("int64", "newest-first", "its-own")

    def __init__(self):
        super().__init__(name="adapter")
        self.capabilities = dataclasses.replace(self.capabilities, dialects=frozenset(self.dialects), in_place=False)

    def build(self, request):
        known = dialects_of(self.dialects[:2])
        return translate(known, request, self.engine(forward(known, request, super().build(request))))

    def engine(self, fields):
        return fields

class Stale(Adapter):
    """Its 64-bit cells have upper halves."""

    def engine(self, fields):
        return fields | {"positions": fields["positions"] + 2**32}

ABSOLUTE = Dialect(
    name="its-own",
    says="window cells have no sign",
    fields=frozenset({"kv_swa_index"}),
    forward=lambda _, fields: {k: np.abs(v) if k == "kv_swa_index" else v for k, v in fields.items()},
    translate=lambda _, fields: fields,
)

class Misnamed(Adapter):
    dialects = ("int64", "newest-first", "Its own\\n")
'''
CASE = str(sorted(bundled_corpus().glob("agree*.json"))[0])


@pytest.fixture(autouse=True)
def _subjects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adapters_of_this_test.py").write_text(SUBJECTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(*args: str, subject: str = "Adapter") -> str:
    ended = CliRunner().invoke(app, [*args, "--subject", f"adapters_of_this_test:{subject}", "--in-process"])
    return ended.output


def test_heads_and_conclusions_name_the_dialects() -> None:
    under = "adapter under: int64, its-own, newest-first"
    replayed = run("replay", CASE)
    assert f"replay {under}" in replayed
    assert "PASS" in replayed
    assert f"fuzz {under}: seed 1" in run("fuzz", "--seed", "1", "--seconds", "0.3")
    quiet = run("fuzz", "--seed", "1", "--seconds", "0.3", "--quiet")
    assert quiet.startswith(f"fuzz {under}: seed 1")


def test_a_fault_behind_a_dialect_is_told_by_its_value() -> None:
    told = run("replay", CASE, subject="Stale")
    assert "MISMATCH" in told
    assert "dtype int64, want int32; [0] holds 42949" in told


def test_names_are_plain_and_travel_in_hello() -> None:
    assert "capabilities.dialects: 'Its own\\n' is no name: lower-case letters" in run(
        "replay", CASE, subject="Misnamed"
    )
    claims = dataclasses.replace(OracleSubject().capabilities, dialects=frozenset({"int64", "its-own"}))
    assert capabilities_of(claims_message(claims)) == claims


def test_a_dialect_of_the_adapters_own_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect_check, "put_mutants", lambda *_: [])
    monkeypatch.setattr(dialect_check, "put_changed_cells", lambda *_: None)
    monkeypatch.setattr(dialect_check, "batches", lambda dialects, claims, _: batches(dialects, claims, 8))
    call = ["subject", "check", "--subject", "adapters_of_this_test:Adapter", "--dialect"]
    ended = CliRunner().invoke(app, [*call, "int64,adapters_of_this_test:ABSOLUTE"])
    assert ended.exit_code == exits.DIFFERS, ended.output
    assert "HIDDEN what is right comes back wrong in kv_swa_index: decode" in ended.output
    for wrong, text in (
        ("SUBJECTS", "has no attribute SUBJECTS"),
        ("Stale", "is type, not inputmeta.conformance.dial"),
    ):
        ended = CliRunner().invoke(app, [*call, f"adapters_of_this_test:{wrong}"])
        assert ended.exit_code in (exits.BAD_USAGE, exits.NO_SUBJECT)
        assert text in ended.stderr
