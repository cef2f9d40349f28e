"""How a worker ended is read from the process; what it and its children have in common is counted once."""

import os
import resource
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.workers.memory import bytes_beyond, descent, resident_bytes
from inputmeta.conformance.workers.process import MIB, Limits, Worker
from inputmeta.conformance.workers.subject import IsolatedSubject
from inputmeta.conformance.workers.target import Target
from inputmeta.conformance.workers.tests.test_failures import GOOD, sequence
from inputmeta.conformance.workers.wire import LINES

PROGRAM = Path(__file__).with_name("dying_program.py")
ONE_TOKEN = msgspec.structs.replace(GOOD, path="decode", steps=((sequence(9, 1),),))
TRIGGER = msgspec.structs.replace(ONE_TOKEN, steps=((sequence(4, 1, is_placeholder=True),),))


@contextmanager
def dying(how: str, **limits: object) -> Iterator[IsolatedSubject]:
    """The example program to which ``how`` happens at a placeholder."""
    command = shlex.join([sys.executable, "-I", "-S", str(PROGRAM), how])
    with Target(command=command, json=True, **limits).open() as subject:
        assert isinstance(subject, IsolatedSubject)
        yield subject


def struck(subject: IsolatedSubject) -> Outcome:
    session = Session(subject)
    assert session.run(ONE_TOKEN).findings == []
    return session.run(TRIGGER)


@pytest.mark.parametrize(
    ("how", "signature", "detail"),
    [
        ("dies", "CRASH:decode:-:-:SIGSEGV", "died by SIGSEGV"),
        ("leaves-a-child", "CRASH:decode:-:-:SIGSEGV", "died by SIGSEGV"),
        ("ends-slowly", "CRASH:decode:-:-:exit-3", "ended with exit code 3"),
        ("ends-loudly", "CRASH:decode:-:-:exit-3", "ended with exit code 3"),
    ],
)
def test_a_death_is_read_from_the_process(how: str, signature: str, detail: str) -> None:
    begin = time.monotonic()
    with dying(how) as subject:
        (finding,) = struck(subject).findings
    assert finding.signature == signature
    assert finding.detail.startswith(detail)
    assert time.monotonic() - begin < 8  # not the limit of an answer, 10 s


def test_a_death_between_two_cases_is_seen_although_a_child_keeps_the_pipes() -> None:
    with dying("forks") as subject:
        session = Session(subject)
        assert session.run(TRIGGER).findings == []
        process = subject._worker.process
        os.kill(process.pid, signal.SIGABRT)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        (finding,) = session.run(ONE_TOKEN).findings
    assert finding.signature == "CRASH:decode:-:-:SIGABRT"


class SlowReader(Worker):
    """Comes to read an answer only when the program is over."""

    def _serve(self, fd: int, events: int) -> None:
        if fd == self._out:
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        else:
            super()._serve(fd, events)


def test_an_answer_given_before_the_end_counts(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import sys; from json import loads, dumps\nsys.stdin.readline()\n"
        'claims = {"paths": ["decode"], "fields": ["positions"]}\n'
        'print(dumps({"type": "hello", "protocol": 1, "name": "x", "version": "", "capabilities": claims}))\n'
    )
    worker = SlowReader([sys.executable, "-I", "-S", str(script)], wire=LINES)
    assert worker.hello(timeout=20.0).name == "x"
    worker.kill()


@pytest.mark.slow
def test_a_hang_names_the_limit_that_was_in_force() -> None:
    with dying("hangs", timeout=1.5) as subject:
        (finding,) = struck(subject).findings
        assert finding.detail == "no answer within 1.5 s"
        session = Session(subject)
        with session.hurried():
            (finding,) = session.run(TRIGGER).findings
        assert finding.detail == "no answer within 0.5 s (shortened to look for smaller cases; the limit is 1.5 s)"


def test_memory_that_children_share_counts_once() -> None:
    with dying("forks", memory_limit=250) as subject:
        assert struck(subject).findings == []
        tree = descent(subject._worker.process.pid)
        resident = sum(map(resident_bytes, tree))
        assert (len(tree), resident > 400 * MIB) == (4, True)
        assert bytes_beyond(tree[0], 250 * MIB) is None
        shared = bytes_beyond(tree[0], 90 * MIB)
        assert shared is not None
        assert 100 * MIB < shared < 200 * MIB


def test_memory_of_their_own_counts_for_each() -> None:
    with dying("forks-and-writes", memory_limit=250) as subject:
        (finding,) = struck(subject).findings
    assert finding.signature == "CRASH:decode:-:-:memory"


def test_a_process_that_is_gone_has_no_memory() -> None:
    worker = Worker(["true"], limits=Limits())
    worker.kill()
    assert bytes_beyond(worker.process.pid, 0) is None


@pytest.fixture
def cores_allowed() -> Iterator[None]:
    """This process may leave core dumps, and so may what it starts."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        pytest.skip("core dumps are off, and we may not turn them on")
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


@pytest.mark.usefixtures("cores_allowed")
def test_workers_leave_no_core_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    worker = Worker(["sleep", "60"])
    process = worker.process
    os.kill(process.pid, signal.SIGSEGV)
    state = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert state is not None
    assert state.si_code == os.CLD_KILLED  # and not CLD_DUMPED
    assert list(tmp_path.iterdir()) == []
    worker.kill()
