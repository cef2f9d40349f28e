"""Programs that break the protocol where no batch is built, which no mutant does: ``python wrong_program.py KIND``.

``none`` keeps to it.
"""

from __future__ import annotations

import sys
import time

import msgspec

from inputmeta.conformance.protocol import messages as wire
from inputmeta.conformance.protocol.codec import ProtocolError, decode_frame, encode, read_frame
from inputmeta.conformance.protocol.serve import Server
from inputmeta.conformance.subjects.oracle import OracleSubject


def main(kind: str) -> int:
    server = Server(OracleSubject())
    while (body := read_frame(sys.stdin.buffer)) is not None:
        try:
            answer = server.answer(decode_frame(body, "suite"))
        except ProtocolError as error:
            if kind == "dies-of-an-invalid-message":
                return 9
            answer = wire.ErrorAnswer(id=-1, kind="message", message=str(error))
            if kind == "takes-an-invalid-message-for-a-batch":
                answer = wire.Reject(id=-1, condition="P-LEN", sequence=None, field="sequences", message="what?")
        if answer is None:
            break
        if kind == "greets-in-text":
            sys.stdout.buffer.write(b"Welcome to the builder!\n")
        if kind == "speaks-another-protocol" and isinstance(answer, wire.HelloAnswer):
            answer = msgspec.structs.replace(answer, protocol=99)
        if kind == "claims-an-unknown-refusal" and isinstance(answer, wire.HelloAnswer):
            claims = msgspec.structs.replace(answer.capabilities, refuses=("P-LENGTH",))
            answer = msgspec.structs.replace(answer, capabilities=claims)
        sys.stdout.buffer.write(encode(answer))
        sys.stdout.buffer.flush()
    if kind == "stays-after-bye":
        time.sleep(60)
    return 1 if kind == "fails-after-bye" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
