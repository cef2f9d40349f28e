"""How much memory an allocation may still take."""

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Free host memory in bytes: what the system can give, and no more than the control group's limit leaves."""
    return min(_system_bytes(), _cgroup_bytes())


def _system_bytes() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_bytes() -> int:
    """What the group's limit leaves; cached file pages that can be dropped count as free."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        if limit == "max":
            return 2**63
        used = int((_CGROUP / "memory.current").read_text())
        statistics = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except OSError:
        return 2**63
    return max(0, int(limit) - used + int(statistics.get("inactive_file", 0)))
