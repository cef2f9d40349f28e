"""What is captured is a case of the engine's step; what it costs is bounded, and nothing reaches the engine."""

from __future__ import annotations

import array
import logging
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest

from inputmeta.capture import Capture
from inputmeta.conformance.capture.hashing import without_tokens
from inputmeta.conformance.capture.settings import Settings, SettingsError, from_environment
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.cases.model import Case, Config, Gather, Sequence, Varlen
from inputmeta.conformance.cases.request import broken_by, step_request

CONFIG = {
    "block_size": 4,
    "dense_ratios": [1],
    "window_size": 4,
    "swa_block_size": 4,
    "max_model_len": 64,
    "max_ngram_size": 3,
    "pad_token": -1,
    "image_sentinel": 77,
    "lookup_table": list(range(100, 200)),
}
SEQUENCE = {
    "seqlen_q": 2,
    "seqlen_k": 5,
    "block_table": np.array([7, 3], dtype=np.int32),
    "state_id": np.int64(2),
    "token_ids": array.array("i", [10, 11, 12, 10]),
    "draft_tokens": [20],
    "compressed_tokens": [50, 77, 52],
    "recent_tokens": [5, 9],
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """More cases wait than a test hands over at once."""
    monkeypatch.setattr("inputmeta.conformance.capture.capture.WAITING", 100)


def settings(folder: Path, **changes: object) -> Settings:
    """Every step, tokens as they are, unless said otherwise."""
    return Settings(folder, **{"every": 1, "tokens": "keep", **changes})


def captured(folder: Path) -> list[Case]:
    """The case files of a folder."""
    return [load_case(path) for path in sorted(folder.glob("*"))]


def test_a_step_becomes_a_case_that_runs(tmp_path: Path) -> None:
    capture = Capture(CONFIG, settings(tmp_path))
    assert capture.wants()
    capture.step("decode", [SEQUENCE], max_num_blocks=9)
    assert capture.close().written == 1
    (case,) = captured(tmp_path)
    assert (case.path, case.max_num_blocks, case.origin.found_by) == ("decode", 9, "capture")
    ((sequence,),) = case.steps
    assert sequence == Sequence(
        seqlen_q=2,
        seqlen_k=5,
        block_table=(7, 3),
        state_id=2,
        token_ids=(10, 11, 12, 10),
        draft_tokens=(20,),
        compressed_tokens=(50, 77, 52),
        recent_tokens=(5, 9),
    )
    assert broken_by(case) == []
    assert step_request(case, 0).expected()["input_ids"].cells == [10, 20]


def test_objects_are_read_by_attribute_and_copied_at_once(tmp_path: Path) -> None:
    @dataclass
    class Live:
        seqlen_q: int
        seqlen_k: int
        block_table: np.ndarray
        token_ids: list[int]
        name: str = "not of the specification"

    live = Live(1, 1, np.array([4], dtype=np.int32), [9])
    capture = Capture(CONFIG | {"max_ngram_size": 0}, settings(tmp_path))
    capture.step("decode", [live])
    live.block_table[0] = 5
    live.token_ids.append(1)
    capture.close()
    ((sequence,),) = captured(tmp_path)[0].steps
    assert (sequence.block_table, sequence.token_ids) == ((4,), (9,))


def test_hashed_tokens_say_only_which_are_equal(tmp_path: Path) -> None:
    capture = Capture(CONFIG, settings(tmp_path, tokens="hash"))
    capture.step("decode", [SEQUENCE])
    capture.close()
    (case,) = captured(tmp_path)
    ((sequence,),) = case.steps
    first, second, third, again = sequence.token_ids
    assert first == again
    assert len({first, second, third, *sequence.draft_tokens}) == 4
    assert not {10, 11, 12, 20} & {*sequence.token_ids, *sequence.draft_tokens}
    assert sequence.compressed_tokens[1] == 77  # a constant of the engine
    assert (sequence.recent_tokens, len(case.config.lookup_table)) == ((0, 1), 2)
    assert not {105, 109} & set(case.config.lookup_table)
    assert broken_by(case) == []
    # Block numbers and lengths are what the engine had.
    assert (sequence.block_table, sequence.seqlen_k) == ((7, 3), 5)


def test_a_hashed_batch_breaks_what_the_batch_broke_and_salts_differ() -> None:
    config = msgspec.convert({**CONFIG, "lookup_table": (1, 2)}, Config)
    sequence = msgspec.convert({**SEQUENCE, "block_table": (7, 3), "state_id": 2, "token_ids": (1, 2, 3, 4)}, Sequence)
    case = Case(schema="inputmeta-case/1", path="decode", config=config, steps=((sequence,),))
    assert [error.condition for _, error in broken_by(case)] == ["P-NGRAM"]
    one, other = (without_tokens(case, salt) for salt in (b"1" * 32, b"2" * 32))
    assert [error.condition for _, error in broken_by(one)] == ["P-NGRAM"]
    assert one.steps != other.steps


def test_inputs_of_a_zos_step_are_captured_and_hashed(tmp_path: Path) -> None:
    gather = {
        "fresh_input_ids": [1, 2],
        "prev_sampled": [2],
        "prev_predict": [[1, 3]],
        "remap": [0],
        "varlen": {"seqlens_q": [1], "prev_seqlens_q": [2], "prev_num_accepted_tokens": [1]},
    }
    capture = Capture(CONFIG, settings(tmp_path))
    capture.step("decode_zos", [SEQUENCE], gather=gather)
    capture.close()
    (case,) = captured(tmp_path)
    varlen = Varlen(seqlens_q=(1,), prev_seqlens_q=(2,), prev_num_accepted_tokens=(1,))
    assert case.gather == (
        Gather(fresh_input_ids=(1, 2), prev_sampled=(2,), prev_predict=((1, 3),), remap=(0,), varlen=varlen),
    )
    (hashed,) = without_tokens(case, b"s" * 32).gather
    assert hashed is not None
    assert (hashed.remap, hashed.varlen) == ((0,), varlen)
    assert hashed.fresh_input_ids[1] == hashed.prev_sampled[0] != 2


def test_steps_in_a_row_are_one_case_and_another_path_ends_it(tmp_path: Path) -> None:
    capture = Capture(CONFIG, settings(tmp_path, every=3, steps=2))
    wanted = []
    for number in range(9):
        wanted.append(capture.wants())
        if wanted[-1]:
            capture.step("prompt" if number == 7 else "decode", [SEQUENCE | {"state_id": number}])
    capture.close()
    assert wanted == [True, True, False, True, True, False, True, True, True]
    assert sorted((case.path, len(case.steps)) for case in captured(tmp_path)) == [
        ("decode", 1),
        ("decode", 1),
        ("decode", 2),
        ("decode", 2),
        ("prompt", 1),
    ]


def test_its_cost_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = Capture(CONFIG, settings(tmp_path, most=2, most_entries=40))
    capture.step("decode", [SEQUENCE | {"token_ids": range(50)}])  # too large: dropped, not cut
    assert capture.counts.dropped == 1
    assert capture.wants()
    capture.step("decode", [SEQUENCE])
    capture.close()
    assert (capture.wants(), len(captured(tmp_path))) == (False, 1)

    held = threading.Event()
    monkeypatch.setattr("inputmeta.conformance.capture.capture.WAITING", 2)
    monkeypatch.setattr("inputmeta.conformance.capture.capture.save_case", lambda *_: held.wait(10))
    capture = Capture(CONFIG, settings(tmp_path))
    for state in range(9):
        capture.step("decode", [SEQUENCE | {"state_id": state}])
    assert capture.counts.dropped >= 6  # the engine did not wait for the disk
    held.set()
    counts = capture.close()
    assert counts.written + counts.dropped == 9


@pytest.mark.parametrize(
    ("sequence", "says"),
    [
        ({"seqlen": 3}, "seqlen: is no member of Sequence"),
        ({"seqlen_q": 1, "seqlen_k": "five"}, "Expected `int`, got `str`"),
        ({"seqlen_q": 1, "seqlen_k": 2**63}, "Expected `int` <= 4611686018427387904"),
        (None, "seqlen_q"),
    ],
)
def test_nothing_is_raised_into_the_engine(
    sequence: object, says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    capture = Capture(CONFIG, settings(tmp_path))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            capture.step("decode", [sequence])
        counts = capture.close()
    assert (counts.failed + counts.dropped, counts.written, captured(tmp_path)) == (3, 0, [])
    (record,) = caplog.records
    assert says in record.getMessage()


def test_it_is_off_unless_a_folder_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("INPUTMETA_CAPTURE", raising=False)
    capture = Capture.from_environment(CONFIG)
    assert not capture.wants()
    capture.step("decode", [None])
    assert capture.close().failed == 0
    monkeypatch.setenv("INPUTMETA_CAPTURE", "somewhere")
    monkeypatch.setenv("INPUTMETA_CAPTURE_EVERY", "0")
    assert not Capture.from_environment(CONFIG).wants()
    assert "INPUTMETA_CAPTURE_EVERY=0: is no number of 1 or more" in caplog.text


def test_settings_come_from_the_environment() -> None:
    given = {"INPUTMETA_CAPTURE": "f", "INPUTMETA_CAPTURE_STEPS": "4", "INPUTMETA_CAPTURE_TOKENS": "keep"}
    assert from_environment(given) == Settings(Path("f"), steps=4, tokens="keep")
    assert from_environment({"INPUTMETA_CAPTURE": ""}) is None
    with pytest.raises(SettingsError, match="INPUTMETA_CAPTURE_TOKENS=no: is none of keep, hash"):
        from_environment({"INPUTMETA_CAPTURE": "f", "INPUTMETA_CAPTURE_TOKENS": "no"})
