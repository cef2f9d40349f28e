"""Workers forked from a host: the import is made once, and whoever dies, nothing is left and the next case runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.subjects import SubjectError
from inputmeta.conformance.workers import host
from inputmeta.conformance.workers.host import Forked
from inputmeta.conformance.workers.subject import IsolatedSubject
from inputmeta.conformance.workers.target import Target
from inputmeta.conformance.workers.tests.test_deaths import ONE_TOKEN, TRIGGER

pytestmark = pytest.mark.slow
NAME = "inputmeta.conformance.workers.tests.slow_subjects:Slow"
Lines = Callable[[str], list[int]]


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Lines]:
    """Says what the import does, and that any import is slow; then the processes that logged something."""
    monkeypatch.setattr(host, "SLOW_SECONDS", 0.0)
    log = tmp_path / "log"

    def lines(what: str) -> list[int]:
        text = log.read_text() if log.exists() else ""
        return [int(line.split()[1]) for line in text.splitlines() if line.split()[0] == what]

    def does(what: str) -> Lines:
        monkeypatch.setenv("INPUTMETA_TEST_IMPORT", f"{what}:{log}")
        return lines

    return does


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds."""
    for _ in range(500):
        state = Path(f"/proc/{pid}/stat")
        try:
            if state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def process_of(subject: object) -> Forked:
    """The forked process that the subject's present worker is."""
    assert isinstance(subject, IsolatedSubject)
    process = subject._worker.process
    assert isinstance(process, Forked)
    return process


def test_an_import_is_made_once_and_a_worker_that_died_is_replaced_at_once(imports) -> None:
    lines = imports("nothing")
    with Target(NAME).open(spares=1) as subject:
        session = Session(subject)
        first = process_of(subject)
        for _ in range(3):
            assert session.run(ONE_TOKEN).findings == []
            (finding,) = session.run(TRIGGER).findings
            assert finding.signature == "CRASH:decode:-:-:SIGABRT"
        begin = time.monotonic()
        subject.renew()
        assert time.monotonic() - begin < 3  # the suite's own imports take longer
        last = process_of(subject)
        assert last.pid != first.pid
        assert session.run(ONE_TOKEN).findings == []
    assert lines("import") == [last.host.pid]
    assert last.host.pid not in lines("made")
    assert len(set(lines("made"))) >= 5
    assert all(map(gone, [*lines("made"), last.host.pid]))
    assert last.pid in lines("ended")  # it took longer than a moment


def test_with_its_host_a_worker_dies_and_the_next_case_has_a_new_one(imports) -> None:
    lines = imports("nothing")
    with Target(NAME).open() as subject:
        session = Session(subject)
        assert session.run(ONE_TOKEN).findings == []
        old = process_of(subject)
        os.kill(old.host.pid, signal.SIGKILL)
        assert gone(old.pid)
        (finding,) = session.run(ONE_TOKEN).findings
        assert finding.signature == "CRASH:decode:-:-:SIGKILL"
        assert session.run(ONE_TOKEN).findings == []
        new = process_of(subject)
        assert lines("import") == [old.host.pid, new.host.pid]
    assert all(map(gone, [new.pid, new.host.pid]))


def test_a_kill_of_the_worker_leaves_the_host(imports) -> None:
    lines = imports("nothing")
    with Target(NAME).open() as subject:
        session = Session(subject)
        process = process_of(subject)
        os.kill(process.pid, signal.SIGKILL)
        (finding,) = session.run(ONE_TOKEN).findings
        assert finding.signature == "CRASH:decode:-:-:SIGKILL"
        assert session.run(ONE_TOKEN).findings == []
    assert len(lines("import")) == 1


def test_an_import_that_starts_threads_is_made_anew_for_each_worker_and_that_is_said(imports, capsys) -> None:
    lines = imports("threads")
    with Target(NAME).open() as subject:
        session = Session(subject)
        session.run(TRIGGER)
        assert session.run(ONE_TOKEN).findings == []
    made = lines("made")
    assert len(made) >= 2
    assert set(made) <= set(lines("import"))  # a spare may have come no further
    said = "every worker imported it anew, since importing it started threads that are still there: 1"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (
            "hangs",
            r"no hello within 3 s, the limit of a subject's start: --startup-seconds allows more",
        ),
        ("dies", "no hello: died by SIGABRT; stderr: "),
        ("raises", "no such library"),
    ],
)
def test_an_import_that_goes_wrong_is_one_line(imports, does: str, says: str) -> None:
    lines = imports(does)
    limit = {"startup": 3.0} if does == "hangs" else {}
    with pytest.raises(SubjectError, match=says) as raised, Target(NAME, **limit).open():
        pass
    assert "\n" not in str(raised.value)
    assert all(map(gone, lines("import")))
