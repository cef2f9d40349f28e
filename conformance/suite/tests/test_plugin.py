"""The pytest plugin, run as a user runs it: pytest in a process and folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from inputmeta import oracle
from inputmeta.conformance.cases.corpus import bundled_corpus, slug
from inputmeta.conformance.cases.files import case_id, load_case, save_case
from inputmeta.conformance.suite.scheduling import SuiteScheduling
from inputmeta.conformance.suite.session import CorpusCase, all_fields, all_refusals, corpus_cases

pytestmark = pytest.mark.slow  # processes are started, and waited for

WRONG = "user_subjects:Wrong"
SIGNATURE = "MISMATCH:F-POS:positions"
FIELD = "inputmeta.conformance.suite.test_generated.test_field[decode-positions]"
CASES = (
    "win-a-window-of-4-in-decode-at-positions-0-2-3-4-9",  # shows what is wrong
    "p-table-a-negative-block-is-refused",
    "f-vis-a-rectangle-past-the-chunk-in-its-history-and-before-the-sequence",
)
SUBJECTS = '''
import dataclasses, os, warnings
from inputmeta.conformance.subjects.oracle import OracleSubject

class Decode(OracleSubject):
    """Claims decode and two fields."""
    def __init__(self):
        super().__init__(name="decode only")
        self.capabilities = dataclasses.replace(
            self.capabilities, paths=frozenset({"decode"}), fields=frozenset({"positions", "klen"}), in_place=False,
            dialects=frozenset({"newest-first", "int64"}))

class Wrong(Decode):
    """Positions from 3 on are one too high."""
    def build(self, request):
        fields = dict(super().build(request))
        fields["positions"] = fields["positions"] + (fields["positions"] >= 3).astype("int32")
        return fields

class Nothing(OracleSubject):
    """Claims no path."""
    def __init__(self):
        super().__init__(name="nothing")
        self.capabilities = dataclasses.replace(self.capabilities, paths=frozenset())

class Dies(Decode):
    """Ends its process at a context of more than 4 tokens."""
    def build(self, request):
        if any(sequence.seqlen_k > 4 for sequence in request.sequences):
            os.abort()
        return super().build(request)

class Escapes(Decode):
    """Prints, warns and answers with what a terminal takes for a command."""
    def build(self, request):
        print("\\x1b]0;printed\\x07\\x1b[2Jprinted")
        warnings.warn("\\x1b[2Jwarned")
        if request.sequences[0].seqlen_k > 4:
            raise RuntimeError("\\x1b[2Jraised")
        return super().build(request)

class Takes(Decode):
    """Refuses nothing that breaks P-STATE."""
    def build(self, request):
        names = ("state_id", "swa_valid_start", "data_len")
        sequences = [dataclasses.replace(s, **{n: max(0, getattr(s, n)) for n in names}) for s in request.sequences]
        return super().build(dataclasses.replace(request, sequences=sequences))
'''

SUBJECTS += '''
class TakesByClaim(Takes):
    """As it says."""
    def __init__(self):
        super().__init__()
        refuses = self.capabilities.refuses - {"P-STATE"}
        self.capabilities = dataclasses.replace(self.capabilities, refuses=refuses)
'''

FEW_REPLAYS = """
from inputmeta.conformance.campaign import judging
judging.TIMES = 2
"""
"""A plugin for pytest: failures are replayed twice, not five times, where each replay is a process that dies."""


@dataclass(frozen=True)
class Ended:
    """A run of pytest that has ended."""

    folder: Path
    code: int
    output: str
    results: dict[str, str]
    """``passed``, ``failed`` or ``skipped`` by JUnit name, ``classname.name``."""
    texts: dict[str, str]
    """What JUnit says of a failure or skip."""

    def failing(self) -> set[str]:
        return {name.rpartition(".test_")[2] for name, result in self.results.items() if result == "failed"}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory):
    """Runs the suite from an empty folder on a small corpus, in process and with few batches unless told otherwise."""
    corpus = tmp_path_factory.mktemp("corpus")
    for name in CASES:
        save_case(load_case(bundled_corpus() / f"{name}.json"), corpus / f"{name}.json")
    subjects = tmp_path_factory.mktemp("subjects")
    (subjects / "user_subjects.py").write_text(SUBJECTS)
    (subjects / "few_replays.py").write_text(FEW_REPLAYS)

    def run(subject: str, *arguments: str, isolated: bool = False, at: Path | None = None) -> Ended:
        at = at or tmp_path_factory.mktemp("empty")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "inputmeta.conformance"]
        command += ["--subject", subject, f"--subject-corpus={corpus}", f"--junitxml={at / 'junit.xml'}"]
        command += ["--subject-examples=10", "--subject-shrink=1", *arguments]
        command += [] if isolated else ["--subject-in-process"]
        ended = subprocess.run(
            command,
            cwd=at,
            env=os.environ | {"PYTHONPATH": str(subjects)},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        return read(at, ended)

    return run


@pytest.fixture(scope="module")
def wrong(suite) -> Ended:
    """A plain run of a subject that is wrong in one field."""
    return suite(WRONG)


def read(folder: Path, ended: subprocess.CompletedProcess[str]) -> Ended:
    results, texts = {}, {}
    for case in ElementTree.parse(folder / "junit.xml").getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        kinds = {"failure": "failed", "error": "failed", "skipped": "skipped"}
        found = [(kinds[child.tag], child) for child in case if child.tag in kinds]
        assert name not in results
        results[name] = found[0][0] if found else "passed"
        texts[name] = "".join((child.get("message") or "") + "\n" + (child.text or "") for _, child in found)
    return Ended(folder, ended.returncode, ended.stdout + ended.stderr, results, texts)


def ids(*names: str) -> list[str]:
    return [case_id(load_case(bundled_corpus() / f"{name}.json")) for name in names]


def called(*names: str) -> list[str]:
    """What the tests of cases of the corpus are called."""
    loaded = [load_case(bundled_corpus() / f"{name}.json") for name in names]
    return [f"{slug(case.title, 48)}-{case_id(case)[:8]}" for case in loaded]


def every_name() -> set[str]:
    generated = [f"test_answer[{path}]" for path in oracle.PATHS]
    generated += [f"test_container[{path}]" for path in oracle.PATHS]
    generated += [f"test_field[{path}-{field}]" for path, field in all_fields()]
    generated += [f"test_refusal[{path}-{condition}]" for path, condition in all_refusals()]
    corpus = {f"inputmeta.conformance.suite.test_corpus.test_case[{name}]" for name in called(*CASES)}
    return corpus | {f"inputmeta.conformance.suite.test_generated.{name}" for name in generated}


def test_a_subject_that_conforms_passes_one_test_a_field_path_refusal_and_case(suite) -> None:
    ended = suite("oracle")
    assert ended.code == 0, ended.output
    assert set(ended.results) == every_name()
    assert set(ended.results.values()) <= {"passed", "skipped"}
    assert sum(result == "passed" for result in ended.results.values()) > 80
    assert "subject oracle, 10 batches a path, seed 0" in ended.output


def test_a_failure_names_the_field_and_says_what_a_report_says(wrong: Ended) -> None:
    assert wrong.code == 1
    assert wrong.failing() == {"field[decode-positions]", f"case[{called(CASES[0])[0]}]"}
    text = wrong.texts[FIELD]
    for line in (
        "MISMATCH:decode:F-POS:positions:value: in ",
        "MISMATCH: wrong value",
        "formula  F-POS",
        "cell     [",
        "label    determin",
    ):
        assert line in text
    replay = [line for line in text.splitlines() if line.startswith("  replay   inputmeta replay ")][-1]
    assert replay.endswith(f" --subject {WRONG} --in-process")
    saved = load_case(wrong.folder / replay.split()[3])
    assert saved.path == "decode"
    assert "MISMATCH F-POS positions" in saved.title
    assert [len(step) for step in saved.steps] == [1]  # shrunk
    assert "Traceback" not in wrong.output


@pytest.mark.slow
def test_names_and_results_do_not_depend_on_folder_settings_or_workers(suite, wrong: Ended, tmp_path: Path) -> None:
    folder = tmp_path / "project" / "deep"
    folder.mkdir(parents=True)
    settings = "[pytest]\npython_files = check_*.py\npython_functions = check_*\naddopts = --doctest-modules\n"
    (tmp_path / "project" / "pytest.ini").write_text(settings)
    spread = suite(WRONG, "-n", "2", at=folder)
    assert set(spread.results) == every_name()
    assert spread.results == wrong.results


def test_workers_share_the_tests_by_the_batches_that_they_need() -> None:
    group = SuiteScheduling._split_scope
    name = "inputmeta/conformance/suite/test_generated.py::test_"
    assert {group(None, f"{name}{test}") for test in ("field[decode-klen]", "answer[decode]")} == {"decode"}
    assert group(None, f"{name}refusal[decode_zos-P-LEN]") == "decode_zos"
    assert group(None, "tests/test_mine.py::test_a[decode]") == "tests/test_mine.py::test_a[decode]"


def test_what_is_not_claimed_is_skipped_and_counted(suite) -> None:
    ended = suite("user_subjects:Decode")
    assert ended.code == 0, ended.output
    passed = {name.rpartition(".test_")[2] for name, result in ended.results.items() if result == "passed"}
    fields = {name for name in passed if name.startswith("field")}
    assert fields == {"field[decode-positions]", "field[decode-klen]"}
    assert "answer[decode]" in passed
    assert any(name.startswith("refusal[decode-P-") for name in passed)
    lines = ended.output.splitlines()
    skipped = sum(result == "skipped" for result in ended.results.values())
    counts = [int(line.split()[0]) for line in lines if " skipped: " in line]
    assert sum(counts) == skipped > 100
    assert any(line.endswith(" skipped: not claimed: path prompt") for line in lines)
    assert any(line.endswith(" skipped: not claimed: the field") for line in lines)
    assert any(line.startswith("tests that ran under: int64, newest-first: ") for line in lines)


@pytest.mark.parametrize("arguments", [("user_subjects:Nothing",), ("oracle", "-k", "no_such_test")])
def test_a_run_in_which_nothing_ran_fails(suite, arguments: tuple[str, ...]) -> None:
    ended = suite(*arguments)
    assert ended.code == 1
    assert "FAILED nothing ran" in ended.output
    assert not ended.failing()


@pytest.mark.slow
def test_nothing_ran_fails_with_workers_too(suite) -> None:
    ended = suite("user_subjects:Nothing", "-n", "1")
    assert ended.code == 1
    assert "FAILED nothing ran" in ended.output


@pytest.mark.slow
def test_an_accepted_batch_fails_the_refusal_of_its_precondition(suite) -> None:
    ended = suite("user_subjects:Takes", "-k", "test_refusal", "--subject-examples=200")
    assert ended.failing() == {"refusal[decode-P-STATE]"}
    assert "ACCEPTED: breaks P-STATE and was accepted" in "".join(ended.texts.values())


@pytest.mark.slow
def test_a_refusal_that_is_not_claimed_is_skipped_and_counted(suite) -> None:
    for arguments in (("user_subjects:TakesByClaim",), ("user_subjects:Takes", "--subject-valid-only")):
        ended = suite(*arguments, "-k", "test_refusal or test_case", "--subject-examples=200")
        assert ended.code == 0, ended.output
        assert " skipped: outside the claims: batches that break P-STATE" in ended.output
    assert " skipped: outside the claims: batches that break P-TABLE" in ended.output
    cases = suite("oracle", "--subject-valid-only", "-k", "test_case")
    assert cases.code == 0, cases.output
    assert "1 skipped: not claimed: refusal for P-TABLE" in cases.output


@pytest.mark.slow
def test_a_subject_that_dies_costs_one_test_not_the_run(suite) -> None:
    options = ("-p", "few_replays", "-k", "test_answer or test_field", "--subject-examples=30")  # some are short
    ended = suite("user_subjects:Dies", *options, isolated=True)
    assert ended.code == 1
    assert "answer[decode]" in ended.failing()
    text = ended.texts["inputmeta.conformance.suite.test_generated.test_answer[decode]"]
    assert "CRASH:decode:-:-:SIGABRT: in " in text
    assert ended.results["inputmeta.conformance.suite.test_generated.test_field[decode-positions]"] == "passed"
    others = {
        f"inputmeta.conformance.suite.test_generated.test_{name}" for name in ended.failing() - {"answer[decode]"}
    }
    assert all("no batch was answered of those that could show it" in ended.texts[name] for name in others)


def test_known_failures_are_expected(suite, tmp_path: Path) -> None:
    file = tmp_path / "known.txt"
    file.write_text(f"{SIGNATURE} – one late – #7\n{ids(CASES[0])[0]} – the same – #7\n", encoding="utf-8")
    ended = suite(WRONG, f"--known-failures={file}")
    assert ended.code == 0, ended.output
    assert "2 known" in ended.output
    assert ended.results[FIELD] == "skipped"
    assert f"KNOWN {SIGNATURE} – one late – #7" in ended.texts[FIELD]


@pytest.mark.slow
def test_entries_that_no_longer_fail_fail_the_run(suite, tmp_path: Path) -> None:
    passing, _, _ = ids(*CASES)
    file = tmp_path / "known.txt"
    file.write_text(f"{passing} – fixed – #7\n{SIGNATURE} – fixed – #8\n{'0' * 16} – gone – #9\n", encoding="utf-8")
    ended = suite("user_subjects:Decode", f"--known-failures={file}", "-n", "1")
    assert ended.code == 1
    assert ended.failing() == {f"case[{called(CASES[0])[0]}]"}
    assert "[XPASS(strict)]" in "".join(ended.texts.values())
    assert f"FAILED {file}:2: {SIGNATURE}: not seen" in ended.output
    assert f"FAILED {file}:3: {'0' * 16}: no case of this run" in ended.output
    part = suite("user_subjects:Decode", f"--known-failures={file}", "-k", "test_refusal")
    assert part.code == 0  # a part of the suite cannot tell
    assert "not met by this part of the suite" in part.output


@pytest.mark.slow
def test_a_container_fails_a_test_of_its_own(suite) -> None:
    only = "decode and not decode_zos and (answer or container or positions)"
    ended = suite("mutant:copy-shares", "-k", only)
    assert ended.failing() == {"container[decode]", f"case[{called(CASES[0])[0]}]"}, ended.output
    text = ended.texts["inputmeta.conformance.suite.test_generated.test_container[decode]"]
    assert "MISMATCH: container: recursive_copy_: positions moved to another address" in text
    assert "formula  I-46" in text
    assert ended.results["inputmeta.conformance.suite.test_generated.test_field[decode-positions]"] == "passed"
    assert re.search(r"^containers: [1-9]\d* checked$", ended.output, re.MULTILINE)


def test_names_of_cases_are_readable_and_bounded(tmp_path: Path) -> None:
    case = load_case(bundled_corpus() / f"{CASES[0]}.json")
    titles = {"Prompt: two chunks": "prompt-two-chunks-", "é…": "case-", "": "case-", "x" * 300: "x" * 48 + "-"}
    for title, name in titles.items():
        found = CorpusCase(case_id(case), tmp_path / "a.json", msgspec.structs.replace(case, title=title)).name
        assert found == name + case_id(case)[:8]
    names = [found.name for found in corpus_cases(bundled_corpus())]
    assert len(set(names)) == len(names) > 200
    assert all(name.isascii() and len(name) <= 57 for name in names)


def test_a_case_is_found_by_its_id(suite) -> None:
    (wanted,) = ids(CASES[1])
    ended = suite("user_subjects:Decode", "-k", wanted)
    assert len(ended.results) == 1


@pytest.mark.slow
def test_no_escape_reaches_a_terminal(suite, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    save_case(load_case(bundled_corpus() / f"{CASES[0]}.json"), corpus / "a\x1b[2J\nPASSED b\x1b]0;x\x07.json")
    ended = suite("user_subjects:Escapes", f"--subject-corpus={corpus}", "-rA", "-v", "--color=no")
    assert ended.code == 1
    assert "\x1b" not in ended.output
    assert "\x07" not in ended.output
    assert "\nPASSED b" not in ended.output
    for what in ("printed", "warned", "raised", "PASSED b"):
        assert f"?[2J{what}" in ended.output or what in {"PASSED b"}
    spread = suite("user_subjects:Escapes", f"--subject-corpus={corpus}", "-rA", "-v", "--color=no", "-n", "1")
    assert "\x1b" not in spread.output
    assert "?[2Jwarned" in spread.output


@pytest.mark.slow
def test_nothing_is_left_but_what_was_asked_for(suite) -> None:
    ended = suite("oracle")
    assert [path.name for path in ended.folder.iterdir() if path.name != ".benchmarks"] == ["junit.xml"]


def test_tests_are_found_by_formula_and_tag(suite) -> None:
    ended = suite("user_subjects:Decode", "-k", "F-VIS or P-TABLE")
    names = {name.rpartition(".test_")[2] for name in ended.results}
    assert {f"case[{name}]" for name in called(*CASES[1:])} <= names
    assert "field[prompt-yoco_mask_swa_index_pivots]" in names
    assert "field[decode-positions]" not in names


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--subject", "nope"), 2, "subject nope: "),
        (("--subject", "oracle", "--subject-command", "x"), 4, "give one of them"),
        (("--subject", "oracle", "--known-failures", "absent"), 4, "absent: No such file"),
        (("--subject", "oracle", "--subject-corpus", "absent"), 2, "absent: no case files"),
        (("--subject", "oracle", "--subject-examples", "0"), 4, "must be above 0"),
        (("--subject", "oracle", "--subject-case-budget", "0"), 4, "--subject-case-budget: 0 is no factor above 0"),
        ((), 4, "the suite needs something to test: --subject or --subject-command"),
    ],
)
def test_what_cannot_run_is_said_in_one_line(  # noqa: PLR0917
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    plugins = ("-p", "no:cacheprovider", "-p", "no:faulthandler")
    ended = pytest.main([*plugins, "--pyargs", "inputmeta.conformance.suite", *arguments])
    output = "".join(capfd.readouterr())
    assert ended == code, output
    assert says in output
    assert "Traceback" not in output


def test_our_own_run_leaves_the_suite_out_and_the_plugin_imports_pytest_alone(tmp_path: Path) -> None:
    heavy = "{'torch', 'numpy', 'hypothesis', 'oracle'}"
    loaded = f"import sys, inputmeta.conformance.suite.plugin; print({heavy} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "set()\n"
    (tmp_path / "test_mine.py").write_text("def test_mine():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert "tests that ran" not in ended.stdout


def test_an_installed_distribution_brings_the_plugin() -> None:
    try:
        found = distribution("inputmeta-conformance").entry_points
    except PackageNotFoundError:
        pytest.skip("the distribution is not installed")
    assert "inputmeta" in found.select(group="pytest11").names
