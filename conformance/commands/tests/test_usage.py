"""What first users stumble over: options that exclude each other, refusals that pass, folders of their own."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.known import KnownFailures
from inputmeta.conformance.cases import budget
from inputmeta.conformance.cases.corpus import bundled_corpus, load_corpus
from inputmeta.conformance.cases.files import case_id
from inputmeta.conformance.cases.request import store_case
from inputmeta.conformance.commands.main import app
from inputmeta.conformance.version import VERSION

CORPUS = bundled_corpus()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def case(pattern: str) -> Path:
    return next(iter(sorted(CORPUS.glob(pattern))))


@pytest.mark.parametrize("command", [("fuzz",), ("check",), ("replay", "case.json"), ("trace", "file.jsonl")])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--subject", "oracle", "--subject-command", "x"), "--subject and --subject-command: give one of them"),
        (("--subject-json",), "--subject-json: belongs to --subject-command"),
    ],
)
def test_options_that_exclude_each_other(command: tuple[str, ...], options: tuple[str, ...], says: str) -> None:
    ended = run(*command, *options)
    assert (ended.exit_code, ended.stderr) == (exits.BAD_USAGE, f"inputmeta: {says}\n")


def test_version_and_short_help() -> None:
    assert run("--version").output == f"inputmeta {VERSION}\n"
    assert "Usage: inputmeta" in run("-h").output
    assert "Usage: inputmeta fuzz" in run("fuzz", "-h").output
    assert "Usage: inputmeta corpus add" in run("corpus", "add", "-h").output


def test_replay_says_what_was_refused_as_it_must_be(tmp_path: Path) -> None:
    broken, whole = case("p-len*.json"), case("f-pos*.json")
    ended = run("replay", broken, whole, "--subject", "oracle", "--in-process")
    assert ended.exit_code == exits.CONFORMS
    refused, compared = ended.output.splitlines()
    assert refused == f"PASS {broken}: refused as required: P-LEN, P-TABLE"
    assert "refused" not in compared
    insists = run("replay", broken, "--valid", "--subject", "oracle", "--in-process")
    assert insists.exit_code == exits.REFUSED
    assert f"{broken}: step 0: P-LEN: " in insists.stderr
    assert insists.stdout == ""
    assert run("replay", whole, "--valid", "--subject", "oracle", "--in-process").exit_code == exits.CONFORMS


def test_a_module_of_the_current_folder_is_found_in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stranger_of_this_test.py").write_text(
        "from inputmeta.conformance.subjects.oracle import OracleSubject\n"
        "class Mine(OracleSubject):\n    def __init__(self):\n        super().__init__(name='mine')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry not in {"", str(tmp_path)}])
    ended = run("replay", case("f-pos*.json"), "--subject", "stranger_of_this_test:Mine", "--in-process")
    assert ended.exit_code == exits.CONFORMS, ended.output


def test_a_corpus_is_named_before_something_is_added(tmp_path: Path) -> None:
    before = sorted(CORPUS.iterdir())
    ended = run("corpus", "add", case("f-pos*.json"))
    assert ended.exit_code == exits.BAD_USAGE
    assert "--corpus" in ended.stderr
    assert sorted(CORPUS.iterdir()) == before
    own = tmp_path / "cases"
    assert run("corpus", "add", case("f-pos*.json"), "--corpus", own).exit_code == exits.CONFORMS
    other = tmp_path / "more"
    assert run("corpus", "add", case("f-ring*.json"), "--corpus", other).exit_code == exits.CONFORMS
    both = run("check", "--subject", "oracle", "--in-process", "--examples", 0, "--corpus", own, "--corpus", other)
    assert both.output.splitlines() == [
        f"corpus {name}: 1 passed, 0 failed, 0 unsupported" for name in ("cases", "more")
    ]


@pytest.mark.slow
def test_a_passing_check_is_short(few_cases: Path) -> None:
    call = (
        "check",
        "--subject",
        "oracle",
        "--in-process",
        "--examples",
        100,
        "--path",
        "decode",
        "--corpus",
        few_cases,
    )
    assert len(run(*call).output.splitlines()) < 8
    assert "F-RING" in run(*call, "--coverage").output


WRONG_FORM_THEN_VALUE = """
import numpy as np
from inputmeta.conformance.subjects.oracle import OracleSubject

class Wrong(OracleSubject):
    def __init__(self):
        super().__init__(name="wrong")
        self.capabilities = type(self.capabilities)(paths=frozenset({"decode"}), fields=self.capabilities.fields)

    def build(self, request):
        built = dict(super().build(request))
        positions = built["positions"]
        built["positions"] = positions[:0] if len(request.sequences) == 1 else positions + 1
        return built
"""


SHAPES = "MISMATCH:F-POS:positions:shape - no rows - #1\n"
SHAPES_TOML = """
[[known]]
signature = "MISMATCH:decode:F-POS:positions:shape"
reason = "no rows"
issue = "#1"
"""


@pytest.mark.parametrize("text", [SHAPES, SHAPES_TOML], ids=["lines", "toml"])
def test_a_known_shape_hides_no_wrong_value(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong_form_of_this_test.py").write_text(WRONG_FORM_THEN_VALUE)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = tmp_path / "known.txt"
    known.write_text(text)
    options = ("--in-process", "--seed", 1, "--seconds", 5, "--save-dir", tmp_path / "saved", "--known-failures", known)
    ended = run("fuzz", "--subject", "wrong_form_of_this_test:Wrong", *options)
    assert ended.exit_code == exits.DIFFERS
    assert "KNOWN MISMATCH:decode:F-POS:positions:shape: no rows – #1" in ended.output
    assert "MISMATCH: wrong value" in ended.output
    assert "MISMATCH: shape" not in ended.output


NO_ROWS = """
from inputmeta.conformance.subjects.oracle import OracleSubject


class Wrong(OracleSubject):
    def __init__(self):
        super().__init__(name="wrong")
        able = self.capabilities
        self.capabilities = type(able)(paths=frozenset({"decode"}), fields=able.fields)

    def build(self, request):
        built = dict(super().build(request))
        built["positions"] = CHANGE
        return built
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", ['built["positions"] + 1', 'built["positions"].astype("int64")'], ids=["value", "dtype"]
)
def test_what_is_written_as_known_hides_no_other_fault_of_the_field(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the corpus ids are written, of generated cases signatures."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "cases"
    folder.mkdir()
    case = next(
        case for _, case in load_corpus(bundled_corpus()) if case.path == "decode" and "invalid" not in case.tags
    )
    store_case(case, folder)
    known, name = tmp_path / "known.toml", f"no_rows_of_this_test_{len(change)}"
    common = ("--corpus", folder, "--examples", 100, "--in-process", "--save-dir", tmp_path / "saved")
    (tmp_path / f"{name}_1.py").write_text(NO_ROWS.replace("CHANGE", 'built["positions"][:0]'))
    (tmp_path / f"{name}_2.py").write_text(NO_ROWS.replace("CHANGE", change))
    assert (
        run("check", "--subject", f"{name}_1:Wrong", *common, "--write-known-failures", known).exit_code
        == exits.DIFFERS
    )
    entries = KnownFailures.load(known).entries
    assert entries.keys() == {"MISMATCH:decode:F-POS:positions:shape", case_id(case)}
    ended = run("check", "--subject", f"{name}_1:Wrong", *common, "--known-failures", known)
    assert ended.exit_code == exits.CONFORMS, ended.output
    ended = run("check", "--subject", f"{name}_2:Wrong", *common, "--known-failures", known)
    assert ended.exit_code == exits.DIFFERS
    assert "MISMATCH: wrong value" in ended.output or "MISMATCH: dtype int64" in ended.output


def test_a_file_that_holds_no_known_failures_is_not_written_over(tmp_path: Path) -> None:
    """That is said before the run, which costs time."""
    notes = tmp_path / "notes.md"
    notes.write_text("# Notes\nnothing of ours\n")
    ended = run("fuzz", "--subject", "no.such:subject", "--write-known-failures", notes)
    assert ended.exit_code == exits.BAD_USAGE
    assert ended.stderr.startswith(f"inputmeta: {notes}:2: want `case id")
    assert ended.stderr.count("\n") == 1
    assert notes.read_text() == "# Notes\nnothing of ours\n"


@pytest.mark.slow
def test_hundreds_of_ratios_are_no_crash_of_the_subject(tmp_path: Path) -> None:
    """A valid prompt with so many fields that a message of 4,096 arrays could not hold them."""
    size = 1102701600
    ratios = [ratio for ratio in range(1, 16000) if size % ratio == 0]
    assert len(ratios) == 602
    config = {"block_size": size, "window_size": 1, "swa_block_size": 1, "max_model_len": 2**31 - 1}
    step = [{"seqlen_q": 1, "seqlen_k": 1, "block_table": [0], "token_ids": [0], "data_len": 1}]
    wide = tmp_path / "wide.json"
    body = {
        "schema": "inputmeta-case/1",
        "path": "prompt",
        "config": config | {"sparse_ratios": ratios},
        "steps": [step],
    }
    wide.write_text(json.dumps(body))
    ended = run("replay", wide, "--subject", "oracle", "--valid")
    assert ended.exit_code == exits.CONFORMS, ended.output


def test_a_name_of_a_file_is_quoted_and_stays_on_its_line(tmp_path: Path) -> None:
    source = case("f-pos*.json").read_bytes()
    spaced, forging = tmp_path / "a b;c.json", tmp_path / "x\nPASS everything.json"
    for path in (spaced, forging):
        path.write_bytes(source)
    wrong = run("replay", spaced, "--subject", "mutant:F-POS.one-late", "--in-process")
    (line,) = {line.strip() for line in wrong.output.splitlines() if "inputmeta replay" in line}
    assert shlex.split(line)[:4] == ["replay", "inputmeta", "replay", str(spaced)]
    right = run("replay", forging, "--subject", "oracle", "--in-process")
    assert [line.startswith(f"PASS {tmp_path}") for line in right.output.splitlines()] == [True]
    forged = run("check", "--subject", "mutant:F-POS.one-late", "--in-process", "--examples", 0, "--corpus", tmp_path)
    assert not any(line.startswith("PASS everything") for line in forged.output.splitlines())


@pytest.fixture
def budget_restored() -> Iterator[None]:
    """The command's budget is one of its process, which here goes on."""
    yield
    budget.allow(1)


@pytest.mark.usefixtures("budget_restored")
def test_the_budget_of_a_case_is_an_option_and_is_named() -> None:
    file = case("f-pos*.json")
    over = run("--case-budget", "1e-6", "replay", file, "--subject", "oracle", "--in-process")
    assert (over.exit_code, over.stdout) == (exits.BAD_USAGE, "")
    assert "; a case has at most " in over.stderr
    assert over.stderr.endswith("(--case-budget 1 allows it)\n")
    wrong = run("--case-budget", 2.5, "replay", file, "--subject", "mutant:F-POS.one-late", "--in-process")
    (line,) = {line.strip() for line in wrong.output.splitlines() if "inputmeta --case-budget" in line}
    assert shlex.split(line)[:5] == ["replay", "inputmeta", "--case-budget", "2.5", "replay"]
    assert run("--case-budget", "nan", "fields").exit_code == exits.BAD_USAGE
