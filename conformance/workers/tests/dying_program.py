"""The example program, except that it dies or hangs at a placeholder: ``python -I -S dying_program.py dies|hangs``.

For tests that go through many deaths: without numpy a worker starts in a tenth of the time.
"""

import os
import runpy
import signal
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "json_program.py"


def main(how: str) -> None:
    program = runpy.run_path(str(EXAMPLE))
    names = program["main"].__globals__
    right = names["build"]

    def build(config, sequences):
        if any(sequence["is_placeholder"] for sequence in sequences):
            if how == "dies":
                os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(3600)
        return right(config, sequences)

    names["build"] = build
    names["main"]()


if __name__ == "__main__":
    main(sys.argv[1])
