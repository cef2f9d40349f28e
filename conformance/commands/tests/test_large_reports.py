"""Reports of large batches: what is at fault is marked, what follows is named, and all of it stays under a screen."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.cases.files import load_case, save_case
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.commands.main import app

COLUMNS = 100
LENGTHS = [700 + 37 * index % 1500 for index in range(300)]
CONFIG = Config(
    block_size=128,
    dense_ratios=(1, 128),
    sparse_ratios=(4,),
    window_size=128,
    swa_block_size=160,
    max_model_len=131072,
    max_ngram_size=3,
    lookup_table=tuple(range(5000)),
)
SUBJECTS = '''
import numpy as np
from inputmeta.conformance.subjects.oracle import OracleSubject

class Wrong(OracleSubject):
    """Wrong from sequence 150 on, in fields of which none follows from another, or in all that are declared."""

    several = ("slot_mapping_store_swa", "cu_seqlens_q", "query_indices", "valid_token_mask", "block_tables")

    def __init__(self):
        super().__init__(name="wrong")

    def build(self, request):
        fields = dict(super().build(request))
        for key, value in fields.items():
            if key.partition(".")[0] in self.several and isinstance(value, np.ndarray) and len(value) > 150:
                value[150:] = ~value[150:] if value.dtype == bool else value[150:] + 1
        return fields

class One(Wrong):
    several = ("slot_mapping_store_swa",)

class All(Wrong):
    @property
    def several(self):
        return self.capabilities.fields

class Late(OracleSubject):
    """Positions that are one too high; what is computed from them as well."""

    def __init__(self):
        from inputmeta.conformance.subjects.copies import copy_with
        plant = ("common", "return Token(q_start + offset)", "return Token(max(0, q_start + offset - 1))")
        super().__init__(copy_with("oracle_of_large_reports", *plant), name="late")
'''


@pytest.fixture(autouse=True)
def _subjects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "subjects_of_large_reports.py").write_text(SUBJECTS)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """A decode step of 300 sequences, as an engine would have it."""
    step = tuple(
        Sequence(
            seqlen_q=1,
            seqlen_k=length,
            block_table=tuple(range(index * 20, index * 20 + -(-length // 128))),
            state_id=index,
            token_ids=tuple(range(length)),
            recent_tokens=tuple(range(length)),
            data_len=length,
        )
        for index, length in enumerate(LENGTHS)
    )
    path = tmp_path / "captured.json"
    save_case(Case(schema=SCHEMA, title="captured", path="decode", config=CONFIG, steps=(step,)), path)
    return path


def replay(case: Path, subject: str) -> Result:
    words = ["replay", str(case), "--subject", f"subjects_of_large_reports:{subject}", "--in-process"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == exits.DIFFERS, ended.output
    return ended


def rows(text: str) -> int:
    """Rows that a text takes on a screen."""
    return sum(max(1, -(-len(line) // COLUMNS)) for line in text.splitlines())


@pytest.mark.parametrize("subject", ["One", "Wrong", "All", "Late"])
def test_the_report_of_a_large_batch_stays_under_a_screen(captured: Path, subject: str) -> None:
    ended = replay(captured, subject)
    assert rows(ended.output) <= 40, ended.output


def test_the_sequence_at_fault_is_marked_between_its_neighbours(captured: Path) -> None:
    lines = replay(captured, "One").output.splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("  batch "))
    shown = [re.sub(r"(sequence \d+: seqlen_q=\d+ seqlen_k=\d+).*", r"\1", line) for line in lines[begin + 1 :]]
    assert shown[:5] == [
        "           … 149 sequences, 149 query rows",
        f"           sequence 149: seqlen_q=1 seqlen_k={LENGTHS[149]}",
        f"         > sequence 150: seqlen_q=1 seqlen_k={LENGTHS[150]}",
        f"           sequence 151: seqlen_q=1 seqlen_k={LENGTHS[151]}",
        "           … 148 sequences, 148 query rows",
    ]
    assert "  cell     [150]: sequence 150, row 0" in "\n".join(lines)


def test_further_findings_are_brief_and_the_rest_is_named(captured: Path) -> None:
    output = replay(captured, "Wrong").output
    assert output.count("MISMATCH: wrong value\n") == 1
    assert output.count("MISMATCH: wrong value, on the same batch\n") == 2
    assert output.count("  replay   ") == 1
    assert (
        output.splitlines()[-1]
        == "and 2 more: MISMATCH:decode:F-CU:cu_seqlens_q:value, MISMATCH:decode:F-BLOCKS:block_tables:value"
    )


def test_a_broken_sequence_is_marked(captured: Path) -> None:
    case = load_case(captured)
    step = list(case.steps[0])
    for index in (40, 41, 200):
        step[index] = msgspec.structs.replace(step[index], state_id=-1)
    save_case(msgspec.structs.replace(case, steps=(tuple(step),)), captured)
    ended = CliRunner().invoke(app, ["replay", str(captured), "--subject", "mutant:checks-nothing", "--in-process"])
    assert "         > sequence 40: " in ended.output
    assert "           at fault too: 2 sequences, 41 the first\n" in ended.output
    assert rows(ended.output) <= 40


def test_what_follows_from_a_wrong_formula_is_named_with_it(captured: Path) -> None:
    output = replay(captured, "Late").output
    (root,) = [line for line in output.splitlines() if line.startswith("  root ")]
    assert re.fullmatch(r"  root     F-POS; 9 fields follow from it: ngram_token_ids, .*klen, …", root)
    assert "F-RING" not in output.replace(root, "")
    assert output.count("MISMATCH: ") == 1


def test_fuzz_names_the_root_too_and_it_alone(tmp_path: Path) -> None:
    words = ["fuzz", "--subject", "subjects_of_large_reports:Late", "--in-process", "--seed", "1", "--seconds", "20"]
    written = tmp_path / "known.txt"
    words += ["--path", "decode", "--save-dir", str(tmp_path / "saved"), "--write-known-failures", str(written)]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == exits.DIFFERS
    assert "  root     F-POS; " in ended.output
    assert "\nMISMATCH: wrong value\n  field    positions " in ended.output
    assert "  field    context_lens" not in ended.output
    # What follows is a failure all the same.
    assert "MISMATCH:decode:F-CTXLEN:context_lens:value" in written.read_text()


def test_a_known_root_hides_nothing_that_would_follow_from_it(captured: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("MISMATCH:F-POS:positions – late – #1\n")
    words = ["replay", str(captured), "--subject", "subjects_of_large_reports:Late", "--in-process"]
    ended = CliRunner().invoke(app, [*words, "--known-failures", str(known)])
    assert ended.exit_code == exits.DIFFERS
    assert ended.output.count("KNOWN MISMATCH:decode:F-POS:positions:value: late") == 1
    assert "MISMATCH: wrong value\n" in ended.output


def test_a_failure_of_a_trace_is_reduced_and_its_replay_line_runs(tmp_path: Path) -> None:
    lines = [{"timestamp": 0, "input_length": 300 + 10 * n, "output_length": 20, "hash_ids": [n]} for n in range(12)]
    file = tmp_path / "several.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["trace", str(file), "--rows", "20", "--save-dir", str(tmp_path / "saved"), "--chunk", "8192"]
    ended = CliRunner().invoke(app, [*words, "--subject", "mutant:F-SWADEC.expand-no-wrap"])
    assert ended.exit_code == exits.DIFFERS, ended.output
    (file,) = (tmp_path / "saved").glob("*.json")
    case = load_case(file)
    assert len(case.steps[0]) == 1
    title = r"step \d+ of a trace replay, (\d+) sequences, .*; reduced from \1 sequences in 1 steps to 1 .*"
    assert re.fullmatch(title, case.title)
    assert re.search(
        r"(?m)^  label    reduced until no single step further fails .*; .* fails, \d+ passes", ended.output
    )
    (command,) = [line.split()[2:] for line in ended.output.splitlines() if line.startswith("  replay ")]
    assert CliRunner().invoke(app, command).exit_code == exits.DIFFERS
