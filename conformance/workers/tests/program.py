"""Programs that break the wire: ``python program.py MODE`` says hello, then answers every batch in one wrong way."""

import os
import sys
import time

from inputmeta.conformance.protocol.codec import HEADER, decode_frame, encode, read_frame
from inputmeta.conformance.protocol.convert import claims_message, reject_message, request_of, result_message
from inputmeta.conformance.protocol.messages import VERSION, Build, Bye, Hello, HelloAnswer, Reject, ResultAnswer
from inputmeta.conformance.subjects import Rejection
from inputmeta.conformance.subjects.oracle import OracleSubject

SUBJECT = OracleSubject()


def hello(protocol: int) -> bytes:
    claims = claims_message(SUBJECT.capabilities)
    return encode(HelloAnswer(protocol=protocol, name="program", version="1", capabilities=claims))


def main(mode: str) -> None:
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    while (body := read_frame(sys.stdin.buffer)) is not None:
        message = decode_frame(body, "suite")
        if isinstance(message, Hello):
            right = hello(99 if mode == "protocol" else VERSION)
            out.write(b"Welcome to the builder!\n" if mode == "greets" else right)
        if isinstance(message, Bye):
            return
        if isinstance(message, Build):
            answer(mode, message, encode(right_answer(message)), out)


def right_answer(message: Build) -> ResultAnswer | Reject:
    request = request_of(message)
    try:
        return result_message(SUBJECT.build(request), request.out, message.id)
    except Rejection as rejection:
        return reject_message(rejection, request.out, message.id)


def answer(mode: str, message: Build, right: bytes, out) -> None:
    if mode == "text":
        out.write(b"Segment 1 of 4 done\n")
    elif mode == "noise":
        out.write(HEADER.pack(7) + b"\xff" * 7)
    elif mode == "oversized":
        out.write(HEADER.pack(2**29 + 1) + b"\0" * 100)
    elif mode == "id":
        out.write(encode(ResultAnswer(id=message.id - 1, fields={})))
    elif mode == "hello":
        out.write(
            encode(
                HelloAnswer(
                    protocol=VERSION, name="x", version="", capabilities=claims_message(OracleSubject().capabilities)
                )
            )
        )
    elif mode == "middle":
        out.write(right[: len(right) // 2])
        os._exit(7)
    elif mode == "closes":
        out.close()
        os.close(1)
        time.sleep(3600)
    elif mode == "deaf":
        time.sleep(3600)
    elif mode == "twice":
        out.write(right + right)
    elif mode == "chatty":
        out.write(right)
        time.sleep(0.05)
        out.write(b"and that was that\n")
    else:
        out.write(right)


if __name__ == "__main__":
    main(sys.argv[1])
