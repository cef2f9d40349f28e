"""Folders of the user's that the suite keeps things in."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/inputmeta``, or the same under ``~/.cache``; it need not be there."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).absolute() / "inputmeta"
