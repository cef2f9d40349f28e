"""Memory of a process and its descendants.

A page that several processes share (a forked child shares nearly all) counts once: each has its proportional share of
it (PSS). The kernel walks all pages for that number, which takes milliseconds. So it is asked for only where the
resident sizes, which are never less, add up to more than is allowed.
"""

from __future__ import annotations

import os

import psutil

MAX_PROCESSES = 200
"""Descendants that are looked at: a fork bomb must not hold up the watch."""


def bytes_beyond(pid: int, limit: int) -> int | None:
    """Bytes of memory of ``pid`` and its descendants, shared pages counted once, if more than ``limit``; else None."""
    tree = descent(pid)
    if sum(map(resident_bytes, tree)) <= limit:
        return None
    used = sum(map(proportional_bytes, tree))
    return used if used > limit else None


def descent(pid: int) -> list[int]:
    """The process and its descendants, the nearest first.

    By the kernel's own list: psutil reads every process of the machine for it, a hundred times as long.
    """
    found = [pid]
    for parent in found:
        found += _children(parent)
        if len(found) >= MAX_PROCESSES:
            break
    return found[:MAX_PROCESSES]


def resident_bytes(pid: int) -> int:
    """Bytes of resident memory of one process, what it shares included; 0 if it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def proportional_bytes(pid: int) -> int:
    """Bytes of one process, with its share of what it shares; its resident memory where that may not be read."""
    try:
        return int(psutil.Process(pid).memory_full_info().pss)
    except psutil.Error:
        return resident_bytes(pid)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found
