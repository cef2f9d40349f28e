"""The command line: exit codes, output, one line for every error.

Subjects run in this process where a worker is not the point: see test_commands_isolated.py.
"""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.cases.files import case_id, load_case, save_case
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.cases.request import complete_case
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.subjects import Capabilities
from inputmeta.conformance.subjects.oracle import OracleSubject

CONFIG = Config(block_size=4, dense_ratios=(1,), sparse_ratios=(2,), window_size=2, swa_block_size=3, max_model_len=16)
ROWS = Sequence(seqlen_q=2, seqlen_k=3, block_table=(7,), state_id=5, token_ids=(10, 11, 12))
SHORT = Case(schema=SCHEMA, title="two rows", path="prompt", config=CONFIG, steps=((ROWS,),), tags=("F-POS",))


@pytest.fixture
def saved(tmp_path: Path):
    def save(case: Case = SHORT, name: str = "case.json", **changes: object) -> str:
        path = tmp_path / name
        save_case(msgspec.structs.replace(case, **changes), path)
        return str(path)

    return save


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def run_here(*arguments: str) -> Result:
    return run(*arguments, "--in-process")


def test_oracle_prints_every_field(saved) -> None:
    result = run("oracle", saved(), "-o", "-")
    assert result.exit_code == exits.CONFORMS
    fields = json.loads(result.stdout)
    assert fields["positions"] == {"dtype": "int32", "shape": [2], "data": [1, 2]}
    assert fields["slot_mapping_store_ca.2"]["data"] == [14]
    assert fields["total_q"] == {"dtype": "int", "shape": [], "data": 2}
    assert fields["kv_swa_full_index_pivots"]["data"] == [[1, 1, 2, 1], [2, 0, 2, 2]]


def test_oracle_shows_undefined_cells_as_null(saved) -> None:
    steps = ((Sequence(seqlen_q=1, seqlen_k=1, block_table=(7,), token_ids=(10,)),),)
    result = run("oracle", saved(path="decode", steps=steps, max_num_blocks=3))
    assert json.loads(result.stdout)["block_tables"]["data"] == [[7, None, None]]


def test_oracle_expands_a_long_context_and_says_what_it_leaves_out(saved) -> None:
    config = msgspec.structs.replace(CONFIG, max_model_len=131_072)
    wide = run("oracle", saved(config=config))
    assert json.loads(wide.stdout)["kv_ca_index.1"]["shape"] == [2, 131_072]
    assert wide.stderr == ""
    endless = run("oracle", saved(config=msgspec.structs.replace(CONFIG, window_size=2**23, swa_block_size=2**23)))
    assert "kv_swa_full_index" not in json.loads(endless.stdout)
    assert "kv_swa_full_index: left out, it has more than 4194304 cells" in endless.stderr


def test_oracle_writes_a_file(saved, tmp_path: Path) -> None:
    target = tmp_path / "expected.json"
    assert run("oracle", saved(), "-o", str(target)).exit_code == exits.CONFORMS
    assert json.loads(target.read_text())["num_reqs"]["data"] == 1


def test_oracle_says_what_an_invalid_batch_breaks(saved) -> None:
    steps = ((msgspec.structs.replace(ROWS, block_table=()),),)
    result = run("oracle", saved(steps=steps))
    assert result.exit_code == exits.REFUSED
    assert result.stdout == ""
    assert "P-TABLE: sequence 0: block_table has 0 blocks; rule: covers" in result.stderr


def test_oracle_wants_to_know_the_step(saved) -> None:
    case = saved(steps=((ROWS,), (ROWS, ROWS)))
    unsaid = run("oracle", case)
    assert unsaid.exit_code == exits.BAD_USAGE
    assert "has 2 steps; say which with --step" in unsaid.stderr
    assert run("oracle", case, "--step", "2").exit_code == exits.BAD_USAGE
    assert json.loads(run("oracle", case, "--step", "1").stdout)["num_reqs"]["data"] == 2


def test_a_bad_case_file_is_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema": "inputmeta-case/1"}')
    for command in (["oracle"], ["replay"]):
        result = run(*command, str(bad))
        assert result.exit_code == exits.BAD_USAGE
        assert result.stderr.count("\n") == 1
        assert "bad.json: at $: Object missing required field `path`" in result.stderr


@pytest.mark.parametrize("subject", ["oracle", "engine", "inputmeta.conformance.subjects.oracle:OracleSubject"])
def test_replay_passes(saved, subject: str) -> None:
    result = run("replay", saved(), "--subject", subject)
    assert result.exit_code == exits.CONFORMS
    assert result.stdout.startswith("PASS ")


def test_replay_describes_a_difference_in_order(saved) -> None:
    result = run_here("replay", saved(), "--subject", "mutant:F-IDS.chunk-start")
    assert result.exit_code == exits.DIFFERS
    lines = result.stdout.splitlines()
    assert lines[0] == "MISMATCH: wrong value"
    starts = [line.split()[0] for line in lines[1:] if line[2] != " "]
    first = starts[: starts.index("replay") + 1]
    assert first == ["field", "formula", "batch", "cell", "got", "want", "differ", "replay"]
    assert "  cell     [0]: sequence 0, row 0, position 1" in lines
    assert lines[lines.index("  got      10") + 1] == "  want     11"
    assert "--subject mutant:F-IDS.chunk-start" in result.stdout


def test_replay_says_what_is_not_claimed(saved) -> None:
    zos = saved(path="decode_zos", steps=((Sequence(seqlen_q=1, seqlen_k=1, block_table=(7,), token_ids=(10,)),),))
    result = run_here("replay", zos, "--subject", "inputmeta.conformance.commands.tests.test_commands:PromptOnly")
    assert result.exit_code == exits.NOTHING_RAN
    assert "does not claim path decode_zos" in result.stdout


class PromptOnly:
    """A subject that claims the prompt path and nothing of it."""

    def __new__(cls):
        subject = OracleSubject()
        subject.capabilities = Capabilities(paths=frozenset({"prompt"}), fields=frozenset())
        return subject


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "none of engine, engine-cuda, oracle"),
        ("no.such.module:x", "No module named 'no'"),
        ("json:no_such", "module json has no attribute no_such"),
        ("os:sep", "is no callable"),
        ("mutant:F-NONE", "none of the "),
        ("builtins:dict", "has no attribute build"),
    ],
)
def test_a_subject_that_cannot_be_had_skips_a_bisection(saved, name: str, why: str) -> None:
    result = run_here("replay", saved(), "--subject", name)
    assert result.exit_code == exits.NO_SUBJECT
    assert why in result.stderr
    assert result.stderr.count("\n") == 1


def test_fields_lists_a_path() -> None:
    text = run("fields", "--path", "decode").stdout
    assert "block_tables  int32[total_q, max_num_blocks]  F-BLOCKS" in text
    assert "kv_swa_full_index_pivots" not in text
    names = {field["name"] for field in json.loads(run("fields", "--json").stdout)}
    assert {"block_tables", "kv_swa_full_index_pivots", "yoco_cp_contrib_index"} <= names


def test_fuzz_passes_reproducibly_and_prints_its_seed(tmp_path: Path) -> None:
    arguments = ("fuzz", "--subject", "oracle", "--seconds", "1", "--save-dir", str(tmp_path))
    result = run(*arguments, "--seed", "5")
    assert result.exit_code == exits.CONFORMS
    assert result.stdout.startswith("fuzz oracle: seed 5, 1 s")
    assert "features visited" in result.stdout
    assert "not visited, though reachable" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_fuzz_saves_the_shrunk_failure_and_its_replay_command_works(tmp_path: Path) -> None:
    arguments = ("--seed", "1", "--seconds", "20", "--save-dir", str(tmp_path))
    result = run_here("fuzz", "--subject", "mutant:F-NCQ.dropped-max", *arguments)
    assert result.exit_code == exits.DIFFERS
    commands = [line.split() for line in result.stdout.splitlines() if line.startswith("  replay")]
    assert commands
    for _, program, *command in commands:
        assert program == "inputmeta"
        assert run(*command).exit_code == exits.DIFFERS
        case = load_case(Path(command[1]))
        assert sum(map(len, case.steps)) == 1
        assert case.origin.seed == 1
        assert run_here("replay", command[1], "--subject", "engine").exit_code == exits.CONFORMS


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file, not a folder")
    result = run_here("fuzz", "--subject", "mutant:F-CTXLEN.before-this-row", "--seed", "1", "--save-dir", str(taken))
    assert result.exit_code == exits.BAD_USAGE
    assert result.stderr.count("\n") == 1
    assert "taken" in result.stderr


def test_check_runs_corpus_and_generated_cases(saved, tmp_path: Path) -> None:
    folder = tmp_path / "cases"
    save_case(complete_case(SHORT), folder / "one.json")
    common = ("--corpus", str(folder), "--save-dir", str(tmp_path / "failures"), "--in-process")
    good = run("check", "--subject", "oracle", "--examples", "100", *common)
    assert good.exit_code == exits.CONFORMS
    assert "corpus cases: 1 passed, 0 failed, 0 unsupported" in good.stdout
    assert "generated, seed 0: 100 cases" in good.stdout
    bad = run("check", "--subject", "mutant:F-POS.one-late", "--examples", "0", *common)
    assert bad.exit_code == exits.DIFFERS
    assert "one.json: two rows" in bad.stdout
    nothing = run(
        "check",
        "--subject",
        "inputmeta.conformance.commands.tests.test_commands:PromptOnly",
        "--path",
        "decode",
        *common,
    )
    assert nothing.exit_code == exits.NOTHING_RAN
    assert run_here("check", "--subject", "oracle", "--corpus", str(tmp_path / "none")).exit_code == exits.BAD_USAGE


def test_corpus_add_lint_fmt_list(saved, tmp_path: Path) -> None:
    folder = tmp_path / "corpus" / "cases"
    at = ("--corpus", str(folder))
    case = saved()
    added = run("corpus", "add", case, "--title", "F-POS: two rows", "--tag", "F-POS", *at)
    assert added.exit_code == exits.CONFORMS
    path = Path(added.stdout.strip())
    assert (path.name, load_case(path).id) == ("f-pos-two-rows.json", case_id(SHORT))
    again = run("corpus", "add", case, *at)
    assert again.exit_code == exits.BAD_USAGE
    assert "already holds this case" in again.stderr
    assert run("corpus", "lint", *at).stdout == "case.schema.json: is not the schema of this version; run corpus fmt\n"
    assert run("corpus", "fmt", *at).exit_code == exits.CONFORMS
    assert run("corpus", "lint", *at).exit_code == exits.CONFORMS
    assert "F-POS: two rows" in run("corpus", "list", *at, "--tag", "F-POS").stdout
    assert run("corpus", "list", *at, "--tag", "F-IDS").stdout == ""
    edited = path.read_text().replace('"state_id": 5', '"state_id": 6')
    path.write_text(edited)
    problems = run("corpus", "lint", *at)
    assert problems.exit_code == exits.DIFFERS
    assert "at $.id:" in problems.stdout
    assert "at $.expected: is not what the oracle says" in problems.stdout
    assert run("corpus", "fmt", "--check", *at).exit_code == exits.DIFFERS
    assert path.read_text() == edited


def test_a_bad_trace_is_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"timestamp": 0}\n')
    result = run("trace", str(bad))
    assert result.exit_code == exits.BAD_USAGE
    assert "bad.jsonl" in result.stderr
    assert run("trace", str(tmp_path / "none.jsonl")).exit_code == exits.BAD_USAGE
    assert run("trace", str(bad), "--rows", "some").exit_code == exits.BAD_USAGE


def test_trace_replays_a_small_trace_and_saves_a_step(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]},
        {"timestamp": 10, "input_length": 600, "output_length": 3, "hash_ids": [1, 3]},
    ]
    file = tmp_path / "small.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ("--rows", "20", "--save-dir", str(tmp_path / "saved"))
    result = run("trace", str(file), "--save-case", "1", *options)
    assert result.exit_code == exits.CONFORMS
    assert "verdict: PASS" in result.stdout
    (case,) = (tmp_path / "saved").glob("*.json")
    assert run_here("replay", str(case)).exit_code == exits.CONFORMS
    wrong = run("trace", str(file), "--subject", "mutant:F-RING.lost-modulo", *options)
    assert wrong.exit_code == exits.DIFFERS
    assert "F-RING" in wrong.stdout


def test_a_subject_that_a_worker_cannot_have_is_one_line(saved) -> None:
    result = run("replay", saved(), "--subject", "no.such.module:x")
    assert result.exit_code == exits.NO_SUBJECT
    assert "No module named 'no'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_command_is_installed() -> None:
    program = Path(sys.executable).with_name("inputmeta")
    top = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=60)
    assert "Usage: inputmeta" in top.stdout
    assert "125 the subject cannot be loaded" in " ".join(top.stdout.replace("│", " ").split())
