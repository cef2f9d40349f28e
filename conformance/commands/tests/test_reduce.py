"""The command ``reduce``: what it ends with is a file that fails in the same way, and it says from which sizes on."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inputmeta.conformance import exits
from inputmeta.conformance.campaign.ahead import Ahead
from inputmeta.conformance.cases.files import case_id, load_case, save_case
from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.commands.main import app

CONFIG = Config(
    block_size=128, dense_ratios=(1,), sparse_ratios=(4,), window_size=128, swa_block_size=256, max_model_len=4096
)
SMALL = Config(block_size=4, sparse_ratios=(2,), window_size=2, swa_block_size=3, max_model_len=16)


def prompt(rows: int, length: int, config: Config = SMALL, count: int = 1, placeholder: int = -1) -> Case:
    sequences = tuple(
        Sequence(
            seqlen_q=rows,
            seqlen_k=length,
            block_table=tuple(range(9)),
            state_id=index,
            token_ids=tuple(range(length)),
            is_placeholder=index == placeholder,
        )
        for index in range(count)
    )
    return Case(schema=SCHEMA, path="prompt", config=config, steps=(sequences,))


@pytest.fixture
def saved(tmp_path: Path):
    def save(case: Case, name: str = "case.json") -> str:
        save_case(case, tmp_path / name)
        return str(tmp_path / name)

    return save


def reduce(tmp_path: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["reduce", *words, "--save-dir", str(tmp_path / "out")])


@pytest.mark.slow
def test_one_of_a_thousand_sequences_is_found_and_its_replay_line_runs(saved, tmp_path: Path) -> None:
    wide = saved(prompt(4, 300, CONFIG, 1024, placeholder=700))
    before = time.monotonic()
    ended = reduce(tmp_path, wide, "--subject", "mutant:raises", "--in-process")
    assert time.monotonic() - before < 10
    assert ended.exit_code == exits.DIFFERS, ended.output
    (file,) = (tmp_path / "out").glob("*.json")
    case = load_case(file)
    (only,) = case.steps[0]
    assert (only.is_placeholder, only.seqlen_k, case.origin.minimised_by) == (True, 0, "inputmeta reduce")
    assert "in this process; reduced until no single step further fails (" in ended.output
    (command,) = [line.split()[2:] for line in ended.output.splitlines() if line.startswith("  replay ")]
    assert CliRunner().invoke(app, command).exit_code == exits.DIFFERS
    assert reduce(tmp_path, wide, "--subject", "mutant:raises", "--in-process").output == ended.output


def test_what_does_not_fail_is_not_reduced(saved, tmp_path: Path) -> None:
    good = saved(prompt(2, 9))
    ended = reduce(tmp_path, good, "--subject", "oracle", "--in-process")
    assert (ended.exit_code, ended.output) == (exits.CONFORMS, "nothing to reduce: oracle conforms\n")
    assert reduce(tmp_path, str(tmp_path / "none.json"), "--subject", "oracle").exit_code == exits.BAD_USAGE


@pytest.mark.slow
def test_the_best_so_far_is_saved_when_the_run_is_interrupted(saved, tmp_path: Path) -> None:
    wide = saved(prompt(4, 300, CONFIG, 1024, placeholder=700))
    words = ["reduce", wide, "--subject", "mutant:raises", "--save-dir", str(tmp_path / "out"), "--in-process"]
    script = (
        "import os, signal, sys\n"
        "from inputmeta.conformance.campaign.reducer import Reducer\n"
        "plain = Reducer._caps\n"
        "def struck(reducer):\n    os.kill(os.getpid(), signal.SIGTERM)\n    plain(reducer)\n"
        "Reducer._caps = struck\n"
        "from inputmeta.conformance.commands.main import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "not fully reduced: interrupted (SIGTERM)" in done.stdout
    (file,) = [Path(name) for name in re.findall(r"replay (\S+\.json)", done.stdout)]
    assert len(load_case(file).steps[0]) == 1


@pytest.mark.slow
def test_more_workers_find_the_same(saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[str] = []
    run_beside = Ahead._run

    def noted(ahead: Ahead, case: Case) -> Outcome:
        beside.append(case_id(case))
        return run_beside(ahead, case)

    monkeypatch.setattr(Ahead, "_run", noted)
    case = saved(prompt(5, 9, count=24))
    subject = "inputmeta.conformance.campaign.tests.drawn_subjects:SlowAndWrong"
    texts = []
    for jobs in ("1", "4"):
        assert not beside
        ended = reduce(tmp_path, case, "--subject", subject, "--jobs", jobs)
        assert ended.exit_code == exits.DIFFERS, ended.output
        texts.append(ended.output)
    assert texts[0] == texts[1]
    assert "reduced until no single step further fails" in texts[0]
    (file,) = (tmp_path / "out").glob("*.json")
    assert [sequence.seqlen_q for sequence in load_case(file).steps[0]] == [3, 3]
    assert len(beside) > 20
    assert len(beside) == len(set(beside))


def test_jobs_are_workers(saved, tmp_path: Path) -> None:
    ended = reduce(tmp_path, saved(prompt(2, 9)), "--subject", "oracle", "--in-process", "--jobs", "2")
    assert ended.exit_code == exits.BAD_USAGE
    assert "--jobs: with --in-process there are no workers" in ended.output
