"""Several subjects and the oracle on the same cases."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.agreement import ANSWER, ORACLE, Agreement
from inputmeta.conformance.cases.corpus import bundled_corpus
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.commands.compare import labelled
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.subjects import Request, Result
from inputmeta.conformance.subjects.base import Rejection
from inputmeta.conformance.subjects.oracle import OracleSubject

CONFIG = Config(block_size=4, dense_ratios=(1,), window_size=2, swa_block_size=3, max_model_len=16)
ROWS = Sequence(seqlen_q=2, seqlen_k=3, block_table=(7,), state_id=5, token_ids=(10, 11, 12))
VALID = Case(schema=SCHEMA, path="prompt", config=CONFIG, steps=((ROWS,),))
BROKEN = Case(
    schema=SCHEMA, path="prompt", config=CONFIG, steps=((Sequence(seqlen_q=1, seqlen_k=2, token_ids=(1, 2)),),)
)


class Off(OracleSubject):
    """Changes one field by an offset; ``None`` drops it, another dtype is one more way."""

    def __init__(self, name: str, change, field: str = "positions") -> None:
        super().__init__(name=name)
        self.change, self.field = change, field

    def build(self, request: Request) -> Result:
        fields = dict(super().build(request))
        fields[self.field] = self.change(fields[self.field])
        return fields


class Refuses(OracleSubject):
    def build(self, request: Request) -> Result:
        raise Rejection("P-LEN", 0, "seqlen_q", "no")


def compared(*cases: Case, **subjects: OracleSubject) -> Agreement:
    agreement = Agreement(subjects)
    for case in cases:
        agreement.run(case)
    return agreement


def groups_of(agreement: Agreement, name: str) -> dict[tuple[tuple[str, ...], ...], int]:
    return dict(agreement.fields[name].counts)


def test_all_agree() -> None:
    agreement = compared(VALID, BROKEN, a=OracleSubject(), b=OracleSubject())
    assert agreement.compared
    assert not agreement.differs
    assert groups_of(agreement, "positions") == {((ORACLE, "a", "b"),): 1}
    assert groups_of(agreement, ANSWER) == {((ORACLE, "a", "b"),): 2}
    assert agreement.fields["positions"].between("a", ORACLE) == (0, 1)


def test_two_that_agree_against_the_oracle_are_seen_as_such() -> None:
    late = Off("late", lambda field: field + 1)
    agreement = compared(VALID, a=late, b=OracleSubject(), c=late)
    (groups,) = groups_of(agreement, "positions")
    assert groups == ((ORACLE, "b"), ("a", "c"))
    example = agreement.fields["positions"].examples[groups]
    assert (example.index, example.says) == ((0,), ("1", "2"))
    assert agreement.fields["positions"].between("a", "c") == (0, 1)
    assert agreement.fields["positions"].between("a", "b") == (1, 1)
    assert set(groups_of(agreement, "input_ids")) == {((ORACLE, "a", "b", "c"),)}


def test_the_cell_shown_is_one_that_tells_most_apart() -> None:
    def last(by: int):
        def change(field: np.ndarray) -> np.ndarray:
            changed = field + 1
            changed[-1] += by
            return changed

        return change

    agreement = compared(VALID, a=Off("a", last(0)), b=Off("b", last(5)))
    (example,) = agreement.fields["positions"].examples.values()
    assert (example.index, example.says) == ((1,), ("2", "3", "8"))


def test_form_counts_and_cells_that_are_not_defined_do_not() -> None:
    wide = Off("wide", lambda field: field.astype(np.int64))
    gone = Off("gone", lambda field: None)
    agreement = compared(VALID, a=wide, b=gone)
    ((groups, example),) = agreement.fields["positions"].examples.items()
    assert groups == ((ORACLE,), ("a",), ("b",))
    assert example.says == ("int32[2]", "dtype int64, want int32", "the field is missing")

    def undefined(table: np.ndarray) -> np.ndarray:
        return np.where(table == 0x6B6B6B6B, 1, table).astype(np.int32)

    tables = Case(
        schema=SCHEMA,
        path="decode",
        config=CONFIG,
        steps=(
            (
                Sequence(seqlen_q=1, seqlen_k=1, block_table=(7,), token_ids=(1,)),
                Sequence(seqlen_q=1, seqlen_k=5, block_table=(7, 8), token_ids=(1, 2, 3, 4, 5)),
            ),
        ),
    )
    agreement = compared(tables, a=Off("a", undefined, "block_tables"), b=OracleSubject())
    assert set(groups_of(agreement, "block_tables")) == {((ORACLE, "a", "b"),)}


def test_answers_are_compared_too() -> None:
    agreement = compared(VALID, BROKEN, a=Refuses(), b=OracleSubject())
    assert groups_of(agreement, ANSWER) == {((ORACLE, "b"), ("a",)): 2}
    says = agreement.fields[ANSWER].examples[((ORACLE, "b"), ("a",))].says
    assert says in {("builds it", "refuses it for P-LEN"), ("refuses it for P-TABLE", "refuses it for P-LEN")}
    assert set(groups_of(agreement, "positions")) == {((ORACLE, "b"),)}  # a has no say


def test_what_is_not_claimed_is_no_difference() -> None:
    a, b = OracleSubject(), OracleSubject()
    a.capabilities = dataclasses.replace(a.capabilities, fields=frozenset({"positions"}))
    b.capabilities = dataclasses.replace(b.capabilities, paths=frozenset({"decode"}))
    agreement = compared(VALID, a=a, b=b)
    assert not agreement.differs
    assert set(groups_of(agreement, "positions")) == {((ORACLE, "a"),)}
    assert "input_ids" not in agreement.fields
    assert agreement.unsupported == {"b": 1}
    assert not compared(VALID, b=b).compared


def test_names_that_are_taken_get_a_number() -> None:
    names = [OracleSubject(name=name) for name in ("oracle", "a", "a", "a")]
    assert list(labelled(names)) == ["oracle#2", "a", "a#2", "a#3"]


@pytest.fixture
def run(tmp_path: Path):
    def compare(*arguments: str):
        options = ["compare", *arguments, "--save-dir", str(tmp_path), "--in-process"]
        return CliRunner().invoke(app, options, terminal_width=200)

    return compare


def test_the_command_says_who_agrees_and_saves_the_smallest_case(run, tmp_path: Path) -> None:
    fault = "mutant:F-SWADEC.full-window"
    result = run("-s", "oracle", "-s", fault, "--cases", "20", "--seed", "1")
    assert result.exit_code == exits.DIFFERS, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"compare oracle, oracle#2, {fault}: 20 cases, ")
    assert any(line.startswith("oracle = oracle#2: ") and line.endswith(" fields agree") for line in lines)
    assert any(line.startswith(f"oracle | {fault}: 1 of ") for line in lines)
    assert "kv_swa_index_offset_len  F-SWADEC" in lines
    again = next(line for line in lines if line.startswith("    again  inputmeta compare "))
    assert again.endswith(f" --subject oracle --in-process --subject {fault} --in-process")
    file = again.split()[3]
    assert load_case(Path(file)).title == f"kv_swa_index_offset_len: oracle = oracle#2 | {fault}"
    assert run(file, "-s", "oracle", "-s", fault).exit_code == exits.DIFFERS
    assert run(file, "-s", "oracle").exit_code == exits.CONFORMS


def test_the_command_on_a_refusal(run) -> None:
    fault = "mutant:P-TABLE.one-short"
    file = bundled_corpus() / "p-table-a-table-one-block-short-is-refused.json"
    result = run(str(file), "-s", fault)
    assert result.exit_code == exits.DIFFERS
    assert "      oracle: refuses it for P-TABLE" in result.stdout.splitlines()
    assert f"oracle | {fault}: 0 fields agree, 1 of 1 batches answered otherwise" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), exits.BAD_USAGE, "nothing to compare: give --subject"),
        (("-s", "nope"), exits.NO_SUBJECT, "subject nope: "),
        (("-s", "oracle", "absent.json"), exits.BAD_USAGE, "absent.json: No such file"),
    ],
)
def test_what_cannot_run_is_one_line(run, arguments: tuple[str, ...], code: int, says: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1
