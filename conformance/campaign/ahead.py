"""Cases of a search run before it asks for them, in workers of their own: the search is the same, and sooner done.

A search asks one question after the other, and what it asks next hangs on the answer. Most answers are no, so that the
next questions are mostly known. They are guesses: an answer that nobody asks for changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from threading import Lock, local
from types import TracebackType

from inputmeta.conformance.campaign.journal import Journal
from inputmeta.conformance.campaign.session import Session
from inputmeta.conformance.cases.files import case_id
from inputmeta.conformance.cases.model import Case
from inputmeta.conformance.check.runner import Outcome
from inputmeta.conformance.interrupts import look
from inputmeta.conformance.subjects.base import SubjectError
from inputmeta.conformance.workers.subject import IsolatedSubject

LOOK_SECONDS = 0.005


class Ahead:
    """``jobs`` workers beside that of a session, a thread to each. A context manager: it ends them."""

    def __init__(self, session: Session, jobs: int) -> None:
        """``session``: on an isolated subject, with a journal."""
        self.jobs = jobs
        self._session = session
        self._here = local()
        self._subjects: list[IsolatedSubject] = []
        self._ends = ExitStack()
        self._lock = Lock()
        self._closed = False
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="ahead") if jobs else None
        self._running: dict[str, Future[Outcome]] = {}

    def offer(self, cases: Sequence[Case]) -> None:
        """Run these cases, as far as there are workers; what was offered before and has not begun is not run."""
        if self._pool is None:
            return
        wanted = {case_id(case): case for case in cases[: self.jobs]}
        for key in [key for key, future in self._running.items() if key not in wanted and future.cancel()]:
            del self._running[key]
        for key, case in wanted.items():
            if key not in self._running:
                self._running[key] = self._pool.submit(self._run, case)

    def run(self, case: Case) -> Outcome:
        """What a case gives: where it has been begun, there. Raises what :meth:`Session.run` does."""
        future = self._running.pop(case_id(case), None)
        if future is None or future.cancel():
            return self._session.run(case)
        while not future.done():
            look()
            time.sleep(LOOK_SECONDS)
        try:
            return future.result()
        except SubjectError:  # there is no second worker to be had: the first may do
            return self._session.run(case)

    def _run(self, case: Case) -> Outcome:
        session = self._own()
        assert session.isolated is not None
        assert self._session.isolated is not None
        session.isolated.timeout = self._session.isolated.timeout
        return session.run(case)

    def _own(self) -> Session:
        """The session of this thread. Raises SubjectError."""
        if not hasattr(self._here, "session"):
            main, journal = self._session.isolated, self._session.journal
            assert main is not None
            assert journal is not None
            subject = main.beside()
            with self._lock:
                self._subjects.append(subject)
                self._ends.callback(subject.close)
                self._here.session = Session(subject, self._ends.enter_context(Journal(journal.folder)))
        found: Session = self._here.session
        return found

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for future in self._running.values():
            future.cancel()
        for subject in self._subjects:
            subject.strike()
        if self._pool is not None:
            self._pool.shutdown()
        self._ends.close()
