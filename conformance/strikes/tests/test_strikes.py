"""The strike harness: it sees what it is to see, and a few strikes of every kind do nothing wrong."""

from __future__ import annotations

import dataclasses
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inputmeta.conformance.strikes import run as running
from inputmeta.conformance.strikes.files import make_files
from inputmeta.conformance.strikes.judge import HUNG, LEFT, LOST, MISLABELLED, faults
from inputmeta.conformance.strikes.plan import HOSTILE_FILES, KINDS, SPOILT, Strike, strike
from inputmeta.conformance.strikes.run import Observed, carry_out

SIGNATURE = "CRASH:decode:-:-:raised"
PLAIN = Strike("plain", ("fuzz",), frozenset({0, 1}))
FOUND = Observed(codes=[1], out="\nCRASH: raised\n", found={SIGNATURE})


def kinds_of(planned: Strike, observed: Observed) -> set[str]:
    return {fault for fault, _ in faults(planned, observed)}


@pytest.mark.parametrize(
    "sound",
    [
        FOUND,
        Observed(codes=[1], kept={f"interrupted run: {SIGNATURE}"}, found={SIGNATURE}),
        Observed(codes=[0]),
    ],
)
def test_what_may_be_is_no_fault(sound: Observed) -> None:
    assert faults(PLAIN, sound) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"out": ""}, LOST),
        ({"unsaved": ["gone.json"]}, LOST),
        ({"codes": [None]}, HUNG),
        ({"survivors": ["python -m serve"]}, LEFT),
        ({"litter": ["journal-x.jsonl"]}, LEFT),
        ({"codes": [70]}, MISLABELLED),
        ({"err": "Traceback (most recent call last):\nKeyError: 1"}, MISLABELLED),
        ({"out": "\nCRASH: \x1b[2J"}, MISLABELLED),
    ],
)
def test_each_fault_is_seen(changes: dict, fault: str) -> None:
    assert kinds_of(PLAIN, dataclasses.replace(FOUND, **changes)) == {fault}


def test_a_verdict_that_the_subject_does_not_deserve_is_seen() -> None:
    planned = dataclasses.replace(PLAIN, verdicts=frozenset({"HANG"}), codes=frozenset({1}))
    assert kinds_of(planned, FOUND) == {MISLABELLED}
    assert kinds_of(planned, Observed(codes=[1])) == {MISLABELLED}


TOOLS = {
    "hangs": ("import time; time.sleep(60)", HUNG),
    "leaves a process": ("import subprocess; subprocess.Popen(['sleep', '60'])", LEFT),
    "leaves a file": ("open('left', 'w')", LEFT),
    "raises": ("raise KeyError(1)", MISLABELLED),
    "ends with another code": ("import sys; sys.exit(5)", MISLABELLED),
    "loses what its journal had": (
        "import os, time; os.mkdir('saved'); journal = open('saved/journal-x.jsonl', 'w')\n"
        f'print(\'{{"type": "failed", "signature": "{SIGNATURE}"}}\', file=journal, flush=True)\n'
        "time.sleep(1); os.unlink('saved/journal-x.jsonl')",
        LOST,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("tool", "fault"), TOOLS.values(), ids=TOOLS.keys())
def test_a_tool_at_fault_is_seen(tool: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "TOOL", f"\n{tool}")
    monkeypatch.setattr(running, "LIMIT", 3)
    monkeypatch.setattr(running, "PATIENCE", 0.5)
    after = fault == LOST
    planned = dataclasses.replace(PLAIN, signal=signal.SIGWINCH if after else 0, after_finding=after)
    assert fault in kinds_of(planned, carry_out(planned, 1))


def test_every_way_to_spoil_a_file(tmp_path: Path) -> None:
    for number, (what, how) in enumerate((what, how) for what in HOSTILE_FILES for how in SPOILT):
        folder = tmp_path / str(number)
        sound = make_files(folder, "", random.Random(1))
        spoilt = make_files(folder / "spoilt", f"{what}:{how}", random.Random(1))
        assert sound.keys() | {"hostile"} == spoilt.keys()


def test_a_plan_depends_on_its_seed_alone() -> None:
    plans = [strike(seed, index) for seed in (1, 2) for index in range(len(KINDS))]
    assert plans == [strike(seed, index) for seed in (1, 2) for index in range(len(KINDS))]
    assert len({plan.kind for plan in plans}) == len(KINDS)
    assert plans[: len(KINDS)] != plans[len(KINDS) :]


@pytest.mark.slow
def test_a_strike_of_every_kind_does_nothing_wrong() -> None:
    """Three at once: they wait more than they work."""
    planned = [shortened(strike(5, index)) for index in range(len(KINDS))]
    with ThreadPoolExecutor(3) as pool:
        observed = list(pool.map(carry_out, planned, [5] * len(planned)))
    found = [(each.kind, fault) for each, seen in zip(planned, observed, strict=True) for fault in faults(each, seen)]
    assert found == []


def shortened(planned: Strike) -> Strike:
    """The strike on a campaign of a second, in process but for the worker's: a test has little time."""
    words = planned.arguments
    if planned.kind in ("broken subject", "hostile file"):
        return planned
    short = ("fuzz", "--subject", words[words.index("--subject") + 1], "--seed", "1", "--seconds", "1")
    short += () if planned.target == "worker" else ("--in-process",)
    return dataclasses.replace(planned, arguments=short, delay=min(planned.delay, 2))
