"""What ends a run loses nothing: signals, closed pipes, time that is up, failures on the way to a report."""

import fcntl
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

from inputmeta.conformance.campaign import fuzz as fuzzing
from inputmeta.conformance.campaign import journal as journals
from inputmeta.conformance.campaign import judging
from inputmeta.conformance.campaign.failures import Failure
from inputmeta.conformance.campaign.fuzz import fuzz
from inputmeta.conformance.campaign.generated import profile_for
from inputmeta.conformance.campaign.journal import Journal, recover
from inputmeta.conformance.campaign.judging import Run
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.campaign.summary import Report
from inputmeta.conformance.cases.files import load_case
from inputmeta.conformance.check.runner import run_case
from inputmeta.conformance.interrupts import Interrupted, at_once, held, look, noted, watched
from inputmeta.conformance.subjects import load_subject
from inputmeta.conformance.workers.target import Target
from inputmeta.conformance.workers.tests.test_failures import BAD

pytestmark = pytest.mark.slow  # processes are started, and waited for

RAISES = "mutant:raises"


def a_run(folder: Path) -> tuple[Run, Failure]:
    """A run in this process, and a failure of it."""
    subject = load_subject(RAISES)
    run = Run(Session(subject), Target(RAISES, in_process=True), folder)
    return run, Failure.seen(run_case(BAD, subject).findings[0], BAD)


def strike(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(5)


def struck_and_looked(number: int) -> None:
    with pytest.raises(Interrupted), at_once():
        strike(number)
    with pytest.raises(Interrupted):
        look()
    look()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_raises_where_it_may_and_gives_the_exit_code(number: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as end, watched(), held():
        struck_and_looked(number)
    assert end.value.code == 128 + number
    assert noted() is None
    assert signal.getsignal(number) is before


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_a_callback_swallows_is_seen_at_the_next_case() -> None:
    class Thing:
        pass

    def struck() -> None:
        with watched(), at_once():
            thing = Thing()
            kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
            del thing
            assert kept() is None  # Python has dropped what the handler raised
            a_run(Path())[0].session.run(BAD)
            pytest.fail("the case was run")

    with pytest.raises(Interrupted) as end:
        struck()
    assert end.value.code == 143


def test_a_held_signal_waits_for_the_next_case() -> None:
    with watched(), held():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        ended = noted()
        assert ended is not None
        with pytest.raises(Interrupted, match="SIGTERM"):
            a_run(Path())[0].session.run(BAD)


def test_without_time_a_failure_is_told_unlabelled(tmp_path: Path) -> None:
    run, failure = a_run(tmp_path)
    (report, again) = (run.judge(failure, seconds=seconds) for seconds in (0, None))
    assert "not replayed: time was up" in str(report)
    assert "deterministic: 5 of 5" in str(again)


def test_a_run_without_time_left_labels_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, failure = a_run(tmp_path)
    run.deadline = time.monotonic()
    judging.tell(run, [failure], aside="not fully shrunk: time was up")
    assert "not replayed: time was up; not fully shrunk: time was up" in capsys.readouterr().out


def test_a_second_signal_ends_the_process_at_once() -> None:
    script = (
        "import os, signal, time\nfrom inputmeta.conformance import interrupts\n"
        "with interrupts.watched(), interrupts.held():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('one', flush=True)\n    time.sleep(interrupts.TWICE + 0.1)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(5)\n    print('two')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "one\n")


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGHUP))],
)
def test_a_struck_command_saves_and_tells_what_it_found(tmp_path: Path, number: int) -> None:
    arguments = ["fuzz", "--subject", RAISES, "--seconds", "100"]
    command = [sys.executable, "-c", "from inputmeta.conformance.commands.main import main; main()", *arguments]
    process = subprocess.Popen(
        [*command, "--seed", "1", "--save-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    for _ in range(600):
        if any(b'"failed"' in file.read_bytes() for file in tmp_path.glob("journal-*")):
            break
        time.sleep(0.1)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "cases in" in out
    files = list(tmp_path.iterdir())
    assert files
    for file in files:
        assert f"inputmeta replay {file}" in out
        assert load_case(file).steps


def test_a_closed_pipe_loses_no_finding(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from inputmeta.conformance.commands.main import main; main()", "replay"]
    files = [store(tmp_path)]
    with os.fdopen(writing, "w") as stdout:
        done = subprocess.run(
            [*command, *files, "--subject", RAISES], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 141
    assert f"inputmeta replay {files[0]}" in done.stderr


def store(folder: Path) -> str:
    return str(judging.store_case(BAD, folder))


@pytest.mark.parametrize("what", ["describe", "store_case", "Examiner"])
def test_a_finding_is_told_whatever_fails_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    run, failure = a_run(tmp_path)
    run.session.journal = Journal(tmp_path)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(judging, what, fails)
    told = run.judge(failure)
    assert isinstance(told, Report)
    assert failure.finding.detail in str(told)
    assert bool(told.files) == (what != "store_case")
    with run.session.journal as journal:
        pass
    assert journal.path.exists() == (what == "store_case")


def test_time_that_is_up_in_the_last_replays_loses_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = load_subject(RAISES)

    def ends_in_a_group(_profile: object, _seed: int, _index: int, check: object, **_: object) -> None:
        assert callable(check)
        with pytest.raises(AssertionError):
            check(BAD)
        raise BaseExceptionGroup("last replays", [fuzzing._Stop(), RuntimeError("planted")])

    monkeypatch.setattr(fuzzing, "run_round", ends_in_a_group)
    assert fuzz(subject, profile_for(subject, ("prompt",)), seed_value=1, rounds=1).failures


def test_the_seconds_of_a_run_bound_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only cases move: 50 ms each."""
    now = [0.0]
    run_one = Session.run

    def slow(session: Session, case: object, **options: bool) -> object:
        now[0] += 0.05
        return run_one(session, case, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "run", slow)
    monkeypatch.setattr(fuzzing.time, "monotonic", lambda: now[0])
    subject = load_subject(RAISES)
    campaign = fuzz(Session(subject), profile_for(subject, ("prompt", "decode")), seed_value=1, seconds=1)
    assert campaign.failures
    assert campaign.cut_short
    assert now[0] <= 1.05


def test_a_journal_has_its_lock_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock

    def gap(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(journals.fcntl, "flock", lock)
        assert recover(tmp_path) == ([], [])  # another run starts
        lock(descriptor, operation)

    monkeypatch.setattr(journals.fcntl, "flock", gap)
    with Journal(tmp_path) as journal:
        assert [path.name for path in tmp_path.iterdir()] == [journal.path.name]
        assert recover(tmp_path) == ([], [])
        assert journal.path.exists()
    assert not list(tmp_path.iterdir())


def test_stored_failures_are_synced_with_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    store(tmp_path)
    assert synced[1:] == [tmp_path]
    assert synced[0].parent == tmp_path


def test_a_case_that_shows_two_findings_is_recovered_with_both(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.sent(1, BAD)
    journal.failed("CRASH:decode:-:-:raised")
    journal.failed("CRASH:decode:P-INT32:-:raised")
    journal.close(keep=True)
    (file,), problems = recover(tmp_path)
    assert problems == []
    assert load_case(file).title == "interrupted run: CRASH:decode:-:-:raised, CRASH:decode:P-INT32:-:raised"
