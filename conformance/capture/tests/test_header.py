"""The header: what an engine in C++ writes is the case that one in Python writes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from inputmeta.capture import include_dir
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.cases.model import Case, Sequence
from inputmeta.conformance.cases.request import broken_by

FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pthread")
HASHES = 2**31

pytestmark = pytest.mark.slow  # it compiles


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler")
    built = tmp_path_factory.mktemp("header") / "step"
    source = Path(__file__).parent / "step.cpp"
    subprocess.run(
        [compiler, *FLAGS, f"-I{include_dir()}", "-fsanitize=address,undefined", "-o", built, source], check=True
    )
    return built


def run(program: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """One run of the engine."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("INPUTMETA_CAPTURE")}
    environment |= {f"INPUTMETA_CAPTURE{name}": value for name, value in variables.items()}
    return subprocess.run([program], env=environment, capture_output=True, text=True, check=True, timeout=60)


def cases(folder: Path) -> list[Case]:
    return [load_case(path) for path in sorted(folder.glob("*"), key=lambda path: path.name.rpartition("-")[2])]


def test_its_case_is_that_of_the_engine_in_python(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "by it"
    done = run(program, **{"": str(folder), "_EVERY": "1", "_TOKENS": "keep"})
    assert done.stdout == "2 0 0\n"
    first, second = cases(folder)
    assert (first.path, first.max_num_blocks, first.origin.found_by) == ("decode", 9, "capture")
    assert (first.config.image_sentinel, len(first.config.lookup_table)) == (77, 100)
    assert first.steps[0] == (
        Sequence(
            seqlen_q=2,
            seqlen_k=5,
            block_table=(7, 3),
            state_id=2,
            token_ids=(10, 11, 12, 10),
            draft_tokens=(20,),
            compressed_tokens=(50, 77, 52),
            recent_tokens=(5, 9),
        ),
    )
    assert second.steps[0][0].block_table == (8, 3)
    assert broken_by(first) == []


def test_tokens_are_hashed_unless_kept(program: Path, tmp_path: Path) -> None:
    run(program, **{"": str(tmp_path / "one"), "_STEPS": "2"})
    (case,) = cases(tmp_path / "one")
    assert len(case.steps) == 2
    ((sequence,), _) = case.steps
    first, second, third, again = sequence.token_ids
    assert first == again
    assert len({first, second, third, *sequence.draft_tokens}) == 4
    assert all(0 <= token < HASHES for token in sequence.token_ids)
    assert sequence.compressed_tokens[1] == 77
    assert (sequence.recent_tokens, len(case.config.lookup_table)) == ((0, 1), 2)
    assert broken_by(case) == []
    run(program, **{"": str(tmp_path / "two"), "_STEPS": "2"})
    assert cases(tmp_path / "two")[0].steps[0][0].token_ids != sequence.token_ids  # another salt


def test_its_cost_is_bounded_and_it_is_off_by_default(program: Path, tmp_path: Path) -> None:
    assert run(program).stdout == "0 0 0\n"
    assert run(program, **{"": str(tmp_path), "_EVERY": "1", "_MOST": "1"}).stdout == "1 0 0\n"
    assert run(program, **{"": str(tmp_path), "_EVERY": "1", "_ENTRIES": "11"}).stdout == "0 2 0\n"
    nothing = run(program, **{"": str(tmp_path), "_EVERY": "no"})
    assert (nothing.stdout, nothing.stderr) == (
        "0 0 0\n",
        "inputmeta: INPUTMETA_CAPTURE_EVERY=no: is no number of 1 or more\n",
    )
    (tmp_path / "file").touch()
    assert run(program, **{"": str(tmp_path / "file"), "_EVERY": "1"}).stdout == "0 0 2\n"
