"""The mutants of :mod:`inputmeta.conformance.mutants.wire` as programs: ``python -m
inputmeta.conformance.mutants.programs NAME``.
"""

from __future__ import annotations

import sys

import msgspec

from inputmeta.conformance.mutants.wire import PROGRAMS, READS, SHARING, spoilt
from inputmeta.conformance.protocol.codec import decode_frame, encode, read_frame
from inputmeta.conformance.protocol.messages import Build
from inputmeta.conformance.protocol.serve import Server
from inputmeta.conformance.subjects.oracle import OracleSubject


def run(name: str) -> None:
    """Answer until ``bye`` or the end of the input; what the mutant misreads or spoils is wrong."""
    server = Server(OracleSubject(name=f"mutant {name}"))
    if name in SHARING:
        server.hello = msgspec.structs.replace(server.hello, shared_memory=0)
    while (body := read_frame(sys.stdin.buffer)) is not None:
        message = decode_frame(body, "suite")
        read = READS[name](message) if name in READS and isinstance(message, Build) else message
        answer = server.answer(read)
        if answer is None:
            return
        data = encode(answer)
        sys.stdout.buffer.write(spoilt(name, data, message) if isinstance(message, Build) else data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in PROGRAMS:
        sys.exit(f"usage: python -m inputmeta.conformance.mutants.programs NAME, one of {', '.join(PROGRAMS)}")
    run(sys.argv[1])
