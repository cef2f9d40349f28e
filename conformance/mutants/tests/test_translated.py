"""No dialect hides a fault, and one that does is seen to."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.dialects import DIALECTS, Dialect, dialects_of
from inputmeta.conformance.dialects.base import each, integer_fields
from inputmeta.conformance.dialects.flavours import FLAVOURS
from inputmeta.conformance.mutants import MUTANTS, dialect_check
from inputmeta.conformance.mutants.dialect_check import check_dialects
from inputmeta.conformance.mutants.spread import put_spread
from inputmeta.conformance.mutants.translated import (
    CHANGED_CELL,
    Fault,
    Faults,
    batches,
    put_changed_cells,
    put_mutants,
)
from inputmeta.conformance.subjects.oracle import OracleSubject

CLAIMS = OracleSubject().capabilities
CASES = 20
"""The command takes more, and every mutant."""
MUTANTS_PUT = (
    "F-RING.one-row-short",
    "F-SWADEC.full-window",
    "F-CPOS.placeholder-stores",
    "F-CSLOT.block-not-scaled",
    "F-PIVOT.self-left-out",
    "F-BLOCKS.floor",
    "F-QIDX.minus-one",
    "F-CU.leading-zero",
    "F-KS.key-plus-one",
    "F-CAOFF.stride",
    "no-keys-as-minus-1",
    "sentinel-clamped-to-cell-0",
    "returns-extra-cells",
    "returns-int64",
    "returns-int64-with-a-stale-upper-half",
    "returns-uint32",
    "leaves-the-padding-of-an-index",
)
MIRROR_MUTANTS = ("F-ZIGZAG.swapped", "F-ZIGZAG.floor", "F-REVERSE.owner-stride")
TRANSLATED = [name for name, dialect in DIALECTS.items() if dialect.translate is not None]


def put(dialects: tuple[Dialect, ...], cases: int = CASES) -> Faults:
    """What came of the mutants above and of changed cells."""
    given = batches(dialects, CLAIMS, cases)
    faults = Faults(dialects)
    put_mutants(faults, given, MUTANTS_PUT)
    put_changed_cells(faults, given[:4], most=2)
    return faults


@pytest.mark.parametrize("name", TRANSLATED)
def test_no_dialect_hides_a_fault(name: str) -> None:
    faults = put(dialects_of([name, *DIALECTS[name].requires]))
    assert not faults.hidden(), faults.hidden_at
    assert {fault.name for fault in faults.outcomes} > {CHANGED_CELL}
    assert {fault.name for fault in faults.invisible()} <= {
        "no-keys-as-minus-1",
        "returns-extra-cells",
        "returns-int64",
    }


def test_what_is_declared_invisible_names_mutants_and_is_counted() -> None:
    named = {told.mutant for dialect in DIALECTS.values() for told in dialect.invisible}
    assert named - {""} <= MUTANTS.keys()
    faults = put(dialects_of(["int64"]), cases=3)
    assert faults.invisible() == [Fault("FORM", "returns-int64", "positions")]
    assert list(faults.reasons.values()) == ["int64 is what the dialect says"]
    undeclared = put((dataclasses.replace(DIALECTS["int64"], invisible=()),), cases=3)
    assert undeclared.hidden() == [Fault("FORM", "returns-int64", "positions")]


def hidden_by(name: str, translate: object) -> set[tuple[str, str]]:
    """Faults that a dialect hides once its translation is another one: by name and field."""
    planted = dataclasses.replace(DIALECTS[name], translate=translate)  # type: ignore[arg-type]
    return {(fault.name, fault.field) for fault in put((planted,), cases=10).hidden()}


WRAPS = each(integer_fields(), lambda _, __, values: values.astype(np.int32))


def test_a_narrowing_that_wraps_is_seen() -> None:
    hidden = hidden_by("int64", WRAPS)
    assert {
        ("returns-int64-with-a-stale-upper-half", "positions"),
        ("returns-uint32", "slot_mapping_store_swa"),
    } <= hidden
    assert (CHANGED_CELL, "block_tables") in hidden


def test_an_order_that_is_sorted_away_is_seen() -> None:
    def ascending(_: object, __: str, index: np.ndarray) -> np.ndarray:
        return np.where(index >= 0, np.sort(np.where(index >= 0, index, 2**31 - 1)), -1).astype(index.dtype)

    assert (CHANGED_CELL, "kv_swa_full_index") in hidden_by("newest-first", each(["kv_swa_full_index"], ascending))


def test_rows_that_are_left_out_unread_are_seen() -> None:
    right = DIALECTS["token-rows"].translate
    assert right is not None

    def unread(request, fields):
        """Takes what the oracle's rows are, whatever the others hold."""
        spoken = {key: np.copy(value) for key, value in fields.items()}
        for key in [key for key in spoken if key.startswith("slot_mapping_store_ca.") and request.path == "prompt"]:
            n = int(key.partition(".")[2])
            positions = np.concatenate([np.arange(s.seqlen_k - s.seqlen_q, s.seqlen_k) for s in request.sequences])
            if spoken[key].shape == positions.shape:
                spoken[key][(positions + 1) % n != 0] = -1
        return right(request, spoken)

    assert (CHANGED_CELL, "slot_mapping_store_ca") in hidden_by("token-rows", unread)


def test_a_column_that_is_cut_unread_is_seen() -> None:
    def cut(request, _, index):
        return index[:, : request.config.window_size]

    assert {field for _, field in hidden_by("padded-width", each(["kv_swa_index", "kv_swa_full_index"], cut))} >= {
        "kv_swa_index"
    }


def test_a_null_block_that_passes_for_no_write_is_seen() -> None:
    right = DIALECTS["null-block-0"].translate
    assert right is not None

    def unread(request, fields):
        found = right(request, fields)
        slots = [key for key in found if key.startswith("slot_mapping_store_ca.")]
        return {**found, **{key: np.where(found[key] < -1, np.int32(-1), found[key]) for key in slots}}

    assert hidden_by("null-block-0", unread) == {(CHANGED_CELL, "slot_mapping_store_ca")}


@pytest.mark.slow
def test_the_command_tells_what_is_hidden_and_what_is_invisible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect_check, "put_mutants", partial(put_mutants, names=MUTANTS_PUT))
    monkeypatch.setattr(
        dialect_check, "put_changed_cells", lambda faults, given: put_changed_cells(faults, given[:1], 1)
    )
    monkeypatch.setattr(dialect_check, "batches", lambda dialects, claims, _: batches(dialects, claims, 4))
    call = ["subject", "check", "--subject", "oracle", "--dialect"]
    ended = CliRunner().invoke(app, [*call, "int64,padded-width"])
    assert ended.exit_code == exits.CONFORMS, ended.output
    assert "padded-width: windows have columns of -1 up to a multiple of 128" in ended.output
    assert "declared invisible (int64 is what the dialect says): returns-int64 in positions" in ended.output
    assert re.search(
        r"oracle under int64, padded-width: (\d+) faults: \d+ seen, 2 declared invisible, 0 hidden", ended.output
    )
    planted = dataclasses.replace(DIALECTS["int64"], translate=WRAPS)
    monkeypatch.setitem(DIALECTS, "int64", planted)
    ended = CliRunner().invoke(app, [*call, "int64", "--json"])
    assert ended.exit_code == exits.DIFFERS
    report = json.loads(ended.stdout)
    assert any(text.startswith("returns-int64-with-a-stale-upper-half in positions: ") for text in report["hidden"])
    assert len(report["hidden"]) == sum(line["hidden"] for line in report["lines"]) > 1


def test_the_command_refuses_what_it_does_not_know_and_says_when_nothing_was_checked() -> None:
    call = ["subject", "check", "--subject", "oracle", "--dialect"]
    ended = CliRunner().invoke(app, [*call, "newest"])
    assert (ended.exit_code, ended.stdout) == (exits.BAD_USAGE, "")
    assert "there is no dialect 'newest'; did you mean newest-first" in ended.stderr
    assert check_dialects(dialects_of(["newest-first"]), dataclasses.replace(CLAIMS, fields=frozenset())).lines == ()


def test_the_faults_of_the_mirror_break_a_relation_of_each_flavour() -> None:
    for flavour in FLAVOURS.values():
        faults = Faults(())
        assert put_spread(faults, flavour, CLAIMS, cases=12, names=MIRROR_MUTANTS) == ["F-ZIGZAG.floor"]
        assert {fault.name for fault in faults.outcomes} == {"F-ZIGZAG.swapped", "F-REVERSE.owner-stride"}
        assert not faults.hidden(), faults.hidden_at
