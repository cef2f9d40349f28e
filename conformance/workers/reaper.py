"""Workers do not outlive the suite, even if it is killed and they hang.

One small process holds the end of a pipe from the suite. It is told of every worker's process group while it lives;
when the pipe closes, whatever the reason, it kills those that are left.
"""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import os, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, 9)
    except OSError:
        pass
"""


class Reaper:
    """The suite's end. It is started with the first worker; a forked copy of the suite gets one of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def watch(self, group: int) -> None:
        """Kill this process group if the suite ends before :meth:`forget`."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The process group is dead: its number may be another's from now on."""
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        if self._process is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode())
        except OSError:  # somebody killed it: it is a help, not a need
            self._process = None


REAPER = Reaper()
