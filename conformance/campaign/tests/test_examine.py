"""Labels of failures, the search for earlier cases, and shrinking from death to death."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from inputmeta.conformance.campaign.examine import AFTER_EARLIER, DETERMINISTIC, Examiner, with_steps
from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.campaign.fuzz import Campaign, fuzz
from inputmeta.conformance.campaign.journal import Journal, recover
from inputmeta.conformance.campaign.reduce import shortest
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.files import case_size, load_case
from inputmeta.conformance.cases.model import Allocation, Case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.check.verdicts import Verdict
from inputmeta.conformance.generate import Profile
from inputmeta.conformance.mutants.history import LUCK
from inputmeta.conformance.workers.pool import Pool
from inputmeta.conformance.workers.target import Target
from inputmeta.conformance.workers.tests import test_failures as workers_tests
from inputmeta.conformance.workers.tests.test_failures import BAD, CONFIG, GOOD, PADDED, prompt, wrong

pytestmark = pytest.mark.slow  # processes are started, and waited for

DYING = Path(workers_tests.__file__).with_name("dying_program.py")
LARGER = msgspec.structs.replace(GOOD, steps=((PADDED, *GOOD.steps[0]),))
BAD_ALONE = msgspec.structs.replace(GOOD, steps=((PADDED,),))


@pytest.fixture(autouse=True)
def no_spares(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker after the other: none is started in advance."""
    monkeypatch.setattr(Pool, "fill", lambda _: None)


@contextmanager
def session_on(target: Target) -> Iterator[Session]:
    with target.open() as subject, Journal() as journal:
        yield Session(subject, journal)


def first_failure(session: Session, cases: list[Case]) -> Failure:
    for case in cases:
        findings = session.run(case).findings
        if findings:
            mark = session.mark()
            return Failure(findings[0], case, mark, case, mark)
    raise AssertionError("nothing failed")


def replayed(session: Session, *cases: Case) -> set[str]:
    """Signatures on the last of the cases, run in one fresh worker."""
    session.isolated.renew()
    return {found.signature for found in [run_case(case, session.subject) for case in cases][-1].findings}


def test_a_failure_in_every_worker_is_deterministic() -> None:
    with session_on(wrong("raises")) as session:
        examined = Examiner(session, times=3).examine(first_failure(session, [GOOD, BAD]))
    assert examined.label == DETERMINISTIC
    assert examined.note == "3 of 3 in fresh workers, 3 of 3 in a warm one"
    assert examined.finding.signature == "CRASH:prompt:-:-:raised"


@pytest.mark.slow
def test_a_failure_in_some_workers_is_flaky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LUCK, str(tmp_path / "made"))
    with session_on(wrong("wrong-in-every-second-process")) as session:
        failure = first_failure(session, [GOOD])
        examined = Examiner(session, times=4, seconds=5).examine(failure)
    assert examined.label == "2 of 4"
    assert examined.finding.signature == "FLAKY:prompt:F-POS:positions:value"
    assert "MISMATCH came back 2 of 4 times: wrong value" in examined.finding.detail
    assert examined.case == GOOD


@pytest.mark.slow
def test_a_failure_on_every_seventh_call_becomes_a_case_of_repeated_steps() -> None:
    with session_on(wrong("every-7th-call")) as session:
        failure = first_failure(session, [prompt(1), prompt(2), prompt(4)])
        assert failure.case == prompt(4)
        examined = Examiner(session, times=3).examine(failure)
        assert examined.label == AFTER_EARLIER
        assert examined.note == "0 of 3 alone in fresh workers, 3 of 3 with 3 steps"
        assert examined.case.steps == prompt(4).steps * 3
        assert replayed(session, examined.case) == {"MISMATCH:prompt:F-POS:positions:value"}


@pytest.mark.slow
def test_a_failure_after_a_larger_batch_becomes_a_case_of_both() -> None:
    earlier = [prompt(1), prompt(7, 1), prompt(2)]
    with session_on(wrong("wrong-after-a-large-batch")) as session:
        failure = first_failure(session, earlier)
        assert failure.case == prompt(2)
        session.run(prompt(5))
        last = Failure(failure.finding, prompt(5), session.mark(), failure.first, failure.first_mark)
        examined = Examiner(session, times=2).examine(last)
        assert examined.label == AFTER_EARLIER
        assert examined.case.steps == prompt(7).steps + prompt(5).steps
        assert examined.finding.step == 1
        assert replayed(session, examined.case) == {"MISMATCH:prompt:F-POS:positions:value"}


@pytest.mark.slow
def test_earlier_cases_of_other_configurations_stay_files_of_their_own() -> None:
    other = msgspec.structs.replace(prompt(7), config=msgspec.structs.replace(CONFIG, window_size=1))
    with session_on(wrong("wrong-after-a-large-batch")) as session:
        examined = Examiner(session, times=2).examine(first_failure(session, [prompt(1), other, GOOD]))
        assert (examined.label, examined.before, examined.case) == (AFTER_EARLIER, (other,), GOOD)
        assert replayed(session, other, GOOD) == {"MISMATCH:prompt:F-POS:positions:value"}


@pytest.mark.slow
def test_a_smaller_case_that_does_not_come_back_gives_way_to_the_first() -> None:
    with session_on(wrong("raises")) as session:
        failure = first_failure(session, [LARGER])
        mistaken = msgspec.structs.replace(GOOD)
        examined = Examiner(session, times=2).examine(
            Failure(failure.finding, mistaken, failure.mark, failure.first, failure.first_mark)
        )
    assert (examined.label, examined.case) == (DETERMINISTIC, BAD_ALONE)
    assert "as first seen" in examined.note


def test_in_process_there_is_only_a_warm_process() -> None:
    with session_on(wrong("raises", in_process=True)) as session:
        examined = Examiner(session, times=3).examine(first_failure(session, [BAD]))
    assert (examined.label, examined.note) == (DETERMINISTIC, "3 of 3 in this process")


def dying(how: str) -> Target:
    return Target(command=shlex.join([sys.executable, "-I", "-S", str(DYING), how]), json=True, timeout=1.0)


def fuzzed(session: Session, shrink_seconds: float, seed: int = 3) -> tuple[Campaign, Failure]:
    campaign = fuzz(session, Profile(paths=("decode",)), seed_value=seed, rounds=20, shrink_seconds=shrink_seconds)
    (failure,) = campaign.failures.values()
    return campaign, failure


def test_shrinking_goes_on_through_deaths_to_the_smallest_case() -> None:
    with session_on(dying("dies")) as session:
        campaign, failure = fuzzed(session, 30)
        assert failure.finding.signature == "CRASH:decode:-:-:SIGSEGV"
        assert session.isolated.generation > 20
        (sequence,) = failure.case.steps[0]
        assert (len(failure.case.steps), sequence.is_placeholder, sequence.seqlen_k) == (1, True, 1)
        examined = Examiner(session, times=2).examine(failure)
        assert (examined.label, examined.case) == (DETERMINISTIC, failure.case)
    assert campaign.verdicts[Verdict.PASS] > 0


@pytest.mark.slow
def test_shrinking_goes_on_through_hangs_in_haste_and_has_the_full_time_afterwards() -> None:
    with session_on(dying("hangs")) as session:
        before = time.monotonic()
        campaign, failure = fuzzed(session, 4, seed=6)  # a first case of 64 sequences
        hangs = campaign.verdicts[Verdict.HANG]
        assert failure.finding.signature == "HANG:decode:-:-:timeout"
        assert case_size(failure.case) < case_size(failure.first)
        assert hangs > 2
        assert session.isolated.timeout == 1.0
        assert time.monotonic() - before < 30
        assert Examiner(session, times=2).examine(failure).label == DETERMINISTIC


def test_delta_debugging_keeps_what_is_needed() -> None:
    assert shortest(range(50), lambda part: {7, 8, 40} <= set(part)) == [7, 8, 40]
    assert shortest([1], lambda part: True) == [1]
    assert with_steps([prompt(1)], prompt(2)).steps == prompt(1).steps + prompt(2).steps
    assert with_steps([msgspec.structs.replace(GOOD, path="decode")], GOOD) is None
    history = msgspec.structs.replace(GOOD, allocation=Allocation(num_blocks=1, num_states=1, steps=()))
    assert with_steps([history], history) is None  # there is a reset between them


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


SUITE = """
import sys
from inputmeta.conformance.commands.main import app
app(["fuzz", "--subject", "mutant:deadlocks", "--seed", "3", "--path", "prompt", "--seconds", "60", "--save-dir",
     sys.argv[1]])
"""


@pytest.mark.slow
def test_a_killed_suite_loses_no_case(tmp_path: Path) -> None:
    folder = tmp_path / "failures"
    suite = subprocess.Popen([sys.executable, "-c", SUITE, str(folder)], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        last, since = b"", time.monotonic()
        while time.monotonic() < end:  # until one case takes its time: it hangs
            time.sleep(0.1)
            text = b"".join(path.read_bytes() for path in folder.glob("journal-*.jsonl"))
            if text != last:
                last, since = text, time.monotonic()
            elif text and time.monotonic() - since > 2:
                break
        assert recover(folder) == ([], [])  # its run is alive
        workers = children(suite.pid)
        assert len(workers) >= 2
    finally:
        os.kill(suite.pid, signal.SIGKILL)
        suite.wait()
    files, problems = recover(folder)
    assert problems == []
    case = load_case(files[-1])
    assert case.title == "interrupted run: the last case"
    assert any(sequence.is_placeholder for step in case.steps for sequence in step)
    assert list(folder.iterdir()) == files
    end = time.monotonic() + 10
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)  # nor does it leave a hanging worker
