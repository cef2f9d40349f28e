"""The loop in processes: counts and findings come back, a death is that of the batch it was at."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from inputmeta import oracle
from inputmeta.conformance.interrupts import held, watched
from inputmeta.conformance.subjects.loading import load_subject
from inputmeta.conformance.wide import process
from inputmeta.conformance.wide.forms import Claims, draw_batch
from inputmeta.conformance.wide.loop import run_batch
from inputmeta.conformance.wide.process import Found, Wide, run_wide
from inputmeta.conformance.workers.target import Target

pytestmark = pytest.mark.slow  # processes are started, and waited for

SEED = 11
HERE = "inputmeta.conformance.wide.tests.large_batches"


@pytest.fixture
def two_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, four batches to a range."""
    monkeypatch.setattr(process, "cores", lambda: 2)
    monkeypatch.setattr(process, "RANGE", 4)


def wide(subject: str, *, count: int = 40, paths: tuple[str, ...] = oracle.PATHS, **options: object) -> Wide:
    target = Target(subject=subject)
    if "timeout" in options:
        target = replace(target, timeout=options.pop("timeout"))  # type: ignore[arg-type]
    return run_wide(target, load_subject(subject), paths, SEED, count=count, **options)  # type: ignore[arg-type]


def first_of_many(paths: tuple[str, ...] = oracle.PATHS) -> int:
    """The first batch with a step of 256 sequences or more."""
    claims = Claims(load_subject(f"{HERE}:Falls").capabilities, paths)  # type: ignore[arg-type]
    return next(i for i in range(99) if max(len(step.sequences) for step in draw_batch(claims, SEED, i).steps) >= 256)


@pytest.mark.usefixtures("two_of_few")
def test_processes_count_what_one_loop_counts() -> None:
    subject = load_subject(f"{HERE}:Right")
    claims = Claims(subject.capabilities, ("decode",))
    alone = sum((run_batch(subject, claims, SEED, index).counts for index in range(12)), process.Counts())
    told = wide(f"{HERE}:Right", count=12, paths=("decode",))
    assert (told.counts, told.found, told.lost) == (alone, [], None)
    assert sum(told.forms.values()) == 12
    assert told.workers == 2


@pytest.mark.usefixtures("two_of_few")
def test_the_same_batch_ends_a_seed_whatever_the_number_of_processes() -> None:
    subject = load_subject("mutant:second-tile-at-row-512")
    claims = Claims(subject.capabilities, oracle.PATHS)
    first, ran = next((index, ran) for index in range(99) if (ran := run_batch(subject, claims, SEED, index)).findings)
    assert first > 2
    (found,) = wide("mutant:second-tile-at-row-512", count=99).found
    assert (found.index, found.form, found.findings) == (first, ran.form, ran.findings)


def test_a_death_is_that_of_its_batch_and_is_gone_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "cores", lambda: 1)
    claims = Claims(load_subject(f"{HERE}:Falls").capabilities, oracle.PATHS)
    batches = [draw_batch(claims, SEED, index) for index in range(12)]
    many = [batch for batch in batches if max(len(step.sequences) for step in batch.steps) >= 256][:2]
    told = wide(f"{HERE}:Falls", count=many[-1].index + 1, ends=lambda _: False)
    assert [(found.index, found.form) for found in told.found] == [(batch.index, batch.form) for batch in many]
    signatures = [each.signature for found in told.found for each in found.findings]
    assert signatures == [f"CRASH:{batch.steps[0].path}:-:-:SIGSEGV" for batch in many]


@pytest.mark.slow
def test_a_slow_batch_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "EXTRA_SECONDS", 0.1)
    monkeypatch.setattr(process, "cores", lambda: 1)
    told = wide(f"{HERE}:Hangs", count=first_of_many() + 1, timeout=0.5)
    assert told.found == []
    assert told.late == 1


def test_a_program_is_asked_from_here() -> None:
    command = Target(command="python -m inputmeta.conformance.protocol.serve mutant:second-tile-at-row-512")
    with command.open() as subject:
        claims = Claims(subject.capabilities, ("prompt",))
        chunks = next(index for index in range(9) if draw_batch(claims, SEED, index).form == "long chunks")
        told = run_wide(command, subject, ("prompt",), SEED, first=chunks, count=1)
    assert [(type(each), [f.identity.field for f in each.findings]) for each in told.found] == [(Found, ["input_ids"])]


def test_a_subject_that_cannot_be_started_is_said() -> None:
    told = run_wide(Target(subject="no.such:subject"), load_subject("reference"), oracle.PATHS, SEED, count=5)
    assert "no.such" in str(told.lost)
    assert told.counts.batches == 0


def test_a_signal_ends_it_at_once() -> None:
    with watched(), process_held():
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        told = wide(f"{HERE}:Hangs", count=10**6, timeout=60.0)
    assert told.found == []
    assert told.seconds < 20


def process_held() -> AbstractContextManager[None]:
    """As a run has it; the timer stands for a terminal's Ctrl-C."""
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    return held()
