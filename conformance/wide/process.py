"""The parent's side of the wide tier: loops in processes of their own, a range of batches to each at a time."""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inputmeta.conformance.check.refusals import failure_finding
from inputmeta.conformance.check.verdicts import Finding, Verdict
from inputmeta.conformance.interrupts import Interrupted, noted
from inputmeta.conformance.protocol.messages import ErrorAnswer
from inputmeta.conformance.subjects.base import Subject, SubjectError, SubjectFailure
from inputmeta.conformance.wide.forms import Claims, draw_batch
from inputmeta.conformance.wide.loop import Counts
from inputmeta.conformance.wide.messages import WIDE, Batches, Done
from inputmeta.conformance.wide.serve import PLACE, run_batches
from inputmeta.conformance.workers.process import Worker, cores
from inputmeta.conformance.workers.target import Target

RANGE_SECONDS = 0.5
"""Of one range of batches; a batch that has begun is finished."""
RANGE = 16
"""Batches of one range, at most; their indices go to nobody else."""
LOOK_SECONDS = 0.05
GPU_WORKERS = 4
"""Processes that share a GPU: each has a context, which takes seconds to make, and memory."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Environment of a loop, where ours does not say otherwise: the other cores have loops of their own."""
EXTRA_SECONDS = 30.0
"""A batch takes the suite time too, more if it is audited or confirmed: on top of a subject's time-out."""


@dataclass(frozen=True)
class Found:
    """What batch ``index`` showed."""

    index: int
    form: str
    findings: tuple[Finding, ...]


@dataclass
class Wide:
    """What the wide tier has come to."""

    seed: int
    paths: tuple[str, ...]
    counts: Counts = field(default_factory=Counts)
    forms: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    late: int = 0
    """Batches without an answer in time: a right subject may be too slow for them."""
    seconds: float = 0.0
    workers: int = 1
    lost: SubjectError | None = None
    """Why the subject could not be started any more."""


Ends = Callable[[Sequence[Finding]], bool]
"""Whether what a batch showed ends the run; known failures do not."""


class Loop:
    """One process that runs the loop, replaced when it dies. For one thread."""

    def __init__(self, target: Target, folder: Path, number: int) -> None:
        self.target = target
        self.place = folder / str(number)
        self.worker: Worker | None = None

    def run(self, asked: Batches) -> Done:
        """Run a range; the findings of a process that died or hung are those of the batch it was at.

        Raises:
            SubjectError: the subject cannot be started any more.
        """
        worker = self._living()
        try:
            answer = worker.call(asked, self.target.timeout + asked.seconds + EXTRA_SECONDS)  # type: ignore[arg-type]
        except SubjectFailure as failure:
            return self._died(asked, failure)
        if isinstance(answer, ErrorAnswer):
            return Done(done=asked.count, counts=Counts(unsupported=1), forms={})
        assert isinstance(answer, Done)
        if any(found.verdict is Verdict.DEVICE_ERROR for found in answer.findings):
            worker.close()  # nothing more can be asked of its context
        return answer

    def _died(self, asked: Batches, failure: SubjectFailure) -> Done:
        """What the batch it was at has come to. The counts of those before it in the range went with the process."""
        index = max(asked.first, PLACE.unpack(self.place.read_bytes())[0])
        finding = failure_finding(failure, 0)
        return Done(done=index - asked.first + 1, counts=Counts(), forms={}, findings=(finding,))

    def _living(self) -> Worker:
        if self.worker is None or not self.worker.alive:
            self.place.write_bytes(PLACE.pack(-1))
            module = "inputmeta.conformance.wide.serve"
            arguments = (self.target.subject, str(self.place))
            self.worker = self.target.start_python(module, *arguments, wire=WIDE, env=ONE_THREAD)
            self.worker.hello()
        return self.worker

    def strike(self) -> None:
        """End the process from another thread."""
        worker = self.worker
        if worker is not None:
            worker.strike()

    def close(self) -> None:
        """End the process."""
        if self.worker is not None:
            self.worker.close()


@dataclass
class Share:
    """The batches that are still to be run, handed out in ranges to several threads."""

    wide: Wide
    first: int
    count: int
    end: float
    ends: Ends
    stopped: bool = False
    """Whether nothing at all is to be run any more."""
    last: float = math.inf
    """The first batch that ended the run. Those before it are run all the same: a seed ends at the same batch."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> Batches | None:
        """The next range; None when there is none, or time is up."""
        with self.lock:
            if self.last < math.inf or self.count <= 0:
                return None
            asked = self._range(self.first, min(RANGE, self.count))
            if asked is not None:
                self.first += asked.count
                self.count -= asked.count
            return asked

    def _range(self, first: int, count: int) -> Batches | None:
        """A range, as far as it is to be run at all."""
        count = int(min(count, self.last - first))
        left = self.end - time.monotonic()
        if self.stopped or count <= 0 or left <= 0:
            return None
        return Batches(
            seed=self.wide.seed, first=first, count=count, seconds=min(RANGE_SECONDS, left), paths=self.wide.paths
        )

    def took(self, asked: Batches, done: Done) -> Batches | None:
        """Count what was run of a range; what is left of it, unless that is to be run no more."""
        with self.lock:
            if self.stopped:
                return None
            after = asked.first + done.done
            hung = any(found.verdict is Verdict.HANG for found in done.findings)
            self.wide.late += hung
            self.wide.counts += done.counts
            self.wide.forms.update(done.forms)
            if done.findings and not hung:
                self.wide.found.append(Found(after - 1, "", done.findings))
                if self.ends(done.findings):
                    self.last = min(self.last, after - 1)
            return self._range(after, asked.count - done.done)


def run_wide(
    target: Target,
    subject: Subject,
    paths: tuple[str, ...],
    seed: int,
    *,
    first: int = 0,
    count: int | None = None,
    seconds: float | None = None,
    ends: Ends = bool,
    workers: int | None = None,
) -> Wide:
    """Run batches ``first`` … of a seed: ``count`` of them (None: as many as there is time for), to what ``ends`` it.

    A Python subject of a worker has processes with the loop in them: ``workers``, by default a core each, on a GPU
    :data:`GPU_WORKERS`. Any other, ``subject``, is asked from here.

    Raises:
        Interrupted: the run is to end; nothing had been found.
    """
    wide = Wide(seed, paths)
    begin = time.monotonic()
    end = math.inf if seconds is None else begin + seconds
    share = Share(wide, first, 2**62 if count is None else count, end, ends)
    if target.in_process or target.command is not None:
        ask_here(share, subject)
    else:
        most = workers or (min(GPU_WORKERS, cores()) if subject.capabilities.devices - {"cpu"} else cores())
        wide.workers = min(most, -(-share.count // RANGE))
        ask_processes(share, target)
    wide.seconds = time.monotonic() - begin
    wide.found = sorted((each for each in wide.found if each.index <= share.last), key=lambda each: each.index)
    for index, found in enumerate(wide.found):
        batch = draw_batch(Claims(subject.capabilities, paths), seed, found.index)  # type: ignore[arg-type]
        told = tuple(each.on_path(batch.steps[0].path) for each in found.findings)
        wide.found[index] = Found(found.index, batch.form, told)
    return wide


def ask_here(share: Share, subject: Subject) -> None:
    """Run the loop in this thread."""
    asked = share.take()
    while asked is not None:
        try:
            done = run_batches(subject, asked)
        except SubjectError as error:
            share.wide.lost = error
            return
        except Interrupted:
            return
        asked = share.took(asked, done) or share.take()


def ask_processes(share: Share, target: Target) -> None:
    """Run the loop in processes, a thread to each; a signal ends them."""
    with tempfile.TemporaryDirectory(prefix="inputmeta-wide-") as folder:
        loops = [Loop(target, Path(folder), number) for number in range(share.wide.workers)]

        def work(loop: Loop) -> None:
            try:
                asked = share.take()
                while asked is not None:
                    asked = share.took(asked, loop.run(asked)) or share.take()
            except SubjectError as error:
                with share.lock:
                    share.wide.lost = None if share.stopped else error  # a signal struck it
                    share.stopped = True
            finally:
                loop.close()

        threads = [threading.Thread(target=work, args=(loop,), daemon=True) for loop in loops]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if noted() is not None:
                with share.lock:
                    share.stopped = True
                for loop in loops:
                    loop.strike()
            time.sleep(LOOK_SECONDS)
        for thread in threads:
            thread.join()
