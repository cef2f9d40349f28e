"""The program that is checked, and how what it answers is compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.compare import Wanted, compare_field, form_problem
from inputmeta.conformance.check.containers import Inspected
from inputmeta.conformance.check.tails import without_tails
from inputmeta.conformance.protocol import messages as wire
from inputmeta.conformance.protocol.convert import capabilities_of
from inputmeta.conformance.subjects.base import Capabilities, Rejection, Result, SubjectFailure, without_refusals
from inputmeta.conformance.workers.contract_batches import batches, described
from inputmeta.conformance.workers.exchange import Forms, ask
from inputmeta.conformance.workers.process import Worker
from inputmeta.conformance.workers.subject import inspection_of, reset_by, result_of


class Skipped(Exception):  # noqa: N818 - a result, not an error
    """A check that does not apply; ``str()`` says why."""


class Session:
    """The program under check, with the batches that its claims allow."""

    def __init__(self, start: Callable[[], Worker], *, robust: bool = True, valid_only: bool = False) -> None:
        """Start it. ``robust``: invalid messages are sent. ``valid_only``: no batch that breaks a precondition is.

        Raises:
            SubjectError: it does not start or says no hello.
        """
        self.start = start
        self.worker = start()
        self.hello = self.worker.hello()
        self.forms = Forms.of(self.hello, self.worker.wire)
        """How arrays are sent."""
        self.robust = robust
        claims = capabilities_of(self.hello.capabilities)
        valid_only = valid_only or claims.allocates is not None  # its batches are valid
        self.claims: Capabilities = without_refusals(claims) if valid_only else claims
        self.requests = list(batches(self.claims))
        self.sent = 0
        self.none_left = "the claimed sizes allow none of the batches"
        """Why, where there is no batch."""

    def ask(self, request: Request, *, first: bool = True, **forms: Any) -> Result:  # noqa: ANN401 - members of Forms
        """The program's result. ``forms``: other forms than the session has.

        ``first``: to a program that allocates, the batch is the first one behind a reset.

        Raises:
            Rejection: its refusal.
            Unsupported: it does not build the batch.
            SubjectFailure: there is no answer, or one that does not fit.
        """
        self.ensure()
        if self.claims.allocates is not None and first:
            self.sent += 1
            reset_by(self.worker.call(wire.Reset(id=self.sent)), self.sent)
        self.sent += 1
        forms_of = dataclasses.replace(self.forms, **forms)
        answer, batch = ask(self.worker, request.bare(), self.sent, forms=forms_of)
        return without_tails(result_of(answer, batch, request), request, self.claims)

    def inspect(self, request: Request) -> Inspected:
        """What the program's container of a batch keeps of its promises. Raises SubjectFailure as :meth:`ask`."""
        self.ensure()
        self.sent += 1
        alone = dataclasses.replace(request, out=None, max_num_blocks=None)
        answer, batch = ask(
            self.worker,
            alone,
            self.sent,
            forms=self.forms,
            message_of=lambda batch: wire.Inspect(id=batch.id, batch=batch),
        )
        return inspection_of(answer, batch)

    def ask_raw(self, data: bytes) -> wire.ProgramMessage:
        """The program's answer to bytes that may be anything."""
        self.ensure()
        return self.worker.call(cast(wire.SuiteMessage, data))

    def ensure(self) -> None:
        """Have a living worker."""
        if not self.worker.alive:
            self.worker = self.start()
            self.worker.hello()

    def valid(self) -> list[Request]:
        """Valid batches, but those left out; raises Skipped if there is none."""
        if not self.requests:
            raise Skipped(self.none_left)
        return self.requests

    def leave_out(self, request: Request) -> None:
        """Ask no more for a batch that the program called unsupported."""
        self.requests = [each for each in self.requests if each is not request]
        self.none_left = "each of the batches is unsupported"

    def claimed(self, request: Request) -> dict[str, Wanted]:
        """The claimed fields of a batch."""
        expected = request.expected()
        return {
            k: Wanted.of(f) for k, f in expected.items() if k.partition(".")[0] in self.claims.fields_of(request.path)
        }


def invalid_problems(session: Session, request: Request, messages: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """What is wrong with the answers to messages that are not valid, and with those to a valid batch after each."""
    before = copied(session.ask(request))
    for what, data in messages:
        try:
            answer = session.ask_raw(data)
        except SubjectFailure as failure:
            yield f"{what}: {failure.detail}"
            continue
        if not isinstance(answer, wire.ErrorAnswer) or (answer.id, answer.kind) != (-1, "message"):
            yield f"{what}: answered by {type(answer).__name__}, not by an error with id -1 and kind 'message'"
        yield from differences(session, request, before, session.ask(request), f"is another after {what}")


def differences(
    session: Session, request: Request, before: Result, now: Mapping[str, object], what: str
) -> Iterator[str]:
    """The claimed fields whose defined cells differ between two answers to a batch.

    Those of a program that allocates may: what is given first behind a reset is its own affair (A-RESET).
    """
    if session.claims.allocates is not None:
        return
    for key, want in session.claimed(request).items():
        if form_problem(want, before.get(key)) is not None:
            continue  # said by the check of the fields
        old = np.asarray(before[key], dtype=np.int64)
        same = dataclasses.replace(want, values=old)
        if compare_field(key, same, now.get(key), 0) is not None:
            yield f"{described(request)}: {key} {what}"


def copied(result: Result) -> Result:
    """An answer that later ones do not reach."""
    return {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in result.items()}


def said(failure: Rejection | SubjectFailure) -> str:
    """A refusal or failure on one line."""
    if isinstance(failure, Rejection):
        return f"refused: {failure.condition}: {failure}"
    return f"{failure.verdict} ({failure.code}): {failure.detail}"
