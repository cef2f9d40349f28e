"""The example program, except that something happens to it at a placeholder: ``python -I -S dying_program.py HOW``.

For tests that go through many deaths: without numpy a worker starts in a tenth of the time.
"""

import os
import runpy
import signal
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "json_program.py"
BLOCK = 100 * 2**20
"""Bytes that a parent shares with its children."""
kept: list[bytearray] = []


def dies() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs() -> None:
    time.sleep(3600)


def leaves_a_child() -> None:
    """A data loader that was forked holds the pipes open for as long as it lives."""
    if os.fork() == 0:
        hangs()
    dies()


def ends_slowly() -> None:
    """Closing a device takes its time, after the pipes are closed."""
    os.close(1)
    time.sleep(1.5)
    os._exit(3)


def ends_loudly() -> None:
    """A trace of everything on the way out: more than a pipe holds."""
    os.close(1)
    os.write(2, b"x" * 4 * 2**20)
    os._exit(3)


def forks(touch: bool = False) -> None:
    """Three children with all the pages of their parent, or with pages of their own."""
    memory = bytearray(b"x") * BLOCK
    kept.append(memory)
    reader, writer = os.pipe()
    for _ in range(3):
        if os.fork() == 0:
            if touch:
                memory[::4096] = b"y" * len(memory[::4096])
            os.write(writer, b".")
            hangs()
    for _ in range(3):
        os.read(reader, 1)
    time.sleep(0.7)  # while the suite looks


def forks_and_writes() -> None:
    forks(touch=True)


def main(how: str) -> None:
    program = runpy.run_path(str(EXAMPLE))
    names = program["main"].__globals__
    right = names["build"]

    def build(config, sequences):
        if any(sequence["is_placeholder"] for sequence in sequences):
            globals()[how.replace("-", "_")]()
        return right(config, sequences)

    names["build"] = build
    names["main"]()


if __name__ == "__main__":
    main(sys.argv[1])
