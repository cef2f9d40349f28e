"""The mutants of :mod:`inputmeta.conformance.mutants.wire` as programs: ``python -m
inputmeta.conformance.mutants.programs NAME``.
"""

from __future__ import annotations

import sys

from inputmeta.conformance.mutants.wire import SPOILS, spoilt
from inputmeta.conformance.protocol.codec import decode_frame, encode, read_frame
from inputmeta.conformance.protocol.messages import Build
from inputmeta.conformance.protocol.serve import Server
from inputmeta.conformance.subjects.oracle import OracleSubject


def run(name: str) -> None:
    """Answer until ``bye`` or the end of the input; the answers that the mutant spoils are spoilt."""
    server = Server(OracleSubject(name=f"mutant {name}"))
    while (body := read_frame(sys.stdin.buffer)) is not None:
        message = decode_frame(body, "suite")
        answer = server.answer(message)
        if answer is None:
            return
        data = encode(answer)
        sys.stdout.buffer.write(spoilt(name, data, message) if isinstance(message, Build) else data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in SPOILS:
        sys.exit(f"usage: python -m inputmeta.conformance.mutants.programs NAME, one of {', '.join(SPOILS)}")
    run(sys.argv[1])
