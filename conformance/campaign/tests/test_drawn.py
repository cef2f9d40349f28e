"""Random rounds that live in the worker: the same counts, and nothing that is found there is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from inputmeta.conformance.campaign import fuzz as fuzzing
from inputmeta.conformance.campaign.fuzz import Campaign, fuzz
from inputmeta.conformance.campaign.generated import claimed_paths, profile_for, run_round
from inputmeta.conformance.campaign.journal import NOWHERE, Drawn, Journal, left_behind, recover
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.generate import Profile, features
from inputmeta.conformance.generate.rounds import ROUND_EXAMPLES, on_containers, random_round
from inputmeta.conformance.version import VERSION
from inputmeta.conformance.workers.target import Target

SUBJECTS = "inputmeta.conformance.campaign.tests.drawn_subjects"


@contextmanager
def campaign_on(subject: str, *, seed: int = 1, timeout: float = 30.0) -> Iterator[Campaign]:
    with Target(subject, timeout=timeout).open() as isolated, Journal() as journal:
        profile = profile_for(isolated, claimed_paths(isolated))
        yield Campaign(Session(isolated, journal), profile, seed, shrink_seconds=10)


def run_drawn_round(campaign: Campaign, index: int = 1) -> None:
    fuzzing._drawn_round(campaign, index, time.monotonic(), None, lambda _: None)


@pytest.mark.slow
def test_a_round_in_the_worker_counts_what_the_same_cases_count_batch_by_batch() -> None:
    with campaign_on("oracle") as there, campaign_on("oracle") as here:
        run_drawn_round(there, 2)

        def use(case: Case) -> None:
            number = 2 * ROUND_EXAMPLES + here.cases
            here.record(case, here.session.run(case, containers=on_containers(number)), 0.0)
            here.coverage.add(features(case))

        run_round(here.profile, 1, 2, use)
        for name in ("cases", "cells", "containers", "unsupported"):
            assert getattr(there, name) == getattr(here, name)
        assert +there.verdicts == +here.verdicts
        assert there.coverage.counts == here.coverage.counts
        assert there.cases == ROUND_EXAMPLES
        journal = there.session.journal
        assert journal is not None
        assert journal.cases(range(ROUND_EXAMPLES)) == here.session.journal.cases(range(ROUND_EXAMPLES))  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_batch_at_which_a_worker_dies_is_run_again_and_shrunk() -> None:
    with campaign_on(f"{SUBJECTS}:Exits") as campaign:
        run_drawn_round(campaign)
        assert all(name.endswith(":exit-3") for name in campaign.failures)
        smallest = campaign.failures.by_size()[0]
        assert len(smallest.case.steps[0]) == 3
        assert smallest.finding.code == "exit-3"


@pytest.mark.slow
def test_a_batch_at_which_a_worker_hangs_is_run_again_with_the_short_time_out() -> None:
    with campaign_on(f"{SUBJECTS}:Hangs", timeout=2.0) as campaign:
        begin = time.monotonic()
        run_drawn_round(campaign)
        assert {name.partition(":")[0] for name in campaign.failures} == {"HANG"}
        assert time.monotonic() - begin < 40


def test_what_does_not_come_back_is_kept_with_the_cases_before_it() -> None:
    with campaign_on(f"{SUBJECTS}:WrongOnce") as campaign:
        run_drawn_round(campaign)
        [failure] = campaign.failures.values()
        assert "num_reqs" in failure.finding.detail or failure.finding.key == "num_reqs"
        earlier = campaign.session.earlier(failure.mark)
        cases = random_round(campaign.profile, 1, 1)
        assert earlier == [cases.case(place) for place in range(len(earlier))]
        assert failure.first == cases.case(len(earlier))


@pytest.mark.slow
def test_a_lane_finds_what_the_first_worker_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INPUTMETA_TEST_FOLDER", str(tmp_path))
    monkeypatch.setattr(fuzzing, "cores", lambda: 2)
    with campaign_on(f"{SUBJECTS}:WrongBeside") as made:
        campaign = fuzz(made.session, made.profile, seed_value=1, seconds=60, shrink_seconds=5)
        assert {failure.finding.key for failure in campaign.failures.values()} >= {"num_reqs"}
        assert campaign.seconds < 55


@pytest.mark.slow
def test_lanes_count_every_case_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "cores", lambda: 3)
    with campaign_on("oracle") as made:
        campaign = fuzz(made.session, made.profile, seed_value=1, seconds=60, rounds=4)
        assert campaign.cases == campaign.coverage.cases == 4 * ROUND_EXAMPLES
        alone = fuzz(made.session, made.profile, seed_value=1, rounds=4)
        assert (campaign.cells, campaign.coverage.counts) == (alone.cells, alone.coverage.counts)


@pytest.mark.slow
def test_lanes_end_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "cores", lambda: 2)
    with campaign_on("oracle") as made:
        campaign = fuzz(made.session, made.profile, seed_value=1, seconds=fuzzing.LEAST_SECONDS)
        assert not campaign.failures
        assert campaign.seconds < 3 * fuzzing.LEAST_SECONDS


@pytest.mark.slow
def test_a_killed_run_leaves_the_case_that_its_worker_had_drawn(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from inputmeta.conformance.commands.main import main; main()"]
    options = ["fuzz", "--subject", "oracle", "--seconds", "100", "--seed", "3", "--save-dir", str(tmp_path)]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        last = None
        for _ in range(1200):
            [*lines] = [line for file in tmp_path.glob("journal-*") for line in file.read_bytes().splitlines()]
            drawn = [msgspec.json.decode(line, type=Drawn) for line in lines if b'"type":"drawn"' in line]
            if drawn and drawn[-1].place >= 3:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    kept = [msgspec.json.decode(file.read_bytes().splitlines()[-1], type=Drawn) for file in tmp_path.glob("journal-*")]
    files, problems = recover(tmp_path)
    assert problems == []
    found = [load_case(file) for file in files]
    assert all(case.title == "interrupted run: the last case" for case in found)
    for drawn in kept:
        last = random_round(drawn.profile, drawn.seed, drawn.round).case(drawn.place)
        assert [last.config, last.steps] in [[case.config, case.steps] for case in found]
    assert not list(tmp_path.glob("journal-*"))


def drawn_line(**changes: object) -> bytes:
    drawn = Drawn(1, NOWHERE, VERSION, 1, 1, Profile())
    return msgspec.json.encode(msgspec.structs.replace(drawn, **changes)) + b"\n"


def test_cases_that_another_version_drew_stay_in_their_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal-x.jsonl"
    path.write_bytes(drawn_line(version="0.0.1", at="0000000007.000002"))
    files, [problem] = recover(tmp_path)
    assert files == []
    assert "drawn by version 0.0.1" in problem
    assert path.exists()


@pytest.mark.parametrize(
    "line",
    [
        drawn_line(at="0000000100.000000"),
        drawn_line(at="1.2.3"),
        drawn_line(round=-1),
        drawn_line().replace(b'"prompt",', b'"prompts",'),
    ],
    ids=["place", "at", "round", "profile"],
)
def test_a_line_of_drawn_cases_that_is_none_is_told(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "journal-x.jsonl").write_bytes(line)
    files, problems = recover(tmp_path)
    assert files == []
    assert len(problems) == 1


def test_before_its_first_case_a_range_leaves_the_case_before_it() -> None:
    case = random_round(Profile(), 1, 1).case(0)
    sent = msgspec.json.encode({"type": "sent", "worker": 1, "case": case}) + b"\n"
    assert [kept.steps for kept in left_behind(iter([sent, drawn_line()]))] == [case.steps]
