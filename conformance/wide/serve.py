"""The wide loop as a process, for a Python subject: ``python -m inputmeta.conformance.wide.serve SUBJECT PLACE``.

The subject lives here and nothing of a batch crosses a pipe: a seed and a range come in, counts or findings go out. The
index of the batch that is run stands in the file PLACE, where the parent finds it if this process dies.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import BinaryIO, cast

from inputmeta.conformance.cases.model import Path
from inputmeta.conformance.check.verdicts import Finding
from inputmeta.conformance.protocol import messages as wire
from inputmeta.conformance.protocol.codec import read_frame
from inputmeta.conformance.protocol.convert import hello_answer
from inputmeta.conformance.protocol.serve import loaded
from inputmeta.conformance.subjects.base import Subject
from inputmeta.conformance.wide.forms import Claims
from inputmeta.conformance.wide.loop import Counts, run_batch
from inputmeta.conformance.wide.messages import Batches, Done, framed, from_parent

PLACE = struct.Struct("<q")
"""The index of the batch that is run, int64; -1 before the first."""


def run_batches(subject: Subject, asked: Batches, begins: Callable[[int], object] = lambda _: None) -> Done:
    """Run a range of batches to its end, or to the first one with findings; ``begins`` is told each index."""
    claims = Claims(subject.capabilities, cast("tuple[Path, ...]", asked.paths))
    end = time.monotonic() + asked.seconds
    counts, forms = Counts(), Counter[str]()
    findings: tuple[Finding, ...] = ()
    done = 0
    while done < asked.count and not findings and (not done or time.monotonic() < end):
        begins(asked.first + done)
        ran = run_batch(subject, claims, asked.seed, asked.first + done)
        counts += ran.counts
        forms[ran.form] += ran.counts.batches
        findings = ran.findings
        done += 1
    return Done(done=done, counts=counts, forms=dict(forms), findings=findings)


def serve(subject: Subject, source: BinaryIO, sink: BinaryIO, place: mmap.mmap) -> None:
    """Answer the parent until ``bye`` or the end of ``source``."""

    def begins(index: int) -> None:
        place[: PLACE.size] = PLACE.pack(index)

    while (body := read_frame(source)) is not None:
        message = from_parent(body)
        if isinstance(message, wire.Bye):
            return
        answer: object
        if isinstance(message, wire.Hello):
            answer = hello_answer(subject)
        else:
            try:
                answer = run_batches(subject, message, begins)
            except MemoryError:  # the subject's own is a finding
                answer = wire.ErrorAnswer(id=-1, kind="limit", message="no memory for a wide batch")
        sink.write(framed(answer))
        sink.flush()


def main(arguments: list[str]) -> int:
    """Entry point of the module."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m inputmeta.conformance.wide.serve SUBJECT PLACE\n")
        return 2
    subject, source, sink = loaded(arguments[0])
    with open(arguments[1], "r+b") as file, mmap.mmap(file.fileno(), PLACE.size) as place:
        serve(subject, source, sink, place)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
