"""Resident memory of a process and its descendants, from /proc. Where there is no /proc, nothing is seen."""

from __future__ import annotations

import os
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
MAX_PROCESSES = 200
"""Descendants that are looked at: a fork bomb must not hold up the watch."""


def resident_bytes(pid: int) -> int:
    """Bytes of resident memory of ``pid`` and its descendants; 0 for what is gone."""
    total = 0
    waiting, seen = [pid], 0
    while waiting and seen < MAX_PROCESSES:
        current = waiting.pop()
        seen += 1
        total += _resident(current)
        waiting += _children(current)
    return total


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        for thread in threads:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found
